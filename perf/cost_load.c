/* SPDX-License-Identifier: Apache-2.0
 *
 * The load of perf/cost: many trainers in one process, one thread, so that a server can be given any
 * number of them on a small machine. Each step every active trainer pushes every block; then all wait.
 *
 *   perf_cost_load URI TRAINERS ACTIVE BLOCKS BLOCK_BYTES STEPS sync|async
 *
 * Prints how many gradients (of blocks) that were. Those that are not active are connected and do
 * nothing, which in sync mode nobody may do.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradslot/gradslot.h"

struct load {
	const char *uri;
	unsigned trainers, active, blocks, steps;
	size_t block_bytes;
	int sync;
	gs_trainer **trainer;
	gs_param **param;
	float *grad;
};

static int join(struct load *l, unsigned i)
{
	struct gs_options opt = GS_OPTIONS_INIT;
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	opt.uri = l->uri;
	opt.name = "cost";
	opt.rank = (int32_t)i;
	opt.spin_us = 0;
	d.name = "cost";
	d.ndim = 1;
	d.shape[0] = l->blocks * l->block_bytes / sizeof(float);
	d.optimizer = "sgd";
	gs_setting(&d, "lr", 0x1p-10);
	int rc = gs_connect(&opt, &l->trainer[i]);
	return rc < 0 ? rc : gs_declare(l->trainer[i], &d, &l->param[i]);
}

/* In sync mode a start ends when all have come: a thread for each. */
static void *start(void *trainer)
{
	return gs_start(trainer) < 0 ? strdup(gs_last_error()) : NULL;
}

static int start_all(struct load *l)
{
	pthread_t *thread = calloc(l->trainers, sizeof(*thread));
	unsigned n = 0;
	int rc = 0;

	while (thread && n < l->trainers &&
	       pthread_create(&thread[n], NULL, start, l->trainer[n]) == 0)
		n++;
	if (n < l->trainers)
		rc = -ENOMEM;
	while (n-- > 0) {
		void *text;

		pthread_join(thread[n], &text);
		if (text) {
			fprintf(stderr, "trainer %u: %s\n", n, (char *)text);
			rc = -EIO;
		}
		free(text);
	}
	free(thread);
	return rc;
}

static int step(struct load *l)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < l->active; i++) {
		rc = gs_push(l->trainer[i], l->param[i], l->grad);
		if (rc == 0 && l->sync)
			rc = gs_step_post(l->trainer[i]);
	}
	for (unsigned i = 0; rc == 0 && i < l->active; i++)
		rc = l->sync ? gs_step_wait(l->trainer[i])
			     : gs_wait_applied(l->trainer[i], l->param[i]);
	return rc;
}

static int run(struct load *l)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < l->trainers; i++)
		rc = join(l, i);
	if (rc == 0)
		rc = start_all(l);
	for (unsigned k = 0; rc == 0 && k < l->steps; k++)
		rc = step(l);
	if (rc < 0)
		fprintf(stderr, "perf_cost_load: %s\n", gs_last_error());
	for (unsigned i = 0; i < l->trainers && l->trainer[i]; i++) {
		if (rc == 0)
			rc = gs_leave(l->trainer[i]);
		gs_close(l->trainer[i]);
	}
	return rc;
}

static int make(struct load *l)
{
	l->trainer = calloc(l->trainers, sizeof(gs_trainer *));
	l->param = calloc(l->trainers, sizeof(gs_param *));
	l->grad = calloc(l->blocks, l->block_bytes);
	return l->trainer && l->param && l->grad ? 0 : -ENOMEM;
}

static unsigned number(const char *text)
{
	return (unsigned)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
	struct load l = {0};

	if (argc != 8) {
		fprintf(stderr, "Usage: perf_cost_load URI TRAINERS ACTIVE BLOCKS BLOCK_BYTES STEPS "
				"sync|async\n");
		return 2;
	}
	l.uri = argv[1];
	l.trainers = number(argv[2]);
	l.active = number(argv[3]);
	l.blocks = number(argv[4]);
	l.block_bytes = number(argv[5]);
	l.steps = number(argv[6]);
	l.sync = strcmp(argv[7], "sync") == 0;
	int rc = make(&l);

	if (rc == 0)
		rc = run(&l);
	if (rc == 0)
		printf("%llu\n", (unsigned long long)l.active * l.blocks * l.steps);
	free(l.grad);
	free(l.param);
	free(l.trainer);
	return rc < 0;
}
