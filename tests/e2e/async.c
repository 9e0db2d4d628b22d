/* SPDX-License-Identifier: Apache-2.0
 *
 * Async mode: each gradient once, one's own writes in what one reads, blocks that are never torn.
 * Gradients are small whole numbers and lr is 1, so that sums are exact in any order.
 */
#include "cases.h"
#include "harness.h"

enum { PUSHERS = 3 };

struct pusher {
	const char *uri;
	uint32_t rank, pushes;
	uint64_t elems;
	int64_t sum; /* of what it pushed */
	_Atomic bool *end;
	pthread_t thread;
};

static void fill(float *at, uint64_t n, float value)
{
	for (uint64_t i = 0; i < n; i++)
		at[i] = value;
}

static void start_pushers(struct pusher *p, uint32_t n, void *(*body)(void *), const char *uri,
			  uint64_t elems, uint32_t pushes, _Atomic bool *end)
{
	for (uint32_t i = 0; i < n; i++) {
		p[i] = (struct pusher){
		    .uri = uri, .rank = i, .pushes = pushes, .elems = elems, .end = end};
		must(pthread_create(&p[i].thread, NULL, body, &p[i]) == 0, "thread");
	}
}

static void join_pushers(struct pusher *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		pthread_join(p[i].thread, NULL);
}

/* Pushes whole numbers, `pushes` of them or until the end is told. */
static void *push_numbers(void *arg)
{
	struct pusher *p = arg;
	uint64_t rng = 5 + p->rank;
	gs_trainer *t = connect_as(p->uri, (int32_t)p->rank);
	gs_param *w = declare_line(t, "w", p->elems, 1, 0);
	float *buf = malloc(p->elems * sizeof(float)), *at;

	ok(gs_start(t));
	for (uint32_t i = 0; p->end ? !*p->end : i < p->pushes; i++) {
		int value = (int)rnd(&rng, 9) - 4;

		at = buf;
		if (i % 2)
			ok(gs_grad_buffer(t, w, (void **)&at));
		fill(at, p->elems, (float)value);
		ok(gs_push(t, w, at));
		p->sum += value;
		p->pushes = i + 1;
		if (p->end && !over_shm())
			ok(gs_wait_applied(t, w));
	}
	leave(t);
	free(buf);
	return NULL;
}

static void all_are(const float *w, uint64_t n, float want)
{
	for (uint64_t i = 0; i < n; i++)
		must(w[i] == want, "element %llu is %g, not %g", (unsigned long long)i,
		     (double)w[i], (double)want);
}

START_TEST(every_gradient_exactly_once)
{
	struct srv_options opt = bed_options(PUSHERS + 1, SRV_ASYNC);
	struct pusher p[PUSHERS];
	uint64_t elems = scaled(10000, 1500), version, pushes = 0;
	int64_t sum = 0;
	gs_param *w;
	gs_trainer *t;
	struct bed bed;
	float *buf = malloc(elems * sizeof(float));

	if (left_out(_i, 2))
		return;
	opt.workers = (uint32_t)_i;
	opt.pollers = 2;
	opt.block_kib = _i % 2 ? 1 : 16;
	bed_start(&bed, &opt);
	start_pushers(p, PUSHERS, push_numbers, bed.uri, elems, scaled(400, 25), NULL);
	join_pushers(p, PUSHERS);
	for (int i = 0; i < PUSHERS; i++) {
		sum += p[i].sum;
		pushes += p[i].pushes;
	}
	t = connect_as(bed.uri, -1);
	w = declare_line(t, "w", elems, 1, 0);
	ok(gs_start(t));
	/* Who left has everything applied: no order is needed. */
	ok(gs_pull(t, w, GS_RELAXED, buf));
	all_are(buf, elems, (float)-sum);
	for (uint64_t e = 0; e < elems; e += elems - 1) {
		ok(gs_block_version(t, w, e, &version));
		must(version == pushes, "version %llu of %llu", (unsigned long long)version,
		     (unsigned long long)pushes);
	}
	leave(t);
	free(buf);
	bed_stop(&bed);
}
END_TEST

/* Each has a parameter of its own beside the one that all push to. */
static void *read_own_writes(void *arg)
{
	struct pusher *p = arg;
	gs_trainer *t = connect_as(p->uri, (int32_t)p->rank);
	gs_param *param[PUSHERS + 1], *own;
	float *buf = malloc(p->elems * sizeof(float));
	char name[16];
	float want = 0;

	for (int i = 0; i <= PUSHERS; i++) {
		snprintf(name, sizeof(name), "p%d", i);
		param[i] = declare_line(t, name, p->elems, 1, 0);
	}
	own = param[p->rank];
	ok(gs_start(t));
	for (uint32_t i = 0; i < p->pushes; i++) {
		uint64_t version;

		fill(buf, p->elems, 1);
		ok(gs_push(t, param[PUSHERS], buf));
		fill(buf, p->elems, (float)(i % 7));
		want -= (float)(i % 7);
		ok(gs_push(t, own, buf));
		if (i % 3 == 0) {
			ok(gs_wait_applied(t, own));
			ok(gs_block_version(t, own, p->elems - 1, &version));
			must(version == i + 1, "version %llu", (unsigned long long)version);
			ok(gs_pull(t, own, i % 2 ? GS_RELAXED : GS_CONSISTENT, buf));
		} else {
			ok(gs_pull(t, own, GS_ORDERED, buf));
		}
		all_are(buf, p->elems, want);
	}
	leave(t);
	free(buf);
	return NULL;
}

START_TEST(reads_see_own_writes)
{
	struct srv_options opt = bed_options(PUSHERS, SRV_ASYNC);
	struct pusher p[PUSHERS];
	struct bed bed;

	if (left_out(_i, 3))
		return;
	opt.workers = (uint32_t)_i;
	opt.block_kib = 4;
	bed_start(&bed, &opt);
	start_pushers(p, PUSHERS, read_own_writes, bed.uri, 3001, scaled(150, 10), NULL);
	join_pushers(p, PUSHERS);
	bed_stop(&bed);
}
END_TEST

/* The first block that has parts of two versions; UINT64_MAX if none has. */
static uint64_t torn_block(const float *w, uint64_t elems, uint64_t block)
{
	for (uint64_t i = 1; i < elems; i++)
		if (i % block && w[i] != w[i - 1])
			return i / block;
	return UINT64_MAX;
}

/* Blocks are long enough that an update takes about as long as a read; relaxed reads, which may be
 * torn, show that the others would have had the occasion. */
START_TEST(consistent_reads_are_never_torn)
{
	struct srv_options opt = bed_options(PUSHERS, SRV_ASYNC);
	struct pusher p[PUSHERS - 1];
	uint32_t block_kib = scaled(512, 32), torn = 0; /* no network has it cut finer */
	uint64_t elems = scaled(600000, 50000) + 5, block = block_kib * 256, before = 0, version;
	uint64_t deadline = clock_ns() + scaled(4, 8) * NS_PER_S;
	float *buf = malloc(elems * sizeof(float));
	_Atomic bool end = false;
	gs_trainer *t;
	gs_param *w;
	struct bed bed;

	opt.workers = 2;
	opt.block_kib = block_kib;
	bed_start(&bed, &opt);
	start_pushers(p, PUSHERS - 1, push_numbers, bed.uri, elems, 0, &end);
	t = connect_as(bed.uri, PUSHERS - 1);
	w = declare_line(t, "w", elems, 1, 0);
	ok(gs_start(t));
	for (uint32_t i = 0; (i < scaled(400, 30) || torn < 8) && clock_ns() < deadline; i++) {
		ok(gs_block_version(t, w, 0, &version));
		must(version >= before, "a version went back");
		before = version;
		ok(gs_pull(t, w, i % 8 == 7 ? GS_ORDERED : GS_CONSISTENT, buf));
		must(torn_block(buf, elems, block) == UINT64_MAX, "block %llu is torn",
		     (unsigned long long)torn_block(buf, elems, block));
		ok(gs_pull(t, w, GS_RELAXED, buf));
		torn += torn_block(buf, elems, block) != UINT64_MAX;
	}
	end = true;
	join_pushers(p, PUSHERS - 1);
	must(p[0].pushes > 1 && version > 0, "nothing was going on");
	leave(t);
	free(buf);
	bed_stop(&bed);
}
END_TEST

START_TEST(has_no_barrier)
{
	struct srv_options opt = bed_options(1, SRV_ASYNC);
	struct gs_info info;
	gs_trainer *t;
	struct bed bed;

	bed_start(&bed, &opt);
	t = connect_as(bed.uri, 0);
	declare_line(t, "w", 5, 1, 0);
	ok(gs_start(t));
	gs_get_info(t, &info);
	must(info.mode == GS_ASYNC && info.step == 0 && info.blocks == 1 && info.slots == 2,
	     "info");
	fails(gs_step_post(t), EPERM, "async");
	fails(gs_step_end(t), EPERM, "async");
	leave(t);
	bed_stop(&bed);
}
END_TEST

TCase *async_case(void)
{
	TCase *t = e2e_wire_case("async");

	tcase_add_loop_test(t, every_gradient_exactly_once, 0, 4);
	tcase_add_loop_test(t, reads_see_own_writes, 0, 3);
	tcase_add_test(t, consistent_reads_are_never_torn);
	tcase_add_test(t, has_no_barrier);
	return t;
}
