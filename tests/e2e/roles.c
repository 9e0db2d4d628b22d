/* SPDX-License-Identifier: Apache-2.0
 *
 * What this program does as a child of a test. All trainers have the parameters of raw_lines, and
 * push ones.
 */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "life.h"

struct work {
	gs_trainer *t;
	gs_param *a, *b;
	float ones[RAW_A_ELEMS], w[RAW_A_ELEMS];
};

static void work_connect(struct work *w, const char *uri, const char *rank)
{
	for (int i = 0; i < RAW_A_ELEMS; i++)
		w->ones[i] = 1;
	w->t = connect_as(uri, atoi(rank));
	w->a = declare_line(w->t, "a", RAW_A_ELEMS, 1, 0);
	w->b = declare_line(w->t, "b", RAW_B_ELEMS, 1, 0);
}

/* URI RANK STAGE: goes through a sync step as far as the stage, and stays there. */
static int trainer(char **arg)
{
	const char *stage = arg[2];
	static struct work w;

	work_connect(&w, arg[0], arg[1]);
	if (strcmp(stage, "talk") == 0)
		say_and_stay("talk");
	ok(gs_start(w.t));
	if (strcmp(stage, "begin") == 0)
		say_and_stay("begin");
	ok(gs_push(w.t, w.a, w.ones));
	if (strcmp(stage, "between") == 0)
		say_and_stay("between");
	ok(gs_push(w.t, w.b, w.ones));
	if (strcmp(stage, "pushed") == 0)
		say_and_stay("pushed");
	ok(gs_step_post(w.t));
	if (strcmp(stage, "posted") == 0)
		say_and_stay("posted");
	say("%s", stage);
	ok(gs_step_wait(w.t));
	for (;;) {
		if (strcmp(stage, "pulling") == 0) {
			ok(gs_pull(w.t, w.a, GS_ORDERED, w.w));
			continue;
		}
		ok(gs_push(w.t, w.a, w.ones));
		ok(gs_push(w.t, w.b, w.ones));
		ok(gs_step_end(w.t));
	}
}

/* URI RANK N: pushes N times in async mode; leaves. 0: for ever. */
static int pusher(char **arg)
{
	long n = atol(arg[2]);
	static struct work w;

	work_connect(&w, arg[0], arg[1]);
	ok(gs_start(w.t));
	say("pushing");
	for (long i = 0; i < n || !n; i++) {
		ok(gs_push(w.t, w.a, w.ones));
		ok(gs_pull(w.t, w.a, i % 2 ? GS_ORDERED : GS_CONSISTENT, w.w));
	}
	leave(w.t);
	return 0;
}

/* URI RANK: has the server answer more than there is room for, and hears none of it. */
static int deaf(char **arg)
{
	struct raw r;

	raw_connect(&r, arg[0], 8);
	raw_hello(&r, atoi(arg[1]));
	raw_expect(&r, WIRE_WELCOME);
	raw_declare(&r, raw_lines, 2);
	raw_take_grant(&r);
	raw_attach(&r, 0);
	raw_expect(&r, WIRE_READY);
	raw_wait_start(&r);
	r.deaf = true;
	/* As many pulls of a block as may be unanswered, should the server take them all. */
	for (uint32_t i = 0; i < 2 * r.blocks + 4 * 4; i++) {
		bool taken = i < 2 * r.blocks
				 ? raw_gradient(&r, i % r.blocks < 4 ? 0 : 1, i % r.blocks % 4,
						i / r.blocks, 0, true)
				 : raw_write(&r, 8, 8, imm_block(IMM_PULL, i % 4, 0, false));

		if (!taken)
			break;
	}
	say_and_stay("deaf");
}

/* URI RANK BLOCKS: is asked for initial weights, and gives so many blocks of them. */
static int giver(char **arg)
{
	struct wire_param p = raw_lines[0];
	struct raw r;

	p.init = WIRE_INIT_TRAINER;
	raw_connect(&r, arg[0], 0);
	raw_hello(&r, atoi(arg[1]));
	raw_expect(&r, WIRE_WELCOME);
	raw_declare(&r, &p, 1);
	raw_take_grant(&r);
	raw_attach(&r, 0);
	must(raw_expect(&r, WIRE_READY).ready.init, "not asked");
	for (uint32_t b = 0; b < (uint32_t)atoi(arg[2]); b++)
		raw_write(&r, r.place[0].slots_off + 1024 * b, 1024,
			  imm_block(IMM_INIT, b, 0, false));
	say_and_stay("asked");
}

/* URI RANK BLOCKS: delivers so many blocks of a gradient that is used whole, and stays. */
static int halfway(char **arg)
{
	struct wire_param p = raw_lines[0];
	struct raw r;

	p.setting[p.n_settings++] = (struct wire_setting){"clip_norm", 1e9};
	raw_join_with(&r, arg[0], atoi(arg[1]), &p, 1);
	raw_wait_start(&r);
	for (uint32_t b = 0; b < (uint32_t)atoi(arg[2]); b++)
		raw_gradient(&r, 0, b, 0, 1000, false);
	say_and_stay("halfway");
}

/* URI RANK MODE STEPS: a life (life.h), which ends when all is pushed, or when it is killed. */
static int living(char **arg)
{
	struct life l = {.uri = arg[0],
			 .mode = (enum srv_mode)atoi(arg[2]),
			 .rank = (uint32_t)atoi(arg[1]),
			 .steps = (uint64_t)atoi(arg[3]),
			 .pause_us = 200};

	say("born");
	life_run(&l);
	return 0;
}

/* URI: writes to the weights that it may only look at. */
static int scribble(char **arg)
{
	gs_trainer *t = connect_as(arg[0], -1);
	gs_param *p = declare_line(t, "w", 7, 1, 3);
	const float *view;

	ok(gs_start(t));
	ok(gs_weights_view(t, p, (const void **)&view));
	signal(SIGSEGV, SIG_DFL); /* no sanitizer's report: it is meant */
	say("writing");
	*(volatile float *)(uintptr_t)view = 99;
	return 0;
}

/* URI MODE TRAINERS: a server, until it is killed. */
static int serve(char **arg)
{
	struct srv_options opt = bed_options((uint32_t)atoi(arg[2]), atoi(arg[1]));
	struct srv *srv;

	opt.listen[0] = arg[0];
	ok(srv_create(&opt, &srv));
	say("uri %s", srv_uri(srv, 0));
	return srv_run(srv);
}

/* URI RANK: forks a child that outlives it for a while, as data loaders may. */
static int forker(char **arg)
{
	static struct work w;

	work_connect(&w, arg[0], arg[1]);
	ok(gs_start(w.t));
	if (fork() == 0) {
		alarm(30);
		for (;;)
			pause();
	}
	say_and_stay("forked");
}

/* URI RANK: forks a child that uses the trainer, then goes on with it. */
static int misuser(char **arg)
{
	static struct work w;
	int status = -1;

	work_connect(&w, arg[0], arg[1]);
	ok(gs_start(w.t));
	pid_t pid = fork();

	if (pid == 0) {
		bool refused = gs_push(w.t, w.a, w.ones) == -EINVAL &&
			       strstr(gs_last_error(), "parent") && gs_leave(w.t) == -EINVAL;

		gs_close(w.t);
		_exit(refused ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	must(status == 0, "the child ended with %d", status);
	ok(gs_push(w.t, w.a, w.ones));
	ok(gs_wait_applied(w.t, w.a));
	leave(w.t);
	return 0;
}

int role_main(const char *role, int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*body)(char **arg);
		int args;
	} roles[] = {
	    {"trainer", trainer, 3}, {"pusher", pusher, 3}, {"deaf", deaf, 2},
	    {"giver", giver, 3},     {"serve", serve, 3},   {"scribble", scribble, 1},
	    {"forker", forker, 2},   {"misuser", misuser, 2}, {"halfway", halfway, 3},
	    {"hostile", hostile_role, 3}, {"living", living, 4},   {"rogue", rogue_role, 2},
	};

	e2e_in_role = true;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		if (strcmp(role, roles[i].name) == 0 && argc == roles[i].args)
			return roles[i].body(argv);
	fprintf(stderr, "no role %s with %d arguments\n", role, argc);
	return 2;
}
