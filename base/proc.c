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

void proc_text(const char *path, const char *key, char *buf, size_t size)
{
	FILE *f = fopen(path, "re");
	char line[1024];

	snprintf(buf, size, "unknown");
	while (f && fgets(line, sizeof(line), f)) {
		char *value = strchr(line, ':');

		if (!value || strncmp(line, key, strlen(key)) != 0)
			continue;
		value++;
		value += strspn(value, " \t");
		value[strcspn(value, "\n")] = 0;
		snprintf(buf, size, "%s", value);
		break;
	}
	if (f)
		fclose(f);
}

bool proc_line(const char *path, char *buf, size_t size)
{
	FILE *f = fopen(path, "re");
	bool ok = f && fgets(buf, (int)size, f);

	if (f)
		fclose(f);
	if (ok)
		buf[strcspn(buf, "\n")] = 0;
	return ok;
}

bool proc_may_lock_all(void)
{
	return proc_number("/proc/self/status", "CapEff", 16, 0) >> CAP_IPC_LOCK & 1;
}
