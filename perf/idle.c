/* SPDX-License-Identifier: Apache-2.0
 *
 * perf_idle URI: a trainer that takes a step, says so with a line, and then does nothing until its
 * stdin ends. What its server uses meanwhile is what an idle server uses.
 */
#include <gradslot/gradslot.h>

#include <stdio.h>
#include <stdlib.h>

static void check(int rc)
{
	if (rc < 0) {
		fprintf(stderr, "perf_idle: %s\n", gs_last_error());
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct gs_options opt = GS_OPTIONS_INIT;
	struct gs_param_desc desc = GS_PARAM_DESC_INIT;
	static float grad[1024];
	gs_trainer *t;
	gs_param *p;

	if (argc != 2) {
		fprintf(stderr, "usage: perf_idle URI\n");
		return 2;
	}
	opt.uri = argv[1];
	check(gs_connect(&opt, &t));
	desc.name = "idle";
	desc.ndim = 1;
	desc.shape[0] = 1024;
	gs_setting(&desc, "lr", 0.5);
	check(gs_declare(t, &desc, &p));
	check(gs_start(t));
	check(gs_push(t, p, grad));
	check(gs_step_end(t));
	puts("idle");
	fflush(stdout);
	while (getchar() != EOF)
		;
	check(gs_leave(t));
	gs_close(t);
	return 0;
}
