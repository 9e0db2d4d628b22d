/* SPDX-License-Identifier: Apache-2.0
 *
 * exp, log and the normal quantile, with the same bits on every machine. The C library's differ
 * between CPUs: glibc picks variants with and without fused multiply-add at run time. These are
 * made of IEEE 754 double additions, multiplications, divisions and square roots in a written
 * order, all of which are exactly rounded, so only -ffp-contract=off is needed. Errors are a few
 * units in the last place; no claim of correct rounding.
 */
#ifndef GS_KERNELS_RMATH_H
#define GS_KERNELS_RMATH_H

/* e^x for x <= 709; 0 for x < -708. */
double rm_exp(double x);
/* The natural logarithm of a positive normal number. */
double rm_log(double x);
/* The x with probability p, in (0, 1), of a standard normal variable being less. */
double rm_normal_quantile(double p);

#endif
