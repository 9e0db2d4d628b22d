/* SPDX-License-Identifier: Apache-2.0
 *
 * Machines that are gone and nobody says so (`freeze peer`): nothing comes from them and nothing reaches
 * them, and no connection ends. The server notices a trainer, a trainer notices the server, within
 * keepalive_ms each; the others go on, and whoever was cut off comes back, with each gradient counted
 * once.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "faults.h"
#include "gradslot/gradslot.h"
#include "run.h"
#include "server/server.h"

enum { ELEMS = 600, STEPS = 30, TRAINERS = 2, KEEPALIVE_MS = 300, LATE_MS = 3000 };

extern char **environ;

/* ---- the server: a process of its own, under a script ------------------------------------------ */

static struct srv *srv;

static void stop(int signal)
{
	(void)signal;
	srv_stop(srv);
}

static int role_serve(char **arg)
{
	struct srv_options opt = srv_options_default();
	struct srv_stats st;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	opt.listen[0] = arg[0];
	opt.n_listen = 1;
	opt.mode = (enum srv_mode)atoi(arg[1]);
	opt.staleness = opt.mode == SRV_SSP ? 2 : 0;
	opt.on_loss = (enum srv_loss)atoi(arg[2]);
	opt.trainers = TRAINERS;
	opt.block_kib = 1;
	opt.insecure = true;
	opt.keepalive_ms = KEEPALIVE_MS;
	if (srv_create(&opt, &srv) < 0)
		return 1;
	signal(SIGTERM, stop);
	puts("ready");
	fflush(stdout);
	if (srv_run(srv) < 0)
		return 1;
	srv_get_stats(srv, &st);
	printf("silent %d lost %d rejoined %d given_up %d violations %d\n", (int)st.silent,
	       (int)st.lost, (int)st.rejoined, (int)st.given_up, (int)st.violations);
	srv_destroy(srv);
	return 0;
}

struct server {
	char uri[64], told[128]; /* at its end */
	pid_t pid;
	FILE *out;
};

static void serve(struct server *s, enum srv_mode mode, enum srv_loss on_loss, const char *script)
{
	char modes[8], losses[8], word[16];
	const char *const argv[] = {"faults_silence", "serve", s->uri, modes, losses, NULL};
	posix_spawn_file_actions_t actions;
	int fd[2];

	snprintf(s->uri, sizeof(s->uri), "shm:silence-%d", (int)getpid());
	snprintf(modes, sizeof(modes), "%d", (int)mode);
	snprintf(losses, sizeof(losses), "%d", (int)on_loss);
	ck_assert_int_eq(pipe(fd), 0);
	ck_assert_int_eq(setenv("GS_FAULTS", script, 1), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fd[1], STDOUT_FILENO);
	posix_spawn_file_actions_addclose(&actions, fd[0]);
	ck_assert_int_eq(posix_spawn(&s->pid, "/proc/self/exe", &actions, NULL,
				     (char *const *)(uintptr_t)argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	unsetenv("GS_FAULTS");
	close(fd[1]);
	s->out = fdopen(fd[0], "r");
	ck_assert_msg(fgets(word, sizeof(word), s->out) != NULL, "the server did not start");
}

static void served(struct server *s)
{
	int status;

	kill(s->pid, SIGTERM);
	ck_assert_msg(fgets(s->told, sizeof(s->told), s->out) != NULL, "the server is gone");
	ck_assert_int_eq(waitpid(s->pid, &status, 0), s->pid);
	ck_assert_int_eq(status, 0);
	fclose(s->out);
}

/* ---- trainers ---------------------------------------------------------------------------------- */

struct trainer {
	struct server *server;
	enum srv_mode mode;
	int32_t rank;
	int lost, rewound;
	uint64_t longest; /* call, ns */
	char text[256];   /* of the loss */
	float seen[ELEMS];
	pthread_t thread;
};

static void come_back(struct trainer *tr, gs_trainer *t, int rc)
{
	int rewound = 7;

	ck_assert_msg(rc == -ECONNRESET, "rank %d: %d: %s", tr->rank, rc, gs_last_error());
	snprintf(tr->text, sizeof(tr->text), "%s", gs_last_error());
	tr->lost++;
	rc = gs_reconnect(t, &rewound);
	ck_assert_msg(rc == 0, "rank %d: gs_reconnect: %d: %s", tr->rank, rc, gs_last_error());
	tr->rewound += rewound;
}

#define SURELY(call)                                                             \
	do {                                                                     \
		uint64_t begun = clock_ns();                                     \
		int surely_rc = (call);                                          \
		if (clock_ns() - begun > tr->longest)                            \
			tr->longest = clock_ns() - begun;                        \
		if (surely_rc == 0)                                              \
			break;                                                   \
		come_back(tr, t, surely_rc);                                     \
		if (tr->rewound)                                                 \
			return false;                                            \
	} while (true)

/* False: it has to look where it is. */
static bool make_step(struct trainer *tr, gs_trainer *t, gs_param *p)
{
	static const float grad[ELEMS] = {[0 ... ELEMS - 1] = 1};

	SURELY(gs_push(t, p, grad));
	if (tr->mode != SRV_ASYNC)
		SURELY(gs_step_end(t));
	else
		SURELY(gs_wait_applied(t, p));
	return true;
}

static void *train(void *arg)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	struct gs_options opt = GS_OPTIONS_INIT;
	struct trainer *tr = arg;
	gs_trainer *t;
	gs_param *p;

	opt.uri = tr->server->uri;
	opt.rank = tr->rank;
	opt.keepalive_ms = KEEPALIVE_MS;
	d.name = "w";
	d.ndim = 1;
	d.shape[0] = ELEMS;
	gs_setting(&d, "lr", 1);
	ck_assert_msg(gs_connect(&opt, &t) == 0 && gs_declare(t, &d, &p) == 0 && gs_start(t) == 0,
		      "%s", gs_last_error());
	for (int step = 0; step < STEPS; step++)
		if (!make_step(tr, t, p)) {
			struct gs_info info;

			gs_get_info(t, &info);
			step = (int)info.step - 2;
			tr->rewound = 0;
		}
	ck_assert_msg(gs_pull(t, p, GS_ORDERED, tr->seen) == 0, "%s", gs_last_error());
	ck_assert_msg(gs_leave(t) == 0, "%s", gs_last_error());
	gs_close(t);
	return NULL;
}

static void train_all(struct trainer tr[TRAINERS], struct server *s, enum srv_mode mode)
{
	for (int i = 0; i < TRAINERS; i++) {
		tr[i] = (struct trainer){.server = s, .mode = mode, .rank = i};
		ck_assert_int_eq(pthread_create(&tr[i].thread, NULL, train, &tr[i]), 0);
	}
	for (int i = 0; i < TRAINERS; i++)
		pthread_join(tr[i].thread, NULL);
}

/* One was cut off once, and in time. */
static const struct trainer *who_was_lost(const struct trainer tr[TRAINERS])
{
	ck_assert_int_eq(tr[0].lost + tr[1].lost, 1);
	for (int i = 0; i < TRAINERS; i++)
		ck_assert_msg(tr[i].longest < LATE_MS * NS_PER_MS, "trainer %d waited for %d ms", i,
			      (int)(tr[i].longest / NS_PER_MS));
	return tr[0].lost ? &tr[0] : &tr[1];
}

static void all_is_in(const struct trainer *last, enum srv_mode mode)
{
	float all = mode == SRV_SYNC ? STEPS : TRAINERS * STEPS;

	for (int i = 0; i < ELEMS; i++)
		ck_assert_msg(last->seen[i] == -all, "element %d is %g instead of %g", i,
			      (double)last->seen[i], (double)-all);
}

/* ---- tests ------------------------------------------------------------------------------------- */

static const char *const moments[] = {"imm n=11", "imm n=14", "imm n=40", "post n=9"};
enum { MOMENTS = sizeof(moments) / sizeof(moments[0]) };

/* The server's end of a connection is deaf, and so is what it writes to. */
START_TEST(a_trainer_is_silent)
{
	const enum srv_mode modes[] = {SRV_SYNC, SRV_SYNC, SRV_ASYNC, SRV_SSP};
	enum srv_loss on_loss = _i % 4 == 1 ? SRV_LOSS_CONTINUE : SRV_LOSS_WAIT;
	enum srv_mode mode = modes[_i % 4];
	struct trainer tr[TRAINERS];
	struct server s;
	char script[64];

	snprintf(script, sizeof(script), "freeze peer at=%s", moments[_i / 4]);
	serve(&s, mode, on_loss, script);
	train_all(tr, &s, mode);
	served(&s);
	who_was_lost(tr);
	ck_assert_str_eq(s.told, mode == SRV_SYNC && on_loss == SRV_LOSS_CONTINUE
				     ? "silent 1 lost 1 rejoined 1 given_up 1 violations 0\n"
				     : "silent 1 lost 1 rejoined 1 given_up 0 violations 0\n");
	if (mode == SRV_SYNC && on_loss == SRV_LOSS_WAIT)
		all_is_in(&tr[0], mode);
}
END_TEST

/* A trainer's end of its connection is. */
START_TEST(the_server_is_silent)
{
	enum srv_mode mode = (enum srv_mode)(1 + _i % 3);
	const struct trainer *lost;
	struct trainer tr[TRAINERS];
	struct server s;
	char script[64];

	serve(&s, mode, SRV_LOSS_WAIT, "");
	snprintf(script, sizeof(script), "freeze peer at=post-imm n=%d", 9 + 4 * (_i / 3));
	ck_assert_int_eq(faults_set(script), 0);
	train_all(tr, &s, mode);
	served(&s);
	lost = who_was_lost(tr);
	ck_assert_msg(strstr(lost->text, "silent for 300 ms"), "\"%s\"", lost->text);
	ck_assert_str_eq(s.told, "silent 0 lost 1 rejoined 1 given_up 0 violations 0\n");
	if (mode == SRV_SYNC)
		all_is_in(&tr[0], mode);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite;
	TCase *t;

	log_set_level(LOG_ERROR);
	if (argc == 5 && strcmp(argv[1], "serve") == 0)
		return role_serve(argv + 2);
	suite = suite_create("silence");
	t = tcase_create("silence");
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, a_trainer_is_silent, 0, 4 * MOMENTS);
	tcase_add_loop_test(t, the_server_is_silent, 0, 9);
	suite_add_tcase(suite, t);
	return run_all(srunner_create(suite));
}
