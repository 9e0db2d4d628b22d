/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of /proc/PID.
 */
#include "cli/soak_watch.h"

#include "base/err.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const watch_names[WATCH_KINDS] = {"memory", "descriptors", "mappings"};

static FILE *open_proc(pid_t pid, const char *file)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	return fopen(path, "re");
}

/* Resident, without pages that belong to files: code is counted once for all processes. */
static int64_t memory_of(pid_t pid)
{
	FILE *f = open_proc(pid, "statm");
	int64_t all = -1, resident = -1, file = 0;

	if (!f)
		return -1;
	if (fscanf(f, "%" SCNd64 " %" SCNd64 " %" SCNd64, &all, &resident, &file) < 2)
		resident = -1;
	fclose(f);
	return resident < 0 ? -1 : resident * (int64_t)sysconf(_SC_PAGESIZE);
}

static int64_t descriptors_of(pid_t pid)
{
	char path[64];
	int64_t n = -2; /* . and .. */

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *dir = opendir(path);
	if (!dir)
		return -1;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int64_t mappings_of(pid_t pid)
{
	FILE *f = open_proc(pid, "maps");
	int64_t n = 0;
	int c;

	if (!f)
		return -1;
	while ((c = getc_unlocked(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

int watch_sample(struct watch *w, pid_t pid)
{
	int64_t now[WATCH_KINDS] = {memory_of(pid), descriptors_of(pid), mappings_of(pid)};

	for (unsigned k = 0; k < WATCH_KINDS; k++) {
		if (now[k] < 0)
			return err_set(ESRCH, "the %s of process %d can't be read", watch_names[k],
				       (int)pid);
	}
	if (w->n == WATCH_MAX) {
		for (unsigned i = 0; i < WATCH_MAX / 2; i++)
			memcpy(w->sample[i], w->sample[2 * i], sizeof(w->sample[i]));
		w->n = WATCH_MAX / 2;
	}
	memcpy(w->sample[w->n++], now, sizeof(now));
	return 0;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int64_t median(const struct watch *w, enum watch_what what, unsigned from, unsigned to)
{
	int64_t v[WATCH_MAX];
	unsigned n = 0;

	for (unsigned i = from; i < to; i++)
		v[n++] = w->sample[i][what];
	if (n == 0)
		return 0;
	qsort(v, n, sizeof(v[0]), compare);
	return v[n / 2];
}

void watch_trend(const struct watch *w, enum watch_what what, int64_t *before, int64_t *after)
{
	*before = median(w, what, w->n / 4, w->n / 2);
	*after = median(w, what, w->n - w->n / 4, w->n);
}

bool watch_flat(const struct watch *w, enum watch_what what, int64_t slack)
{
	int64_t before, after;

	watch_trend(w, what, &before, &after);
	return after <= before + slack;
}
