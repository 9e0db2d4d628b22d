/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot soak-trainer`: a trainer that is killed and comes back, and whose server is. It takes up
 * its rank's work where the server has it, and checks the sums as it goes.
 */
#include "cli/cmd.h"
#include "cli/member.h"
#include "cli/soak_work.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
	CHECK_EVERY = 1000, /* steps */
	REPORT_MS = 10,
	JOIN_TRIES = 200, /* a server may be killed while this one joins, and again */
	JOIN_PAUSE_MS = 20,
};

struct work {
	struct training_member member;
	int64_t steps; /* or pushes of each parameter */
	bool check_only;
	gs_trainer *t;
	gs_param *p[SOAK_PARAMS];
	bool sync;
	uint32_t rank;
	uint64_t at;                /* the step, or push, that is being made */
	unsigned pushed;            /* sync: parameters pushed in it */
	uint64_t made[SOAK_PARAMS]; /* async: pushes */
	struct soak_sums sums;
	float weights[SOAK_PARAMS][SOAK_MAX_ELEMS];
	uint64_t reported;
};

static bool server_lost(int rc)
{
	return rc == -ECONNRESET || rc == -ESHUTDOWN || rc == -ECONNREFUSED;
}

static void report(struct work *w)
{
	uint64_t now = clock_ns();

	if (now - w->reported < REPORT_MS * NS_PER_MS)
		return;
	w->reported = now;
	printf("at %" PRIu64 "\n", w->at);
	fflush(stdout);
}

/* Where the server stands, and what of this rank it has. */
static int take_up(struct work *w)
{
	struct gs_info info;
	int rc = 0;

	gs_get_info(w->t, &info);
	w->sync = info.mode == GS_SYNC;
	w->rank = info.rank;
	w->sums.trainers = info.trainers;
	w->at = info.step;
	w->pushed = 0;
	for (unsigned k = 0; !w->sync && rc == 0 && k < soak_params(false); k++)
		rc = member_rc(gs_pushes(w->t, w->p[k], &w->made[k]));
	return rc;
}

static int connect_once(struct work *w)
{
	struct gs_info info;
	int rc = member_connect(&w->member, "soak", &w->t);

	if (rc < 0)
		return rc;
	gs_get_info(w->t, &info);
	w->sync = info.mode == GS_SYNC;
	for (unsigned k = 0; rc == 0 && k < soak_params(w->sync); k++)
		rc = member_rc(soak_declare(w->t, k, &w->p[k]));
	if (rc == 0)
		rc = member_rc(gs_start(w->t));
	if (rc == 0)
		return take_up(w);
	gs_close(w->t);
	w->t = NULL;
	return rc;
}

/* The server may die meanwhile, or may not know yet that this rank's last process did. */
static int join(struct work *w)
{
	struct timespec pause = {.tv_nsec = JOIN_PAUSE_MS * 1000000};
	int rc = 0;

	for (int i = 0; i < JOIN_TRIES; i++) {
		rc = connect_once(w);
		if (!server_lost(rc) && rc != -EEXIST && rc != -EUSERS)
			return rc;
		nanosleep(&pause, NULL);
	}
	return rc;
}

static int come_back(struct work *w)
{
	int rc, rewound = 0;

	do
		rc = member_rc(gs_reconnect(w->t, &rewound));
	while (server_lost(rc));
	return rc == 0 && rewound ? take_up(w) : rc;
}

static int check(struct work *w, uint64_t n)
{
	soak_sums_to(&w->sums, n);
	int rc = soak_check(w->t, w->p, w->sync, &w->sums, w->weights);
	return rc == -EBADMSG ? rc : member_rc(rc);
}

/* The weights are those of the step before. They need not be where this rank's last process died in
 * the midst of this one: what all have pushed is in them by now. */
static bool untouched(struct work *w)
{
	uint64_t last = 0;

	for (unsigned k = 0; k < SOAK_PARAMS; k++)
		if (gs_pushes(w->t, w->p[k], &last) < 0 || last >= w->at)
			return false;
	return true;
}

/* One step, from where it was left. */
static int make_step(struct work *w)
{
	int rc = 0;

	if (w->pushed == 0 && (w->at - 1) % CHECK_EVERY == 0 && untouched(w))
		rc = check(w, w->at - 1);
	if (rc == 0 && w->pushed == 0)
		rc = member_rc(
		    gs_pull(w->t, w->p[SOAK_MOVING], GS_RELAXED, w->weights[SOAK_MOVING]));
	while (rc == 0 && w->pushed < SOAK_PARAMS) {
		rc = member_rc(soak_push(w->t, w->p[w->pushed], w->pushed, w->rank, w->at,
					 w->weights[SOAK_MOVING]));
		w->pushed += rc == 0;
	}
	if (rc == 0)
		rc = member_rc(gs_step_end(w->t));
	if (rc == 0) {
		w->pushed = 0;
		w->at++;
	}
	return rc;
}

/* A push of whichever parameter is furthest behind. */
static int make_push(struct work *w)
{
	unsigned k = 0;

	for (unsigned i = 1; i < soak_params(false); i++)
		if (w->made[i] < w->made[k])
			k = i;
	w->at = w->made[k] + 1;
	if (w->at > (uint64_t)w->steps)
		return 0;
	int rc = member_rc(soak_push(w->t, w->p[k], k, w->rank, w->at, NULL));
	w->made[k] += rc == 0;
	return rc;
}

static int end_pushes(struct work *w)
{
	int rc = 0;

	for (unsigned k = 0; !w->sync && rc == 0 && k < soak_params(false); k++)
		rc = member_rc(gs_wait_applied(w->t, w->p[k]));
	return rc;
}

static int work(struct work *w)
{
	int rc = 0;

	w->at = w->sync ? w->at : 1;
	while (w->at <= (uint64_t)w->steps) {
		rc = w->sync ? make_step(w) : make_push(w);
		if (server_lost(rc))
			rc = come_back(w);
		if (rc < 0)
			return rc;
		report(w);
	}
	return end_pushes(w);
}

static int look(struct work *w)
{
	int rc = check(w, (uint64_t)w->steps);

	if (rc == 0)
		printf("checksum %016" PRIx64 "\n", soak_checksum(w->sync, w->weights));
	return rc;
}

/* A server that dies while this one leaves may have forgotten the end: then it is made again. */
static int run(struct work *w)
{
	int rc = join(w);

	while (rc == 0) {
		rc = w->check_only ? look(w) : work(w);
		if (rc < 0)
			break;
		rc = member_rc(gs_leave(w->t));
		if (!server_lost(rc))
			break;
		gs_close(w->t);
		w->t = NULL;
		rc = join(w);
	}
	gs_close(w->t);
	return rc;
}

int cmd_soak_trainer(int argc, char **argv)
{
	static struct work w;
	const struct opt opts[] = {
	    TRAINING_MEMBER_LINES(w.member),
	    {"steps", OPT_NUMBER, &w.steps, "N", "to make, in all", .min = 1, .max = INT64_MAX},
	    {"check-only", OPT_FLAG, &w.check_only, NULL, .help = "compare the sums and leave"},
	    {NULL},
	};
	const struct opt_command cmd = {"gradslot soak-trainer", "One trainer of a soak.", NULL,
					opts};

	w.member = training_member_default();
	w.steps = 1;
	int rc = opt_parse(&cmd, argc, argv);
	if (rc != OPT_RUN)
		return rc;
	rc = run(&w);
	if (rc < 0)
		log_error("trainer %" PRId64 ": %s", w.member.rank, err_text());
	return rc < 0 ? EXIT_FAILED : EXIT_OK;
}
