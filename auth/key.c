/* SPDX-License-Identifier: Apache-2.0
 *
 * Key files. What is judged is the open file, not its name, so nothing can be put in its place in
 * between; a symbolic link is followed, and what it leads to is judged. The bytes go from the kernel
 * straight to where they stay.
 */
#include "auth/key.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

static int check_length(const char *path, uint64_t len)
{
	if (len >= KEY_MIN && len <= KEY_MAX)
		return 0;
	return err_set(EINVAL, "key file %s: %llu bytes; must be %u to %u (head -c 32 /dev/urandom "
		       "makes one)", path, (unsigned long long)len, KEY_MIN, KEY_MAX);
}

static int check_file(const char *path, const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return err_set(EINVAL, "key file %s: not a regular file", path);
	if (st->st_uid != geteuid() && st->st_uid != 0)
		return err_set(EACCES, "key file %s: it belongs to user %u, and must be this "
			       "process's (user %u) or root's", path, (unsigned)st->st_uid,
			       (unsigned)geteuid());
	if (st->st_mode & (S_IRWXG | S_IRWXO))
		return err_set(EACCES, "key file %s: mode %04o lets others at it; chmod 600 it, and "
			       "if others may have read it, make a new key", path,
			       (unsigned)st->st_mode & 07777);
	return check_length(path, (uint64_t)st->st_size);
}

/* Up to one byte too many, which shows that it is too long. */
static int read_all(const char *path, int fd, struct auth_key *key)
{
	uint8_t more;
	ssize_t n = 1;

	while (n != 0 && key->len < KEY_MAX) {
		n = read(fd, key->bytes + key->len, KEY_MAX - key->len);
		if (n < 0 && errno != EINTR)
			return err_set(errno, "key file %s: %s", path, strerror(errno));
		if (n > 0)
			key->len += (uint32_t)n;
	}
	if (n != 0 && read(fd, &more, 1) == 1)
		return check_length(path, KEY_MAX + 1);
	return check_length(path, key->len);
}

static int load(const char *path, int fd, struct auth_key **out)
{
	struct auth_key *key;
	struct stat st;
	int rc = fstat(fd, &st) < 0 ? err_set(errno, "key file %s: %s", path, strerror(errno))
				    : check_file(path, &st);

	if (rc < 0)
		return rc;
	/* Pages of its own: locked, left out of core dumps (both where that is allowed), wiped when
	 * freed, and with nothing readable behind them. */
	key = sodium_malloc(sizeof(*key));
	if (!key)
		return err_set(ENOMEM, "no memory for a key");
	key->len = 0;
	rc = read_all(path, fd, key);
	if (rc < 0) {
		sodium_free(key);
		return rc;
	}
	sodium_mprotect_readonly(key);
	*out = key;
	return 0;
}

int auth_key_load(const char *path, struct auth_key **out)
{
	/* Not blocking: a FIFO without a writer is refused, not waited for. */
	int fd, rc;

	if (sodium_init() < 0)
		return err_set(EIO, "libsodium can't start");
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return err_set(errno, "key file %s: %s", path, strerror(errno));
	rc = load(path, fd, out);
	close(fd);
	return rc;
}

void auth_key_free(struct auth_key *key)
{
	sodium_free(key);
}
