/* SPDX-License-Identifier: Apache-2.0
 *
 * Key files: which are taken, and what is said of the others.
 */
#include "auth_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"

static char dir[64];
static pid_t owner;

static void clean(void)
{
	char cmd[128];

	if (getpid() != owner)
		return;
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	if (system(cmd) != 0)
		fprintf(stderr, "%s stays behind\n", dir);
}

static const char *a_name(void)
{
	static char names[8][128];
	static unsigned n;

	if (owner != getpid()) {
		strcpy(dir, "/tmp/gradslot-key-XXXXXX");
		ck_assert_ptr_nonnull(mkdtemp(dir));
		owner = getpid();
		atexit(clean);
	}
	n++;
	snprintf(names[n % 8], sizeof(names[0]), "%s/%u", dir, n);
	return names[n % 8];
}

const char *a_file(const void *bytes, size_t len, unsigned mode)
{
	const char *name = a_name();
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
	return name;
}

static const char secret[] = "the secret that no text may have";

static const char *a_key(size_t len, unsigned mode)
{
	char bytes[5000] = {0};

	for (size_t i = 0; i < len; i++)
		bytes[i] = secret[i % (sizeof(secret) - 1)];
	return a_file(bytes, len, mode);
}

static void taken(const char *path)
{
	struct auth_key *key = NULL;

	ck_assert_msg(auth_key_load(path, &key) == 0, "%s", err_text());
	ck_assert_ptr_nonnull(key);
	auth_key_free(key);
}

static void refused(const char *path, int err, const char *word)
{
	struct auth_key *key = (struct auth_key *)dir;
	int rc = auth_key_load(path, &key);

	ck_assert_msg(rc == -err, "%d, not -%d: %s", rc, err, err_text());
	ck_assert_msg(strstr(err_text(), path) && strstr(err_text(), word),
		      "\"%s\" is not in \"%s\"", word, err_text());
	ck_assert_msg(!strstr(err_text(), "secret"), "\"%s\" gives the key away", err_text());
	ck_assert_ptr_eq(key, dir);
}

START_TEST(lengths)
{
	taken(a_key(16, 0600));
	taken(a_key(32, 0600));
	taken(a_key(4096, 0600));
	refused(a_key(0, 0600), EINVAL, "0 bytes; must be 16 to 4096");
	refused(a_key(15, 0600), EINVAL, "15 bytes; must be 16 to 4096");
	refused(a_key(4097, 0600), EINVAL, "4097 bytes; must be 16 to 4096");
}
END_TEST

START_TEST(modes)
{
	static const unsigned good[] = {0400, 0600, 0700};
	static const unsigned bad[] = {0640, 0644, 0604, 0660, 0620, 0602, 0610, 0601, 0777};

	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		taken(a_key(32, good[i]));
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		refused(a_key(32, bad[i]), EACCES, "chmod 600");
		ck_assert_msg(strstr(err_text(), "mode 0"), "%s", err_text());
	}
}
END_TEST

START_TEST(what_is_no_file)
{
	const char *fifo = a_name(), *sub = a_name();

	refused(a_name(), ENOENT, "No such file");
	ck_assert_int_eq(mkdir(sub, 0700), 0);
	refused(sub, EINVAL, "not a regular file");
	/* It must not wait for a writer: the test's deadline tells. */
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);
	refused(fifo, EINVAL, "not a regular file");
	refused("/dev/zero", EINVAL, "not a regular file");
}
END_TEST

/* A link is followed, and its target judged: keys of container systems are links. */
START_TEST(links)
{
	const char *link = a_name(), *loose = a_name(), *loop = a_name();

	ck_assert_int_eq(symlink(a_key(32, 0600), link), 0);
	taken(link);
	ck_assert_int_eq(symlink(a_key(32, 0644), loose), 0);
	refused(loose, EACCES, "chmod 600");
	ck_assert_int_eq(symlink(loop, loop), 0);
	refused(loop, ELOOP, "levels of symbolic links");
}
END_TEST

START_TEST(owners)
{
	const char *path = a_key(32, 0600);
	int status;

	if (geteuid() != 0)
		return; /* only root can give a file away */
	ck_assert_int_eq(chown(path, 12345, 0), 0);
	refused(path, EACCES, "belongs to user 12345");
	/* Root's files would be any user's to use; but with mode 0600 the kernel lets no one. */
	path = a_key(32, 0600);
	ck_assert_int_eq(chmod(dir, 0755), 0);
	pid_t child = fork();

	if (child == 0) {
		struct auth_key *key;

		if (setresuid(12345, 12345, 12345) < 0)
			_exit(2);
		_exit(auth_key_load(path, &key) == -EACCES ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* A key's pages are locked where that is allowed, and are not in core dumps. */
START_TEST(its_pages)
{
	char line[512], flags[512] = "";
	struct auth_key *key = NULL;
	unsigned long from, to;
	bool here = false;
	FILE *maps;

	ck_assert_int_eq(auth_key_load(a_key(4096, 0600), &key), 0);
	maps = fopen("/proc/self/smaps", "r");
	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2 && strchr(line, ' ') &&
		    strchr(line, '-') < strchr(line, ' '))
			here = (unsigned long)key >= from && (unsigned long)key < to;
		if (here && strncmp(line, "VmFlags:", 8) == 0)
			strcpy(flags, line);
	}
	fclose(maps);
	ck_assert_msg(strstr(flags, " dd"), "not left out of dumps: %s", flags);
	ck_assert_msg(!strstr(flags, " wr"), "may be written: %s", flags);
	auth_key_free(key);
	auth_key_free(NULL);
}
END_TEST

TCase *key_case(void)
{
	TCase *c = tcase_create("keys");

	tcase_set_timeout(c, 10);
	tcase_add_test(c, lengths);
	tcase_add_test(c, modes);
	tcase_add_test(c, what_is_no_file);
	tcase_add_test(c, links);
	tcase_add_test(c, owners);
	tcase_add_test(c, its_pages);
	return c;
}
