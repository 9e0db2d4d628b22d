/* SPDX-License-Identifier: Apache-2.0
 *
 * Random orders that are a function of their arguments alone.
 */
#ifndef GS_DEMO_SHUFFLE_H
#define GS_DEMO_SHUFFLE_H

#include <stdint.h>

/* Puts order[0 .. n-1] into a random order. `which` and `pass` say what it is for, so that orders
 * of one seed differ. */
void demo_shuffle(uint64_t seed, uint32_t which, uint32_t pass, uint32_t *order, uint32_t n);

#endif
