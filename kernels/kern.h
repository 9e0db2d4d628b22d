/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic: optimizer steps, means of gradients, initial values, matrix products, checksums.
 * Plain functions on plain arrays, with no allocation and no knowledge of who calls.
 *
 * Invariants:
 *  1. kern_apply, kern_mean and kern_init_fill give the same bits on every machine and with every
 *     instruction set: no fused multiply-add, no reordered sums, no libm. (Which of several NaNs
 *     comes through an addition is the only thing left open.)
 *  2. kern_apply of n gradients gives the same bits as kern_mean of them and kern_apply of the
 *     result, and as kern_apply of any way of cutting the arrays into pieces.
 *
 * All functions may be called by several threads at once, on different memory. Arrays are aligned
 * to 4 bytes or better, and those that are written overlap no other.
 */
#ifndef GS_KERNELS_KERN_H
#define GS_KERNELS_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- optimizers ------------------------------------------------------------------------- */

enum kern_rule { KERN_SGD, KERN_MOMENTUM, KERN_NESTEROV };

struct kern_setting {
	char name[24];
	double value;
};

struct kern_opt {
	enum kern_rule rule;
	float lr, momentum, dampening;
};

/* An optimizer by name, with its settings:
 *   "sgd"       lr
 *   "momentum"  lr, momentum (0.9 when not given), dampening (0)
 *   "nesterov"  lr, momentum (0.9)
 * lr must be given, finite and at least 0; momentum is in [0, 1), dampening in [0, 1]. Names need
 * not end in a NUL when they fill the array. Errors: -EINVAL, with the value, its limit and what
 * there is in the text. */
int kern_opt_parse(const char *rule, const struct kern_setting *s, unsigned n,
		   struct kern_opt *out);
const char *kern_opt_name(const struct kern_opt *opt);

/* How many state arrays of the weights' size the optimizer keeps (sgd 0, the others 1). They are
 * zero before the first step. */
enum { KERN_STATE_MAX = 1 };
unsigned kern_opt_arrays(const struct kern_opt *opt);

/* One optimizer step, in place, with g = ((g0 + g1) + ...) * (1 / n), or g0 itself when n is 1:
 * reads each gradient once, tile by tile in cache. n >= 1; `state` may be NULL when
 * kern_opt_arrays is 0. */
void kern_apply(const struct kern_opt *opt, float *w, float *const *state,
		const float *const *grads, unsigned n, size_t len);

/* The mean alone, by the same arithmetic. n >= 1. */
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
