/* SPDX-License-Identifier: Apache-2.0
 *
 * exp, log, powers, a cosine and the normal quantile, with the same bits on every machine. The C
 * library's differ between CPUs: glibc picks variants with and without fused multiply-add at run
 * time. These are made of IEEE 754 double additions, multiplications, divisions and square roots in
 * a written order, all of which are exactly rounded, so only -ffp-contract=off is needed. Errors
 * are a few units in the last place; no claim of correct rounding.
 */
#ifndef GS_KERNELS_RMATH_H
#define GS_KERNELS_RMATH_H

/* e^x for x <= 709; 0 for x < -708. */
double rm_exp(double x);
/* The natural logarithm of a positive normal number. */
double rm_log(double x);
/* x^y for x and y of at least 0, x zero or normal; e^709 where it would be more. A whole y up to 64
 * gives what multiplying gives: powers of 2 are exact. */
double rm_pow(double x, double y);
/* cos(pi x), for x from 0 to 1; exact at 0, 1/2 and 1. */
double rm_cos_pi(double x);
/* The x with probability p, in (0, 1), of a standard normal variable being less. */
double rm_normal_quantile(double p);

#endif
