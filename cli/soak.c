/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot soak`: trainers that add up whole numbers, while they, or their server, are killed with
 * SIGKILL at random moments and started again. Each number must be in the sum exactly once, and the
 * server must not grow.
 */
#include "cli/cmd.h"
#include "cli/address.h"
#include "cli/child.h"
#include "cli/job.h"
#include "cli/json.h"
#include "cli/mode.h"
#include "cli/progress.h"
#include "cli/soak_watch.h"
#include "cli/soak_work.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	READY_MS = 30000,
	STALL_MS = 120000, /* nothing was heard of any process for so long */
	DELAY_MS = 20,     /* a kill comes up to this much behind the step that it is due at */
	SAMPLES = 200,
	MEMORY_SLACK = 2 << 20,
	COUNT_SLACK = 8, /* one trainer more or less at the moment of the sample */
};

struct seat {
	struct child *child; /* NULL: none runs */
	bool done;
	uint64_t at;
	int64_t server; /* which one ran when the child was started */
};

struct soak {
	/* options */
	int64_t trainers, steps, kills, server_kills, seed;
	bool together, json;
	const char *checkpoint_dir;
	struct mode mode;
	struct job_server job; /* transport, address, threads */

	struct children *set;
	struct child *server;
	int64_t server_no; /* servers before it */
	bool server_ends;  /* it was killed, and its successor is not started yet */
	char uri[384];
	struct seat seat[SRV_MAX_TRAINERS];
	uint64_t rng;
	uint64_t at; /* the furthest step that was heard of */
	int64_t killed, servers_killed;
	uint64_t kill_due;  /* when; 0: none is due */
	uint64_t kill_seen; /* when the last became due */
	struct watch watch;
	uint64_t began, heard;
	char checksum[32];
	struct progress progress;
	int signal;
};

/* splitmix64 (doi:10.1145/2714064.2660195). */
static uint64_t draw(struct soak *s)
{
	uint64_t z = s->rng += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* ---- processes ------------------------------------------------------------------------------- */

static int first_uri(struct soak *s)
{
	char address[128];

	if (s->job.transport == JOB_SHM) {
		snprintf(s->uri, sizeof(s->uri), "shm:soak-%d", (int)getpid());
		return 0;
	}
	if (s->job.address) {
		snprintf(s->uri, sizeof(s->uri), "rdma://%s", s->job.address);
		return 0;
	}
	int rc = address_of_first_device(address, sizeof(address));
	snprintf(s->uri, sizeof(s->uri), "rdma://%s:0", address);
	return rc;
}

static int start_server(struct soak *s)
{
	struct child_args args = {0};
	char mode[MODE_TEXT];

	child_arg(&args, "serve");
	child_arg(&args, "--log=error");
	child_arg(&args, "--listen=%s", s->uri);
	child_arg(&args, "--trainers=%" PRId64, s->trainers);
	child_arg(&args, "--mode=%s", mode_text(&s->mode, mode));
	child_arg(&args, "--block-size=%d", SOAK_BLOCK_BYTES);
	child_arg(&args, "--pollers=%" PRId64, s->job.opt.pollers);
	child_arg(&args, "--workers=%" PRId64, s->job.opt.workers);
	child_arg(&args, "--on-trainer-loss=wait:600");
	if (s->job.transport == JOB_RDMA)
		child_arg(&args, "--insecure");
	if (s->checkpoint_dir) {
		child_arg(&args, "--checkpoint-dir=%s", s->checkpoint_dir);
		child_arg(&args, "--checkpoint-every=%s", mode_is_sync(&s->mode) ? "10" : "1s");
	}
	job_spin_arg(&args, &s->job.opt);
	return child_start(s->set, "the server", &args, &s->server);
}

static int start_trainer(struct soak *s, unsigned rank, bool check_only)
{
	struct child_args args = {0};
	char name[32];

	s->seat[rank].server = s->server_no;
	snprintf(name, sizeof(name), "trainer %u", rank);
	child_arg(&args, "soak-trainer");
	child_arg(&args, "--uri=%s", s->uri);
	child_arg(&args, "--rank=%u", rank);
	child_arg(&args, "--steps=%" PRId64, s->steps);
	if (check_only)
		child_arg(&args, "--check-only");
	job_spin_arg(&args, &s->job.opt);
	return child_start(s->set, name, &args, &s->seat[rank].child);
}

static struct seat *seat_of(struct soak *s, const struct child *child)
{
	for (int64_t r = 0; r < s->trainers; r++)
		if (s->seat[r].child == child)
			return &s->seat[r];
	return NULL;
}

/* ---- killing --------------------------------------------------------------------------------- */

static int64_t kills_left(const struct soak *s)
{
	return s->kills - s->killed + s->server_kills - s->servers_killed;
}

/* The step that the next kill is due at: all of them are spread over the steps. */
static uint64_t next_kill_at(const struct soak *s)
{
	uint64_t all = (uint64_t)(s->kills + s->server_kills), done = all - (uint64_t)kills_left(s);

	return (done + 1) * (uint64_t)s->steps / (all + 1);
}

static void kill_seat(struct soak *s, struct seat *seat)
{
	if (seat->child && !seat->done && child_running(seat->child))
		kill(child_pid(seat->child), SIGKILL);
}

static void kill_now(struct soak *s)
{
	int64_t trainers = s->kills - s->killed, all = kills_left(s);

	s->kill_due = 0;
	if (draw(s) % (uint64_t)all >= (uint64_t)trainers) {
		s->servers_killed++;
		s->server_ends = true;
		kill(child_pid(s->server), SIGKILL);
		return;
	}
	s->killed++;
	if (!s->together) {
		kill_seat(s, &s->seat[draw(s) % (uint64_t)s->trainers]);
		return;
	}
	for (int64_t r = 0; r < s->trainers; r++)
		kill_seat(s, &s->seat[r]);
}

/* How long after it became due: no longer than that took, or fast steps would be over before it. */
static uint64_t kill_delay(struct soak *s, uint64_t now)
{
	uint64_t took = now - (s->kill_seen ? s->kill_seen : s->began), most = DELAY_MS * NS_PER_MS;

	s->kill_seen = now;
	return draw(s) % ((took < most ? took : most) + 1);
}

/* Milliseconds until something is to be done. */
static int plan(struct soak *s)
{
	uint64_t now = clock_ns();

	if (kills_left(s) == 0)
		return 1000;
	if (!s->kill_due && s->at >= next_kill_at(s))
		s->kill_due = now + kill_delay(s, now);
	if (!s->kill_due)
		return 1000;
	return s->kill_due > now ? (int)((s->kill_due - now) / NS_PER_MS) + 1 : 0;
}

/* ---- what comes ------------------------------------------------------------------------------ */

static void take_sample(struct soak *s)
{
	uint64_t every = (uint64_t)s->steps / SAMPLES + 1;

	if (s->at / every > s->watch.n && s->server && child_running(s->server))
		watch_sample(&s->watch, child_pid(s->server));
}

static void take_line(struct soak *s, struct child *child, const char *line)
{
	struct seat *seat = seat_of(s, child);
	uint64_t at;

	if (seat && sscanf(line, "at %" SCNu64, &at) == 1) {
		seat->at = at;
		if (at > s->at)
			s->at = at;
		take_sample(s);
		progress_show(&s->progress, false,
			      "step %" PRIu64 " of %" PRId64 ", %" PRId64 " trainers and %" PRId64
			      " servers killed",
			      s->at, s->steps, s->killed, s->servers_killed);
	}
	sscanf(line, "checksum %31s", s->checksum);
}

static int failed(const struct child *child)
{
	char reason[128];

	if (!child_failed(child, reason, sizeof(reason)))
		snprintf(reason, sizeof(reason), "exited");
	return err_set(ECHILD, "%s %s", child_name(child), reason);
}

/* With it those who had left already: its checkpoint may be of a step before they did, and a server
 * that is new begins when all of its trainers have come. */
static int start_server_again(struct soak *s)
{
	int rc = start_server(s);

	s->server_no++;
	s->server_ends = false;
	for (unsigned r = 0; rc == 0 && r < s->trainers; r++) {
		if (!s->seat[r].done)
			continue;
		s->seat[r].done = false;
		rc = start_trainer(s, r, false);
	}
	return rc;
}

/* Killed: it is started again. So is a trainer that may have left the server before this one. */
static int take_end(struct soak *s, struct child *child)
{
	struct seat *seat = seat_of(s, child);
	char reason[128];
	bool bad = child_failed(child, reason, sizeof(reason));
	bool killed = bad && strstr(reason, "signal 9");
	int rc = 0;

	if (!seat && child != s->server)
		return 0;
	if (!killed && (bad || !seat))
		rc = failed(child);
	else if (!seat)
		rc = start_server_again(s);
	else if (killed || seat->server != s->server_no)
		rc = start_trainer(s, (unsigned)(seat - s->seat), false);
	else
		seat->done = true;
	if (seat && seat->done)
		seat->child = NULL;
	child_forget(s->set, child);
	return rc;
}

static bool all_done(const struct soak *s)
{
	if (s->server_ends)
		return false;
	for (int64_t r = 0; r < s->trainers; r++)
		if (!s->seat[r].done)
			return false;
	return true;
}

/* One event, or a kill that is due. */
static int turn(struct soak *s)
{
	struct child_event ev;
	int rc = children_wait(s->set, plan(s), &ev);

	if (rc < 0)
		return rc;
	if (ev.kind != CHILD_TIMEOUT)
		s->heard = clock_ns();
	switch (ev.kind) {
	case CHILD_LINE:
		take_line(s, ev.child, ev.line);
		break;
	case CHILD_ENDED:
		return take_end(s, ev.child);
	case CHILD_SIGNAL:
		s->signal = ev.signal;
		return err_set(EINTR, "interrupted");
	case CHILD_TIMEOUT:
		if (clock_ns() - s->heard > STALL_MS * NS_PER_MS)
			return err_set(ETIMEDOUT, "nothing has happened for %d s, at step %" PRIu64,
				       STALL_MS / 1000, s->at);
		break;
	}
	if (s->kill_due && clock_ns() >= s->kill_due && s->server && child_running(s->server))
		kill_now(s);
	return 0;
}

/* ---- the run --------------------------------------------------------------------------------- */

static int wait_ready(struct soak *s)
{
	struct child_event ev;
	int rc;

	do {
		rc = children_wait(s->set, READY_MS, &ev);
		if (rc < 0)
			return rc;
		if (ev.kind == CHILD_ENDED)
			return failed(ev.child);
		if (ev.kind != CHILD_LINE)
			return err_set(ETIMEDOUT, "the server is not ready after %d s",
				       READY_MS / 1000);
	} while (sscanf(ev.line, "READY %383s", s->uri) != 1);
	return 0;
}

/* The sums, read by one that comes when all have gone; and the server's end. */
static int look_at_end(struct soak *s)
{
	int rc;

	s->kills = s->killed; /* no more of them */
	s->server_kills = s->servers_killed;
	s->kill_due = 0;
	s->seat[0].done = false;
	rc = start_trainer(s, 0, true);
	while (rc == 0 && !s->seat[0].done)
		rc = turn(s);
	if (rc < 0)
		return rc;
	struct child *server = s->server;
	struct child_event ev;
	kill(child_pid(server), SIGTERM);
	do
		rc = children_wait(s->set, READY_MS, &ev);
	while (rc == 0 && ev.kind == CHILD_LINE);
	if (rc == 0 && ev.kind != CHILD_ENDED)
		rc = err_set(ETIMEDOUT, "the server does not end");
	char reason[128];
	return rc == 0 && child_failed(server, reason, sizeof(reason)) ? failed(server) : rc;
}

static int run(struct soak *s)
{
	int rc = first_uri(s);

	if (rc == 0)
		rc = start_server(s);
	if (rc == 0)
		rc = wait_ready(s);
	s->began = s->heard = clock_ns();
	for (unsigned r = 0; rc == 0 && r < s->trainers; r++)
		rc = start_trainer(s, r, false);
	while (rc == 0 && !all_done(s))
		rc = turn(s);
	progress_show(&s->progress, true, "step %" PRIu64 " of %" PRId64, s->at, s->steps);
	progress_break(&s->progress);
	return rc < 0 ? rc : look_at_end(s);
}

/* ---- the result ------------------------------------------------------------------------------ */

static int64_t slack_of(const struct soak *s, unsigned what)
{
	int64_t each = s->together ? s->trainers : 1;

	return what == WATCH_MEMORY ? MEMORY_SLACK : COUNT_SLACK * each;
}

/* Of a server that was killed there is nothing to compare. */
static bool is_flat(const struct soak *s)
{
	bool flat = true;

	for (unsigned k = 0; k < WATCH_KINDS && s->servers_killed == 0; k++)
		flat &= watch_flat(&s->watch, k, slack_of(s, k));
	return flat;
}

static int print_json(const struct soak *s, double seconds)
{
	json_t *held = json_object();

	for (unsigned k = 0; k < WATCH_KINDS; k++) {
		int64_t before, after;

		watch_trend(&s->watch, k, &before, &after);
		json_object_set_new(
		    held, watch_names[k],
		    json_pack("{sI sI}", "before", (json_int_t)before, "after", (json_int_t)after));
	}
	return json_result(json_pack("{sI sI sI sI sf ss so sb}", "trainers",
				     (json_int_t)s->trainers, "steps", (json_int_t)s->steps,
				     "kills", (json_int_t)s->killed, "server_kills",
				     (json_int_t)s->servers_killed, "seconds", seconds, "checksum",
				     s->checksum, "server", held, "flat", is_flat(s)));
}

static int print_text(const struct soak *s, double seconds)
{
	printf("%" PRId64 " steps of %" PRId64 " trainers, %" PRId64
	       " times killed%s; the server %" PRId64 " times; %.1f s\n",
	       s->steps, s->trainers, s->killed, s->together ? " all at once" : "",
	       s->servers_killed, seconds);
	printf("sums: every number exactly once; checksum %s\n", s->checksum);
	for (unsigned k = 0; k < WATCH_KINDS && s->servers_killed == 0; k++) {
		int64_t before, after;

		watch_trend(&s->watch, k, &before, &after);
		printf("server's %-12s %" PRId64 " -> %" PRId64 "%s\n", watch_names[k], before,
		       after, watch_flat(&s->watch, k, slack_of(s, k)) ? "" : "  GROWS");
	}
	return 0;
}

static int finish(struct soak *s)
{
	double seconds = (double)(clock_ns() - s->began) / (double)NS_PER_S;
	int rc = s->json ? print_json(s, seconds) : print_text(s, seconds);

	if (rc == 0 && !is_flat(s))
		rc = err_set(EMFILE, "the server holds more and more");
	return rc;
}

static int check_options(const struct opt_command *cmd, const struct soak *s)
{
	if (s->server_kills && !s->checkpoint_dir)
		return opt_usage(cmd, "--server-kills needs a --checkpoint-dir to restart from");
	if (s->steps * s->trainers > SOAK_MAX_SUM / 6)
		return opt_usage(cmd,
				 "--steps %" PRId64 " of %" PRId64
				 " trainers: their product may be %d, or sums are no longer whole",
				 s->steps, s->trainers, SOAK_MAX_SUM / 6);
	if (s->mode.kind == SRV_SSP)
		return opt_usage(cmd, "--mode is sync or async here");
	return job_server_check(cmd, &s->job);
}

int cmd_soak(int argc, char **argv)
{
	static struct soak s;
	const struct opt opts[] = {
	    {"trainers", OPT_NUMBER, &s.trainers, "N", "processes", .min = 1,
	     .max = SRV_MAX_TRAINERS},
	    {"steps", OPT_NUMBER, &s.steps, "N", "to make", .min = 1, .max = SOAK_MAX_SUM},
	    {"kills", OPT_NUMBER, &s.kills, "N", "of a trainer, over all steps", .min = 0,
	     .max = 1000000},
	    {"together", OPT_FLAG, &s.together, NULL, .help = "each kill is of all trainers"},
	    {"server-kills", OPT_NUMBER, &s.server_kills, "N", "of the server", .min = 0,
	     .max = 1000000},
	    {"checkpoint-dir", OPT_TEXT, &s.checkpoint_dir, "DIR",
	     .help = "where the server writes one every 10 steps (async: every second); empty at "
		     "first"},
	    {"seed", OPT_NUMBER, &s.seed, "N", "of whom is killed when", .min = 0,
	     .max = INT64_MAX},
	    MODE_LINE(s.mode),
	    JOB_SERVER_LINES(s.job),
	    {"json", OPT_FLAG, &s.json, NULL, .help = "the result as JSON"},
	    {NULL},
	};
	const struct opt_command cmd = {
	    "gradslot soak",
	    "Kills trainers and servers, and checks that nothing is lost or doubled.",
	    "Exit status 1: a sum was wrong, a process failed, or the server grew.\n", opts};

	s = (struct soak){.trainers = 3,
			  .steps = 1000,
			  .kills = 20,
			  .seed = 1,
			  .mode = {.kind = SRV_SYNC},
			  .job = {.opt = srvopt_default()}};
	int rc = opt_parse(&cmd, argc, argv);
	if (rc == OPT_RUN)
		rc = check_options(&cmd, &s);
	if (rc != OPT_RUN)
		return rc;
	s.rng = (uint64_t)s.seed;
	s.progress = progress_begin();
	rc = children_create(&s.set);
	if (rc == 0)
		rc = run(&s);
	children_destroy(s.set);
	if (rc == 0)
		rc = finish(&s);
	if (rc < 0)
		log_error("%s", err_text());
	return rc < 0 ? EXIT_FAILED : EXIT_OK;
}
