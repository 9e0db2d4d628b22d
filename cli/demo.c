/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot demo`: trains a small network on handwritten digits with a server and trainers as
 * processes of their own, then once more in one process without a server, and compares. In sync
 * mode the two must agree in every bit of every weight.
 */
#include "cli/cmd.h"
#include "cli/demo_job.h"
#include "cli/job.h"
#include "cli/json.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "demo/mlp.h"
#include "demo/optimizer.h"
#include "demo/pin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where nobody watches a line being rewritten: a line a second. */
enum { PLAIN_MS = 1000 };

struct result {
	bool there;
	int steps, hits;
	double accuracy, loss, seconds;
	char checksum[17], transport[96];
};

struct demo {
	struct demo_run run;
	struct job_server server;
	bool json, tty;
	bool line_open; /* tty: the progress line has no end yet */
	int total;      /* steps */
	uint64_t shown;
	struct result trained, single;
};

/* ---- lines of the child processes ------------------------------------------------------------ */

static int take_result(json_t *line, struct result *r)
{
	const char *checksum, *transport = "";

	if (json_unpack(line, "{s:i, s:i, s:F, s:F, s:s, s?F, s?s}", "steps", &r->steps, "hits",
			&r->hits, "accuracy", &r->accuracy, "loss", &r->loss, "checksum", &checksum,
			"seconds", &r->seconds, "transport", &transport) < 0)
		return err_set(EPROTO, "a trainer's result lacks a field");
	snprintf(r->checksum, sizeof(r->checksum), "%s", checksum);
	snprintf(r->transport, sizeof(r->transport), "%s", transport);
	r->there = true;
	return 0;
}

static int show_progress(struct demo *demo, json_t *line)
{
	uint64_t now = clock_ns();
	double loss, accuracy, seconds;
	int step, epoch;

	if (json_unpack(line, "{s:i, s:i, s:F, s:F, s:F}", "step", &step, "epoch", &epoch, "loss",
			&loss, "accuracy", &accuracy, "seconds", &seconds) < 0)
		return err_set(EPROTO, "a trainer's progress lacks a field");
	bool last = step == demo->total;
	if (!demo->tty && !last && now - demo->shown < PLAIN_MS * NS_PER_MS)
		return 0;
	demo->shown = now;
	demo->line_open = demo->tty && !last;
	fprintf(stderr,
		"%sstep %d/%d  epoch %d/%" PRId64
		"  %s  loss %.4f  accuracy %.4f  %.0f steps/s%s",
		demo->tty ? "\r\033[K" : "", step, demo->total, epoch, demo->run.epochs,
		kern_opt_name(&demo->run.opt), loss, accuracy, step / seconds,
		demo->line_open ? "" : "\n");
	return 0;
}

static int on_line(void *arg, unsigned number, char *text)
{
	struct demo *demo = arg;
	json_t *line;

	(void)number; /* only rank 0 writes */
	int rc = json_from_line(text, &line);
	if (rc < 0)
		return rc;
	if (json_object_get(line, "result"))
		rc = take_result(line, &demo->trained);
	else
		rc = show_progress(demo, line);
	json_decref(line);
	return rc;
}

static int on_single_line(void *arg, unsigned number, char *text)
{
	struct demo *demo = arg;
	json_t *line;

	(void)number;
	int rc = json_from_line(text, &line);
	if (rc < 0)
		return rc;
	rc = take_result(line, &demo->single);
	json_decref(line);
	return rc;
}

/* ---- running --------------------------------------------------------------------------------- */

static void add_run_args(struct child_args *args, const struct demo_run *run)
{
	char mode[MODE_TEXT], optimizer[OPTIMIZER_TEXT];

	child_arg(args, "--trainers=%" PRId64, run->trainers);
	child_arg(args, "--mode=%s", mode_text(&run->mode, mode));
	child_arg(args, "--optimizer=%s", optimizer_text(&run->opt, optimizer));
	child_arg(args, "--lr-schedule=%s", run->schedule.text);
	child_arg(args, "--grad-dtype=%s", demo_dtypes[run->grad_dtype]);
	child_arg(args, "--seed=%" PRId64, run->seed);
	child_arg(args, "--epochs=%" PRId64, run->epochs);
}

static int start_trainers(struct demo *demo, struct job *job)
{
	int rc = 0;

	for (int64_t rank = 0; rank < demo->run.trainers && rc == 0; rank++) {
		struct child_args args = {0};
		char name[32];

		snprintf(name, sizeof(name), "trainer %" PRId64, rank);
		child_arg(&args, "demo-trainer");
		child_arg(&args, "--uri=%s", job_uri(job));
		child_arg(&args, "--rank=%" PRId64, rank);
		job_spin_arg(&args, &demo->server.opt);
		add_run_args(&args, &demo->run);
		rc = job_start(job, name, &args);
	}
	return rc;
}

static int run_single(struct demo *demo, struct job *job)
{
	struct child_args args = {0};

	fprintf(stderr, "the same training in one process, for comparison\n");
	child_arg(&args, "demo-single");
	add_run_args(&args, &demo->run);
	int rc = job_start(job, "the single process", &args);
	if (rc == 0)
		rc = job_run(job, on_single_line, demo);
	return rc;
}

static int run(struct demo *demo, struct job **job)
{
	int rc = job_create("demo", job);

	if (rc == 0)
		rc = job_start_server(*job, &demo->server);
	if (rc == 0)
		rc = start_trainers(demo, *job);
	if (rc == 0)
		rc = job_run(*job, on_line, demo);
	if (rc == 0)
		rc = run_single(demo, *job);
	if (rc == 0 && (!demo->trained.there || !demo->single.there))
		rc = err_set(EPROTO, "a process ended without its result");
	return rc;
}

/* ---- the result ------------------------------------------------------------------------------ */

/* Of the gradients that one trainer writes in a step. */
static size_t wire_bytes(const struct demo_run *run)
{
	return MLP_WEIGHTS * kern_size((enum kern_dtype)run->grad_dtype);
}

static const char *schedule_name(const struct demo_run *run)
{
	return run->schedule.text[0] ? run->schedule.text : "constant";
}

static int print_json(const struct demo *demo, bool equal)
{
	const struct result *r = &demo->trained, *one = &demo->single;
	const struct demo_run *run = &demo->run;
	char mode[MODE_TEXT], optimizer[OPTIMIZER_TEXT];

	return json_result(
	    json_pack("{s:f, s:s, s:s, s:b, s:i, s:f, s:f, s:I, s:s, s:s, s:I, s:I, s:f, s:f,"
		      " s:s, s:s, s:s, s:I}",
		      "test_accuracy", r->accuracy, "weights_checksum", r->checksum,
		      "single_process_checksum", one->checksum, "checksums_equal", (int)equal,
		      "steps", r->steps, "seconds", r->seconds, "steps_per_s",
		      r->steps / r->seconds, "trainers", (json_int_t)run->trainers, "mode",
		      mode_text(&run->mode, mode), "transport", r->transport, "seed",
		      (json_int_t)run->seed, "epochs", (json_int_t)run->epochs, "test_loss",
		      r->loss, "single_process_accuracy", one->accuracy, "optimizer",
		      optimizer_text(&run->opt, optimizer), "lr_schedule", schedule_name(run),
		      "grad_dtype", demo_dtypes[run->grad_dtype], "wire_bytes_per_step",
		      (json_int_t)wire_bytes(run)));
}

static int print_table(const struct demo *demo, bool equal)
{
	const struct result *r = &demo->trained, *one = &demo->single;
	const struct demo_run *run = &demo->run;
	char mode[MODE_TEXT], optimizer[OPTIMIZER_TEXT];
	const char *verdict = equal                       ? "the same"
			      : mode_is_sync(&run->mode) ? "DIFFERS"
							 : "differs, as is expected without sync";

	printf("test accuracy     %.4f (%d of %d)\n", r->accuracy, r->hits, DIGITS_TEST);
	printf("weights checksum  %s\n", r->checksum);
	printf("in one process    %s  %s\n", one->checksum, verdict);
	printf("steps             %d in %.2f s, %.0f steps/s\n", r->steps, r->seconds,
	       r->steps / r->seconds);
	printf("trainers          %" PRId64 ", %s, %s\n", run->trainers,
	       mode_text(&run->mode, mode), r->transport);
	printf("optimizer         %s, schedule %s\n", optimizer_text(&run->opt, optimizer),
	       schedule_name(run));
	printf("gradients         %s, %zu bytes of each trainer a step\n",
	       demo_dtypes[run->grad_dtype], wire_bytes(run));
	return 0;
}

static int finish(const struct demo *demo)
{
	bool equal = !strcmp(demo->trained.checksum, demo->single.checksum);
	int rc = demo->json ? print_json(demo, equal) : print_table(demo, equal);

	if (rc < 0) {
		log_error("%s", err_text());
		return EXIT_FAILED;
	}
	if (!equal && mode_is_sync(&demo->run.mode)) {
		log_error("the weights trained by %" PRId64
			  " processes are not those of one process: "
			  "synchronous training must give the same bits",
			  demo->run.trainers);
		return EXIT_FAILED;
	}
	return EXIT_OK;
}

static int demo_main(struct demo *demo, const struct opt_command *cmd)
{
	struct digits_config config = demo_config(&demo->run);
	char mode[MODE_TEXT];
	struct job *job = NULL;

	if (digits_check(&config) < 0)
		return opt_usage(cmd, "--trainers %" PRId64 ": %s", demo->run.trainers, err_text());
	demo->server.trainers = demo->run.trainers;
	srvopt_settle(&demo->server.opt, demo->run.trainers);
	demo->server.mode = mode_text(&demo->run.mode, mode);
	demo->total = (int)digits_steps(&config);
	demo->tty = isatty(STDERR_FILENO);
	if (demo_pin_children() < 0 || run(demo, &job) < 0) {
		if (demo->line_open)
			fputc('\n', stderr);
		return job_abandon(job);
	}
	job_destroy(job);
	return finish(demo);
}

int cmd_demo(int argc, char **argv)
{
	struct demo demo = {.run = demo_run_default(), .server = {.opt = srvopt_default()}};
	const struct opt opts[] = {
	    DEMO_RUN_LINES(demo.run),
	    {"transport", OPT_CHOICE, &demo.server.transport, "shm|rdma",
	     "shared memory, or RDMA through a device of this machine", .choices = job_transports},
	    {"address", OPT_TEXT, &demo.server.address, "HOST[:PORT]",
	     .help = "rdma: where the server listens; unset: at the first RDMA device's address"},
	    SRVOPT_LINES(demo.server.opt),
	    {"json", OPT_FLAG, &demo.json, NULL, .help = "print the result as one JSON object"},
	    {NULL},
	};
	const struct opt_command cmd = {
	    "gradslot demo",
	    "Trains a network on 1,797 handwritten digits with a server and trainers as "
	    "processes,\n"
	    "then in one process without a server, and compares the weights.",
	    "Exits with 1 if a process fails or, in sync mode, if one bit of the weights "
	    "differs.\n",
	    opts};

	int rc = opt_parse(&cmd, argc, argv);
	if (rc != OPT_RUN)
		return rc;
	if (demo.server.address && demo.server.transport != JOB_RDMA)
		return opt_usage(&cmd, "--address '%s' goes with --transport rdma only",
				 demo.server.address);
	return demo_main(&demo, &cmd);
}
