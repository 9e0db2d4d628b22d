/* SPDX-License-Identifier: Apache-2.0
 *
 * The directory that checkpoints are in.
 */
#include "store/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

#define LOCK_NAME ".lock"

/* ---- names ----------------------------------------------------------------------------------- */

const char *checkpoint_name(uint64_t number, char buf[CHECKPOINT_NAME])
{
	snprintf(buf, CHECKPOINT_NAME, "checkpoint-%08" PRIu64, number);
	return buf;
}

const char *folder_temporary(uint64_t number, char buf[CHECKPOINT_NAME])
{
	snprintf(buf, CHECKPOINT_NAME, ".checkpoint-%08" PRIu64 ".tmp", number);
	return buf;
}

/* The number in a name that `make` would have made of it; 0: of no other. */
static uint64_t number_in(const char *name, const char *prefix,
			  const char *(*make)(uint64_t, char *))
{
	char buf[CHECKPOINT_NAME];
	size_t len = strlen(prefix);

	if (strncmp(name, prefix, len))
		return 0;
	uint64_t number = strtoull(name + len, NULL, 10);
	return number > FOLDER_NUMBER_MAX || strcmp(make(number, buf), name) ? 0 : number;
}

bool folder_is_name(const char *path)
{
	size_t len = strlen(path);
	char name[CHECKPOINT_NAME];

	while (len && path[len - 1] == '/')
		len--;
	const char *slash = memrchr(path, '/', len);
	const char *last = slash ? slash + 1 : path;
	snprintf(name, sizeof(name), "%.*s", (int)(path + len - last), last);
	return number_in(name, "checkpoint-", checkpoint_name) != 0;
}

/* ---- the directory --------------------------------------------------------------------------- */

int folder_sync(int fd, const char *path)
{
	if (fsync(fd) < 0)
		return err_set(errno, "%s: fsync: %s", path, strerror(errno));
	return 0;
}

/* A new directory is there for good when its parent is on the disk. */
static int sync_parent(int fd, const char *path)
{
	int parent = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (parent < 0)
		return err_set(errno, "%s: its parent: open: %s", path, strerror(errno));
	int rc = folder_sync(parent, path);
	close(parent);
	return rc;
}

int folder_open(const char *path, bool make, int *fd)
{
	bool made = make && mkdir(path, 0755) == 0;

	if (make && !made && errno != EEXIST)
		return err_set(errno, "%s: can't be made: %s", path, strerror(errno));
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_set(errno, "%s: open: %s", path, strerror(errno));
	int rc = made ? sync_parent(dir, path) : 0;
	if (rc < 0)
		close(dir);
	else
		*fd = dir;
	return rc;
}

/* ---- the lock -------------------------------------------------------------------------------- */

static int held_by_another(int lock, const char *path)
{
	char pid[24] = "";
	ssize_t n = pread(lock, pid, sizeof(pid) - 1, 0);

	pid[n > 0 ? strspn(pid, "0123456789") : 0] = 0;
	return err_set(EBUSY, "%s: process %s is writing a checkpoint there", path,
		       *pid ? pid : "(unknown)");
}

/* The pid is for people: a full disk is found out by the files. */
static void write_pid(int lock)
{
	char pid[24];
	int n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());

	if (ftruncate(lock, 0) < 0 || pwrite(lock, pid, (size_t)n, 0) < 0)
		return;
}

int folder_lock(int fd, const char *path, int *lock)
{
	int file = openat(fd, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

	if (file < 0)
		return err_set(errno, "%s/" LOCK_NAME ": open: %s", path, strerror(errno));
	if (flock(file, LOCK_EX | LOCK_NB) < 0) {
		int rc = errno == EWOULDBLOCK
			     ? held_by_another(file, path)
			     : err_set(errno, "%s/" LOCK_NAME ": flock: %s", path, strerror(errno));
		close(file);
		return rc;
	}
	write_pid(file);
	*lock = file;
	return 0;
}

/* ---- what is in it --------------------------------------------------------------------------- */

static int add(uint64_t **list, uint32_t *n, uint64_t number)
{
	if ((*n & (*n - 1)) == 0) { /* 0 or a power of two: full */
		uint64_t *more = realloc(*list, (*n ? (size_t)*n * 2 : 1) * sizeof(**list));

		if (!more)
			return err_set(ENOMEM, "no memory for %u names", *n);
		*list = more;
	}
	(*list)[(*n)++] = number;
	return 0;
}

static int upwards(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static int read_names(DIR *dir, const char *path, struct folder_names *names)
{
	for (;;) {
		errno = 0;
		const struct dirent *e = readdir(dir);
		if (!e)
			return errno ? err_set(errno, "%s: read: %s", path, strerror(errno)) : 0;
		uint64_t number = number_in(e->d_name, "checkpoint-", checkpoint_name);
		uint64_t temporary = number_in(e->d_name, ".checkpoint-", folder_temporary);
		int rc = 0;
		if (number)
			rc = add(&names->checkpoint, &names->checkpoints, number);
		if (temporary)
			rc = add(&names->temporary, &names->temporaries, temporary);
		if (rc < 0)
			return rc;
	}
}

int folder_names(int fd, const char *path, struct folder_names *out)
{
	struct folder_names names = {0};
	int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = own < 0 ? NULL : fdopendir(own);

	if (!dir) {
		int err = errno;

		if (own >= 0)
			close(own);
		return err_set(err, "%s: open: %s", path, strerror(err));
	}
	int rc = read_names(dir, path, &names);
	closedir(dir);
	if (rc < 0) {
		folder_names_free(&names);
		return rc;
	}
	if (names.checkpoints)
		qsort(names.checkpoint, names.checkpoints, sizeof(uint64_t), upwards);
	if (names.temporaries)
		qsort(names.temporary, names.temporaries, sizeof(uint64_t), upwards);
	*out = names;
	return 0;
}

void folder_names_free(struct folder_names *names)
{
	free(names->checkpoint);
	free(names->temporary);
	*names = (struct folder_names){0};
}

/* ---- removal --------------------------------------------------------------------------------- */

int folder_remove_temporary(int fd, const char *path, uint64_t number)
{
	static const char *const files[] = {FOLDER_MANIFEST, CHECKPOINT_WEIGHTS, CHECKPOINT_STATE};
	char name[CHECKPOINT_NAME];
	int err = 0;

	folder_temporary(number, name);
	int dir = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return errno == ENOENT
			   ? 0
			   : err_set(errno, "%s/%s: open: %s", path, name, strerror(errno));
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (unlinkat(dir, files[i], 0) < 0 && errno != ENOENT && !err)
			err = errno;
	}
	close(dir);
	if (!err && unlinkat(fd, name, AT_REMOVEDIR) < 0)
		err = errno;
	return err ? err_set(err, "%s/%s: can't be removed: %s", path, name, strerror(err)) : 0;
}
