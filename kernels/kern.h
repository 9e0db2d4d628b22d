/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic: optimizer steps, means of gradients, initial values, matrix products, checksums.
 * Plain functions on plain arrays, with no allocation and no knowledge of who calls.
 *
 * Invariants:
 *  1. Everything but the matrix products gives the same bits on every machine and with every
 *     instruction set: no fused multiply-add, no reordered sums, no libm. (Which of several NaNs
 *     comes through an addition is the only thing left open.)
 *  2. kern_apply of n gradients gives the same bits as kern_merge of them and kern_apply of the
 *     result; and any way of cutting the arrays into pieces gives the same bits. Sums over a tensor
 *     (norms) are made in an order that depends on the elements' numbers alone.
 *
 * All functions may be called by several threads at once, on different memory. Arrays are aligned
 * to their elements or better, and those that are written overlap no other.
 */
#ifndef GS_KERNELS_KERN_H
#define GS_KERNELS_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- number formats --------------------------------------------------------------------- */

enum kern_dtype { KERN_F32, KERN_BF16, KERN_F16 };

static inline size_t kern_size(enum kern_dtype dtype)
{
	return dtype == KERN_F32 ? 4 : 2;
}

/* To float: exact. */
void kern_widen(enum kern_dtype dtype, const void *in, float *out, size_t len);
/* From float: to the nearest, ties to even; too large becomes an infinity; a NaN stays one. */
void kern_narrow(enum kern_dtype dtype, const float *in, void *out, size_t len);

/* ---- optimizers by name ----------------------------------------------------------------- */

struct kern_setting {
	char name[24];
	double value;
};

enum {
	KERN_STATE_MAX = 4,  /* state arrays of a rule */
	KERN_VALUES_MAX = 12 /* settings of a rule */
};

/* What every optimizer takes beside its own settings; all zero: nothing. They act in this order. */
struct kern_common {
	float clip_norm;        /* the parameter's gradient is scaled down to this norm */
	float clip_global_norm; /* the same over all parameters of the step that have it */
	float clip_value;       /* each element is cut to -clip_value .. clip_value */
	float dc_lambda; /* delay compensation (DC-ASGD): g += lambda·g·g·(w − backup) */
	float l1, weight_decay; /* g += l1·sign(w) + weight_decay·w */
	bool decoupled; /* weight_decay: w -= lr·weight_decay·w instead, beside the step */
};

struct kern_opt {
	unsigned rule;                /* kern_opt_at's number */
	float value[KERN_VALUES_MAX]; /* in the order of the rule's settings; lr is the first */
	struct kern_common common;
};

/* An optimizer by name, with its settings (gradslot.h has them with their formulas). A setting that
 * must be given has no default; each has its limits, which hold for the float that is kept. Names
 * need not end in a NUL when they fill the array. Errors: -EINVAL, with the value, its limit and
 * what there is in the text. */
int kern_opt_parse(const char *rule, const struct kern_setting *s, unsigned n,
		   struct kern_opt *out);
const char *kern_opt_name(const struct kern_opt *opt);
/* The i-th rule's name; NULL past the last. */
const char *kern_opt_at(unsigned i);
/* Both mean the same. */
bool kern_opt_same(const struct kern_opt *a, const struct kern_opt *b);
/* Its i-th setting, given or not; false past the last. The name is static. */
bool kern_opt_setting(const struct kern_opt *opt, unsigned i, const char **name, double *value);
static inline float kern_opt_lr(const struct kern_opt *opt)
{
	return opt->value[0];
}

/* How many state arrays the optimizer keeps, zero before the first step; and how many floats of
 * array i belong to a row of `dim` elements: dim, or 1 for a rule that keeps one for each row. */
unsigned kern_opt_arrays(const struct kern_opt *opt);
size_t kern_opt_row_state(const struct kern_opt *opt, unsigned i, size_t dim);
/* It can be applied to some rows of a table, leaving the others alone. */
bool kern_opt_by_rows(const struct kern_opt *opt);
/* It can be applied to a whole tensor: false for rules that keep one number for each row. */
bool kern_opt_dense(const struct kern_opt *opt);
/* A step must know sums over the whole tensor first: kern_prepare (lars, lamb). */
bool kern_opt_prepares(const struct kern_opt *opt);

/* ---- gradients -------------------------------------------------------------------------- */

/* Gradients on their way to one: ((f0·g0 + f1·g1) + ...) · scale, in this order, with f left out
 * where `factor` is NULL and scale left out where it is 1. */
struct kern_grads {
	const void *const *data; /* element 0 of each */
	const float *factor;     /* NULL: 1 each */
	float scale;             /* 1/n: the mean */
	unsigned n;              /* 1 at least */
	enum kern_dtype dtype;
};

/* The merged gradient itself. True: it holds an infinity or a NaN. */
bool kern_merge(const struct kern_grads *g, float *out, size_t len);
/* The sum of the merged gradient's squares, over the whole tensor, in double. An infinity or a NaN
 * makes it one. */
double kern_norm2(const struct kern_grads *g, size_t len);
/* The same of n rows of `dim` elements, whatever their order. */
double kern_norm2_rows(const float *values, size_t n, size_t dim);
/* What scales a gradient of this squared norm down to a norm of `limit`: 1 when it is within, or
 * limit is 0; else limit / (norm + 1e-6), as torch.nn.utils.clip_grad_norm_. */
float kern_clip(double norm2, float limit);
/* One gradient holds an infinity or a NaN. */
bool kern_nonfinite(enum kern_dtype dtype, const void *data, size_t len);

/* ---- steps ------------------------------------------------------------------------------ */

struct kern_step {
	uint64_t t; /* which update of these weights it is, from 1: bias corrections */
	float lr;   /* of this update: the schedule's */
	float clip; /* what clipping by a norm multiplies the merged gradient by; 1: nothing */
	const float *backup; /* dc_lambda: the weights that the gradient is of; NULL: not known */
	float ratio;         /* made by kern_prepare; 1 without */
	enum kern_dtype copy_dtype;
	void *copy; /* the new weights in copy_dtype go here as well; NULL: nowhere */
};

/* Rules that say kern_opt_prepares: the first half of the step, over the whole tensor. Sets
 * step->ratio, and may change the state. */
void kern_prepare(const struct kern_opt *opt, struct kern_step *step, const struct kern_grads *g,
		  const float *w, float *const *state, size_t len);

/* One optimizer step of `len` elements, in place: merge, clip, decay, update; reads each gradient
 * once, tile by tile in cache. `state` may be NULL when kern_opt_arrays is 0. True: the merged
 * gradient held an infinity or a NaN (it was applied all the same). */
bool kern_apply(const struct kern_opt *opt, const struct kern_step *step,
		const struct kern_grads *g, float *w, float *const *state, size_t len);

/* The same for rows of a table: row `row[i]` of w and of the state takes values[i * dim ...]; no
 * row is there twice. Of rules that say kern_opt_by_rows. step->copy is the table's. True: as
 * above. */
bool kern_apply_rows(const struct kern_opt *opt, const struct kern_step *step, const uint64_t *row,
		     const float *values, size_t n, size_t dim, float *w, float *const *state);

/* The plain step with gradients of float, all of one weight: their mean, at the optimizer's own
 * rate. */
void kern_apply_mean(const struct kern_opt *opt, uint64_t t, float *w, float *const *state,
		     const float *const *grads, unsigned n, size_t len);
/* Their mean alone. */
void kern_mean(float *out, const float *const *grads, unsigned n, size_t len);

/* ---- instruction sets ------------------------------------------------------------------- */

/* Which loops run: "baseline", "avx2" or "avx512"; NULL takes the environment's GRADSLOT_ISA, or
 * the widest that this CPU has when that is unset or empty. A program calls it once with NULL at
 * its start, to report a bad GRADSLOT_ISA; without that call the first kern_apply or kern_mean
 * makes it, and ends the process with the text when it fails: it never falls back to another set.
 * Errors: -EINVAL (unknown), -ENOTSUP (this CPU lacks it). */
int kern_isa_use(const char *name);
/* The name of the set in use. */
const char *kern_isa(void);
/* The i-th set's name, supported here or not; NULL past the last. */
const char *kern_isa_at(unsigned i);

/* ---- initial values --------------------------------------------------------------------- */

enum kern_init {
	KERN_INIT_ZERO,
	KERN_INIT_CONSTANT, /* a */
	KERN_INIT_UNIFORM,  /* from a to b (rounding to float may reach b itself) */
	KERN_INIT_NORMAL,   /* mean a, standard deviation b */
};

/* Writes elements first .. first + len - 1 of a parameter to `out`. Element i depends on nothing
 * but (kind, seed, a, b, i), so blocks can be filled in any order. */
void kern_init_fill(enum kern_init kind, uint64_t seed, double a, double b, uint64_t first,
		    float *out, size_t len);

/* ---- matrix products and checksums ------------------------------------------------------ */

/* Row-major, dense: C (m by n) = alpha * op(A) (m by k) * op(B) (k by n) + beta * C, where op
 * transposes when `ta` (`tb`) is set. By OpenBLAS, on the calling thread alone. Its rounding
 * depends on which of OpenBLAS's kernels runs: see kern_gemm_core. */
void kern_gemm(bool ta, bool tb, int m, int n, int k, float alpha, const float *a, const float *b,
	       float beta, float *c);
/* y += alpha * x, by OpenBLAS. What sgd with one gradient amounts to, and what the update loops are
 * measured against. They don't use it: it rounds once where they round twice (fused multiply-add),
 * and not in every CPU's kernel, so one trainer's result would differ from several trainers' and
 * from another machine's. n fits an int. */
void kern_saxpy(size_t n, float alpha, const float *x, float *y);
/* The name of the OpenBLAS kernel in use. OPENBLAS_CORETYPE, read when the library is loaded, picks
 * another one. */
const char *kern_gemm_core(void);

/* XXH3, 64 bits. Parts are chained by passing one's checksum as the next one's seed. */
uint64_t kern_checksum(const void *data, size_t bytes, uint64_t seed);

#endif
