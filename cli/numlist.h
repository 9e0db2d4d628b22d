/* SPDX-License-Identifier: Apache-2.0
 *
 * Several numbers as one option: `4K`, `4K,64K,1M`, or `4K:4M`: powers of two times the first, up
 * to the last.
 */
#ifndef GS_CLI_NUMLIST_H
#define GS_CLI_NUMLIST_H

#include <stdbool.h>
#include <stdint.h>

enum { NUMLIST_MAX = 64 };

struct numlist {
	int64_t value[NUMLIST_MAX];
	unsigned n;
	/* What each may be; set before parsing. */
	int64_t min, max, multiple; /* multiple: 0 for any */
	bool sizes;                 /* K, M, G and T are understood */
};

/* For OPT_PARSED: into a struct numlist whose limits are set. -EINVAL: the text says what it may
 * be. */
int numlist_parse(const char *text, void *list);

#endif
