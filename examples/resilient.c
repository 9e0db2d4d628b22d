/* SPDX-License-Identifier: Apache-2.0
 *
 * The shortest trainer that survives its server: the line of shortest.c, in steps. Start a server
 * that keeps checkpoints, then this; kill the server at any time, and start it again with the same
 * command line. Each step takes a tenth of a second, so that there is time for that:
 *
 *     gradslot serve --listen shm:demo --checkpoint-dir saved --checkpoint-every 10 &
 *     resilient shm:demo
 *
 * Where the server has made all the steps already, nothing is left to do.
 */
#include <gradslot/gradslot.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void check(int rc)
{
	if (rc < 0) {
		fprintf(stderr, "%s\n", gs_last_error());
		exit(1);
	}
}

/* The gradient at w, of data that step alone chooses: a step that is made again is the same. */
static float gradient(unsigned step, const float w[2], float grad[2])
{
	const struct timespec work = {.tv_nsec = 100000000};
	float loss = 0;

	nanosleep(&work, NULL); /* as a larger model would take */
	grad[0] = grad[1] = 0;
	for (int i = 0; i < 64; i++) {
		float x = (float)((step * 64 + (unsigned)i) * 2654435761u >> 8) / 0x1p23f - 1;
		float off = w[0] * x + w[1] - (3 * x - 1);

		loss += off * off / 64;
		grad[0] += 2 * off * x / 64;
		grad[1] += 2 * off / 64;
	}
	return loss;
}

/* Where one is within a step, so that only what failed is called again. */
enum at { PULL, PUSH, END };

struct work {
	gs_trainer *t;
	gs_param *p;
	enum at at;
	float w[2], grad[2], loss;
};

static int go_on(struct work *k, unsigned step)
{
	int rc = 0;

	if (k->at == PULL) {
		rc = gs_pull(k->t, k->p, GS_RELAXED, k->w);
		if (rc < 0)
			return rc;
		k->loss = gradient(step, k->w, k->grad);
		k->at = PUSH;
	}
	if (k->at == PUSH) {
		rc = gs_push(k->t, k->p, k->grad);
		if (rc < 0)
			return rc;
		k->at = END;
	}
	rc = gs_step_end(k->t);
	if (rc == 0)
		k->at = PULL;
	return rc;
}

int main(int argc, char **argv)
{
	struct gs_options opt = GS_OPTIONS_INIT;
	struct gs_param_desc desc = GS_PARAM_DESC_INIT;
	struct work k = {.at = PULL};
	struct gs_info info;

	opt.uri = argc > 1 ? argv[1] : "shm:demo";
	check(gs_connect(&opt, &k.t));
	desc.name = "line";
	desc.ndim = 1;
	desc.shape[0] = 2;
	gs_setting(&desc, "lr", 0.5);
	check(gs_declare(k.t, &desc, &k.p));
	check(gs_start(k.t));

	gs_get_info(k.t, &info);
	printf("begins with step %u of 100\n", (unsigned)info.step);
	while (info.step <= 100) {
		int rewound, rc = go_on(&k, (unsigned)info.step);

		if (rc == 0) {
			if (info.step % 20 == 0)
				printf("step %3u  loss %-12.6g y = %.8g x %+.8g\n",
				       (unsigned)info.step, k.loss, k.w[0], k.w[1]);
		} else if (rc == -ECONNRESET || rc == -ESHUTDOWN) {
			fprintf(stderr, "%s\n", gs_last_error());
			check(gs_reconnect(k.t, &rewound));
			gs_get_info(k.t, &info);
			fprintf(stderr, "connected again: step %u\n", (unsigned)info.step);
			if (rewound)
				k.at = PULL; /* of the step that the server is in */
		} else {
			check(rc);
		}
		gs_get_info(k.t, &info);
	}
	check(gs_leave(k.t));
	gs_close(k.t);
	return 0;
}
