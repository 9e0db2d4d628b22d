/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading /proc.
 */
#include "base/proc.h"

#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t proc_number(const char *path, const char *key, int base, uint64_t none)
{
	char line[256];
	uint64_t value = none;
	FILE *f = fopen(path, "re");

	if (!f)
		return none;
	while (fgets(line, sizeof(line), f)) {
		size_t n = strlen(key);

		if (strncmp(line, key, n) == 0 && line[n] == ':') {
			value = strtoull(line + n + 1, NULL, base);
			break;
		}
	}
	fclose(f);
	return value;
}

bool proc_may_lock_all(void)
{
	return proc_number("/proc/self/status", "CapEff", 16, 0) >> CAP_IPC_LOCK & 1;
}
