/* SPDX-License-Identifier: Apache-2.0
 *
 * Pins OpenBLAS's kernel, so that machines with different CPUs compute the same weights.
 */
#ifndef GS_DEMO_PIN_H
#define GS_DEMO_PIN_H

/* The pinned kernel's name: "Haswell" on CPUs with AVX2 and FMA, else "Prescott", which every
 * x86-64 has; "" on other CPUs, where nothing is pinned. To compare checksums, compare these first.
 */
const char *demo_blas_pin(void);

/* OpenBLAS reads its environment when it is loaded, before main. This sets it for the processes
 * that are started from here on: the pinned kernel, and one thread. Errors: setenv's. */
int demo_pin_children(void);

/* Whether this process runs the pinned kernel. -ENOTSUP if not. */
int demo_check_pin(void);

/* Both, for a program that computes in its own process: runs it again, with the same arguments and
 * process id, unless it was started with the pinned kernel. Call it first in main, before anything
 * that can't be done twice. Errors: execv's, demo_check_pin's. */
int demo_pin_blas(char **argv);

#endif
