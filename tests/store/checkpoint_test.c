/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: round trips, which are kept, which are found, and who may write.
 */
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "run.h"
#include "store_samples.h"

static const char *dir;

static void setup(void)
{
	dir = sample_dir();
}

static void says(const char *text)
{
	ck_assert_msg(strstr(err_text(), text), "\"%s\" is not in \"%s\"", text, err_text());
}

static void write_next(uint64_t seed, uint32_t keep, uint64_t number)
{
	uint64_t got = 0;

	ck_assert_msg(sample_write(dir, seed, keep, &got) == 0, "%s", err_text());
	ck_assert_uint_eq(got, number);
}

static void newest_is(uint64_t seed)
{
	struct checkpoint *c;

	ck_assert_msg(checkpoint_open_newest(dir, &c) == 0, "%s", err_text());
	sample_check(c, seed);
	checkpoint_close(c);
}

static void same_param(const struct checkpoint_param *a, const struct checkpoint_param *b)
{
	ck_assert_mem_eq(&a->decl, &b->decl, sizeof(a->decl));
	ck_assert(a->rate == b->rate && a->block_elems == b->block_elems &&
		  a->blocks == b->blocks && a->updates == b->updates);
}

/* ---- round trips ----------------------------------------------------------------------------- */

START_TEST(round_trip)
{
	const char *fresh = in_dir(dir, "made");
	struct checkpoint_manifest m = sample_manifest(9);
	struct checkpoint *c;
	uint64_t number;

	ck_assert_int_eq(sample_write(fresh, 9, 1, &number), 0);
	ck_assert_uint_eq(number, 1);
	ck_assert_int_eq(checkpoint_open(in_dir(fresh, "checkpoint-00000001"), &c), 0);
	ck_assert_str_eq(checkpoint_path(c), in_dir(fresh, "checkpoint-00000001"));
	sample_check(c, 9);
	const struct checkpoint_manifest *got = checkpoint_manifest(c);
	ck_assert_uint_eq(got->number, 1);
	ck_assert(got->written > 1700000000);
	ck_assert(got->mode == m.mode && got->staleness == m.staleness &&
		  got->trainers == m.trainers && got->server == m.server);
	ck_assert_uint_eq(got->params, m.params);
	for (uint32_t i = 0; i < m.params; i++)
		same_param(&got->param[i], &m.param[i]);
	ck_assert_uint_eq(got->weights.bytes, store_size(checkpoint_weights_of(c)));
	checkpoint_close(c);
	/* The lock and the one; nothing temporary, and nothing beside it. */
	ck_assert_uint_eq(dir_entries(fresh), 2);
	ck_assert_uint_eq(dir_entries(in_dir(fresh, "checkpoint-00000001")), 3);
	ck_assert_uint_eq(dir_entries(dir), 1);
}
END_TEST

START_TEST(none_at_all)
{
	struct checkpoint *c = NULL;
	struct checkpoint_manifest m = sample_manifest(1);
	struct checkpoint_writer *w;

	m.params = 0;
	ck_assert_int_eq(checkpoint_begin(dir, NULL, 0, NULL, 0, &w), 0);
	ck_assert_int_eq(checkpoint_commit(w, &m, 1, NULL), 0);
	ck_assert_int_eq(checkpoint_open_newest(dir, &c), 0);
	ck_assert_uint_eq(checkpoint_manifest(c)->params, 0);
	checkpoint_close(c);
}
END_TEST

START_TEST(what_is_not_there)
{
	struct checkpoint *c = NULL;

	ck_assert_int_eq(checkpoint_open_newest(dir, &c), -ENOENT);
	says("there is no checkpoint");
	ck_assert_int_eq(checkpoint_open_newest(in_dir(dir, "none"), &c), -ENOENT);
	ck_assert_int_eq(checkpoint_open(in_dir(dir, "none"), &c), -ENOENT);
	file_write(in_dir(dir, "file"), "x", 1);
	ck_assert_int_eq(checkpoint_open(in_dir(dir, "file"), &c), -ENOTDIR);
	ck_assert_int_eq(checkpoint_open_newest(in_dir(dir, "file"), &c), -ENOTDIR);
	ck_assert_int_eq(sample_write(in_dir(dir, "file"), 1, 1, NULL), -ENOTDIR);
	ck_assert_int_eq(sample_write(in_dir(dir, "none/none"), 1, 1, NULL), -ENOENT);
	says("none/none");
	/* A directory of another kind is not a checkpoint. */
	ck_assert_int_eq(checkpoint_open(dir, &c), -EBADMSG);
	says("manifest.json");
	ck_assert_ptr_null(c);
}
END_TEST

START_TEST(a_checkpoint_or_not)
{
	struct checkpoint_manifest m;

	write_next(4, 1, 1);
	const char *one = in_dir(dir, "checkpoint-00000001"), *copy = in_dir(dir, "copy");
	ck_assert(checkpoint_is_one(one) && checkpoint_is_one(in_dir(one, "")));
	ck_assert(!checkpoint_is_one(dir) && !checkpoint_is_one(in_dir(dir, "none")));
	ck_assert(!checkpoint_is_one(in_dir(one, "weights.safetensors")));
	/* By its files under any name, by its name without any. */
	ck_assert_int_eq(mkdir(copy, 0755), 0);
	ck_assert(!checkpoint_is_one(copy));
	file_write(in_dir(copy, "state.safetensors"), "", 0);
	ck_assert(checkpoint_is_one(copy));
	ck_assert_int_eq(checkpoint_peek(copy, &m), -EBADMSG);
	ck_assert_int_eq(checkpoint_peek(in_dir(dir, "none"), &m), -ENOENT);
	ck_assert_int_eq(mkdir(in_dir(dir, "checkpoint-00000002"), 0755), 0);
	ck_assert(checkpoint_is_one(in_dir(dir, "checkpoint-00000002")));
	/* The manifest of one whose files are torn. */
	ck_assert_int_eq(truncate(in_dir(one, "weights.safetensors"), 0), 0);
	ck_assert_int_eq(checkpoint_peek(one, &m), 0);
	ck_assert_uint_eq(m.step, 4);
	checkpoint_manifest_free(&m);
	checkpoint_manifest_free(&m);
}
END_TEST

START_TEST(the_list)
{
	uint64_t *numbers;
	uint32_t n;

	ck_assert_int_eq(checkpoint_list(dir, &numbers, &n), 0);
	ck_assert_uint_eq(n, 0);
	free(numbers);
	for (uint64_t i = 1; i <= 11; i++)
		write_next(i, 100, i);
	ck_assert_int_eq(mkdir(in_dir(dir, "checkpoint-1000000000"), 0755), 0);
	ck_assert_int_eq(mkdir(in_dir(dir, ".checkpoint-00000012.tmp"), 0755), 0);
	ck_assert_int_eq(checkpoint_list(dir, &numbers, &n), 0);
	ck_assert_uint_eq(n, 12);
	for (uint64_t i = 0; i < 11; i++)
		ck_assert_uint_eq(numbers[i], i + 1);
	ck_assert_uint_eq(numbers[11], 1000000000);
	free(numbers);
	ck_assert_int_eq(checkpoint_list(in_dir(dir, "none"), &numbers, &n), -ENOENT);
}
END_TEST

/* ---- which are kept -------------------------------------------------------------------------- */

static bool is_there(uint64_t number)
{
	char name[CHECKPOINT_NAME];

	return file_exists(in_dir(dir, checkpoint_name(number, name)));
}

START_TEST(so_many_are_kept)
{
	uint32_t keep = (uint32_t)_i;

	for (uint64_t n = 1; n <= 6; n++) {
		write_next(n, keep, n);
		newest_is(n);
		for (uint64_t k = 1; k <= n; k++)
			ck_assert_int_eq(is_there(k), k + keep > n);
	}
}
END_TEST

/* Never a name that only looks like one of ours, nor what is not ours in a temporary one. */
START_TEST(what_is_not_ours_stays)
{
	static const char *const names[] = {"checkpoint-1",
					    "checkpoint-000000002",
					    "checkpoint-00000000",
					    "checkpoint-0000000x",
					    "checkpoint-00000001.old",
					    "checkpoint--0000001",
					    ".checkpoint-00000004.tmpx",
					    "notes"};
	const char *left = in_dir(dir, ".checkpoint-00000009.tmp");
	enum { N = sizeof(names) / sizeof(names[0]) };

	for (int i = 0; i < N; i++)
		ck_assert_int_eq(mkdir(in_dir(dir, names[i]), 0755), 0);
	ck_assert_int_eq(mkdir(left, 0755), 0);
	file_write(in_dir(left, "weights.safetensors"), "x", 1);
	file_write(in_dir(left, "mine"), "x", 1);
	/* What could not be swept away keeps its number. */
	write_next(1, 1, 10);
	write_next(2, 1, 11);
	for (int i = 0; i < N; i++)
		ck_assert_msg(file_exists(in_dir(dir, names[i])), "%s", names[i]);
	ck_assert(file_exists(in_dir(left, "mine")));
	ck_assert(!file_exists(in_dir(left, "weights.safetensors")));
	ck_assert_int_eq(unlink(in_dir(left, "mine")), 0);
	write_next(3, 1, 12);
	ck_assert(!file_exists(left));
	newest_is(3);
}
END_TEST

/* Through a link that has a name of ours nothing is removed. */
START_TEST(links_are_not_followed)
{
	ck_assert_int_eq(mkdir(in_dir(dir, "other"), 0755), 0);
	file_write(in_dir(dir, "other/weights.safetensors"), "x", 1);
	ck_assert_int_eq(symlink("other", in_dir(dir, ".checkpoint-00000001.tmp")), 0);
	write_next(1, 1, 2);
	ck_assert_int_eq(symlink("other", in_dir(dir, "checkpoint-00000001")), 0);
	write_next(2, 1, 3);
	write_next(3, 1, 4);
	ck_assert(file_exists(in_dir(dir, "other/weights.safetensors")));
}
END_TEST

START_TEST(numbers_are_not_used_again)
{
	write_next(1, 9, 1);
	ck_assert_int_eq(mkdir(in_dir(dir, "checkpoint-123456789012"), 0755), 0);
	write_next(2, 9, UINT64_C(123456789013));
	newest_is(2);
	ck_assert(is_there(UINT64_C(123456789013)));
}
END_TEST

/* Names that are longer than ours can be are no checkpoints'; and behind the greatest comes none. */
START_TEST(numbers_end)
{
	const struct store_tensor none = {.ndim = 0};
	struct checkpoint_writer *w = NULL;

	ck_assert_int_eq(mkdir(in_dir(dir, "checkpoint-18446744073709551615"), 0755), 0);
	ck_assert_int_eq(mkdir(in_dir(dir, "checkpoint-1000000000000000"), 0755), 0);
	write_next(1, 9, 1);
	ck_assert_int_eq(mkdir(in_dir(dir, "checkpoint-999999999999998"), 0755), 0);
	write_next(2, 9, UINT64_C(999999999999999));
	newest_is(2);
	ck_assert_int_eq(checkpoint_begin(dir, &none, 0, &none, 0, &w), -EOVERFLOW);
	newest_is(2);
}
END_TEST

/* An unsound one takes no sound one's place. */
START_TEST(unsound_ones_do_not_count)
{
	write_next(1, 9, 1);
	write_next(2, 9, 2);
	write_next(3, 9, 3);
	ck_assert_int_eq(truncate(in_dir(dir, "checkpoint-00000003/weights.safetensors"), 100), 0);
	write_next(4, 2, 4);
	ck_assert(is_there(4) && is_there(3) && is_there(2) && !is_there(1));
	write_next(5, 2, 5);
	ck_assert(is_there(5) && is_there(4) && !is_there(3) && !is_there(2));
	/* `keep` is 1 at least. */
	write_next(6, 0, 6);
	ck_assert(is_there(6) && !is_there(5) && !is_there(4));
}
END_TEST

START_TEST(abandoned)
{
	struct checkpoint_writer *w;

	write_next(1, 1, 1);
	ck_assert_int_eq(checkpoint_begin(dir, sample_weights, SAMPLE_PARAMS, NULL, 0, &w), 0);
	ck_assert_uint_eq(dir_entries(dir), 3);
	checkpoint_abandon(w);
	checkpoint_abandon(NULL);
	ck_assert_uint_eq(dir_entries(dir), 2);
	/* As is one whose tensors, or manifest, can't be. */
	const struct store_tensor twice[] = {{.name = "a"}, {.name = "a"}};
	ck_assert_int_eq(checkpoint_begin(dir, sample_weights, 1, twice, 2, &w), -EINVAL);
	says("state.safetensors");
	ck_assert_uint_eq(dir_entries(dir), 2);
	struct checkpoint_manifest m = sample_manifest(1);
	m.server = 0;
	ck_assert_int_eq(checkpoint_begin(dir, sample_weights, 1, NULL, 0, &w), 0);
	ck_assert_int_eq(checkpoint_commit(w, &m, 1, NULL), -EINVAL);
	ck_assert_uint_eq(dir_entries(dir), 2);
	newest_is(1);
}
END_TEST

/* ---- two writers ----------------------------------------------------------------------------- */

START_TEST(one_writer_at_a_time)
{
	struct checkpoint_writer *w, *other = NULL;
	char pid[32];

	ck_assert_int_eq(checkpoint_begin(dir, NULL, 0, NULL, 0, &w), 0);
	ck_assert_int_eq(checkpoint_begin(dir, NULL, 0, NULL, 0, &other), -EBUSY);
	snprintf(pid, sizeof(pid), "process %d ", (int)getpid());
	says(pid);
	pid_t child = fork();
	if (child == 0)
		_exit(checkpoint_begin(dir, NULL, 0, NULL, 0, &other) == -EBUSY &&
			      strstr(err_text(), pid)
			  ? 0
			  : 1);
	int status = -1;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	/* The temporary one of who holds the lock was not swept away. */
	ck_assert(file_exists(in_dir(dir, ".checkpoint-00000001.tmp/weights.safetensors")));
	checkpoint_abandon(w);
	ck_assert_ptr_null(other);
	write_next(1, 1, 1);
}
END_TEST

/* A lock outlives nobody. */
START_TEST(a_dead_writer_holds_nothing)
{
	struct checkpoint_writer *w;
	pid_t child = fork();

	if (child == 0) {
		if (checkpoint_begin(dir, NULL, 0, NULL, 0, &w) < 0)
			_exit(1);
		raise(SIGKILL);
	}
	int status = 0;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status));
	write_next(1, 1, 2);
	ck_assert_uint_eq(dir_entries(dir), 2);
}
END_TEST

/* Who reads while another writes and removes what is being read gets a sound one all the same. */
START_TEST(read_while_another_writes)
{
	struct checkpoint *c;
	unsigned read = 0;
	uint64_t last = 1;
	int status;

	write_next(1, 1, 1);
	log_set_level(LOG_ERROR);
	pid_t child = fork();
	if (child == 0) {
		for (uint64_t n = 2; n <= 60; n++) {
			if (sample_write(dir, n, 1, NULL) < 0)
				_exit(1);
		}
		_exit(0);
	}
	while (waitpid(child, &status, WNOHANG) == 0) {
		ck_assert_msg(checkpoint_open_newest(dir, &c) == 0, "%s", err_text());
		uint64_t step = checkpoint_manifest(c)->step;
		ck_assert_uint_ge(step, last);
		sample_check(c, step);
		checkpoint_close(c);
		last = step;
		read++;
	}
	ck_assert_int_eq(status, 0);
	ck_assert_uint_gt(read, 0);
	newest_is(60);
}
END_TEST

/* ---- torn ------------------------------------------------------------------------------------ */

static const char *const files[] = {"weights.safetensors", "state.safetensors", "manifest.json"};

/* What checkpoint_open_newest gives, with what it logs in `logged`. */
static char logged[4096];

static int open_loudly(struct checkpoint **c)
{
	FILE *out = tmpfile();
	int saved = dup(STDERR_FILENO);

	dup2(fileno(out), STDERR_FILENO);
	int rc = checkpoint_open_newest(dir, c);
	dup2(saved, STDERR_FILENO);
	close(saved);
	rewind(out);
	logged[fread(logged, 1, sizeof(logged) - 1, out)] = 0;
	fclose(out);
	return rc;
}

static void falls_back_to(uint64_t seed, const char *file)
{
	struct checkpoint *c;

	ck_assert_msg(open_loudly(&c) == 0, "%s", err_text());
	sample_check(c, seed);
	checkpoint_close(c);
	ck_assert_msg(strstr(logged, "warn checkpoint 2 is not sound") && strstr(logged, file),
		      "logged: %s", logged);
}

START_TEST(torn_newest)
{
	const char *file = in_dir(in_dir(dir, "checkpoint-00000002"), files[_i]);
	struct checkpoint *c = NULL;

	write_next(1, 9, 1);
	write_next(2, 9, 2);
	struct bytes b = file_read(file);
	file_write(file, b.b, b.n / 2);
	falls_back_to(1, file);
	file_write(file, "", 0);
	falls_back_to(1, file);
	b.b[b.n / 3] ^= 1;
	file_write(file, b.b, b.n);
	falls_back_to(1, file);
	ck_assert_int_eq(unlink(file), 0);
	falls_back_to(1, file);
	ck_assert_int_eq(checkpoint_open(in_dir(dir, "checkpoint-00000002"), &c), -EBADMSG);
	says(file);
	ck_assert_int_eq(mkdir(file, 0755), 0);
	falls_back_to(1, file);
	/* And with none that is sound. */
	file = in_dir(in_dir(dir, "checkpoint-00000001"), files[_i]);
	file_write(file, b.b, b.n - 1);
	ck_assert_int_eq(open_loudly(&c), -EBADMSG);
	says("none of the 2 checkpoints there is sound");
	ck_assert_ptr_nonnull(strstr(logged, "checkpoint 1 is not sound"));
	ck_assert_ptr_null(c);
	free(b.b);
	/* The next has a number of its own, and is found. */
	write_next(3, 9, 3);
	newest_is(3);
}
END_TEST

static void refused(const char *path, const char *file, size_t at)
{
	struct checkpoint *c = NULL;

	ck_assert_msg(checkpoint_open(path, &c) == -EBADMSG, "%s at %zu: %s", file, at, err_text());
	ck_assert_msg(strstr(err_text(), file), "\"%s\" is not in \"%s\"", file, err_text());
	ck_assert_ptr_null(c);
}

START_TEST(any_cut)
{
	const char *path = in_dir(dir, "checkpoint-00000001"), *file = in_dir(path, files[_i]);

	write_next(1, 1, 1);
	struct bytes b = file_read(file);
	srand(2);
	for (size_t k = 0; k < 300; k++) {
		size_t n = k < 100 ? k : k < 200 ? b.n - (k - 99) : (size_t)rand() % b.n;

		file_write(file, b.b, n < b.n ? n : 0);
		refused(path, files[_i], n);
	}
	b.b[b.n] = 0; /* there is room */
	file_write(file, b.b, b.n + 1);
	refused(path, files[_i], b.n + 1);
	free(b.b);
}
END_TEST

START_TEST(any_flip)
{
	const char *path = in_dir(dir, "checkpoint-00000001"), *file = in_dir(path, files[_i]);
	struct checkpoint *c;

	write_next(1, 1, 1);
	struct bytes b = file_read(file);
	srand(3);
	for (int k = 0; k < 500; k++) {
		size_t bit = (size_t)rand() % (b.n * 8);

		b.b[bit / 8] ^= (uint8_t)(1u << bit % 8);
		file_write(file, b.b, b.n);
		refused(path, files[_i], bit / 8);
		b.b[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	file_write(file, b.b, b.n);
	ck_assert_int_eq(checkpoint_open(path, &c), 0);
	sample_check(c, 1);
	checkpoint_close(c);
	free(b.b);
}
END_TEST

/* Two sound checkpoints, and a file of one in the other. */
START_TEST(exchanged)
{
	const char *path = in_dir(dir, "checkpoint-00000002");

	write_next(1, 9, 1);
	write_next(2, 9, 2);
	for (int i = 0; i < 2; i++) {
		struct bytes b = file_read(in_dir(in_dir(dir, "checkpoint-00000001"), files[i]));
		struct bytes own = file_read(in_dir(path, files[i]));

		file_write(in_dir(path, files[i]), b.b, b.n);
		refused(path, files[i], 0);
		file_write(in_dir(path, files[i]), own.b, own.n);
		free(b.b);
		free(own.b);
	}
	newest_is(2);
}
END_TEST

/* Files and manifest agree in their checksums, and not in what they hold. */
static void mismatch(const struct store_tensor *weights, uint32_t n, const char *text)
{
	struct checkpoint_manifest m = sample_manifest(1);
	struct checkpoint_writer *w;
	struct checkpoint *c = NULL;

	ck_assert_int_eq(checkpoint_begin(dir, weights, n, NULL, 0, &w), 0);
	ck_assert_int_eq(checkpoint_commit(w, &m, 1, NULL), 0);
	ck_assert_int_eq(open_loudly(&c), -EBADMSG);
	ck_assert_msg(strstr(logged, text), "%s", logged);
}

START_TEST(files_hold_what_the_manifest_says)
{
	struct store_tensor t[SAMPLE_PARAMS + 1];

	memcpy(t, sample_weights, sizeof(sample_weights));
	mismatch(t, SAMPLE_PARAMS - 1, "has no tensor \"hashed\"");
	t[1].dtype = STORE_U32;
	mismatch(t, SAMPLE_PARAMS, "tensor \"words\" has another");
	t[1].dtype = STORE_F32;
	t[1].dim[0]--;
	mismatch(t, SAMPLE_PARAMS, "tensor \"words\" has another");
	t[1].dim[0]++;
	t[0].ndim = 1;
	mismatch(t, SAMPLE_PARAMS, "w\" has another");
	t[0].ndim = 2;
	t[2].dim[0] = 1001;
	mismatch(t, SAMPLE_PARAMS, "tensor \"hashed\" has another");
	t[2].dim[0] = 0;
	t[3] = (struct store_tensor){.name = "more", .dtype = STORE_I8};
	write_next(1, 1, 6);
}
END_TEST

/* Who may not read the newest is not given an older one for it. */
START_TEST(no_right_to_read)
{
	struct checkpoint *c = NULL;

	write_next(1, 9, 1);
	write_next(2, 9, 2);
	ck_assert_int_eq(chmod(in_dir(dir, "checkpoint-00000002/manifest.json"), 0), 0);
	ck_assert_int_eq(chmod(dir, 0755), 0);
	if (geteuid() == 0)
		ck_assert_int_eq(seteuid(65534), 0);
	int rc = checkpoint_open_newest(dir, &c);
	int written = sample_write(dir, 3, 1, NULL);
	if (getuid() == 0) {
		ck_assert_int_eq(seteuid(0), 0);
		ck_assert_int_eq(written, -EACCES);
	}
	ck_assert_int_eq(rc, -EACCES);
	ck_assert_ptr_null(c);
}
END_TEST

/* Names are data: none of them is a path. */
START_TEST(names_do_not_escape)
{
	struct store_tensor t = {
	    .name = "../../../escaped", .dtype = STORE_F32, .ndim = 1, .dim = {4}};
	struct checkpoint_manifest m = sample_manifest(1);
	struct checkpoint_param p = {.rate = 1, .block_elems = 4, .blocks = 1};
	struct checkpoint_writer *w;
	struct checkpoint *c;

	p.decl = (struct wire_param){.name = "../../../escaped",
				     .ndim = 1,
				     .dim = {4},
				     .rule = "sgd",
				     .init = WIRE_INIT_TRAINER};
	m.params = 1;
	m.param = &p;
	const char *inner = in_dir(dir, "inner");
	ck_assert_int_eq(checkpoint_begin(inner, &t, 1, NULL, 0, &w), 0);
	ck_assert_int_eq(checkpoint_commit(w, &m, 1, NULL), 0);
	ck_assert_int_eq(checkpoint_open_newest(inner, &c), 0);
	ck_assert_ptr_nonnull(store_find(checkpoint_weights_of(c), "../../../escaped"));
	checkpoint_close(c);
	ck_assert_uint_eq(dir_entries(dir), 1);
	ck_assert_uint_eq(dir_entries(inner), 2);
	ck_assert_uint_eq(dir_entries(in_dir(inner, "checkpoint-00000001")), 3);
}
END_TEST

static Suite *torn_suite(void)
{
	Suite *suite = suite_create("torn");
	TCase *tc = tcase_create("torn");

	tcase_add_checked_fixture(tc, setup, sample_clean);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, torn_newest, 0, 3);
	tcase_add_loop_test(tc, any_cut, 0, 3);
	tcase_add_loop_test(tc, any_flip, 0, 3);
	tcase_add_test(tc, exchanged);
	tcase_add_test(tc, files_hold_what_the_manifest_says);
	tcase_add_test(tc, no_right_to_read);
	tcase_add_test(tc, names_do_not_escape);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	Suite *suite = suite_create("checkpoint");
	TCase *tc = tcase_create("checkpoint");

	tcase_add_checked_fixture(tc, setup, sample_clean);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, round_trip);
	tcase_add_test(tc, none_at_all);
	tcase_add_test(tc, what_is_not_there);
	tcase_add_test(tc, a_checkpoint_or_not);
	tcase_add_test(tc, the_list);
	tcase_add_loop_test(tc, so_many_are_kept, 1, 4);
	tcase_add_test(tc, what_is_not_ours_stays);
	tcase_add_test(tc, links_are_not_followed);
	tcase_add_test(tc, numbers_are_not_used_again);
	tcase_add_test(tc, numbers_end);
	tcase_add_test(tc, unsound_ones_do_not_count);
	tcase_add_test(tc, abandoned);
	tcase_add_test(tc, one_writer_at_a_time);
	tcase_add_test(tc, a_dead_writer_holds_nothing);
	tcase_add_test(tc, read_while_another_writes);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);
	srunner_add_suite(runner, torn_suite());
	return run_all(runner);
}
