/* SPDX-License-Identifier: Apache-2.0
 *
 * The shortest complete trainer: fits y = 3x - 1 to made data. Start a server, then this:
 *
 *     gradslot serve --listen shm:demo &
 *     shortest shm:demo
 */
#include <gradslot/gradslot.h>

#include <stdio.h>
#include <stdlib.h>

static void check(int rc)
{
	if (rc < 0) {
		fprintf(stderr, "%s\n", gs_last_error());
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct gs_options opt = GS_OPTIONS_INIT;
	struct gs_param_desc desc = GS_PARAM_DESC_INIT;
	gs_trainer *t;
	gs_param *p;

	opt.uri = argc > 1 ? argv[1] : "shm:demo";
	check(gs_connect(&opt, &t));
	desc.name = "line";
	desc.ndim = 1;
	desc.shape[0] = 2;
	gs_setting(&desc, "lr", 0.5);
	check(gs_declare(t, &desc, &p));
	check(gs_start(t));

	struct gs_info info;
	gs_get_info(t, &info);
	for (int step = 1; step <= 100; step++) {
		float w[2], grad[2] = {0, 0}, loss = 0;

		check(gs_pull(t, p, GS_RELAXED, w));
		for (int i = 0; i < 64; i++) {
			float x = (float)rand() / (float)RAND_MAX * 2 - 1;
			float off = w[0] * x + w[1] - (3 * x - 1);

			loss += off * off / 64;
			grad[0] += 2 * off * x / 64;
			grad[1] += 2 * off / 64;
		}
		check(gs_push(t, p, grad));
		check(info.mode == GS_SYNC ? gs_step_end(t) : gs_wait_applied(t, p));
		if (step % 20 == 0)
			printf("step %3d  loss %-12.6g y = %.8g x %+.8g\n", step, loss, w[0], w[1]);
	}
	check(gs_leave(t));
	gs_close(t);
	return 0;
}
