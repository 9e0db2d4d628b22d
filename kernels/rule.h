/* SPDX-License-Identifier: Apache-2.0
 *
 * What an optimizer consists of. Each has a file in rules/, which defines one of these for each
 * instruction set, and a line in the list below; nothing else knows a rule by its name.
 */
#ifndef GS_KERNELS_RULE_H
#define GS_KERNELS_RULE_H

#include "kernels/kern.h"

/* In the order of their numbers. */
#define KERN_RULES(X, isa)      \
	X(sgd, isa)             \
	X(momentum, isa)        \
	X(nesterov, isa)        \
	X(adagrad, isa)         \
	X(decayed_adagrad, isa) \
	X(adadelta, isa)        \
	X(rmsprop, isa)         \
	X(adam, isa)            \
	X(adamw, isa)           \
	X(adamax, isa)          \
	X(ftrl, isa)            \
	X(lars, isa)            \
	X(lamb, isa)            \
	X(lion, isa)            \
	X(add, isa)             \
	X(rowwise_adagrad, isa)

/* What a setting may be, as the float that is kept: 0.99999999999 is not let through as 1. */
enum kern_limit {
	KERN_NOT_NEGATIVE, /* finite */
	KERN_POSITIVE,     /* finite */
	KERN_BELOW_1,      /* 0 <= x < 1 */
	KERN_TO_1,         /* 0 <= x <= 1 */
	KERN_SWITCH,       /* 0 or 1 */
	KERN_MINUS_1_TO_0, /* -1 <= x <= 0 */
};

struct kern_param {
	const char *name;
	enum kern_limit limit;
	float fallback; /* NAN: must be given */
};

/* The members of kern_common that a rule takes. */
enum {
	KERN_CLIPS = 1, /* clip_norm, clip_global_norm, clip_value */
	KERN_DELAY = 2, /* dc_lambda */
	KERN_L1 = 4,    /* l1 */
	KERN_DECAY = 8, /* weight_decay, decoupled */
	KERN_ALL_COMMON = 15,
};

enum { KERN_CONSTS_MAX = 9 };

/* Updates `len` elements with the gradient g, by the constants c; `shrink`: decoupled weight decay,
 * w -= shrink * w as well. True: g holds an infinity or a NaN. */
typedef bool kern_loop_fn(const float *c, float shrink, float *w, float *const *state,
			  const float *g, size_t len);

struct kern_rule {
	const char *name;
	struct kern_param param[KERN_VALUES_MAX + 1]; /* lr first; up to one without a name */
	unsigned common;
	struct kern_common fallback; /* of what it takes of them */
	bool by_rows;
	/* How many state arrays go with these settings. */
	unsigned (*arrays)(const float *value);
	/* What is the same for all elements of a step: up to KERN_CONSTS_MAX numbers. */
	void (*constants)(const float *value, const struct kern_step *step, float *c);
	/* The loop that goes with these settings. */
	kern_loop_fn *(*loop)(const float *value);

	/* Rules that look at the whole tensor first, otherwise NULL. first: changes the state, and
	 * g to what the norm is wanted of, tile by tile; ratio: of the norms of w and of that. */
	void (*first)(const float *c, const float *w, float *const *state, float *g, size_t len);
	double (*ratio)(const float *value, double w_norm, double g_norm);

	/* Rules that keep one number for each row, and are by rows alone, otherwise NULL: changes
	 * the row's number, and the constants to this row's, by the sum of its gradient's squares.
	 */
	void (*row)(const float *value, const struct kern_step *step, double squares, size_t dim,
		    float *state, float *c);
};

#endif
