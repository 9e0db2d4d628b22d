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

/* OpenBLAS reads its environment when it is loaded, before main: unless this process was started
 * with the pinned kernel, sets OPENBLAS_CORETYPE (and OPENBLAS_NUM_THREADS=1: idle threads would be
 * started otherwise) and runs the program again, with the same arguments and process id. Call it
 * first in main, before anything that can't be done twice. Returns 0 when pinned. Errors: execv's,
 * -ENOTSUP (OpenBLAS runs another kernel although it was asked for this one). */
int demo_pin_blas(char **argv);

#endif
