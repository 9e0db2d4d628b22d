/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot words-trainer`: one trainer of the words example. A step pulls the rows that its
 * minibatch touches, of both tables, and pushes their gradients; rank 0 also evaluates, and
 * reports.
 */
#include "cli/cmd.h"
#include "cli/member.h"
#include "cli/words_job.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPORT_MS = 100, NEAR = 8 };

struct work {
	struct words_task task;
	bool sync, steps_end; /* of the mode */
	unsigned rank, dim;
	const char *near;
	struct words_feed *feed;
	gs_trainer *trainer;
	gs_param *table[WORDS_TABLES];
	gs_param *finished; /* not in sync mode. One number: how many trainers have nothing more
			     * to push */
	float *row[WORDS_TABLES], *grad[WORDS_TABLES]; /* of the minibatch */
	void *sent;                                    /* a gradient in a shorter type */
	uint64_t began, reported;
	double loss_sum; /* since the last report */
	uint64_t loss_n;
};

/* ---- joining ----------------------------------------------------------------------------- */

static uint32_t rows_max(const struct work *w, unsigned t)
{
	return words_feed_rows_max(&w->task.config, w->task.corpus, t);
}

static int declare_table(struct work *w, unsigned t)
{
	struct words_init init = words_init_of(t, &w->task.config);
	const struct kern_opt *opt = &w->task.config.opt;
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	const char *setting;
	double value;

	d.name = words_tables[t];
	d.kind = GS_TABLE;
	d.ndim = 2;
	d.shape[0] = w->task.corpus->words;
	d.shape[1] = w->dim;
	d.push_rows = rows_max(w, t);
	d.optimizer = kern_opt_name(opt);
	for (unsigned i = 0; kern_opt_setting(opt, i, &setting, &value); i++)
		gs_setting(&d, setting, value);
	/* A row's gradient is a sum over the batch's pairs, whoever has them. */
	d.reduce = GS_SUM;
	d.grad_dtype = (enum gs_dtype)w->task.config.grad_dtype;
	d.init = init.kind == KERN_INIT_UNIFORM ? GS_INIT_UNIFORM : GS_INIT_CONSTANT;
	d.init_seed = init.seed;
	d.init_a = init.a;
	d.init_b = init.b;
	return member_rc(gs_declare(w->trainer, &d, &w->table[t]));
}

static int declare_finished(struct work *w)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	d.name = "finished";
	d.ndim = 1;
	d.shape[0] = 1;
	d.optimizer = "add";
	return member_rc(gs_declare(w->trainer, &d, &w->finished));
}

static int join(struct work *w, const struct training_member *member)
{
	int rc = member_connect(member, "words", &w->trainer);

	for (unsigned t = 0; t < WORDS_TABLES && rc == 0; t++)
		rc = declare_table(w, t);
	if (rc == 0 && !w->sync)
		rc = declare_finished(w);
	return rc < 0 ? rc : member_rc(gs_start(w->trainer));
}

static int prepare(struct work *w)
{
	size_t most = 0;
	bool there = true;
	int rc = words_feed_create(&w->task.config, w->task.corpus, w->task.noise, (int)w->rank,
				   &w->feed);

	if (rc < 0)
		return rc;
	for (unsigned t = 0; t < WORDS_TABLES; t++) {
		size_t len = (size_t)rows_max(w, t) * w->dim;

		most = len > most ? len : most;
		w->row[t] = malloc(len * sizeof(float));
		w->grad[t] = malloc(len * sizeof(float));
		there &= w->row[t] && w->grad[t];
	}
	w->sent = malloc(most * kern_size(w->task.config.grad_dtype));
	if (!there || !w->sent)
		return err_set(ENOMEM, "no memory for the rows of a minibatch");
	return 0;
}

/* ---- training ---------------------------------------------------------------------------- */

static int push(struct work *w, const struct words_batch *b, unsigned t)
{
	enum kern_dtype dtype = w->task.config.grad_dtype;
	const void *values = w->grad[t];

	if (dtype != KERN_F32) {
		kern_narrow(dtype, w->grad[t], w->sent, (size_t)b->rows[t] * w->dim);
		values = w->sent;
	}
	return member_rc(gs_push_rows(w->trainer, w->table[t], b->id[t], values, b->rows[t]));
}

static int train_step(struct work *w)
{
	const struct words_batch *b = words_feed_next(w->feed);
	int rc = 0;

	for (unsigned t = 0; t < WORDS_TABLES && rc == 0; t++)
		rc = member_rc(gs_pull_rows(w->trainer, w->table[t], b->id[t], b->rows[t],
					    GS_ROWS_AUTO, w->row[t]));
	if (rc < 0)
		return rc;
	w->loss_sum += words_gradient(b, w->dim, (const float *const *)w->row, w->grad);
	w->loss_n += b->pairs;
	for (unsigned t = 0; t < WORDS_TABLES && rc == 0; t++)
		rc = push(w, b, t);
	if (rc == 0 && w->steps_end)
		rc = member_rc(gs_step_end(w->trainer));
	return rc;
}

static double words_done(const struct work *w, uint64_t step)
{
	const struct words_task *task = &w->task;

	return (double)task->corpus->total * task->config.epochs * (double)step /
	       (double)task->steps;
}

static int report(struct work *w, uint64_t step)
{
	uint64_t now = clock_ns();

	if (w->rank != 0 || !w->loss_n ||
	    (step != w->task.steps && now - w->reported < REPORT_MS * NS_PER_MS))
		return 0;
	w->reported = now;
	double loss = w->loss_sum / (double)w->loss_n;
	w->loss_sum = 0;
	w->loss_n = 0;
	return json_line(json_pack("{s:I, s:I, s:f, s:f, s:f}", "step", (json_int_t)step, "steps",
				   (json_int_t)w->task.steps, "loss", loss, "words",
				   words_done(w, step), "seconds",
				   (double)(now - w->began) / NS_PER_S));
}

/* Says that everything this trainer pushed is in the tables. Sync mode needs no word: there the
 * last step's release says it of all. */
static int finish(struct work *w)
{
	const float one = 1;
	int rc = 0;

	if (w->sync)
		return 0;
	for (unsigned t = 0; t < WORDS_TABLES && rc == 0; t++)
		rc = member_rc(gs_wait_applied(w->trainer, w->table[t]));
	if (rc == 0)
		rc = member_rc(gs_push(w->trainer, w->finished, &one));
	return rc < 0 ? rc : member_rc(gs_wait_applied(w->trainer, w->finished));
}

/* ---- results, by rank 0 ------------------------------------------------------------------ */

static int wait_for_others(struct work *w)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	float finished = 0;
	int rc = 0;

	while (!w->sync && rc == 0) {
		rc = member_rc(gs_pull(w->trainer, w->finished, GS_RELAXED, &finished));
		if (rc == 0 && finished >= (float)w->task.config.trainers)
			break;
		nanosleep(&nap, NULL);
	}
	return rc;
}

static int pull_table(struct work *w, unsigned t, float *into)
{
	uint32_t rows = w->task.corpus->words;
	int64_t *ids = malloc(rows * sizeof(*ids));

	if (!ids)
		return err_set(ENOMEM, "no memory for %u row numbers", rows);
	for (uint32_t i = 0; i < rows; i++)
		ids[i] = i;
	int rc = member_rc(gs_pull_rows(w->trainer, w->table[t], ids, rows, GS_ROWS_AUTO, into));
	free(ids);
	return rc;
}

/* A word's text need not be UTF-8. */
static json_t *json_word(const char *word)
{
	json_t *text = json_string(word);

	return text ? text : json_string("?");
}

/* [[word, its nearest, ...], ...] of those of the list that the text has. */
static json_t *nearest(const struct work *w, const float *in)
{
	const struct words_corpus *c = w->task.corpus;
	unsigned n = c->words - 1 < NEAR ? c->words - 1 : NEAR;
	char *list = strdup(w->near), *rest = list, *word;
	json_t *all = json_array();

	while (list && (word = strsep(&rest, ","))) {
		int64_t number = words_corpus_find(c, word);
		uint32_t near[NEAR];
		json_t *row;

		if (number < 0)
			continue;
		words_nearest(in, c->words, w->dim, (uint32_t)number, n, near);
		row = json_array();
		json_array_append_new(row, json_word(word));
		for (unsigned i = 0; i < n; i++)
			json_array_append_new(row, json_word(c->word[near[i]]));
		json_array_append_new(all, row);
	}
	free(list);
	return all;
}

static int print_result(struct work *w, float *const tables[WORDS_TABLES], double seconds)
{
	uint64_t sum = words_checksum((const float *const *)tables, w->task.corpus->words, w->dim);
	json_t *near = nearest(w, tables[WORDS_IN]), *result;
	struct words_score before, after;
	struct gs_info info;
	int rc = words_task_score(&w->task, (const float *const *)tables, &after);

	/* What training began with is made anew: asynchronous trainers did not wait for a look. */
	for (unsigned t = 0; t < WORDS_TABLES; t++)
		words_task_init(&w->task, t, tables[t]);
	if (rc == 0)
		rc = words_task_score(&w->task, (const float *const *)tables, &before);
	if (rc < 0) {
		json_decref(near);
		return rc;
	}
	gs_get_info(w->trainer, &info);
	result = words_result(&w->task, &before, &after, sum);
	json_object_update_new(result,
			       json_pack("{s:f, s:f, s:s, s:o}", "seconds", seconds, "words_per_s",
					 words_done(w, w->task.steps) / seconds, "transport",
					 info.transport, "near", near));
	return json_line(result);
}

static int conclude(struct work *w)
{
	float *tables[WORDS_TABLES] = {NULL};
	int rc = wait_for_others(w);
	double seconds = (double)(clock_ns() - w->began) / NS_PER_S;

	for (unsigned t = 0; t < WORDS_TABLES && rc == 0; t++) {
		tables[t] = words_task_table(&w->task);
		rc = tables[t] ? pull_table(w, t, tables[t])
			       : err_set(ENOMEM, "no memory for the tables");
	}
	if (rc == 0)
		rc = print_result(w, tables, seconds);
	for (unsigned t = 0; t < WORDS_TABLES; t++)
		free(tables[t]);
	return rc;
}

static int train(struct work *w)
{
	int rc = 0;

	w->began = w->reported = clock_ns();
	for (uint64_t step = 1; step <= w->task.steps && rc == 0; step++) {
		rc = train_step(w);
		if (rc == 0)
			rc = report(w, step);
	}
	if (rc == 0)
		rc = finish(w);
	if (rc == 0 && w->rank == 0)
		rc = conclude(w);
	return rc < 0 ? rc : member_rc(gs_leave(w->trainer));
}

static int run_trainer(struct work *w, const struct words_run *run,
		       const struct training_member *member)
{
	struct words_config config;
	int rc = words_run_config(run, &config);

	if (rc < 0)
		return rc;
	w->sync = mode_is_sync(&run->mode);
	w->steps_end = run->mode.kind != SRV_ASYNC;
	w->rank = (unsigned)member->rank;
	w->dim = config.dim;
	w->near = run->near;
	rc = words_task_start(&w->task, &config, run->text);
	if (rc == 0)
		rc = prepare(w);
	if (rc == 0)
		rc = join(w, member);
	return rc < 0 ? rc : train(w);
}

int cmd_words_trainer(int argc, char **argv)
{
	struct words_run run = words_run_default();
	struct training_member member = training_member_default();
	struct work work = {0};
	const struct opt opts[] = {TRAINING_MEMBER_LINES(member), WORDS_RUN_LINES(run), {NULL}};
	const struct opt_command cmd = {"gradslot words-trainer",
					"One trainer of the words example.", NULL, opts};

	int rc = opt_parse(&cmd, argc, argv);
	if (rc != OPT_RUN)
		return rc;
	rc = run_trainer(&work, &run, &member);
	if (rc < 0)
		log_error("trainer %u: %s", work.rank, err_text());
	gs_close(work.trainer);
	for (unsigned t = 0; t < WORDS_TABLES; t++) {
		free(work.row[t]);
		free(work.grad[t]);
	}
	free(work.sent);
	words_feed_destroy(work.feed);
	words_task_end(&work.task);
	return rc < 0 ? EXIT_FAILED : EXIT_OK;
}
