/* SPDX-License-Identifier: Apache-2.0
 *
 * What is restored, where, and what is not.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "cases.h"
#include "kernels/kern.h"
#include "raw.h"
#include "saga.h"
#include "saves.h"

enum { LINE = 3000, MIDDLE = 5 };

/* ---- several servers ------------------------------------------------------------------------- */

/* A line whose elements are all `value` at the beginning, pushed once with ones (sgd, lr 1). */
static void make_line(const struct srv_options *opt, const char *const *names, uint32_t n,
		      uint32_t steps)
{
	gs_param *p[4];
	float one[LINE];
	gs_trainer *t;
	struct bed b;

	for (uint32_t i = 0; i < LINE; i++)
		one[i] = 1;
	bed_start(&b, opt);
	t = connect_as(b.uri, 0);
	for (uint32_t i = 0; i < n; i++)
		p[i] = declare_line(t, names[i], LINE, 1, names[i][0]);
	ok(gs_start(t));
	for (uint32_t s = 0; s < steps; s++) {
		for (uint32_t i = 0; i < n; i++)
			ok(gs_push(t, p[i], one));
		ok(gs_step_end(t));
	}
	leave(t);
	bed_stop(&b);
}

/* What each is after so many steps. */
static void expect_line(const struct srv_options *opt, const char *const *names, uint32_t n,
			uint32_t steps)
{
	float w[LINE];
	gs_param *p[4];
	gs_trainer *t;
	struct bed b;

	bed_start(&b, opt);
	t = connect_as(b.uri, 0);
	for (uint32_t i = 0; i < n; i++)
		p[i] = declare_line(t, names[i], LINE, 1, 0);
	ok(gs_start(t));
	for (uint32_t i = 0; i < n; i++) {
		ok(gs_pull(t, p[i], GS_ORDERED, w));
		for (uint32_t k = 0; k < LINE; k++)
			must(w[k] == (float)names[i][0] - (float)steps, "\"%s\" is %g", names[i],
			     (double)w[k]);
	}
	leave(t);
	bed_stop(&b);
}

static const char *const A[] = {"a"}, *const B[] = {"b"}, *const AB[] = {"a", "b"},
			 *const BA[] = {"b", "a"};

START_TEST(two_into_one_and_back)
{
	struct srv_options opt = saves_options(1, SRV_SYNC);
	const char *one, *two, *both;

	saves_begin();
	one = saves_path("one"), two = saves_path("two"), both = saves_path("both");
	opt.checkpoint_dir = one;
	make_line(&opt, A, 1, 3);
	opt.checkpoint_dir = two;
	make_line(&opt, B, 1, 3);
	opt.checkpoint_dir = both;
	opt.n_restore = 2;
	opt.restore[0] = one;
	opt.restore[1] = two;
	opt.block_kib = 1;
	expect_line(&opt, AB, 2, 3); /* writes one in the end */
	opt.checkpoint_dir = NULL;
	opt.n_restore = 1;
	opt.restore[0] = both;
	expect_line(&opt, BA, 2, 3);
	expect_line(&opt, A, 1, 3);
	expect_line(&opt, B, 1, 3);

	opt.checkpoint_dir = two;
	opt.restore[0] = two;
	make_line(&opt, B, 1, 1);
	opt.n_restore = 2;
	opt.restore[0] = one;
	opt.restore[1] = two;
	fails(srv_create(&opt, &(struct srv *){NULL}), EINVAL, "step 3", "step 4", "sync");
	saves_end();
}
END_TEST

/* ---- other trainers, other modes --------------------------------------------------------------
 */

START_TEST(other_trainers)
{
	struct srv_options opt = saves_options(2, SRV_SYNC);
	struct saga *s = malloc(sizeof(*s));
	struct actor_of a[3];
	struct bed b;

	saves_begin();
	saga_init(s, SRV_SYNC);
	bed_start(&b, &opt);
	saga_run(s, b.uri, 2, 1, MIDDLE);
	bed_stop(&b);

	opt.n_restore = 1;
	opt.restore[0] = saves_dir;
	opt.checkpoint_dir = NULL;
	for (uint32_t k = 0; k < 2; k++) { /* sync as it was; async; the latter not from ssp */
		opt.trainers = 1;
		opt.mode = k == 0 ? SRV_SYNC : SRV_ASYNC;
		if (k == 1)
			s->n = 6; /* those that async mode has, too */
		bed_start(&b, &opt);
		saga_join(&a[0], s, b.uri, 0);
		saga_start(&a[0]);
		must(k == 1 || saga_step(&a[0]) == MIDDLE + 1, "step");
		ok(saga_look(&a[0], MIDDLE + 1));
		saga_leave(&a[0]);
		bed_stop(&b);
	}
	opt.mode = SRV_SSP;
	opt.staleness = 1;
	fails(srv_create(&opt, &(struct srv *){NULL}), EINVAL, "sync mode", "ssp mode");
	saves_end();
	free(s);
}
END_TEST

/* How many pushes of each rank are in, also when blocks are cut anew: to be read in the mailbox. */
static uint64_t kept(const struct raw *r, uint32_t block)
{
	const uint8_t *mailbox = tp_arena_base(r->mailbox);

	return *(const uint64_t *)(const void *)(mailbox + layout_kept_off(r->blocks, block));
}

START_TEST(pushes_are_counted)
{
	struct srv_options opt = saves_options(2, _i ? SRV_SSP : SRV_ASYNC);
	struct raw r[2];
	struct bed b;

	saves_begin();
	opt.block_kib = 1;
	for (uint32_t round = 0; round < 2; round++) {
		bed_start(&b, &opt);
		for (uint32_t i = 0; i < 2; i++)
			raw_join(&r[i], b.uri, (int32_t)i);
		for (uint32_t i = 0; i < 2; i++) {
			raw_wait_start(&r[i]);
			for (uint32_t k = 0; k < r[i].blocks; k++)
				must(kept(&r[i], k) == (round ? i + 1 : 0),
				     "rank %u block %u: %llu", i, k,
				     (unsigned long long)kept(&r[i], k));
		}
		/* Rank 0 pushes all once, rank 1 twice. */
		for (uint32_t i = 0; !round && i < 2; i++)
			for (uint32_t n = 0; n <= i; n++)
				for (uint32_t k = 0; k < 5; k++) {
					raw_gradient(&r[i], k / 4, k % 4, n, 1, true);
					raw_wait_credit(&r[i], k, n + 1);
				}
		raw_close(&r[0]);
		raw_close(&r[1]);
		bed_stop(&b);
		opt.n_restore = 1;
		opt.restore[0] = saves_dir;
		opt.block_kib = 4;
	}
	saves_end();
}
END_TEST

/* ---- one server after another -----------------------------------------------------------------
 */

struct long_run {
	struct saga *s;
	const char *uri;
	uint64_t last;
};

static void *run_long(void *arg)
{
	struct long_run *r = arg;

	saga_run(r->s, r->uri, 2, 1, r->last);
	return NULL;
}

static void end_server(struct bed *b, bool at_once)
{
	srv_stop(b->srv);
	if (at_once) {
		srv_stop(b->srv);
		pthread_join(b->thread, NULL);
		srv_destroy(b->srv);
	} else {
		pthread_join(b->thread, NULL);
		must(b->rc == 0, "srv_run: %d", b->rc);
		srv_destroy(b->srv);
	}
}

/* Servers come and go, some of them at once, and so some steps back; trainers stay, and what they
 * see at the beginning of each step is what an undisturbed run saw. A checkpoint's files may take the
 * time of many steps: the trainers slow down until it is there, or they would run out of steps. */
START_TEST(trainers_outlive_servers)
{
	enum { LAST = 50 };
	struct srv_options opt = saves_options(2, SRV_SYNC);
	struct saga *s = malloc(sizeof(*s));
	struct long_run r = {s, NULL, LAST};
	pthread_t thread;
	char uri[128];
	struct bed b;

	saves_begin();
	saga_init(s, SRV_SYNC);
	opt.checkpoint_dir = NULL;
	bed_start(&b, &opt);
	saga_run(s, b.uri, 2, 1, LAST);
	bed_stop(&b);

	s->lasting = true;
	s->nap_us = 3000;
	opt.checkpoint_dir = saves_dir;
	opt.checkpoint_steps = 3;
	opt.workers = (uint32_t)_i;
	s->brisk = 9;
	bed_start(&b, &opt);
	snprintf(uri, sizeof(uri), "%s", b.uri);
	r.uri = opt.listen[0] = uri;
	pthread_create(&thread, NULL, run_long, &r);
	for (uint32_t k = 0; k < 4; k++) {
		saves_wait(&b, 1);
		bed_wait_step(&b, 9 * (k + 1));
		s->brisk = 9 * (k + 2);
		end_server(&b, k % 2);
		opt.n_restore = 1;
		opt.restore[0] = saves_dir;
		opt.block_kib = 1 + k;
		bed_start(&b, &opt);
	}
	s->brisk = 0;
	pthread_join(thread, NULL);
	must(s->came_back >= 4, "they came back %u times", s->came_back);
	bed_stop(&b);
	saves_end();
	free(s);
}
END_TEST

/* ---- what does not fit ------------------------------------------------------------------------
 */

static void expect_refused(const struct srv_options *opt, const struct gs_param_desc *d, int err,
			   const char *const *words)
{
	struct bed b;
	gs_param *p;
	gs_trainer *t;
	int rc;

	bed_start(&b, opt);
	t = connect_as(b.uri, 0);
	ok(gs_declare(t, d, &p));
	rc = gs_start(t);
	must(rc == -err, "%d: %s", rc, err_text());
	has_words(err_text(), words);
	gs_close(t);
	bed_stop(&b);
}
#define REFUSED(d, err, ...) expect_refused(&opt, d, err, (const char *const[]){__VA_ARGS__, NULL})

static struct gs_param_desc line_desc(const char *name, uint64_t elems)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	d.name = name;
	d.ndim = 1;
	d.shape[0] = elems;
	gs_setting(&d, "lr", 1);
	return d;
}

START_TEST(does_not_fit)
{
	struct srv_options opt = saves_options(1, SRV_SYNC);
	struct gs_param_desc d;

	saves_begin();
	make_line(&opt, A, 1, 2);
	opt.n_restore = 1;
	opt.restore[0] = saves_dir;
	opt.checkpoint_dir = NULL;
	d = line_desc("a", LINE + 1);
	REFUSED(&d, EINVAL, "\"a\"", "shape", "[3000]", "[3001]");
	d = line_desc("a", LINE);
	d.optimizer = "momentum";
	REFUSED(&d, EINVAL, "\"a\"", "optimizer", "sgd", "momentum");
	d = line_desc("a", LINE);
	gs_setting(&d, "weight_decay", 0.5);
	REFUSED(&d, EINVAL, "\"a\"", "optimizer", "weight_decay");
	d = line_desc("c", LINE);
	REFUSED(&d, EINVAL, "\"c\"", "nothing that is restored");
	opt.restore[0] = "/nowhere";
	fails(srv_create(&opt, &(struct srv *){NULL}), ENOENT, "/nowhere");
	rmdir(saves_path("empty"));
	must(mkdir(saves_path("empty"), 0700) == 0, "mkdir");
	opt.restore[0] = saves_path("empty");
	fails(srv_create(&opt, &(struct srv *){NULL}), ENOENT, "empty");
	saves_end();
}
END_TEST

/* The newest one once more, with other numbers in it. */
static void write_again(uint64_t step, uint64_t updates, uint64_t applied)
{
	struct checkpoint *old = saves_newest();
	struct checkpoint_manifest m = *checkpoint_manifest(old);
	const struct store_file *weights = checkpoint_weights_of(old),
				*state = checkpoint_state_of(old);
	struct checkpoint_writer *w;

	ok(checkpoint_begin(saves_dir, store_at(weights, 0), 1, store_at(state, 0),
			    store_count(state), &w));
	memcpy(store_find(checkpoint_weights(w), "a")->data, store_find(weights, "a")->data,
	       LINE * sizeof(float));
	for (uint32_t i = 0; i < store_count(state); i++) {
		const struct store_tensor *from = store_at(state, i);
		uint64_t *to = store_find(checkpoint_state(w), from->name)->data;

		memcpy(to, from->data, from->len);
		if (strcmp(from->name, "a/updates") == 0)
			to[0] += updates;
		if (strcmp(from->name, "a/applied") == 0)
			to[0] += applied;
	}
	m.step += step;
	ok(checkpoint_commit(w, &m, 10, NULL));
	checkpoint_close(old);
}

/* Sound by its checksums, and of no training that there was. */
START_TEST(impossible_numbers)
{
	const uint64_t far = UINT64_C(1) << 63;
	struct srv_options opt = saves_options(1, SRV_SYNC);
	struct gs_param_desc d = line_desc("a", LINE);

	saves_begin();
	opt.block_kib = 1;
	make_line(&opt, A, 1, 2);
	opt.n_restore = 1;
	opt.restore[0] = saves_dir;
	write_again(0, far, 0);
	opt.checkpoint_dir = NULL;
	REFUSED(&d, EIO, "\"a\"", "9223372036854775810 updates");
	write_again(far, far, 0);
	fails(srv_create(&opt, &(struct srv *){NULL}), EBADMSG, "step 9223372036854775810");
	saves_end();

	opt = saves_options(1, SRV_SSP);
	opt.block_kib = 1;
	saves_begin();
	make_line(&opt, A, 1, 2);
	opt.n_restore = 1;
	opt.restore[0] = saves_dir;
	opt.checkpoint_dir = NULL;
	write_again(0, 0, far);
	REFUSED(&d, EIO, "\"a\"", "9223372036854775810 pushes", "2 in another");
	write_again(0, 0, far + 3);
	REFUSED(&d, EIO, "\"a\"", "5 pushes", "2 in another");
	saves_end();
}
END_TEST

/* A rate that was set stays set, unless another one is declared. */
START_TEST(rates)
{
	struct srv_options opt = saves_options(1, SRV_SYNC);
	float one[4] = {1, 1, 1, 1}, w[4];
	gs_trainer *t;
	gs_param *p;
	struct bed b;

	saves_begin();
	for (uint32_t k = 0; k < 3; k++) {
		/* 0: declared 1, set to 0.25; 1: goes on at 0.25; 2: declared 2 */
		bed_start(&b, &opt);
		t = connect_as(b.uri, 0);
		p = declare_line(t, "w", 4, k == 2 ? 2 : 1, 0);
		ok(gs_start(t));
		if (k == 0)
			ok(gs_set_lr(t, p, 0.25));
		ok(gs_push(t, p, one));
		ok(gs_step_end(t));
		ok(gs_pull(t, p, GS_ORDERED, w));
		must(w[0] == (k == 0 ? -0.25f : k == 1 ? -0.5f : -2.5f), "%g", (double)w[0]);
		leave(t);
		bed_stop(&b);
		opt.n_restore = 1;
		opt.restore[0] = saves_dir;
	}
	saves_end();
}
END_TEST

/* ---- weights of other programs -----------------------------------------------------------------
 */

START_TEST(weights_alone)
{
	static const enum store_dtype types[] = {STORE_F64, STORE_F32, STORE_F16, STORE_BF16,
						 STORE_I32};
	struct store_tensor tensor = {.name = "a", .dtype = types[_i], .ndim = 1, .dim = {LINE}};
	struct srv_options opt = bed_options(1, SRV_SYNC);
	static float w[LINE];
	struct store_file *f;
	void *data;

	saves_begin();
	for (uint32_t i = 0; i < LINE; i++)
		w[i] = 'a';
	ok(store_create(saves_path("foreign"), &tensor, 1, NULL, 0, &f));
	data = store_at(f, 0)->data;
	for (uint32_t i = 0; i < LINE && types[_i] == STORE_F64; i++)
		((double *)data)[i] = 'a';
	if (types[_i] == STORE_F32)
		memcpy(data, w, sizeof(w));
	else if (types[_i] == STORE_F16 || types[_i] == STORE_BF16)
		kern_narrow(types[_i] == STORE_F16 ? KERN_F16 : KERN_BF16, w, data, LINE);
	ok(store_sync(f));
	store_close(f);
	opt.n_restore = 1;
	opt.restore[0] = saves_path("foreign");
	if (types[_i] == STORE_I32) {
		struct gs_param_desc d = line_desc("a", LINE);

		REFUSED(&d, EINVAL, "\"a\"", "I32");
	} else {
		opt.checkpoint_dir = saves_path("out");
		opt.keep = 1;
		expect_line(&opt, A, 1, 0);
	}
	saves_end();
}
END_TEST

/* The options' strings are the caller's again once the server is made. */
START_TEST(its_path_is_gone)
{
	struct srv_options opt = saves_options(1, SRV_SYNC);
	char *path;
	gs_trainer *t;
	struct bed b;

	saves_begin();
	make_line(&opt, A, 1, 1);
	must(asprintf(&path, "%s/checkpoint-00000001/%s", saves_dir, CHECKPOINT_WEIGHTS) > 0, "memory");
	opt.checkpoint_dir = NULL;
	opt.n_restore = 1;
	opt.restore[0] = path;
	bed_start(&b, &opt);
	memset(path, '?', strlen(path));
	free(path);
	t = connect_as(b.uri, 0);
	declare_line(t, "b", LINE, 1, 0);
	fails(gs_start(t), EINVAL, "nothing that is restored", CHECKPOINT_WEIGHTS);
	gs_close(t);
	bed_stop(&b);
	saves_end();
}
END_TEST

/* ---- torn ------------------------------------------------------------------------------------ */

static void truncate_newest(void)
{
	struct checkpoint *c = saves_newest();
	char path[200];

	snprintf(path, sizeof(path), "%s/%s", checkpoint_path(c), CHECKPOINT_WEIGHTS);
	checkpoint_close(c);
	must(truncate(path, 5000) == 0, "truncate");
}

START_TEST(torn)
{
	struct srv_options opt = saves_options(1, SRV_SYNC);

	saves_begin();
	make_line(&opt, A, 1, 2);
	opt.n_restore = 1;
	opt.restore[0] = saves_dir;
	make_line(&opt, A, 1, 3);
	must(saves_newest_step() == 5, "step");
	truncate_newest();
	opt.checkpoint_dir = NULL;
	expect_line(&opt, A, 1, 2);
	truncate_newest();
	fails(srv_create(&opt, &(struct srv *){NULL}), EBADMSG, "sound");
	saves_end();
}
END_TEST

TCase *restore_case(void)
{
	TCase *t = e2e_disk_case("restore");

	tcase_add_test(t, two_into_one_and_back);
	tcase_add_test(t, other_trainers);
	tcase_add_loop_test(t, pushes_are_counted, 0, 2);
	tcase_add_loop_test(t, trainers_outlive_servers, 0, 2);
	tcase_add_test(t, does_not_fit);
	tcase_add_test(t, impossible_numbers);
	tcase_add_test(t, rates);
	tcase_add_loop_test(t, weights_alone, 0, 5);
	tcase_add_test(t, its_path_is_gone);
	tcase_add_test(t, torn);
	return t;
}
