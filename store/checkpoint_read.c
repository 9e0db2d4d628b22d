/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading checkpoints: all of one is verified before any of it is handed out.
 */
#include "store/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "store/folder.h"
#include "store/manifest.h"

struct checkpoint {
	char *path;
	struct checkpoint_manifest manifest;
	struct store_file *weights, *state;
};

/* ---- the manifest ---------------------------------------------------------------------------- */

static int read_all(int fd, char *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = read(fd, buf + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(errno, "read: %s", strerror(errno));
		if (n == 0)
			return err_set(EBADMSG, "was cut while it was read");
		done += (size_t)n;
	}
	return 0;
}

static int read_text(int fd, char **text, size_t *len)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_set(errno, "stat: %s", strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size > MANIFEST_MAX)
		return err_set(EBADMSG, "not a regular file of %u bytes at most", MANIFEST_MAX);
	char *buf = malloc((size_t)st.st_size + 1);
	if (!buf)
		return err_set(ENOMEM, "no memory for %lld bytes", (long long)st.st_size);
	int rc = read_all(fd, buf, (size_t)st.st_size);
	if (rc < 0) {
		free(buf);
		return rc;
	}
	*text = buf;
	*len = (size_t)st.st_size;
	return 0;
}

static int load_manifest(int dir_fd, struct checkpoint_manifest *out)
{
	int fd = openat(dir_fd, FOLDER_MANIFEST, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char *text = NULL;
	size_t len = 0;

	if (fd < 0)
		return err_set(errno == ENOENT ? EBADMSG : errno, "open: %s", strerror(errno));
	int rc = read_text(fd, &text, &len);
	close(fd);
	if (rc < 0)
		return rc;
	rc = checkpoint_manifest_parse(text, len, out);
	free(text);
	return rc;
}

bool folder_looks_sound(int fd, uint64_t number)
{
	char name[CHECKPOINT_NAME];
	struct checkpoint_manifest m;
	struct stat weights, state;
	int dir = openat(fd, checkpoint_name(number, name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return false;
	bool sound = load_manifest(dir, &m) == 0;
	if (sound) {
		sound = fstatat(dir, CHECKPOINT_WEIGHTS, &weights, 0) == 0 &&
			fstatat(dir, CHECKPOINT_STATE, &state, 0) == 0 &&
			(uint64_t)weights.st_size == m.weights.bytes &&
			(uint64_t)state.st_size == m.state.bytes;
		checkpoint_manifest_free(&m);
	}
	close(dir);
	return sound;
}

/* ---- one checkpoint -------------------------------------------------------------------------- */

static int open_file(const char *path, const char *name, const struct checkpoint_file *is,
		     struct store_file **out)
{
	char *file;
	uint64_t hash[2];

	if (asprintf(&file, "%s/%s", path, name) < 0)
		return err_set(ENOMEM, "%s: no memory", path);
	int rc = store_open(file, out);
	free(file);
	if (rc == -ENOENT)
		return err_set(EBADMSG, "%s", err_text());
	if (rc < 0)
		return rc;
	if (store_size(*out) != is->bytes)
		return err_set(EBADMSG, "%s: %" PRIu64 " bytes; the manifest says %" PRIu64,
			       store_path(*out), store_size(*out), is->bytes);
	store_hash(*out, hash);
	if (memcmp(hash, is->hash, sizeof(hash)))
		return err_set(EBADMSG, "%s: its checksum is not what the manifest says",
			       store_path(*out));
	return 0;
}

/* Rows that a hashed table has not used need not be there. */
static bool shaped(const struct store_tensor *t, const struct wire_param *p)
{
	if (t->dtype != STORE_F32 || t->ndim != p->ndim)
		return false;
	for (uint32_t i = 0; i < t->ndim; i++) {
		if (t->dim[i] != p->dim[i] &&
		    (p->storage != WIRE_HASHED || i > 0 || t->dim[i] > p->dim[i]))
			return false;
	}
	return true;
}

static int check_weights(const struct checkpoint *c)
{
	for (uint32_t i = 0; i < c->manifest.params; i++) {
		const struct wire_param *p = &c->manifest.param[i].decl;
		const struct store_tensor *t = store_find(c->weights, p->name);

		if (!t)
			return err_set(EBADMSG, "%s: has no tensor \"%s\"", store_path(c->weights),
				       p->name);
		if (!shaped(t, p))
			return err_set(
			    EBADMSG,
			    "%s: tensor \"%s\" has another type or shape than the manifest "
			    "says",
			    store_path(c->weights), p->name);
	}
	return 0;
}

static int load(struct checkpoint *c)
{
	int rc = checkpoint_peek(c->path, &c->manifest);

	if (rc < 0)
		return rc;
	rc = open_file(c->path, CHECKPOINT_WEIGHTS, &c->manifest.weights, &c->weights);
	if (rc == 0)
		rc = open_file(c->path, CHECKPOINT_STATE, &c->manifest.state, &c->state);
	return rc < 0 ? rc : check_weights(c);
}

int checkpoint_open(const char *path, struct checkpoint **out)
{
	struct checkpoint *c = calloc(1, sizeof(*c));

	if (c)
		c->path = strdup(path);
	int rc = c && c->path ? load(c) : err_set(ENOMEM, "%s: no memory", path);
	if (rc < 0)
		checkpoint_close(c);
	else
		*out = c;
	return rc;
}

const struct checkpoint_manifest *checkpoint_manifest(const struct checkpoint *c)
{
	return &c->manifest;
}

const char *checkpoint_path(const struct checkpoint *c)
{
	return c->path;
}

const struct store_file *checkpoint_weights_of(const struct checkpoint *c)
{
	return c->weights;
}

const struct store_file *checkpoint_state_of(const struct checkpoint *c)
{
	return c->state;
}

void checkpoint_close(struct checkpoint *c)
{
	if (!c)
		return;
	store_close(c->weights);
	store_close(c->state);
	checkpoint_manifest_free(&c->manifest);
	free(c->path);
	free(c);
}

bool checkpoint_is_one(const char *path)
{
	static const char *const files[] = {FOLDER_MANIFEST, CHECKPOINT_WEIGHTS, CHECKPOINT_STATE};
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool is = dir >= 0 && folder_is_name(path);

	for (size_t i = 0; dir >= 0 && !is && i < sizeof(files) / sizeof(files[0]); i++)
		is = faccessat(dir, files[i], F_OK, 0) == 0;
	if (dir >= 0)
		close(dir);
	return is;
}

int checkpoint_peek(const char *path, struct checkpoint_manifest *out)
{
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return err_set(errno, "%s: open: %s", path, strerror(errno));
	int rc = load_manifest(dir, out);
	close(dir);
	return rc < 0 ? err_wrap(rc, "%s/" FOLDER_MANIFEST, path) : 0;
}

/* ---- the newest ------------------------------------------------------------------------------ */

int checkpoint_list(const char *dir, uint64_t **numbers, uint32_t *n)
{
	struct folder_names names;
	int fd, rc = folder_open(dir, false, &fd);

	if (rc < 0)
		return rc;
	rc = folder_names(fd, dir, &names);
	close(fd);
	if (rc < 0)
		return rc;
	free(names.temporary);
	*numbers = names.checkpoint;
	*n = names.checkpoints;
	return 0;
}

static int open_number(const char *dir, uint64_t number, struct checkpoint **out)
{
	char name[CHECKPOINT_NAME], *path;

	if (asprintf(&path, "%s/%s", dir, checkpoint_name(number, name)) < 0)
		return err_set(ENOMEM, "%s: no memory", dir);
	int rc = checkpoint_open(path, out);
	free(path);
	return rc;
}

/* The torn and the vanished are passed over. What says nothing of the checkpoint itself (no right
 * to read it, no memory) is not: an older one would be taken for no reason. */
static bool pass_over(int rc)
{
	return rc == -EBADMSG || rc == -ENOTDIR || rc == -ENOENT || rc == -EIO;
}

static int try_all(const char *dir, const uint64_t *number, uint32_t n, struct checkpoint **out)
{
	for (uint32_t i = n; i-- > 0;) {
		int rc = open_number(dir, number[i], out);

		if (!pass_over(rc))
			return rc;
		log_warn("checkpoint %" PRIu64 " is not sound, an older one is looked for: %s",
			 number[i], err_text());
	}
	return n ? err_set(EBADMSG, "%s: none of the %u checkpoints there is sound", dir, n)
		 : err_set(ENOENT, "%s: there is no checkpoint", dir);
}

int checkpoint_open_newest(const char *dir, struct checkpoint **out)
{
	uint64_t *number, last = 0;
	uint32_t n;

	/* A writer may make a new one and remove those that were listed: then once more. */
	for (;;) {
		int rc = checkpoint_list(dir, &number, &n);
		if (rc < 0)
			return rc;
		bool same = (n ? number[n - 1] : 0) == last;
		if (!same || n == 0)
			rc = try_all(dir, number, n, out);
		else
			rc = -EBADMSG;
		last = n ? number[n - 1] : 0;
		free(number);
		if (same || (rc != -EBADMSG && rc != -ENOENT))
			return rc;
	}
}
