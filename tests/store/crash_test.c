/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint that is killed, or refused by the system, at each of its calls in turn. The calls
 * are those of libc that store/ makes, taken by the linker's --wrap.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "run.h"
#include "store_samples.h"

/* ---- the calls ------------------------------------------------------------------------------- */

enum what { COUNT, KILL, FAIL };

static struct {
	bool armed;
	enum what what;
	int at, count, err; /* err: 0, what each call would say of a broken disk */
	const char *only;   /* NULL: every call counts */
	char log[256][96];  /* "fsync manifest.json" */
	char failed[96];
} calls;

static void begin(enum what what, const char *only, int at, int err)
{
	memset(&calls, 0, sizeof(calls));
	calls.what = what;
	calls.only = only;
	calls.at = at;
	calls.err = err;
	calls.armed = true;
}

static void end(void)
{
	calls.armed = false;
}

/* The last part of what `fd` is of. */
static void name_of(int fd, char *buf, size_t size)
{
	char link[64], path[512];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = 0;
	const char *slash = strrchr(path, '/');
	snprintf(buf, size, "%s", slash ? slash + 1 : path);
}

/* True: the call is to fail. */
static bool step(const char *call, const char *name, int fd)
{
	char line[sizeof(calls.log[0])], of[64] = "";

	if (!calls.armed || (calls.only && strcmp(calls.only, call)))
		return false;
	if (fd >= 0)
		name_of(fd, of, sizeof(of));
	snprintf(line, sizeof(line), "%s %s", call, name ? name : of);
	snprintf(calls.log[calls.count % 256], sizeof(line), "%s", line);
	if (++calls.count != calls.at)
		return false;
	if (calls.what == KILL)
		raise(SIGKILL);
	snprintf(calls.failed, sizeof(calls.failed), "%s", line);
	return calls.what == FAIL;
}

static int broken(int usual)
{
	errno = calls.err ? calls.err : usual;
	return -1;
}

#define WRAP(type, name, ...)            \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

static mode_t mode_of(int flags, va_list ap)
{
	return flags & O_CREAT ? va_arg(ap, mode_t) : 0;
}

WRAP(int, open, const char *path, int flags, ...)
{
	va_list ap;

	va_start(ap, flags);
	mode_t mode = mode_of(flags, ap);
	va_end(ap);
	return step("open", path, -1) ? broken(EIO) : __real_open(path, flags, mode);
}

WRAP(int, openat, int dir, const char *path, int flags, ...)
{
	va_list ap;

	va_start(ap, flags);
	mode_t mode = mode_of(flags, ap);
	va_end(ap);
	return step("openat", path, -1) ? broken(EIO) : __real_openat(dir, path, flags, mode);
}

WRAP(int, mkdir, const char *path, mode_t mode)
{
	return step("mkdir", path, -1) ? broken(EIO) : __real_mkdir(path, mode);
}

WRAP(int, mkdirat, int dir, const char *path, mode_t mode)
{
	return step("mkdirat", path, -1) ? broken(EIO) : __real_mkdirat(dir, path, mode);
}

WRAP(int, posix_fallocate, int fd, off_t from, off_t len)
{
	if (step("posix_fallocate", NULL, fd))
		return calls.err ? calls.err : ENOSPC;
	return __real_posix_fallocate(fd, from, len);
}

WRAP(void *, mmap, void *at, size_t len, int prot, int flags, int fd, off_t from)
{
	if (step("mmap", NULL, fd)) {
		broken(ENOMEM);
		return MAP_FAILED;
	}
	return __real_mmap(at, len, prot, flags, fd, from);
}

WRAP(int, flock, int fd, int op)
{
	return step("flock", NULL, fd) ? broken(ENOLCK) : __real_flock(fd, op);
}

WRAP(int, ftruncate, int fd, off_t len)
{
	return step("ftruncate", NULL, fd) ? broken(EIO) : __real_ftruncate(fd, len);
}

WRAP(ssize_t, pwrite, int fd, const void *buf, size_t len, off_t at)
{
	return step("pwrite", NULL, fd) ? broken(EIO) : __real_pwrite(fd, buf, len, at);
}

/* A few bytes at a time: a write may be short. */
WRAP(ssize_t, write, int fd, const void *buf, size_t len)
{
	if (!calls.armed || fd == STDERR_FILENO)
		return __real_write(fd, buf, len);
	return step("write", NULL, fd) ? broken(EIO) : __real_write(fd, buf, len > 900 ? 900 : len);
}

WRAP(int, fsync, int fd)
{
	return step("fsync", NULL, fd) ? broken(EIO) : __real_fsync(fd);
}

WRAP(int, renameat, int dir, const char *from, int to_dir, const char *to)
{
	return step("renameat", to, -1) ? broken(EIO) : __real_renameat(dir, from, to_dir, to);
}

WRAP(int, unlinkat, int dir, const char *path, int flags)
{
	return step("unlinkat", path, -1) ? broken(EIO) : __real_unlinkat(dir, path, flags);
}

WRAP(int, unlink, const char *path)
{
	return step("unlink", path, -1) ? broken(EIO) : __real_unlink(path);
}

WRAP(int, close, int fd)
{
	bool fails = step("close", NULL, fd);
	int rc = __real_close(fd);

	return fails ? broken(EIO) : rc;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const char *dir;

static void setup(void)
{
	dir = sample_dir();
	log_set_level(LOG_ERROR);
}

static uint64_t newest(void)
{
	struct checkpoint *c;

	ck_assert_msg(checkpoint_open_newest(dir, &c) == 0, "%s", err_text());
	uint64_t seed = checkpoint_manifest(c)->step;
	sample_check(c, seed);
	checkpoint_close(c);
	return seed;
}

/* Only what is to be is there: the lock, and `n` checkpoints. */
static void tidy(unsigned n)
{
	ck_assert_uint_eq(dir_entries(dir), n + 1);
}

/* Returns false once the child got to its end. */
static bool killed_at(int k)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		begin(KILL, NULL, k, 0);
		int rc = sample_write(dir, 2, 1, NULL);
		_exit(rc == 0 ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status)) {
		ck_assert_int_eq(WTERMSIG(status), SIGKILL);
		return true;
	}
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	return false;
}

START_TEST(killed_at_each_call)
{
	int old = 0, new = 0, k = 1;
	bool killed;

	do {
		dir = sample_dir();
		ck_assert_int_eq(sample_write(dir, 1, 1, NULL), 0);
		killed = killed_at(k++);
		uint64_t seed = newest();
		ck_assert(seed == 1 || seed == 2);
		/* Once it is there it stays there. */
		ck_assert_msg(seed == 2 || !new, "call %d", k);
		old += seed == 1;
		new += seed == 2;
		ck_assert_msg(sample_write(dir, 3, 1, NULL) == 0, "%s", err_text());
		ck_assert_uint_eq(newest(), 3);
		tidy(1);
		sample_clean();
	} while (killed);
	ck_assert_msg(old > 15 && new > 5, "%d times the old one, %d the new one", old, new);
}
END_TEST

/* Every call fails once, the very first checkpoint and one that follows others. */
START_TEST(each_call_fails)
{
	unsigned refused = 0, borne = 0;

	for (int k = 1;; k++) {
		dir = sample_dir();
		ck_assert_int_eq(sample_write(dir, 1, 2, NULL), 0);
		begin(FAIL, NULL, k, _i ? ENOSPC : 0);
		int rc = sample_write(dir, 2, 2, NULL);
		end();
		bool cleaning = !strncmp(calls.failed, "unlink", 6);
		if (rc < 0) {
			refused++;
			ck_assert_msg(strlen(err_text()) > 8, "%s", calls.failed);
			ck_assert_uint_eq(newest(), 1);
			if (!cleaning)
				tidy(1);
		} else {
			borne++;
			ck_assert_uint_eq(newest(), 2);
		}
		ck_assert_msg(sample_write(dir, 3, 1, NULL) == 0, "%s", err_text());
		tidy(1);
		sample_clean();
		if (calls.count < k)
			break;
	}
	ck_assert_msg(refused > 15 && borne > 3, "%u refused, %u borne", refused, borne);
}
END_TEST

static const struct {
	const char *call;
	int at, err;
	const char *text; /* in the error's text */
} faults[] = {
    {"posix_fallocate", 1, ENOSPC, "weights.safetensors: no room for"},
    {"posix_fallocate", 2, ENOSPC, "state.safetensors: no room for"},
    {"posix_fallocate", 1, EOPNOTSUPP, "can't set space aside"},
    {"posix_fallocate", 1, EFBIG, "File too large"},
    {"mmap", 1, ENOMEM, "weights.safetensors: can't map"},
    {"fsync", 1, EIO, "weights.safetensors: fsync"},
    {"fsync", 2, EIO, "state.safetensors: fsync"},
    {"fsync", 3, EIO, "manifest.json"},
    {"fsync", 4, EIO, "fsync"},
    {"fsync", 5, EIO, "fsync"},
    {"write", 1, ENOSPC, "manifest.json: No space left"},
    {"write", 2, ENOSPC, "manifest.json: No space left"},
    {"renameat", 1, EIO, "checkpoint-00000002: rename"},
    {"mkdirat", 1, ENOSPC, "checkpoint-00000002"},
    {"openat", 1, EROFS, ".lock: open: Read-only"},
    {"flock", 1, ENOLCK, ".lock: flock"},
};

START_TEST(what_it_says)
{
	ck_assert_int_eq(sample_write(dir, 1, 2, NULL), 0);
	begin(FAIL, faults[_i].call, faults[_i].at, faults[_i].err);
	int rc = sample_write(dir, 2, 2, NULL);
	end();
	ck_assert_msg(calls.failed[0], "%s was not called %d times", faults[_i].call,
		      faults[_i].at);
	ck_assert_int_eq(rc, -faults[_i].err);
	ck_assert_msg(strstr(err_text(), faults[_i].text), "\"%s\" is not in \"%s\"",
		      faults[_i].text, err_text());
	ck_assert_msg(strstr(err_text(), dir), "%s", err_text());
	ck_assert_uint_eq(newest(), 1);
	tidy(1);
}
END_TEST

START_TEST(an_interrupted_call_is_made_again)
{
	begin(FAIL, "write", 1, EINTR);
	ck_assert_int_eq(sample_write(dir, 1, 1, NULL), 0);
	begin(FAIL, "posix_fallocate", 1, EINTR);
	ck_assert_int_eq(sample_write(dir, 2, 1, NULL), 0);
	end();
	ck_assert_uint_eq(newest(), 2);
}
END_TEST

START_TEST(a_file_alone)
{
	const char *path = in_dir(dir, "t");
	struct store_file *f = NULL;

	begin(FAIL, "posix_fallocate", 1, ENOSPC);
	ck_assert_int_eq(store_create(path, sample_weights, SAMPLE_PARAMS, NULL, 0, &f), -ENOSPC);
	end();
	ck_assert(!file_exists(path));
	ck_assert_int_eq(store_create(path, sample_weights, SAMPLE_PARAMS, NULL, 0, &f), 0);
	begin(FAIL, "fsync", 1, EIO);
	ck_assert_int_eq(store_sync(f), -EIO);
	end();
	store_close(f);
}
END_TEST

static int place_of(const char *line, int from)
{
	for (int i = from; i < calls.count && i < 256; i++)
		if (!strcmp(calls.log[i], line))
			return i;
	ck_abort_msg("\"%s\" is not among the calls from the %d. on", line, from);
	return 0;
}

/* What a power cut must find on the disk is there before the name is. */
START_TEST(order_of_the_disk)
{
	static const char *const order[] = {
	    "posix_fallocate weights.safetensors",
	    "posix_fallocate state.safetensors",
	    "fsync weights.safetensors",
	    "fsync state.safetensors",
	    "write manifest.json",
	    "fsync manifest.json",
	    "fsync .checkpoint-00000002.tmp",
	    "renameat checkpoint-00000002",
	    NULL, /* fsync of the directory */
	    "renameat .checkpoint-00000001.tmp",
	    "unlinkat .checkpoint-00000001.tmp",
	};
	char of_dir[96];
	int at = 0;

	ck_assert_int_eq(sample_write(dir, 1, 1, NULL), 0);
	snprintf(of_dir, sizeof(of_dir), "fsync %s", strrchr(dir, '/') + 1);
	begin(COUNT, NULL, 0, 0);
	ck_assert_int_eq(sample_write(dir, 2, 1, NULL), 0);
	end();
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		at = place_of(order[i] ? order[i] : of_dir, at) + 1;
}
END_TEST

/* A directory of its own is on the disk before what is in it. */
START_TEST(order_of_a_new_directory)
{
	char parent[96];

	begin(COUNT, NULL, 0, 0);
	ck_assert_int_eq(sample_write(in_dir(dir, "made"), 1, 1, NULL), 0);
	end();
	snprintf(parent, sizeof(parent), "fsync %s", strrchr(dir, '/') + 1);
	place_of("flock .lock", place_of(parent, 0));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("crash");
	TCase *tc = tcase_create("crash");

	tcase_add_checked_fixture(tc, setup, sample_clean);
	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, killed_at_each_call);
	tcase_add_loop_test(tc, each_call_fails, 0, 2);
	tcase_add_loop_test(tc, what_it_says, 0, sizeof(faults) / sizeof(faults[0]));
	tcase_add_test(tc, an_interrupted_call_is_made_again);
	tcase_add_test(tc, a_file_alone);
	tcase_add_test(tc, order_of_the_disk);
	tcase_add_test(tc, order_of_a_new_directory);
	suite_add_tcase(suite, tc);
	return run_all(srunner_create(suite));
}
