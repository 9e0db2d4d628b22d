/* SPDX-License-Identifier: Apache-2.0
 *
 * Small jobs under scripts drawn at random, of everything that a script can say but kill: what a
 * correct transport may do, and what only a broken one does. Nothing crashes, hangs or leaks; a
 * call that fails says why; and afterwards, with no faults, the same server serves the next
 * trainers.
 *
 *   faults_fuzz [FIRST [COUNT]]      seeds from FIRST on; each in a process of its own
 *
 * FAULTS_VERBOSE=1 shows the scripts and the errors.
 */
#include "faults.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
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

enum { TRAINERS = 3, ELEMS = 1500, ROWS = 64, DIM = 4, STEPS = 12, DEADLINE_S = 40 };

static bool verbose;

#define must(cond, ...)                               \
	do {                                          \
		if (!(cond)) {                        \
			fprintf(stderr, __VA_ARGS__); \
			fputc('\n', stderr);          \
			abort();                      \
		}                                     \
	} while (0)

static uint32_t rnd(uint64_t *state, uint32_t below)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return (uint32_t)((x ^ x >> 31) >> 33) % below;
}

/* ---- scripts --------------------------------------------------------------------------------- */

static const char *const kinds[] = {
    "delay done us=400",
    "delay imm us=400",
    "delay msg us=2000",
    "delay room us=300",
    "reorder done",
    "reorder room",
    "reorder conns",
    "reorder imm",
    "reorder msg",
    "drop imm",
    "drop msg",
    "drop done",
    "drop room",
    "drop send",
    "drop post",
    "drop post-imm",
    "dup imm",
    "dup msg",
    "dup done",
    "truncate imm",
    "truncate msg",
    "fail post err=EAGAIN",
    "fail send err=EAGAIN",
    "fail post err=EIO",
    "fail send err=EIO",
    "fail expose err=ENOMEM",
    "fail attach err=ENOMEM",
    "fail accept err=EMFILE",
    "fail connect err=ECONNREFUSED",
    "freeze peer at=post-imm",
    "freeze peer at=imm",
    "freeze peer at=msg",
    "freeze peer at=send",
    "delay post us=200",
};

/* Rarely enough for something to work before it happens. */
static void draw_script(uint64_t seed, char *out, size_t size)
{
	static const char *const often[] = {"p=0.5", "p=0.1", "p=0.02", "p=0.005"};
	uint64_t rng = seed;
	int n = snprintf(out, size, "seed=%llu", (unsigned long long)seed);

	if (rnd(&rng, 4) == 0)
		n += snprintf(out + n, size - (size_t)n, "; noimm");
	if (rnd(&rng, 4) == 0)
		n += snprintf(out + n, size - (size_t)n, "; cap chunk=%u", 64 << rnd(&rng, 8));
	for (uint32_t i = 1 + rnd(&rng, 4); i > 0; i--) {
		const char *kind = kinds[rnd(&rng, sizeof(kinds) / sizeof(kinds[0]))];

		n += snprintf(out + n, size - (size_t)n, "; %s ", kind);
		if (rnd(&rng, 2))
			n += snprintf(out + n, size - (size_t)n, "n=%u", 1 + rnd(&rng, 60));
		else
			n += snprintf(out + n, size - (size_t)n, "%s", often[rnd(&rng, 4)]);
	}
}

/* ---- trainers -------------------------------------------------------------------------------- */

struct one {
	const char *uri;
	int32_t rank;
	uint64_t rng;
	enum srv_mode mode;
	bool sound; /* nothing may fail */
	atomic_bool over;
	pthread_t thread;
};

/* A failure has a text; where nothing is wrong there is none. */
static int call(struct one *o, int rc, const char *what)
{
	must(rc >= 0 || *err_text(), "%s: %d, without a text", what, rc);
	must(rc >= 0 || !o->sound, "%s, with no faults: %d: %s", what, rc, err_text());
	if (rc < 0 && verbose)
		fprintf(stderr, "  trainer %d: %s: %d: %s\n", o->rank, what, rc, err_text());
	return rc;
}

static int declare(struct one *o, gs_trainer *t, gs_param **dense, gs_param **table)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	int rc;

	d.name = "dense";
	d.ndim = 1;
	d.shape[0] = ELEMS;
	gs_setting(&d, "lr", 0.1);
	rc = call(o, gs_declare(t, &d, dense), "declare");
	if (rc < 0)
		return rc;
	d.name = "table";
	d.kind = GS_HASHED;
	d.ndim = 2;
	d.shape[0] = ROWS;
	d.shape[1] = DIM;
	d.push_rows = 16;
	d.slot_rows = d.pull_rows = 4;
	return call(o, gs_declare(t, &d, table), "declare");
}

static int push_and_pull(struct one *o, gs_trainer *t, gs_param *dense, gs_param *table)
{
	float values[ELEMS] = {1, 2, 3};
	int64_t ids[10];
	int rc = call(o, gs_push(t, dense, values), "push");

	for (int i = 0; i < 10; i++)
		ids[i] = rnd(&o->rng, 40);
	if (rc == 0)
		rc = call(o, gs_push_rows(t, table, ids, values, 10), "push_rows");
	if (rc == 0 && o->mode == SRV_ASYNC && rnd(&o->rng, 2))
		rc = call(o, gs_wait_applied(t, table), "wait_applied");
	if (rc == 0 && rnd(&o->rng, 2))
		rc = call(o, gs_pull(t, dense, (enum gs_consistency)rnd(&o->rng, 3), values),
			  "pull");
	if (rc == 0 && rnd(&o->rng, 2))
		rc = call(o,
			  gs_pull_rows(t, table, ids, 10,
				       rnd(&o->rng, 2) ? GS_ROWS_AUTO : GS_ROWS_GATHER, values),
			  "pull_rows");
	if (rc == 0 && o->mode != SRV_ASYNC)
		rc = call(o, gs_step_end(t), "step_end");
	return rc;
}

static int live(struct one *o)
{
	struct gs_options opt = GS_OPTIONS_INIT;
	gs_param *dense = NULL, *table = NULL;
	gs_trainer *t = NULL;
	int rc;

	opt.uri = o->uri;
	opt.rank = o->rank;
	opt.timeout_ms = o->sound ? 10000 : 300;
	opt.start_timeout_ms = o->sound ? 10000 : 700;
	rc = call(o, gs_connect(&opt, &t), "connect");
	if (rc < 0)
		return rc;
	rc = declare(o, t, &dense, &table);
	if (rc == 0)
		rc = call(o, gs_start(t), "start");
	for (int i = 0; rc == 0 && i < STEPS; i++)
		rc = push_and_pull(o, t, dense, table);
	if (rc == 0 || rnd(&o->rng, 2))
		call(o, gs_leave(t), "leave");
	gs_close(t);
	return rc;
}

static void *live_some(void *arg)
{
	struct one *o = arg;
	int tries = o->sound ? 1 : 3;

	while (tries-- > 0 && live(o) < 0)
		;
	o->over = true;
	return NULL;
}

static void start_all(struct one *o, uint32_t n, const struct one *like)
{
	for (uint32_t i = 0; i < n; i++) {
		o[i] = (struct one){.uri = like->uri,
				    .rank = (int32_t)i,
				    .rng = like->rng + i,
				    .mode = like->mode,
				    .sound = like->sound};
		must(pthread_create(&o[i].thread, NULL, live_some, &o[i]) == 0, "no thread");
	}
}

/* Those that wait for what was dropped are cut off after a while. */
static void end_all(struct one *o, uint32_t n, uint64_t patience_ms)
{
	uint64_t until = clock_ns() + patience_ms * NS_PER_MS;

	for (uint32_t i = 0; i < n;) {
		if (o[i].over) {
			pthread_join(o[i++].thread, NULL);
			continue;
		}
		usleep(2000);
		if (clock_ns() > until) {
			must(!o[i].sound, "it hangs, with no faults");
			faults_cut();
			until = clock_ns() + 50 * NS_PER_MS;
		}
	}
}

/* ---- one seed -------------------------------------------------------------------------------- */

static void *serve(void *srv)
{
	int rc = srv_run(srv);

	must(rc == 0, "srv_run: %d: %s", rc, err_text());
	return NULL;
}

static void wait_for_nobody(struct srv *srv)
{
	uint64_t start = clock_ns();
	struct srv_stats stats;

	for (;;) {
		srv_get_stats(srv, &stats);
		if (stats.connected == 0)
			return;
		must(clock_ns() - start < 15 * NS_PER_S, "%u are still connected", stats.connected);
		faults_cut();
		usleep(10000);
	}
}

static struct srv_options draw_options(uint64_t *rng)
{
	static const enum srv_mode modes[] = {SRV_SYNC, SRV_ASYNC, SRV_SSP};
	struct srv_options opt = srv_options_default();

	opt.n_listen = 1;
	opt.mode = modes[rnd(rng, 3)];
	opt.staleness = opt.mode == SRV_SSP ? 1 + rnd(rng, 2) : 0;
	opt.trainers = 1 + rnd(rng, TRAINERS);
	opt.workers = rnd(rng, 3);
	opt.pollers = 1 + rnd(rng, 2);
	opt.block_kib = 1;
	opt.slots = 1 + rnd(rng, 3);
	opt.talk_ms = 500;
	opt.insecure = true;
	opt.on_loss = SRV_LOSS_CONTINUE;
	return opt;
}

static void try_seed(uint64_t seed)
{
	uint64_t rng = seed ^ 0x5eed;
	struct srv_options opt = draw_options(&rng);
	struct one one[TRAINERS], like = {.rng = seed, .mode = opt.mode};
	char script[512], name[32], uri[256];
	pthread_t thread;
	struct srv *srv;

	draw_script(seed, script, sizeof(script));
	if (verbose)
		fprintf(stderr, "seed %llu, mode %d, %u trainers: %s\n", (unsigned long long)seed,
			(int)opt.mode, opt.trainers, script);
	snprintf(name, sizeof(name), "shm:fuzz-%d", (int)getpid());
	opt.listen[0] = name;
	must(srv_create(&opt, &srv) == 0, "srv_create: %s", err_text());
	snprintf(uri, sizeof(uri), "%s", srv_uri(srv, 0));
	must(pthread_create(&thread, NULL, serve, srv) == 0, "no thread");
	like.uri = uri;

	must(faults_set(script) == 0, "%s: %s", script, err_text());
	start_all(one, opt.trainers, &like);
	end_all(one, opt.trainers, 1500);
	must(faults_set(NULL) == 0, "faults_set");
	faults_cut();
	wait_for_nobody(srv);

	like.sound = true;
	start_all(one, opt.trainers, &like);
	end_all(one, opt.trainers, 20000);
	srv_stop(srv);
	pthread_join(thread, NULL);
	srv_destroy(srv);
}

static bool survives(uint64_t seed)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		log_set_level(verbose ? LOG_INFO : LOG_ERROR);
		alarm(DEADLINE_S);
		try_seed(seed);
		exit(0);
	}
	waitpid(pid, &status, 0);
	if (status == 0)
		return true;
	fprintf(stderr, "seed %llu: %s %d\n", (unsigned long long)seed,
		WIFSIGNALED(status) ? "signal" : "status",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return false;
}

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 10;
	unsigned bad = 0;

	setvbuf(stdout, NULL, _IONBF, 0); /* children have none of it left to write */
	verbose = getenv("FAULTS_VERBOSE") != NULL;
	for (uint64_t i = 0; i < count; i++)
		bad += !survives(first + i);
	printf("%llu seeds from %llu, %u went wrong\n", (unsigned long long)count,
	       (unsigned long long)first, bad);
	return bad > 0;
}
