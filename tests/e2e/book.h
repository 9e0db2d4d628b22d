/* SPDX-License-Identifier: Apache-2.0
 *
 * A table as a plain array, and rows as lists that are looked through: what the server must agree
 * with bit for bit. And made-up pushes: a function of a seed, the trainer and the step.
 */
#ifndef GS_TESTS_E2E_BOOK_H
#define GS_TESTS_E2E_BOOK_H

#include "harness.h"
#include "kernels/kern.h"

enum { BOOK_DIM = 5, BOOK_ROWS = 300, BOOK_PUSH = 64 };

struct list { /* of rows, with values */
	uint32_t n;
	int64_t id[4 * BOOK_PUSH];
	float value[4 * BOOK_PUSH][BOOK_DIM];
};

struct book {
	struct kern_opt opt;
	bool lazy;
	uint64_t t;
	float w[BOOK_ROWS][BOOK_DIM];
	float state[KERN_STATE_MAX][BOOK_ROWS * BOOK_DIM];
};

/* A table of BOOK_ROWS × BOOK_DIM, uniform from the seed; small slots and pulls, so that pushes go
 * in pieces. */
struct gs_param_desc book_desc(const char *name, const char *optimizer, uint64_t seed);
/* The same as a book; settings are the description's. */
struct book *book_create(const struct gs_param_desc *d);
/* Updates with merged rows: nothing, when there are none. */
void book_update(struct book *b, const struct list *merged);

/* What trainer `rank` pushes in a step: up to BOOK_PUSH rows, some of them twice, sometimes none.
 */
void list_make(struct list *l, uint64_t seed, uint32_t rank, uint64_t step);
/* Adds up what is there twice. */
void list_merge(struct list *total, const struct list *part, float factor);
void list_scale(struct list *l, float factor);
void list_push(gs_trainer *t, gs_param *p, const struct list *l);

/* All rows, each way, must be the book's. */
void book_check(const struct book *b, gs_trainer *t, gs_param *p);

#endif
