/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashed tables: rows that appear on first touch, are let in, run out, and go.
 */
#include "cases.h"
#include "harness.h"
#include "kernels/kern.h"

enum { DIM = 3, SEED = 21 };

struct scene {
	struct bed bed;
	struct gs_param_desc desc;
	uint32_t n;
	gs_trainer *t[3];
	gs_param *p[3];
};

static struct gs_param_desc hashed(uint64_t capacity)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	d.name = "h";
	d.ndim = 2;
	d.shape[0] = capacity;
	d.shape[1] = DIM;
	d.kind = GS_HASHED;
	d.optimizer = "adagrad";
	gs_setting(&d, "lr", 1);
	d.init = GS_INIT_NORMAL;
	d.init_b = 1;
	d.init_seed = SEED;
	d.slot_rows = 4;
	d.push_rows = 64;
	d.pull_rows = 8;
	return d;
}

static void *start(void *arg)
{
	ok(gs_start(arg));
	return NULL;
}

static void scene_open(struct scene *s, enum srv_mode mode, uint32_t n,
		       const struct gs_param_desc *d)
{
	struct srv_options opt = bed_options(n, mode);
	pthread_t thread[3];

	s->n = n;
	s->desc = *d;
	bed_start(&s->bed, &opt);
	for (uint32_t r = 0; r < n; r++) {
		s->t[r] = connect_as(s->bed.uri, (int32_t)r);
		ok(gs_declare(s->t[r], &s->desc, &s->p[r]));
		must(pthread_create(&thread[r], NULL, start, s->t[r]) == 0, "thread");
	}
	for (uint32_t r = 0; r < n; r++)
		pthread_join(thread[r], NULL);
}

static void scene_close(struct scene *s)
{
	must(bed_stats(&s->bed).violations == 0, "violations");
	for (uint32_t r = 0; r < s->n; r++)
		leave(s->t[r]);
	bed_stop(&s->bed);
}

/* Keys whose elements' numbers do not fit 64 bits have another seed. */
static void initial(int64_t key, float *out)
{
	unsigned __int128 first = (unsigned __int128)(uint64_t)key * DIM;

	kern_init_fill(KERN_INIT_NORMAL, SEED + (uint64_t)(first >> 64) * 0x9e3779b97f4a7c15u, 0, 1,
		       (uint64_t)first, out, DIM);
}

/* What row `key` is after an adagrad step with ones: each element moves by lr, nearly. */
static void expect(struct scene *s, int64_t key, int updates)
{
	float w[DIM], want[DIM];

	initial(key, want);
	ok(gs_pull_rows(s->t[0], s->p[0], &key, 1, GS_ROWS_AUTO, w));
	for (int k = 0; k < DIM; k++) {
		float sum = 0;

		for (int i = 0; i < updates; i++) {
			sum += 1;
			want[k] -= 1 / __builtin_sqrtf(sum);
		}
		must(w[k] - want[k] < 1e-4f && want[k] - w[k] < 1e-4f,
		     "key %lld is %g, not %g (%d updates)", (long long)key, (double)w[k],
		     (double)want[k], updates);
	}
}

static int push_keys(struct scene *s, uint32_t r, const int64_t *key, uint32_t n)
{
	float v[64][DIM];

	for (uint32_t i = 0; i < n; i++)
		v[i][0] = v[i][1] = v[i][2] = 1;
	return gs_push_rows(s->t[r], s->p[r], key, v, n);
}

/* Pushes and waits until that is applied, or refused. */
static int apply_keys(struct scene *s, const int64_t *key, uint32_t n)
{
	struct gs_info info;

	gs_get_info(s->t[0], &info);
	ok(push_keys(s, 0, key, n));
	return info.mode == GS_SYNC ? gs_step_end(s->t[0]) : gs_wait_applied(s->t[0], s->p[0]);
}

static const enum srv_mode modes[] = {SRV_SYNC, SRV_ASYNC};

/* A row begins as its key says, whether a push or a pull touched it first, and whatever came
 * before. */
START_TEST(rows_begin_as_their_key_says)
{
	const int64_t key[6] = {5, -5, INT64_MAX, 0, 1, 77777777};
	struct gs_param_desc d = hashed(6);
	struct scene s = {0};
	float w[6][DIM], want[DIM];

	scene_open(&s, modes[_i], 1, &d);
	ok(apply_keys(&s, key, 2));
	ok(gs_pull_rows(s.t[0], s.p[0], key + 3, 3, GS_ROWS_GATHER, w));
	for (int i = 0; i < 3; i++) {
		initial(key[3 + i], want);
		must(memcmp(w[i], want, sizeof(want)) == 0, "key %lld", (long long)key[3 + i]);
	}
	expect(&s, 5, 1);
	ok(apply_keys(&s, (const int64_t[]){0, 5, 5, 1}, 4));
	expect(&s, 0, 1);
	expect(&s, 1, 1);
	expect(&s, 77777777, 0);
	/* 6 rows: four keys so far and these are 5, -5, 0, 1, 77777777; the last one fits. */
	ok(gs_pull_rows(s.t[0], s.p[0], key, 6, GS_ROWS_AUTO, w));
	fails(gs_pull_rows(s.t[0], s.p[0], key, 1, GS_ROWS_READ, w), EOPNOTSUPP, "\"h\"");
	const void *view;
	must(gs_weights_view(s.t[0], s.p[0], &view) == -EOPNOTSUPP, "a view");
	scene_close(&s);
}
END_TEST

/* Keys that are apart by 2^64 / dim have values of their own. */
START_TEST(keys_far_apart)
{
	const int64_t key[2] = {1, (int64_t)(UINT64_MAX / DIM + 2)};
	struct gs_param_desc d = hashed(4);
	struct scene s = {0};
	float w[2][DIM];

	scene_open(&s, SRV_ASYNC, 1, &d);
	ok(gs_pull_rows(s.t[0], s.p[0], key, 2, GS_ROWS_GATHER, w));
	must(w[0][0] != w[1][0] && w[0][1] != w[1][1], "the same values");
	scene_close(&s);
}
END_TEST

START_TEST(a_full_table_refuses)
{
	struct gs_param_desc d = hashed(3);
	struct gs_counts c = {.size = sizeof(c)};
	float w[4][DIM], before[4][DIM];
	struct scene s = {0};

	scene_open(&s, modes[_i], 1, &d);
	ok(apply_keys(&s, (const int64_t[]){10, 11}, 2));
	/* Both are new, and there is room for one: neither comes, and 10 stays as it is. */
	fails(apply_keys(&s, (const int64_t[]){10, 12, 13}, 3), ENOSPC, "\"h\"", "key 13", "3",
	      "evict_after");
	expect(&s, 10, 1);
	ok(gs_get_counts(s.t[0], &c));
	must(c.refused == 1, "%llu refused", (unsigned long long)c.refused);
	/* Told once. */
	ok(apply_keys(&s, (const int64_t[]){11}, 1));
	expect(&s, 11, 2);
	/* Pulls: nothing is touched. More than a batch: neither. */
	memset(w, 0x11, sizeof(w));
	memcpy(before, w, sizeof(w));
	fails(gs_pull_rows(s.t[0], s.p[0], (const int64_t[]){10, 12, 12, 14}, 4, GS_ROWS_AUTO, w),
	      ENOSPC, "\"h\"", "key 14", "3");
	must(memcmp(w, before, sizeof(w)) == 0, "the output was touched");
	int64_t many[10] = {10, 11, 10, 11, 10, 11, 10, 11, 12, 13};
	float wide[10][DIM], was[10][DIM];
	memset(wide, 0x11, sizeof(wide));
	memcpy(was, wide, sizeof(wide));
	fails(gs_pull_rows(s.t[0], s.p[0], many, 10, GS_ROWS_AUTO, wide), ENOSPC, "key 13");
	must(memcmp(wide, was, sizeof(wide)) == 0, "the output was touched");
	/* Repeated keys take one row. */
	ok(gs_pull_rows(s.t[0], s.p[0], (const int64_t[]){12, 12, 10, 12}, 4, GS_ROWS_AUTO, w));
	must(memcmp(w[0], w[1], sizeof(w[0])) == 0 && memcmp(w[0], w[3], sizeof(w[0])) == 0,
	     "rows");
	/* Several refusals: one word of them all. */
	for (int i = 0; i < 5; i++)
		push_keys(&s, 0, (const int64_t[]){100 + i}, 1); /* sync: the first alone goes */
	if (_i)
		fails(gs_wait_applied(s.t[0], s.p[0]), ENOSPC, "\"h\"");
	else
		fails(gs_step_end(s.t[0]), ENOSPC, "\"h\"", "key 100");
	ok(gs_get_counts(s.t[0], &c));
	must(c.refused == (_i ? 6 : 2), "%llu refused", (unsigned long long)c.refused);
	ok(apply_keys(&s, (const int64_t[]){12}, 1));
	scene_close(&s);
}
END_TEST

/* Of several trainers the ones that fit, in rank order, are applied; each hears of its own. */
START_TEST(refused_in_rank_order)
{
	struct gs_param_desc d = hashed(3);
	struct gs_counts c = {.size = sizeof(c)};
	struct scene s = {0};

	d.reduce = GS_SUM;
	scene_open(&s, SRV_SYNC, 3, &d);
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t r = (i + (uint32_t)_i) % 3;
		static const int64_t key[3][2] = {{1, 2}, {3, 4}, {3, 1}};

		ok(push_keys(&s, r, key[r], 2));
		ok(gs_step_post(s.t[r]));
	}
	ok(gs_step_wait(s.t[0]));
	fails(gs_step_wait(s.t[1]), ENOSPC, "key 4");
	ok(gs_step_wait(s.t[2]));
	for (uint32_t r = 0; r < 3; r++) {
		ok(gs_get_counts(s.t[r], &c));
		must(c.refused == (r == 1), "trainer %u: %llu", r, (unsigned long long)c.refused);
	}
	expect(&s, 1, 1); /* two ones: adagrad's first step is of one lr whatever the gradient */
	expect(&s, 2, 1);
	expect(&s, 3, 1);
	scene_close(&s);
}
END_TEST

/* The third touch gives a row; pushes before are dropped, and pulls see what it will begin with. */
START_TEST(admission)
{
	struct gs_param_desc d = hashed(2);
	struct scene s = {0};

	d.admit_after = 3;
	scene_open(&s, modes[_i], 1, &d);
	ok(apply_keys(&s, (const int64_t[]){7, 7, 7, 7}, 4)); /* one touch */
	expect(&s, 7, 0);                                     /* the second */
	ok(apply_keys(&s, (const int64_t[]){7, 8}, 2));       /* the third: applied */
	expect(&s, 7, 1);
	expect(&s, 8, 0);
	ok(apply_keys(&s, (const int64_t[]){7}, 1));
	expect(&s, 7, 2);
	/* A key that has no row yet needs none. */
	ok(apply_keys(&s, (const int64_t[]){9, 10, 11}, 3));
	scene_close(&s);
}
END_TEST

/* A key that comes back after its row went begins anew, state and all. */
START_TEST(eviction)
{
	struct gs_param_desc d = hashed(2);
	struct scene s = {0};

	d.evict_after = 2;
	scene_open(&s, modes[_i], 1, &d);
	ok(apply_keys(&s, (const int64_t[]){1, 2}, 2));
	ok(apply_keys(&s, (const int64_t[]){2}, 1));
	fails(apply_keys(&s, (const int64_t[]){3}, 1), ENOSPC, "key 3", "2");
	ok(apply_keys(&s, (const int64_t[]){2}, 1)); /* two updates without key 1 */
	ok(apply_keys(&s, (const int64_t[]){3}, 1));
	expect(&s, 3, 1);
	expect(&s, 2, 3);
	ok(apply_keys(&s, (const int64_t[]){3}, 1));
	ok(apply_keys(&s, (const int64_t[]){3}, 1));
	ok(apply_keys(&s, (const int64_t[]){3}, 1));
	ok(apply_keys(&s, (const int64_t[]){1}, 1));
	expect(&s, 1, 1);
	expect(&s, 3, 4);
	scene_close(&s);
}
END_TEST

/* Not lazy: the rows that are there. With weights in a short format. */
START_TEST(not_lazy_and_short)
{
	struct gs_param_desc d = hashed(5);
	struct scene s = {0};
	const int64_t key[3] = {-1, 1 << 20, 3};
	float want[DIM];
	uint16_t w[3][DIM], narrow[DIM];

	d.optimizer = "momentum";
	gs_setting(&d, "momentum", 0.5);
	gs_setting(&d, "lazy", 0);
	d.weight_dtype = GS_BF16;
	scene_open(&s, modes[_i], 1, &d);
	ok(apply_keys(&s, key, 1));
	ok(apply_keys(&s, key + 1, 1)); /* key[0] goes on by its momentum */
	ok(gs_pull_rows(s.t[0], s.p[0], key, 3, GS_ROWS_AUTO, w));
	for (int i = 0; i < 3; i++) {
		initial(key[i], want);
		for (int k = 0; k < DIM; k++) {
			if (i < 2)
				want[k] -= 1;
			if (i == 0)
				want[k] -= 0.5f;
		}
		kern_narrow(KERN_BF16, want, narrow, DIM);
		must(memcmp(w[i], narrow, sizeof(narrow)) == 0, "row %d", i);
	}
	scene_close(&s);
}
END_TEST

TCase *hashed_case(void)
{
	TCase *t = e2e_case("hashed");

	tcase_add_loop_test(t, rows_begin_as_their_key_says, 0, 2);
	tcase_add_test(t, keys_far_apart);
	tcase_add_loop_test(t, a_full_table_refuses, 0, 2);
	tcase_add_loop_test(t, refused_in_rank_order, 0, 3);
	tcase_add_loop_test(t, admission, 0, 2);
	tcase_add_loop_test(t, eviction, 0, 2);
	tcase_add_loop_test(t, not_lazy_and_short, 0, 2);
	return t;
}
