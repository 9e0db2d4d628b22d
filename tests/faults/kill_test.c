/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that are killed at named points: a server in every phase of what it does, whose
 * trainers must hear of it soon; and a crowd of trainers all at once, after whom the server serves
 * the next.
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

enum { ELEMS = 600, STEPS = 40, SOON_S = 5, CROWD = 64, PROCESSES = 16, TIMES = 4 };

extern char **environ;

/* ---- processes --------------------------------------------------------------------------------
 */

/* This program again, under a script; its words come through *out. */
static pid_t start(const char *role, const char *uri, const char *script, FILE **out)
{
	const char *const argv[] = {"faults_kill", role, uri, NULL};
	posix_spawn_file_actions_t actions;
	int fd[2];
	pid_t pid;

	ck_assert_int_eq(pipe(fd), 0);
	ck_assert_int_eq(setenv("GS_FAULTS", script, 1), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fd[1], STDOUT_FILENO);
	posix_spawn_file_actions_addclose(&actions, fd[0]);
	int rc = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, (char *const *)(uintptr_t)argv,
			     environ);

	posix_spawn_file_actions_destroy(&actions);
	unsetenv("GS_FAULTS");
	ck_assert_int_eq(rc, 0);
	close(fd[1]);
	*out = fdopen(fd[0], "r");
	return pid;
}

static struct srv_options options(const char *uri, enum srv_mode mode, uint32_t trainers)
{
	struct srv_options opt = srv_options_default();

	opt.listen[0] = uri;
	opt.n_listen = 1;
	opt.mode = mode;
	opt.trainers = trainers;
	opt.block_kib = 1;
	opt.insecure = true;
	opt.on_loss = SRV_LOSS_CONTINUE;
	return opt;
}

static int role_serve(const char *uri)
{
	struct srv_options opt = options(uri, SRV_SYNC, 2);
	struct srv *srv;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (srv_create(&opt, &srv) < 0)
		return 1;
	puts("ready");
	fflush(stdout);
	return srv_run(srv) < 0;
}

/* ---- trainers ---------------------------------------------------------------------------------
 */

struct survivor {
	const char *uri;
	int32_t rank;
	int rc;
	char text[256];
	uint64_t steps;
	atomic_bool over;
	pthread_t thread;
};

static int declare_one(gs_trainer *t, gs_param **out)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	d.name = "w";
	d.ndim = 1;
	d.shape[0] = ELEMS;
	gs_setting(&d, "lr", 0.1);
	return gs_declare(t, &d, out);
}

static int train(struct survivor *s, gs_trainer *t)
{
	static const float grad[ELEMS] = {1};
	float weights[ELEMS];
	gs_param *p;
	int rc = declare_one(t, &p);

	if (rc == 0)
		rc = gs_start(t);
	for (s->steps = 0; rc == 0 && s->steps < STEPS; s->steps++) {
		rc = gs_push(t, p, grad);
		if (rc == 0)
			rc = gs_step_end(t);
		if (rc == 0)
			rc = gs_pull(t, p, GS_ORDERED, weights);
	}
	return rc < 0 ? rc : gs_leave(t);
}

static void *survive(void *arg)
{
	struct survivor *s = arg;
	struct gs_options opt = GS_OPTIONS_INIT;
	gs_trainer *t = NULL;

	opt.uri = s->uri;
	opt.rank = s->rank;
	opt.timeout_ms = 1000;
	s->rc = gs_connect(&opt, &t);
	if (s->rc == 0)
		s->rc = train(s, t);
	snprintf(s->text, sizeof(s->text), "%s", err_text());
	gs_close(t);
	s->over = true;
	return NULL;
}

/* ---- a server that is killed ------------------------------------------------------------------
 */

static const struct {
	const char *script;
	bool early; /* before a step has begun */
} deaths[] = {
    {"kill at=accept n=1", true},     {"kill at=accept n=2", true},
    {"kill at=poll-msg n=1", true},   {"kill at=poll-msg n=3", true},
    {"kill at=poll-msg n=6", true},   {"kill at=send n=1", true},
    {"kill at=send n=3", true},       {"kill at=send n=6", true},
    {"kill at=expose n=1", true},     {"kill at=expose n=4", true},
    {"kill at=attach n=1", true},     {"kill at=attach n=2", true},
    {"kill at=post n=1", false},      {"kill at=poll-imm n=1", false},
    {"kill at=poll-imm n=2", false},  {"kill at=poll-imm n=7", false},
    {"kill at=poll-imm n=40", false}, {"kill at=poll-imm n=100", false},
    {"kill at=post-imm n=1", false},  {"kill at=post-imm n=2", false},
    {"kill at=post-imm n=9", false},  {"kill at=post-imm n=60", false},
};

static bool is_news_of_a_death(int rc)
{
	return rc == -ECONNRESET || rc == -ENOTCONN || rc == -ECONNREFUSED || rc == -ETIMEDOUT ||
	       rc == -ENOENT;
}

START_TEST(server_killed_at)
{
	struct survivor s[2];
	char uri[64], word[16];
	int status = 0;
	FILE *out;

	snprintf(uri, sizeof(uri), "shm:kill-%d-%d", (int)getpid(), _i);
	pid_t pid = start("serve", uri, deaths[_i].script, &out);

	ck_assert_msg(fgets(word, sizeof(word), out) != NULL, "the server did not start");
	for (int i = 0; i < 2; i++) {
		s[i] = (struct survivor){.uri = uri, .rank = i};
		ck_assert_int_eq(pthread_create(&s[i].thread, NULL, survive, &s[i]), 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	uint64_t died = clock_ns();

	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%s: it ended with 0x%x",
		      deaths[_i].script, status);
	for (int i = 0; i < 2; i++) {
		while (!s[i].over) {
			ck_assert_msg(clock_ns() - died < SOON_S * NS_PER_S,
				      "%s: trainer %d has not heard of it", deaths[_i].script, i);
			usleep(1000);
		}
		pthread_join(s[i].thread, NULL);
		ck_assert_msg(is_news_of_a_death(s[i].rc) && s[i].text[0], "%s: trainer %d: %d: %s",
			      deaths[_i].script, i, s[i].rc, s[i].text);
		ck_assert(!deaths[_i].early || s[i].steps == 0);
	}
	fclose(out);
}
END_TEST

/* ---- a crowd that is killed -------------------------------------------------------------------
 */

/* Pushes and pulls without end. */
static void *crowd_one(void *uri)
{
	static const float grad[ELEMS] = {1};
	struct gs_options opt = GS_OPTIONS_INIT;
	float weights[ELEMS];
	gs_trainer *t;
	gs_param *p;

	opt.uri = uri;
	opt.timeout_ms = 30000;
	if (gs_connect(&opt, &t) < 0 || declare_one(t, &p) < 0 || gs_start(t) < 0) {
		fprintf(stderr, "crowd: %s\n", gs_last_error());
		_exit(1);
	}
	puts("there");
	fflush(stdout);
	while (gs_push(t, p, grad) == 0 && gs_pull(t, p, GS_ORDERED, weights) == 0)
		;
	return NULL;
}

static int role_crowd(char *uri)
{
	pthread_t thread;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 1; i < CROWD / PROCESSES; i++)
		if (pthread_create(&thread, NULL, crowd_one, uri) != 0)
			return 1;
	crowd_one(uri);
	return 1;
}

static void *serve(void *srv)
{
	return srv_run(srv) < 0 ? srv : NULL;
}

static void wait_empty(struct srv *srv, uint64_t memory)
{
	uint64_t start_ns = clock_ns();
	struct srv_stats st;

	do {
		ck_assert_msg(clock_ns() - start_ns < 20 * NS_PER_S,
			      "%u are still connected, %llu bytes instead of %llu", st.connected,
			      (unsigned long long)st.memory, (unsigned long long)memory);
		usleep(2000);
		srv_get_stats(srv, &st);
	} while (st.connected || (memory && st.memory != memory));
}

/* One comes and goes. */
static uint64_t serve_one(struct srv *srv, char *uri)
{
	static const float grad[ELEMS] = {1};
	struct gs_options opt = GS_OPTIONS_INIT;
	struct srv_stats st;
	gs_trainer *t;
	gs_param *p;

	opt.uri = uri;
	ck_assert_msg(gs_connect(&opt, &t) == 0 && declare_one(t, &p) == 0 && gs_start(t) == 0 &&
			  gs_push(t, p, grad) == 0 && gs_wait_applied(t, p) == 0 &&
			  gs_leave(t) == 0,
		      "%s", err_text());
	gs_close(t);
	wait_empty(srv, 0);
	usleep(50000); /* what it held goes when its session is reaped */
	srv_get_stats(srv, &st);
	return st.memory;
}

START_TEST(crowd_killed_at_once)
{
	pid_t pid[PROCESSES];
	FILE *out[PROCESSES];
	char name[64], uri[256], word[16];
	struct srv_options opt;
	pthread_t thread;
	struct srv *srv;
	uint64_t memory;
	void *failed;

	snprintf(name, sizeof(name), "shm:crowd-%d", (int)getpid());
	opt = options(name, SRV_ASYNC, CROWD);
	opt.workers = 2;
	ck_assert_msg(srv_create(&opt, &srv) == 0, "%s", err_text());
	snprintf(uri, sizeof(uri), "%s", srv_uri(srv, 0));
	ck_assert_int_eq(pthread_create(&thread, NULL, serve, srv), 0);
	memory = serve_one(srv, uri);
	for (int k = 0; k < TIMES; k++) {
		for (int i = 0; i < PROCESSES; i++)
			pid[i] = start("crowd", uri, "", &out[i]);
		for (int i = 0; i < CROWD; i++)
			ck_assert_msg(fgets(word, sizeof(word), out[i % PROCESSES]) != NULL,
				      "one did not come");
		usleep(3000u * (unsigned)k);
		for (int i = 0; i < PROCESSES; i++)
			kill(pid[i], SIGKILL);
		for (int i = 0; i < PROCESSES; i++) {
			waitpid(pid[i], NULL, 0);
			fclose(out[i]);
		}
		wait_empty(srv, memory);
		ck_assert_uint_eq(serve_one(srv, uri), memory);
	}
	srv_stop(srv);
	pthread_join(thread, &failed);
	ck_assert_ptr_null(failed);
	srv_destroy(srv);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("kills");
	TCase *t = tcase_create("server"), *crowd = tcase_create("crowd");

	log_set_level(LOG_ERROR);
	if (argc == 3 && strcmp(argv[1], "serve") == 0)
		return role_serve(argv[2]);
	if (argc == 3 && strcmp(argv[1], "crowd") == 0)
		return role_crowd(argv[2]);
	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, server_killed_at, 0, (int)(sizeof(deaths) / sizeof(deaths[0])));
	tcase_set_timeout(crowd, 120);
	tcase_add_test(crowd, crowd_killed_at_once);
	suite_add_tcase(suite, t);
	suite_add_tcase(suite, crowd);
	return run_all(srunner_create(suite));
}
