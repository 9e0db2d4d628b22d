/* SPDX-License-Identifier: Apache-2.0
 *
 * The demo's data: 1,797 images of handwritten digits, shuffled and split into a training and a
 * test set, and what each trainer sees of it at each step.
 *
 * Invariants:
 *  1. Everything is a function of the configuration: two processes with the same one agree on every
 *     batch without a word between them.
 *  2. A step's batch, the union of its shards in rank order, is the same for any number of
 * trainers.
 */
#ifndef GS_DEMO_DIGITS_H
#define GS_DEMO_DIGITS_H

#include <stdint.h>

#include "kernels/kern.h"
#include "kernels/schedule.h"

enum {
	DIGITS_FEATURES = 64,
	DIGITS_CLASSES = 10,
	DIGITS_ROWS = 1797,
	DIGITS_TEST = 360,
	DIGITS_TRAIN = DIGITS_ROWS - DIGITS_TEST,
};

struct digits_config {
	uint64_t seed;     /* of the split, the order of batches and the initial weights */
	unsigned trainers; /* they share each batch equally */
	unsigned batch;    /* rows of all trainers together, in one step */
	unsigned epochs;
	struct kern_opt opt;
	struct schedule schedule;   /* of its learning rate; all zero: constant */
	enum kern_dtype grad_dtype; /* what gradients are rounded to before they are merged */
};

/* Seed 1, one trainer, and settings that reach an accuracy of 0.965 or more. */
struct digits_config digits_default(void);

/* The optimizer for asynchronous training, where each of N gradients is a step of its own: the
 * learning rate over 2N. Over N, a round of all trainers would move the weights as far as one
 * synchronous step of their mean does; half of that still learns when gradients are 3N updates old
 * (over N: N updates). The rule stays, but gradients that arrive late act as momentum themselves
 * (I. Mitliagkas et al., "Asynchrony begets Momentum", Allerton 2016,
 * https://arxiv.org/abs/1605.09774), so momentum on top of it wants a lower rate yet. */
struct kern_opt digits_async_opt(const struct digits_config *config);

/* -EINVAL, with the value and the limit in the text: no trainers or more than rows in the batch, a
 * batch that they can't share equally or that is larger than the training set, no epochs. */
int digits_check(const struct digits_config *config);

/* Steps of the whole run. An epoch's last rows, fewer than a batch, are left for another epoch. */
unsigned digits_steps(const struct digits_config *config);
/* Rows of one trainer in one step. */
unsigned digits_shard_rows(const struct digits_config *config);

struct digits {
	/* Features in [0, 1], row-major. */
	float train_x[DIGITS_TRAIN][DIGITS_FEATURES], test_x[DIGITS_TEST][DIGITS_FEATURES];
	uint8_t train_y[DIGITS_TRAIN], test_y[DIGITS_TEST];
};

/* Unpacks the data, shuffles it by the seed and splits it. Free it with digits_free. Errors:
 * -ENOMEM, -EBADMSG (the embedded data is damaged). */
int digits_load(uint64_t seed, struct digits **out);
void digits_free(struct digits *digits);

/* The parts of loading, for tests. digits_unpack inflates gzip'd data into `text`, of `size` bytes
 * with room for a final NUL. digits_parse reads rows, each of which has 64 features and a label.
 * Errors: -EBADMSG. */
int digits_unpack(const void *gz, size_t bytes, char *text, size_t size);
int digits_parse(const char *text, uint8_t rows[DIGITS_ROWS][DIGITS_FEATURES + 1]);

/* One trainer's way through the data: it holds the order of one epoch and one shard. */
struct digits_feed;

/* `digits` must outlive the feed. Errors: -EINVAL (as digits_check, or rank >= trainers), -ENOMEM
 */
int digits_feed_create(const struct digits *digits, const struct digits_config *config,
		       unsigned rank, struct digits_feed **out);
void digits_feed_destroy(struct digits_feed *feed);

/* Shard `rank` of step `step`, 1 .. digits_steps: digits_shard_rows rows, valid until the next
 * call. Steps may be asked for in any order. */
void digits_feed_step(struct digits_feed *feed, unsigned step, const float **x, const uint8_t **y);

#endif
