/* SPDX-License-Identifier: Apache-2.0
 *
 * The single-process training loop of the words example.
 */
#include "demo/words_single.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static const uint32_t NONE = UINT32_MAX;

/* A table, and the gradient of the step that is being made: the rows that some rank touched. */
struct table {
	float *w, *state[KERN_STATE_MAX];
	uint32_t *place; /* [words]: of a row in the sums, or NONE */
	uint64_t *row;   /* [words] */
	float *sum;      /* [words][dim] */
	uint32_t rows;
	/* One rank's. */
	float *pulled, *grad; /* [rows_max][dim] */
	void *sent;           /* grad, in the type in which it would travel */
};

struct run {
	const struct words_task *task;
	unsigned dim;
	struct table table[WORDS_TABLES];
	struct words_feed *feed[WORDS_TRAINERS_MAX];
};

static void run_end(struct run *run)
{
	for (unsigned t = 0; t < WORDS_TABLES; t++) {
		struct table *table = &run->table[t];

		for (unsigned i = 0; i < KERN_STATE_MAX; i++)
			free(table->state[i]);
		free(table->w);
		free(table->place);
		free(table->row);
		free(table->sum);
		free(table->pulled);
		free(table->grad);
		free(table->sent);
	}
	for (unsigned r = 0; r < WORDS_TRAINERS_MAX; r++)
		words_feed_destroy(run->feed[r]);
}

static int table_start(const struct run *run, unsigned t, struct table *table)
{
	const struct words_config *config = &run->task->config;
	const struct words_corpus *corpus = run->task->corpus;
	size_t words = corpus->words, most = words_feed_rows_max(config, corpus, t);
	bool there = true;

	table->w = words_task_table(run->task);
	table->sum = words_task_table(run->task);
	table->place = malloc(words * sizeof(*table->place));
	table->row = malloc(words * sizeof(*table->row));
	table->pulled = malloc(most * run->dim * sizeof(float));
	table->grad = malloc(most * run->dim * sizeof(float));
	table->sent = malloc(most * run->dim * kern_size(config->grad_dtype));
	for (unsigned i = 0; i < kern_opt_arrays(&config->opt); i++) {
		size_t each = kern_opt_row_state(&config->opt, i, run->dim);

		table->state[i] = calloc(words * each, sizeof(float));
		there &= table->state[i] != NULL;
	}
	if (!table->w || !table->sum || !table->place || !table->row || !table->pulled ||
	    !table->grad || !table->sent || !there)
		return err_set(ENOMEM, "no memory for vectors of %zu words", words);
	for (size_t w = 0; w < words; w++)
		table->place[w] = NONE;
	words_task_init(run->task, t, table->w);
	return 0;
}

/* On failure the caller ends the run. */
static int run_start(struct run *run)
{
	const struct words_task *task = run->task;
	int rc = 0;

	for (unsigned t = 0; t < WORDS_TABLES && rc == 0; t++)
		rc = table_start(run, t, &run->table[t]);
	for (unsigned r = 0; r < task->config.trainers && rc == 0; r++)
		rc = words_feed_create(&task->config, task->corpus, task->noise, (int)r,
				       &run->feed[r]);
	return rc;
}

static void pull(const struct run *run, const struct words_batch *b, unsigned t)
{
	const struct table *table = &run->table[t];

	for (uint32_t i = 0; i < b->rows[t]; i++)
		memcpy(table->pulled + (size_t)i * run->dim,
		       table->w + (size_t)b->id[t][i] * run->dim, run->dim * sizeof(float));
}

/* Adds one rank's gradient to the step's, as it comes out of a message. */
static void push(struct run *run, const struct words_batch *b, unsigned t)
{
	enum kern_dtype dtype = run->task->config.grad_dtype;
	size_t dim = run->dim, len = b->rows[t] * dim;
	struct table *table = &run->table[t];

	if (dtype != KERN_F32) {
		kern_narrow(dtype, table->grad, table->sent, len);
		kern_widen(dtype, table->sent, table->grad, len);
	}
	for (uint32_t i = 0; i < b->rows[t]; i++) {
		const float *from = table->grad + i * dim;
		uint32_t *place = &table->place[b->id[t][i]];
		float *sum = table->sum + (*place == NONE ? table->rows : *place) * dim;

		if (*place == NONE) {
			memcpy(sum, from, dim * sizeof(float));
			table->row[table->rows] = (uint64_t)b->id[t][i];
			*place = table->rows++;
		} else {
			for (size_t d = 0; d < dim; d++)
				sum[d] += from[d];
		}
	}
}

/* What clipping multiplies each table's gradient by: the global norm is of what the own ones left.
 */
static void find_clips(const struct run *run, float clip[WORDS_TABLES])
{
	const struct kern_common *common = &run->task->config.opt.common;
	double norm2 = 0;
	float all;

	for (unsigned t = 0; t < WORDS_TABLES; t++) {
		const struct table *table = &run->table[t];
		double own = kern_norm2_rows(table->sum, table->rows, run->dim);

		clip[t] = kern_clip(own, common->clip_norm);
		norm2 += own * (double)clip[t] * (double)clip[t];
	}
	all = kern_clip(norm2, common->clip_global_norm);
	for (unsigned t = 0; t < WORDS_TABLES; t++)
		clip[t] *= all;
}

static void apply(struct run *run, uint64_t step, unsigned t, float clip)
{
	const struct kern_opt *opt = &run->task->config.opt;
	struct kern_step now = {.t = step, .lr = kern_opt_lr(opt), .clip = clip, .ratio = 1};
	struct table *table = &run->table[t];

	kern_apply_rows(opt, &now, table->row, table->sum, table->rows, run->dim, table->w,
			table->state);
	for (uint32_t i = 0; i < table->rows; i++)
		table->place[table->row[i]] = NONE;
	table->rows = 0;
}

static void train_step(struct run *run, uint64_t step)
{
	const float *pulled[WORDS_TABLES];
	float *grad[WORDS_TABLES], clip[WORDS_TABLES];

	for (unsigned t = 0; t < WORDS_TABLES; t++) {
		pulled[t] = run->table[t].pulled;
		grad[t] = run->table[t].grad;
	}
	for (unsigned r = 0; r < run->task->config.trainers; r++) {
		const struct words_batch *b = words_feed_next(run->feed[r]);

		for (unsigned t = 0; t < WORDS_TABLES; t++)
			pull(run, b, t);
		words_gradient(b, run->dim, pulled, grad);
		for (unsigned t = 0; t < WORDS_TABLES; t++)
			push(run, b, t);
	}
	find_clips(run, clip);
	for (unsigned t = 0; t < WORDS_TABLES; t++)
		apply(run, step, t, clip[t]);
}

int words_single_train(const struct words_task *task, float **in, struct words_result *out)
{
	struct run run = {.task = task, .dim = task->config.dim};
	struct words_result result = {0};
	const float *tables[WORDS_TABLES];
	int rc = run_start(&run);

	for (unsigned t = 0; t < WORDS_TABLES; t++)
		tables[t] = run.table[t].w;
	if (rc == 0)
		rc = words_task_score(task, tables, &result.before);
	for (uint64_t step = 1; step <= task->steps && rc == 0; step++)
		train_step(&run, step);
	if (rc == 0)
		rc = words_task_score(task, tables, &result.after);
	if (rc == 0) {
		result.checksum = words_checksum(tables, task->corpus->words, run.dim);
		*out = result;
		if (in) {
			*in = run.table[WORDS_IN].w;
			run.table[WORDS_IN].w = NULL;
		}
	}
	run_end(&run);
	return rc;
}
