/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot words`: trains word vectors through tables of which each step touches a few rows, with
 * a server and trainers as processes of their own, then once more in one process without a server,
 * and compares. In sync mode the two must agree in every bit of every vector.
 */
#include "cli/cmd.h"
#include "cli/training.h"
#include "cli/words_job.h"

#include "base/err.h"
#include "base/log.h"
#include "demo/optimizer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct result {
	json_int_t steps, vocabulary, pairs;
	double loss, auc, untrained_loss, untrained_auc, seconds, words_per_s;
	char checksum[17], transport[192];
};

struct words {
	struct words_run run;
	struct training training;
	bool json;
	struct result trained, single;
	json_t *near;
};

/* ---- lines of the child processes ------------------------------------------------------------ */

static int take_result(json_t *line, struct result *r)
{
	const char *checksum, *transport = "";

	if (json_unpack(line, "{s:I, s:I, s:I, s:F, s:F, s:F, s:F, s:s, s?F, s?F, s?s}", "steps",
			&r->steps, "vocabulary", &r->vocabulary, "heldout_pairs", &r->pairs, "loss",
			&r->loss, "auc", &r->auc, "untrained_loss", &r->untrained_loss,
			"untrained_auc", &r->untrained_auc, "checksum", &checksum, "seconds",
			&r->seconds, "words_per_s", &r->words_per_s, "transport", &transport) < 0)
		return err_set(EPROTO, "a trainer's result lacks a field");
	snprintf(r->checksum, sizeof(r->checksum), "%s", checksum);
	snprintf(r->transport, sizeof(r->transport), "%s", transport);
	return 0;
}

static int show_progress(struct words *w, json_t *line)
{
	json_int_t step, steps;
	double loss, words, seconds;

	if (json_unpack(line, "{s:I, s:I, s:F, s:F, s:F}", "step", &step, "steps", &steps, "loss",
			&loss, "words", &words, "seconds", &seconds) < 0)
		return err_set(EPROTO, "a trainer's progress lacks a field");
	progress_show(&w->training.progress, step == steps,
		      "step %" JSON_INTEGER_FORMAT "/%" JSON_INTEGER_FORMAT
		      "  loss %.4f  %.0f words/s  %.0f steps/s",
		      step, steps, loss, words / seconds, (double)step / seconds);
	return 0;
}

static int take_line(void *arg, json_t *line, bool single)
{
	struct words *w = arg;

	if (!json_object_get(line, "result"))
		return show_progress(w, line);
	if (!single)
		w->near = json_incref(json_object_get(line, "near"));
	return take_result(line, single ? &w->single : &w->trained);
}

static void add_run_args(const void *arg, struct child_args *args)
{
	words_run_args(&((const struct words *)arg)->run, args);
}

/* ---- the result ------------------------------------------------------------------------------ */

static int print_json(const struct words *w, bool equal)
{
	const struct result *r = &w->trained;
	char mode[MODE_TEXT], optimizer[OPTIMIZER_TEXT];

	json_t *out = json_pack("{s:f, s:f, s:f, s:f, s:I, s:s, s:s, s:b, s:I, s:f, s:f, s:f}",
				"heldout_auc", r->auc, "heldout_loss", r->loss, "untrained_auc",
				r->untrained_auc, "untrained_loss", r->untrained_loss,
				"heldout_pairs", r->pairs, "weights_checksum", r->checksum,
				"single_process_checksum", w->single.checksum, "checksums_equal",
				(int)equal, "steps", r->steps, "seconds", r->seconds, "steps_per_s",
				(double)r->steps / r->seconds, "words_per_s", r->words_per_s);
	json_object_update_new(
	    out, json_pack("{s:f, s:f, s:I, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:O?}",
			   "single_process_auc", w->single.auc, "single_process_loss",
			   w->single.loss, "trainers", (json_int_t)w->run.trainers, "mode",
			   mode_text(&w->run.mode, mode), "transport", r->transport, "optimizer",
			   optimizer_text(&w->run.opt, optimizer), "grad_dtype",
			   training_dtypes[w->run.grad_dtype], "dim", (json_int_t)w->run.dim,
			   "epochs", (json_int_t)w->run.epochs, "seed", (json_int_t)w->run.seed,
			   "vocabulary", r->vocabulary, "near", w->near));
	return json_result(out);
}

static void print_near(const json_t *near)
{
	const json_t *row, *word;
	size_t i, k;

	json_array_foreach(near, i, row)
	{
		json_array_foreach(row, k, word)
		    printf(k == 0 ? "%-18s" : "%s ", json_string_value(word));
		printf("\n");
	}
}

static int print_table(const struct words *w, bool equal, bool exact)
{
	const struct result *r = &w->trained;
	char mode[MODE_TEXT];

	print_near(w->near);
	printf("held-out AUC      %.4f (untrained %.4f), %" JSON_INTEGER_FORMAT " pairs\n", r->auc,
	       r->untrained_auc, r->pairs);
	printf("held-out loss     %.4f (untrained %.4f)\n", r->loss, r->untrained_loss);
	printf("weights checksum  %s\n", r->checksum);
	printf("in one process    %s  %s\n", w->single.checksum,
	       training_verdict(&w->training, equal, exact));
	printf("tables            2 of %" JSON_INTEGER_FORMAT " rows of %" PRId64 "\n",
	       r->vocabulary, w->run.dim);
	printf("steps             %" JSON_INTEGER_FORMAT " in %.2f s, %.0f steps/s, %.0f words/s\n",
	       r->steps, r->seconds, (double)r->steps / r->seconds, r->words_per_s);
	printf("trainers          %" PRId64 ", %s, %s\n", w->run.trainers,
	       mode_text(&w->run.mode, mode), r->transport);
	return 0;
}

static int finish(const struct words *w)
{
	bool equal = !strcmp(w->trained.checksum, w->single.checksum);
	bool exact = mode_is_sync(&w->run.mode);
	int rc = w->json ? print_json(w, equal) : print_table(w, equal, exact);

	if (rc < 0) {
		log_error("%s", err_text());
		return EXIT_FAILED;
	}
	return training_judge(&w->training, equal, exact);
}

static int words_main(struct words *w, const struct opt_command *cmd)
{
	struct words_config config;
	char mode[MODE_TEXT];

	if (words_run_config(&w->run, &config) < 0)
		return opt_usage(cmd, "%s", err_text());
	w->training.server.trainers = w->run.trainers;
	w->training.server.mode = mode_text(&w->run.mode, mode);
	int rc = training_run(&w->training);
	if (rc == EXIT_OK)
		rc = finish(w);
	json_decref(w->near);
	return rc;
}

int cmd_words(int argc, char **argv)
{
	struct words words = {.run = words_run_default()};
	struct job_server *server = &words.training.server;
	const struct opt opts[] = {
	    WORDS_RUN_LINES(words.run),
	    JOB_SERVER_LINES(*server),
	    {"json", OPT_FLAG, &words.json, NULL, .help = "print the result as one JSON object"},
	    {NULL},
	};
	const struct opt_command cmd = {
	    "gradslot words",
	    "Trains word vectors (skip-gram with negative sampling) with a server and trainers as\n"
	    "processes, then in one process without a server, and compares the vectors.",
	    "Of every 20 lines of the text one is held out. The AUC is the chance that a word "
	    "which\n"
	    "stands near another there scores above a random one: 0.5 of vectors that know "
	    "nothing.\n"
	    "Exits with 1 if a process fails or, in sync mode, if one bit of the vectors "
	    "differs.\n",
	    opts};

	words.training = (struct training){.name = "words",
					   .server = {.opt = srvopt_default()},
					   .add_args = add_run_args,
					   .take = take_line,
					   .arg = &words};
	int rc = opt_parse(&cmd, argc, argv);
	if (rc == OPT_RUN)
		rc = job_server_check(&cmd, server);
	return rc == OPT_RUN ? words_main(&words, &cmd) : rc;
}
