/* SPDX-License-Identifier: Apache-2.0
 *
 * A bare exchange of a gradient for weights, written by hand: what two processes can do at best
 * when nothing is checked, nothing can be lost and there is no one else.
 */
#ifndef GS_PERF_EXCHANGE_H
#define GS_PERF_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

/* Times `n` steps of two processes that share memory, after some that don't count: one copies its
 * gradient in and moves a sequence word; the other, which spins on it, takes an SGD step and moves
 * its own; the first, which spins on that, copies the weights out. `bytes`: a multiple of 4. Needs
 * two cores. Errors: -EINVAL, -ENOMEM, -EAGAIN; -ETIMEDOUT: the other side was silent for 10 s. */
int exchange_steps(size_t bytes, uint64_t *ns, size_t n);

#endif
