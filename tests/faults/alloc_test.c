/* SPDX-License-Identifier: Apache-2.0
 *
 * Every allocation fails in turn: a server and a trainer live through a whole job, or one of them
 * says why not. Nothing crashes, hangs, or leaks (which the sanitizers see).
 *
 *   faults_alloc [all | SCENE N]
 *
 * Without arguments a sample of the allocations, the same each time; with a scene and a number that
 * one, in this process.
 */
#include "alloc.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "gradslot/gradslot.h"
#include "server/server.h"

enum { SAMPLE = 200, SCENES = 2, LIMIT_S = 20, ELEMS = 700, ROWS = 64, DIM = 4 };

struct scene {
	enum srv_mode mode;
	bool table;
};

static const struct scene scenes[SCENES] = {{SRV_SYNC, false}, {SRV_ASYNC, true}};

/* ---- the job --------------------------------------------------------------------------------- */

/* A call that failed has said why. */
static int said(int rc, const char *what)
{
	if (rc < 0 && !*err_text()) {
		fprintf(stderr, "%s: %d, without a text\n", what, rc);
		_exit(3);
	}
	if (rc < 0 && getenv("ALLOC_VERBOSE"))
		fprintf(stderr, "%s: %d: %s\n", what, rc, err_text());
	return rc;
}

static int declare(gs_trainer *t, const struct scene *scene, gs_param **dense, gs_param **table)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	int rc;

	d.name = "dense";
	d.ndim = 1;
	d.shape[0] = ELEMS;
	gs_setting(&d, "lr", 0.1);
	rc = said(gs_declare(t, &d, dense), "declare");
	if (rc < 0 || !scene->table)
		return rc;
	d.name = "table";
	d.kind = GS_HASHED;
	d.ndim = 2;
	d.shape[0] = ROWS;
	d.shape[1] = DIM;
	d.push_rows = d.slot_rows = d.pull_rows = 8;
	return said(gs_declare(t, &d, table), "declare");
}

static int use_table(gs_trainer *t, gs_param *table)
{
	const int64_t ids[3] = {1, 77, 1};
	float rows[3 * DIM] = {1, 2, 3};
	int rc = said(gs_push_rows(t, table, ids, rows, 3), "push_rows");

	if (rc == 0)
		rc = said(gs_wait_applied(t, table), "wait_applied");
	if (rc == 0)
		rc = said(gs_pull_rows(t, table, ids, 3, GS_ROWS_GATHER, rows), "pull_rows");
	return rc;
}

static int train(gs_trainer *t, const struct scene *scene)
{
	float grad[ELEMS] = {1}, weights[ELEMS];
	gs_param *dense = NULL, *table = NULL;
	int rc = declare(t, scene, &dense, &table);

	if (rc == 0)
		rc = said(gs_start(t), "start");
	if (rc == 0)
		rc = said(gs_push(t, dense, grad), "push");
	if (rc == 0 && scene->mode == SRV_SYNC)
		rc = said(gs_step_end(t), "step_end");
	if (rc == 0 && table)
		rc = use_table(t, table);
	if (rc == 0)
		rc = said(gs_pull(t, dense, GS_ORDERED, weights), "pull");
	if (rc == 0)
		rc = said(gs_leave(t), "leave");
	return rc;
}

static int run_trainer(const char *uri, const struct scene *scene)
{
	struct gs_options opt = GS_OPTIONS_INIT;
	gs_trainer *t = NULL;

	opt.uri = uri;
	opt.timeout_ms = opt.start_timeout_ms = 1000;
	int rc = said(gs_connect(&opt, &t), "connect");

	if (rc < 0)
		return rc;
	rc = train(t, scene);
	gs_close(t);
	return rc;
}

static void *serve(void *srv)
{
	int rc = srv_run(srv);

	said(rc, "srv_run");
	return NULL;
}

static int run_job(const struct scene *scene)
{
	struct srv_options opt = srv_options_default();
	struct srv *srv;
	pthread_t thread;
	char name[32], uri[256];
	int rc;

	snprintf(name, sizeof(name), "shm:alloc-%d", (int)getpid());
	opt.listen[0] = name;
	opt.n_listen = 1;
	opt.mode = scene->mode;
	opt.insecure = true;
	rc = said(srv_create(&opt, &srv), "srv_create");
	if (rc < 0)
		return rc;
	snprintf(uri, sizeof(uri), "%s", srv_uri(srv, 0));
	alloc_exempt(true);
	pthread_create(&thread, NULL, serve, srv);
	alloc_exempt(false);
	rc = run_trainer(uri, scene);
	srv_stop(srv);
	pthread_join(thread, NULL);
	srv_destroy(srv);
	return rc;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* In this process: exit status 0, unless the job failed though nothing was made to. */
static int run_one(unsigned scene, uint64_t n)
{
	uint64_t start = clock_ns();
	int rc;

	log_set_level(getenv("ALLOC_VERBOSE") ? LOG_DEBUG : LOG_ERROR);
	alarm(LIMIT_S);
	alloc_fail_at(n);
	rc = run_job(&scenes[scene]);
	if (getenv("ALLOC_VERBOSE"))
		fprintf(stderr, "scene %u, %llu of %llu (%s): %d after %llu ms\n", scene,
			(unsigned long long)n, (unsigned long long)alloc_count(),
			alloc_failed() ? alloc_failed() : "none", rc,
			(unsigned long long)((clock_ns() - start) / NS_PER_MS));
	return rc < 0 && !alloc_failed() ? 4 : 0;
}

/* How many there are. */
static uint64_t count_them(unsigned scene)
{
	uint64_t n = 0;
	int fd[2];
	pid_t pid;

	if (pipe(fd) < 0 || (pid = fork()) < 0)
		return 0;
	if (pid == 0) {
		if (run_one(scene, 0) != 0)
			_exit(1);
		n = alloc_count();
		_exit(write(fd[1], &n, sizeof(n)) != sizeof(n));
	}
	close(fd[1]);
	if (read(fd[0], &n, sizeof(n)) != sizeof(n))
		n = 0;
	close(fd[0]);
	waitpid(pid, NULL, 0);
	return n;
}

static bool survives(unsigned scene, uint64_t n)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0)
		exit(run_one(scene, n));
	waitpid(pid, &status, 0);
	if (status == 0)
		return true;
	fprintf(stderr, "scene %u, allocation %llu: %s %d\n", scene, (unsigned long long)n,
		WIFSIGNALED(status) ? "signal" : "status",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return false;
}

int main(int argc, char **argv)
{
	bool all = argc == 2 && strcmp(argv[1], "all") == 0;
	unsigned bad = 0;

	setvbuf(stdout, NULL, _IONBF, 0); /* children have none of it left to write */
	if (argc == 3)
		return run_one((unsigned)atoi(argv[1]) % SCENES, strtoull(argv[2], NULL, 10));
	for (unsigned scene = 0; scene < SCENES; scene++) {
		uint64_t n = count_them(scene), runs = 0;
		uint64_t stride = all || n <= SAMPLE ? 1 : (n + SAMPLE - 1) / SAMPLE;

		bad += n == 0;
		/* Every so many, and another one each time. */
		for (uint64_t i = 0; i < n; i += stride) {
			uint64_t at = i + (i * 2654435761u >> 7) % stride;

			bad += at < n && !survives(scene, at + 1);
			runs++;
		}
		printf("scene %u: %llu allocations, %llu made to fail\n", scene,
		       (unsigned long long)n, (unsigned long long)runs);
	}
	printf("%u went wrong\n", bad);
	return bad > 0;
}
