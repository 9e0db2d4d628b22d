/* SPDX-License-Identifier: Apache-2.0
 *
 * How old gradients were when they were applied: updates that the weights which they are of had not
 * seen. Of pushes for which that is known; in sync mode there are none, since there no gradient is
 * old. Any thread may count and look.
 */
#ifndef GS_SERVER_AGES_H
#define GS_SERVER_AGES_H

#include <stdatomic.h>
#include <stdint.h>

struct ages {
	_Atomic uint64_t pushes, sum, max;
};

struct ages_look {
	uint64_t pushes, sum, max;
};

void ages_count(struct ages *ages, uint64_t age);
/* Adds what there is so far to `to`. */
void ages_add(const struct ages *ages, struct ages_look *to);
/* One line in the log, unless nothing was counted. */
void ages_log(const char *who, const struct ages_look *look);

#endif
