/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot demo`: trains a small network on handwritten digits with a server and trainers as
 * processes of their own, then once more in one process without a server, and compares. In sync
 * mode the two must agree in every bit of every weight.
 */
#include "cli/cmd.h"
#include "cli/demo_job.h"
#include "cli/training.h"

#include "base/err.h"
#include "base/log.h"
#include "demo/mlp.h"
#include "demo/optimizer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct result {
	int steps, hits;
	double accuracy, loss, seconds;
	char checksum[17], transport[192];
};

struct demo {
	struct demo_run run;
	struct training training;
	bool json;
	int total; /* steps */
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
	return 0;
}

static int show_progress(struct demo *demo, json_t *line)
{
	double loss, accuracy, seconds;
	int step, epoch;

	if (json_unpack(line, "{s:i, s:i, s:F, s:F, s:F}", "step", &step, "epoch", &epoch, "loss",
			&loss, "accuracy", &accuracy, "seconds", &seconds) < 0)
		return err_set(EPROTO, "a trainer's progress lacks a field");
	progress_show(&demo->training.progress, step == demo->total,
		      "step %d/%d  epoch %d/%" PRId64
		      "  %s  loss %.4f  accuracy %.4f  %.0f steps/s",
		      step, demo->total, epoch, demo->run.epochs, kern_opt_name(&demo->run.opt),
		      loss, accuracy, step / seconds);
	return 0;
}

static int take_line(void *arg, json_t *line, bool single)
{
	struct demo *demo = arg;

	if (json_object_get(line, "result"))
		return take_result(line, single ? &demo->single : &demo->trained);
	return show_progress(demo, line);
}

static void add_run_args(const void *arg, struct child_args *args)
{
	const struct demo_run *run = &((const struct demo *)arg)->run;

	char mode[MODE_TEXT], optimizer[OPTIMIZER_TEXT];

	child_arg(args, "--trainers=%" PRId64, run->trainers);
	child_arg(args, "--mode=%s", mode_text(&run->mode, mode));
	child_arg(args, "--optimizer=%s", optimizer_text(&run->opt, optimizer));
	child_arg(args, "--lr-schedule=%s", run->schedule.text);
	child_arg(args, "--grad-dtype=%s", training_dtypes[run->grad_dtype]);
	child_arg(args, "--seed=%" PRId64, run->seed);
	child_arg(args, "--epochs=%" PRId64, run->epochs);
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

	return json_result(json_pack(
	    "{s:f, s:s, s:s, s:b, s:i, s:f, s:f, s:I, s:s, s:s, s:I, s:I, s:f, s:f,"
	    " s:s, s:s, s:s, s:I}",
	    "test_accuracy", r->accuracy, "weights_checksum", r->checksum,
	    "single_process_checksum", one->checksum, "checksums_equal", (int)equal, "steps",
	    r->steps, "seconds", r->seconds, "steps_per_s", r->steps / r->seconds, "trainers",
	    (json_int_t)run->trainers, "mode", mode_text(&run->mode, mode), "transport",
	    r->transport, "seed", (json_int_t)run->seed, "epochs", (json_int_t)run->epochs,
	    "test_loss", r->loss, "single_process_accuracy", one->accuracy, "optimizer",
	    optimizer_text(&run->opt, optimizer), "lr_schedule", schedule_name(run), "grad_dtype",
	    training_dtypes[run->grad_dtype], "wire_bytes_per_step", (json_int_t)wire_bytes(run)));
}

static int print_table(const struct demo *demo, bool equal)
{
	const struct result *r = &demo->trained, *one = &demo->single;
	const struct demo_run *run = &demo->run;
	char mode[MODE_TEXT], optimizer[OPTIMIZER_TEXT];

	printf("test accuracy     %.4f (%d of %d)\n", r->accuracy, r->hits, DIGITS_TEST);
	printf("weights checksum  %s\n", r->checksum);
	printf("in one process    %s  %s\n", one->checksum,
	       training_verdict(&demo->training, equal, mode_is_sync(&run->mode)));
	printf("steps             %d in %.2f s, %.0f steps/s\n", r->steps, r->seconds,
	       r->steps / r->seconds);
	printf("trainers          %" PRId64 ", %s, %s\n", run->trainers,
	       mode_text(&run->mode, mode), r->transport);
	printf("optimizer         %s, schedule %s\n", optimizer_text(&run->opt, optimizer),
	       schedule_name(run));
	printf("gradients         %s, %zu bytes of each trainer a step\n",
	       training_dtypes[run->grad_dtype], wire_bytes(run));
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
	return training_judge(&demo->training, equal, mode_is_sync(&demo->run.mode));
}

static int demo_main(struct demo *demo, const struct opt_command *cmd)
{
	struct digits_config config = demo_config(&demo->run);
	char mode[MODE_TEXT];

	if (digits_check(&config) < 0)
		return opt_usage(cmd, "--trainers %" PRId64 ": %s", demo->run.trainers, err_text());
	demo->training.server.trainers = demo->run.trainers;
	demo->training.server.mode = mode_text(&demo->run.mode, mode);
	demo->total = (int)digits_steps(&config);
	int rc = training_run(&demo->training);
	return rc == EXIT_OK ? finish(demo) : rc;
}

int cmd_demo(int argc, char **argv)
{
	struct demo demo = {.run = demo_run_default()};
	struct job_server *server = &demo.training.server;
	const struct opt opts[] = {
	    DEMO_RUN_LINES(demo.run),
	    JOB_SERVER_LINES(*server),
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

	demo.training = (struct training){.name = "demo",
					  .server = {.opt = srvopt_default()},
					  .add_args = add_run_args,
					  .take = take_line,
					  .arg = &demo};
	int rc = opt_parse(&cmd, argc, argv);
	if (rc == OPT_RUN)
		rc = job_server_check(&cmd, server);
	return rc == OPT_RUN ? demo_main(&demo, &cmd) : rc;
}
