/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of tensors: mapped, and their space taken ahead.
 *
 * Invariants:
 *  1. Every tensor handed out lies in the mapped file (header.c).
 *  2. A file that is made has its blocks on the disk before it is mapped, so that writing into it
 *     can't fail for want of space. One that could not be made is not left behind.
 */
#include "store/store.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/err.h"
#include "store/header.h"

#define LENGTH_BYTES 8u

struct store_file {
	char *path;
	int fd; /* -1 of one that is read */
	uint8_t *map;
	uint64_t size;
	struct header header;
	uint32_t *by_name;
};

static int cannot(int err, const char *path, const char *what)
{
	return err_set(err, "%s: %s: %s", path, what, strerror(err));
}

/* Gives every tensor its place in the mapping. */
static void place(struct store_file *f, uint64_t data_start)
{
	uint8_t *at = f->map + data_start;

	for (uint32_t i = 0; i < f->header.n; i++) {
		f->header.tensor[i].data = at;
		at += f->header.tensor[i].len;
	}
}

static struct store_file *file_new(const char *path)
{
	struct store_file *f = calloc(1, sizeof(*f));

	if (f)
		f->path = strdup(path);
	if (!f || !f->path) {
		free(f);
		return NULL;
	}
	f->fd = -1;
	return f;
}

static int map(struct store_file *f, int fd, int prot)
{
	void *at = mmap(NULL, f->size, prot, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return err_set(errno, "%s: can't map its %" PRIu64 " bytes: %s", f->path, f->size,
			       strerror(errno));
	f->map = at;
	return 0;
}

static int index_names(struct store_file *f)
{
	f->by_name = header_index(f->header.tensor, f->header.n);
	return f->by_name ? 0 : err_set(ENOMEM, "%s: no memory for its index", f->path);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int file_size(const char *path, int fd, uint64_t *size)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return cannot(errno, path, "stat");
	if (!S_ISREG(st.st_mode))
		return err_set(EBADMSG, "%s: not a regular file", path);
	*size = (uint64_t)st.st_size;
	return 0;
}

static int read_at(const char *path, int fd, void *buf, size_t len, uint64_t at)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)(at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return cannot(errno, path, "read");
		if (n == 0)
			return err_set(EBADMSG, "%s: was cut while it was read", path);
		done += (size_t)n;
	}
	return 0;
}

/* Its length is checked against the file before there is memory for it. */
static int header_length(const char *path, int fd, uint64_t size, uint64_t *len)
{
	uint64_t word;

	if (size < LENGTH_BYTES)
		return err_set(EBADMSG, "%s: %" PRIu64 " bytes: too short for a safetensors file",
			       path, size);
	int rc = read_at(path, fd, &word, sizeof(word), 0);
	if (rc < 0)
		return rc;
	*len = le64toh(word);
	if (*len > HEADER_MAX)
		return err_set(EBADMSG,
			       "%s: its header would be %" PRIu64
			       " bytes long; the limit is %" PRIu64 " (not a safetensors file?)",
			       path, *len, HEADER_MAX);
	if (*len > size - LENGTH_BYTES)
		return err_set(EBADMSG,
			       "%s: its header would be %" PRIu64
			       " bytes long; the file has %" PRIu64,
			       path, *len, size);
	return 0;
}

static int read_header(struct store_file *f, int fd, uint64_t *data_start)
{
	uint64_t len = 0;
	int rc = header_length(f->path, fd, f->size, &len);

	if (rc < 0)
		return rc;
	char *text = malloc(len + 1);
	if (!text)
		return err_set(ENOMEM, "%s: no memory for a header of %" PRIu64 " bytes", f->path,
			       len);
	rc = read_at(f->path, fd, text, len, LENGTH_BYTES);
	*data_start = LENGTH_BYTES + len;
	if (rc == 0) {
		rc = header_parse(text, len, f->size - *data_start, &f->header);
		if (rc < 0)
			err_wrap(rc, "%s", f->path);
	}
	free(text);
	return rc;
}

static int read_file(struct store_file *f, int fd)
{
	uint64_t data_start = 0, again = 0;
	int rc = file_size(f->path, fd, &f->size);

	if (rc == 0)
		rc = read_header(f, fd, &data_start);
	if (rc == 0)
		rc = map(f, fd, PROT_READ);
	/* Once more, now that it is mapped: what was cut meanwhile is seen here. */
	if (rc == 0)
		rc = file_size(f->path, fd, &again);
	if (rc == 0 && again != f->size)
		rc = err_set(EBADMSG, "%s: was %" PRIu64 " bytes, and is %" PRIu64 " now", f->path,
			     f->size, again);
	if (rc < 0)
		return rc;
	place(f, data_start);
	return index_names(f);
}

int store_open(const char *path, struct store_file **out)
{
	/* O_NONBLOCK: a FIFO is refused, not waited for. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return cannot(errno, path, "open");
	struct store_file *f = file_new(path);
	int rc = f ? read_file(f, fd) : err_set(ENOMEM, "%s: no memory", path);
	close(fd);
	if (rc < 0)
		store_close(f);
	else
		*out = f;
	return rc;
}

uint32_t store_count(const struct store_file *file)
{
	return file->header.n;
}

const struct store_tensor *store_at(const struct store_file *file, uint32_t i)
{
	return &file->header.tensor[i];
}

const struct store_tensor *store_find(const struct store_file *file, const char *name)
{
	uint32_t from = 0, to = file->header.n;

	while (from < to) {
		uint32_t mid = from + (to - from) / 2;
		const struct store_tensor *t = &file->header.tensor[file->by_name[mid]];
		int order = strcmp(name, t->name);

		if (order == 0)
			return t;
		if (order < 0)
			to = mid;
		else
			from = mid + 1;
	}
	return NULL;
}

const char *store_metadata(const struct store_file *file, const char *key)
{
	return json_string_value(json_object_get(file->header.meta, key));
}

bool store_metadata_at(const struct store_file *file, uint32_t i, const char **key,
		       const char **value)
{
	void *iter = json_object_iter(file->header.meta);

	while (iter && i--)
		iter = json_object_iter_next(file->header.meta, iter);
	if (!iter)
		return false;
	*key = json_object_iter_key(iter);
	*value = json_string_value(json_object_iter_value(iter));
	return true;
}

const char *store_path(const struct store_file *file)
{
	return file->path;
}

uint64_t store_size(const struct store_file *file)
{
	return file->size;
}

void store_hash(const struct store_file *file, uint64_t hash[2])
{
	XXH128_hash_t h = XXH3_128bits(file->map, file->size);

	hash[0] = h.low64;
	hash[1] = h.high64;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int print_meta(const char *const (*meta)[2], uint32_t n, json_t **out)
{
	json_t *object = n ? json_object() : NULL;

	for (uint32_t i = 0; i < n; i++) {
		if (json_object_get(object, meta[i][0]) ||
		    json_object_set_new(object, meta[i][0], json_string(meta[i][1])) < 0) {
			json_decref(object);
			return err_set(EINVAL, "metadata '%.64s': is there twice, or not UTF-8",
				       meta[i][0]);
		}
	}
	*out = object;
	return 0;
}

static int take_space(struct store_file *f)
{
	int err;

	do {
		err = posix_fallocate(f->fd, 0, (off_t)f->size);
	} while (err == EINTR);
	if (err == EOPNOTSUPP || err == ENOSYS)
		return err_set(err, "%s: this file system can't set space aside; take another one",
			       f->path);
	if (err)
		return err_set(err, "%s: no room for %" PRIu64 " bytes: %s", f->path, f->size,
			       strerror(err));
	return 0;
}

static int fill_file(struct store_file *f, const char *text, size_t len)
{
	uint64_t word = htole64(len), data = 0;

	for (uint32_t i = 0; i < f->header.n; i++)
		data += f->header.tensor[i].len;
	f->size = LENGTH_BYTES + len + data;
	int rc = take_space(f);
	if (rc == 0)
		rc = map(f, f->fd, PROT_READ | PROT_WRITE);
	if (rc == 0)
		rc = index_names(f);
	if (rc < 0)
		return rc;
	memcpy(f->map, &word, LENGTH_BYTES);
	memcpy(f->map + LENGTH_BYTES, text, len);
	place(f, LENGTH_BYTES + len);
	return 0;
}

static int make_file(struct store_file *f, const char *text, size_t len)
{
	f->fd = open(f->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (f->fd < 0)
		return cannot(errno, f->path, "create");
	int rc = fill_file(f, text, len);
	if (rc < 0)
		unlink(f->path);
	return rc;
}

int store_create(const char *path, const struct store_tensor *tensor, uint32_t n,
		 const char *const (*meta)[2], uint32_t n_meta, struct store_file **out)
{
	struct store_file *f = file_new(path);
	char *text = NULL;
	size_t len = 0;

	if (!f)
		return err_set(ENOMEM, "%s: no memory", path);
	int rc = header_layout(tensor, n, &f->header);
	if (rc == 0)
		rc = print_meta(meta, n_meta, &f->header.meta);
	if (rc == 0)
		rc = header_print(&f->header, &text, &len);
	if (rc < 0)
		err_wrap(rc, "%s", path);
	if (rc == 0)
		rc = make_file(f, text, len);
	free(text);
	if (rc < 0)
		store_close(f);
	else
		*out = f;
	return rc;
}

int store_sync(struct store_file *file)
{
	if (fsync(file->fd) < 0)
		return cannot(errno, file->path, "fsync");
	return 0;
}

void store_close(struct store_file *file)
{
	if (!file)
		return;
	if (file->map)
		munmap(file->map, file->size);
	if (file->fd >= 0)
		close(file->fd);
	header_free(&file->header);
	free(file->by_name);
	free(file->path);
	free(file);
}
