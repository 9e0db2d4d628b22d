/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes for people: "0.5 KiB", "617.0 MiB", "23.5 GiB".
 */
#ifndef GS_BASE_SIZE_H
#define GS_BASE_SIZE_H

#include <stdint.h>
#include <stdio.h>

struct size_text {
	char s[24];
};

static inline struct size_text size_text(uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes / 1024;
	unsigned unit = 0;
	struct size_text t;

	for (; value >= 1024 && unit < 5; unit++)
		value /= 1024;
	snprintf(t.s, sizeof(t.s), "%.1f %s", value, units[unit]);
	return t;
}

#endif
