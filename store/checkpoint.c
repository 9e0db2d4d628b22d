/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing checkpoints.
 *
 * Invariants:
 *  1. A directory gets a checkpoint's name only when everything in it is on the disk.
 *  2. Nothing under a checkpoint's name is changed: to go, it gets a temporary name first. So what
 *     a crash leaves is a sound checkpoint or a temporary one.
 *  3. Names are made, changed and removed under the lock alone.
 */
#include "store/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "store/folder.h"

struct checkpoint_writer {
	char *dir;
	int dir_fd, lock, tmp_fd; /* -1: not there */
	uint64_t number;
	bool made; /* the temporary directory is there */
	struct store_file *weights, *state;
};

/* ---- begin ----------------------------------------------------------------------------------- */

static void sweep(struct checkpoint_writer *w, const struct folder_names *names)
{
	for (uint32_t i = 0; i < names->temporaries; i++) {
		if (folder_remove_temporary(w->dir_fd, w->dir, names->temporary[i]) < 0)
			log_warn("left-over of a checkpoint: %s", err_text());
	}
}

/* Above every number that there is, also of what could not be swept away. */
static uint64_t next_number(const struct folder_names *names)
{
	uint64_t last = names->checkpoints ? names->checkpoint[names->checkpoints - 1] : 0;

	if (names->temporaries && names->temporary[names->temporaries - 1] > last)
		last = names->temporary[names->temporaries - 1];
	return last + 1;
}

static int make_temporary(struct checkpoint_writer *w)
{
	struct folder_names names;
	char name[CHECKPOINT_NAME];
	int rc = folder_names(w->dir_fd, w->dir, &names);

	if (rc < 0)
		return rc;
	sweep(w, &names);
	w->number = next_number(&names);
	folder_names_free(&names);
	if (w->number > FOLDER_NUMBER_MAX)
		return err_set(EOVERFLOW, "%s: a checkpoint of the greatest number is there, and none comes "
					  "behind it", w->dir);
	folder_temporary(w->number, name);
	w->made = mkdirat(w->dir_fd, name, 0755) == 0;
	if (w->made)
		w->tmp_fd = openat(w->dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w->tmp_fd < 0)
		return err_set(errno, "%s/%s: can't be made: %s", w->dir, name, strerror(errno));
	return 0;
}

static int make_file(struct checkpoint_writer *w, const char *file,
		     const struct store_tensor *tensor, uint32_t n, struct store_file **out)
{
	/* What there is of readers of such files asks for a format that it knows. */
	const char *meta[][2] = {{"format", "pt"}};
	char name[CHECKPOINT_NAME], *path;

	if (asprintf(&path, "%s/%s/%s", w->dir, folder_temporary(w->number, name), file) < 0)
		return err_set(ENOMEM, "%s: no memory", w->dir);
	int rc = store_create(path, tensor, n, meta, 1, out);
	free(path);
	return rc;
}

static struct checkpoint_writer *writer_new(const char *dir)
{
	struct checkpoint_writer *w = calloc(1, sizeof(*w));

	if (w)
		w->dir = strdup(dir);
	if (!w || !w->dir) {
		free(w);
		return NULL;
	}
	w->dir_fd = w->lock = w->tmp_fd = -1;
	return w;
}

int checkpoint_prepare(const char *dir)
{
	int fd, rc = folder_open(dir, true, &fd);

	if (rc < 0)
		return rc;
	if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
		rc = err_set(errno, "%s: can't be written to: %s", dir, strerror(errno));
	close(fd);
	return rc;
}

int checkpoint_begin(const char *dir, const struct store_tensor *weights, uint32_t n_weights,
		     const struct store_tensor *state, uint32_t n_state,
		     struct checkpoint_writer **out)
{
	struct checkpoint_writer *w = writer_new(dir);

	if (!w)
		return err_set(ENOMEM, "%s: no memory", dir);
	int rc = folder_open(dir, true, &w->dir_fd);
	if (rc == 0)
		rc = folder_lock(w->dir_fd, dir, &w->lock);
	if (rc == 0)
		rc = make_temporary(w);
	if (rc == 0)
		rc = make_file(w, CHECKPOINT_WEIGHTS, weights, n_weights, &w->weights);
	if (rc == 0)
		rc = make_file(w, CHECKPOINT_STATE, state, n_state, &w->state);
	if (rc < 0)
		checkpoint_abandon(w);
	else
		*out = w;
	return rc;
}

struct store_file *checkpoint_weights(struct checkpoint_writer *w)
{
	return w->weights;
}

struct store_file *checkpoint_state(struct checkpoint_writer *w)
{
	return w->state;
}

/* ---- commit ---------------------------------------------------------------------------------- */

static int finish_file(struct store_file *file, struct checkpoint_file *out)
{
	out->bytes = store_size(file);
	store_hash(file, out->hash);
	return store_sync(file);
}

static int write_all(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

static int write_manifest(struct checkpoint_writer *w, const char *text)
{
	int fd = openat(w->tmp_fd, FOLDER_MANIFEST, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	int rc = fd < 0 ? -errno : write_all(fd, text, strlen(text));

	if (rc == 0 && fsync(fd) < 0)
		rc = -errno;
	if (fd >= 0 && close(fd) < 0 && rc == 0)
		rc = -errno;
	return rc < 0 ? err_set(-rc, "%s: checkpoint %" PRIu64 ": " FOLDER_MANIFEST ": %s", w->dir,
				w->number, strerror(-rc))
		      : 0;
}

static int make_manifest(struct checkpoint_writer *w, const struct checkpoint_manifest *manifest)
{
	struct checkpoint_manifest m = *manifest;
	char *text;

	m.format = CHECKPOINT_FORMAT;
	m.number = w->number;
	m.written = time(NULL);
	int rc = finish_file(w->weights, &m.weights);
	if (rc == 0)
		rc = finish_file(w->state, &m.state);
	if (rc == 0)
		rc = checkpoint_manifest_print(&m, &text);
	if (rc < 0)
		return rc;
	rc = write_manifest(w, text);
	free(text);
	return rc;
}

/* A new name is sure once the directory is on the disk: if it can't be, it is given back. */
static int publish(struct checkpoint_writer *w)
{
	char from[CHECKPOINT_NAME], to[CHECKPOINT_NAME];

	folder_temporary(w->number, from);
	checkpoint_name(w->number, to);
	int rc = folder_sync(w->tmp_fd, w->dir);
	if (rc < 0)
		return rc;
	if (renameat(w->dir_fd, from, w->dir_fd, to) < 0)
		return err_set(errno, "%s/%s: rename: %s", w->dir, to, strerror(errno));
	rc = folder_sync(w->dir_fd, w->dir);
	if (rc < 0 && renameat(w->dir_fd, to, w->dir_fd, from) < 0)
		log_warn("%s/%s: may not be on the disk, and can't be taken back: %s", w->dir, to,
			 strerror(errno));
	else
		w->made = rc < 0;
	return rc;
}

/* ---- pruning --------------------------------------------------------------------------------- */

static void remove_checkpoint(struct checkpoint_writer *w, uint64_t number)
{
	char from[CHECKPOINT_NAME], to[CHECKPOINT_NAME];
	int rc = 0;

	checkpoint_name(number, from);
	folder_temporary(number, to);
	if (renameat(w->dir_fd, from, w->dir_fd, to) < 0)
		rc = err_set(errno, "%s/%s: rename: %s", w->dir, from, strerror(errno));
	else
		rc = folder_remove_temporary(w->dir_fd, w->dir, number);
	if (rc < 0)
		log_warn("an old checkpoint stays: %s", err_text());
}

/* Counts down from the newest, which is the one just written; one that is known to be unsound takes
 * no place of a sound one. */
static void prune(struct checkpoint_writer *w, uint32_t keep)
{
	struct folder_names names;
	uint32_t kept = 0;

	if (folder_names(w->dir_fd, w->dir, &names) < 0) {
		log_warn("old checkpoints stay: %s", err_text());
		return;
	}
	for (uint32_t i = names.checkpoints; i-- > 0;) {
		uint64_t number = names.checkpoint[i];

		if (number == w->number)
			kept++;
		else if (kept >= keep)
			remove_checkpoint(w, number);
		else
			kept += folder_looks_sound(w->dir_fd, number);
	}
	folder_names_free(&names);
}

int checkpoint_commit(struct checkpoint_writer *w, const struct checkpoint_manifest *manifest,
		      uint32_t keep, uint64_t *number)
{
	int rc = make_manifest(w, manifest);

	if (rc == 0)
		rc = publish(w);
	if (rc == 0) {
		if (number)
			*number = w->number;
		prune(w, keep);
	}
	checkpoint_abandon(w);
	return rc;
}

void checkpoint_abandon(struct checkpoint_writer *w)
{
	if (!w)
		return;
	store_close(w->weights);
	store_close(w->state);
	if (w->tmp_fd >= 0)
		close(w->tmp_fd);
	if (w->made && folder_remove_temporary(w->dir_fd, w->dir, w->number) < 0)
		log_warn("left-over of a checkpoint: %s", err_text());
	if (w->lock >= 0)
		close(w->lock);
	if (w->dir_fd >= 0)
		close(w->dir_fd);
	free(w->dir);
	free(w);
}
