/* SPDX-License-Identifier: Apache-2.0
 *
 * A directory of checkpoints.
 */
#include "saves.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

char saves_dir[64];

void saves_begin(void)
{
	snprintf(saves_dir, sizeof(saves_dir), "/tmp/e2e-checkpoint-XXXXXX");
	must(mkdtemp(saves_dir), "no directory");
}

void saves_end(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf %s", saves_dir);
	must(system(command) == 0, "%s", command);
}

struct srv_options saves_options(uint32_t trainers, enum srv_mode mode)
{
	struct srv_options opt = bed_options(trainers, mode);

	opt.checkpoint_dir = saves_dir;
	opt.keep = 1000;
	if (mode == SRV_SSP)
		opt.staleness = 2;
	return opt;
}

static bool has_written(void *arg)
{
	struct {
		struct bed *bed;
		uint64_t n;
	} *w = arg;
	struct srv_stats s = bed_stats(w->bed);

	return s.checkpoints + s.checkpoint_failures >= w->n;
}

void saves_wait(struct bed *b, uint64_t n)
{
	struct {
		struct bed *bed;
		uint64_t n;
	} w = {b, n};

	wait_until(has_written, &w, "a checkpoint");
}

void saves_now(struct bed *b)
{
	uint64_t n = bed_stats(b).checkpoints + bed_stats(b).checkpoint_failures;

	srv_checkpoint(b->srv);
	saves_wait(b, n + 1);
}

struct checkpoint *saves_newest(void)
{
	struct checkpoint *c;

	ok(checkpoint_open_newest(saves_dir, &c));
	return c;
}

uint64_t saves_newest_step(void)
{
	struct checkpoint *c = saves_newest();
	uint64_t step = checkpoint_manifest(c)->step;

	checkpoint_close(c);
	return step;
}

char *saves_path(const char *name)
{
	static char path[4][160];
	static unsigned next;
	char *at = path[next++ % 4];

	snprintf(at, sizeof(path[0]), "%s/%s", saves_dir, name);
	return at;
}

uint32_t saves_left(void)
{
	DIR *d = opendir(saves_dir);
	uint32_t n = 0;

	must(d, "%s", saves_dir);
	for (struct dirent *e; (e = readdir(d));)
		n += strncmp(e->d_name, "checkpoint-", 11) == 0 ||
		     strncmp(e->d_name, ".checkpoint-", 12) == 0;
	closedir(d);
	return n;
}
