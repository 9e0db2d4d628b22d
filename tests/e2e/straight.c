/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that are read straight to where the program wants them: what is there afterwards is what the
 * server has, whatever the memory was before; and nothing is written there once a call has returned. Where
 * they can't be, they are copied, and come out the same.
 */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "harness.h"
#include "pages.h"
#include "trainer/trainer.h"
#include "wire.h"

enum { ELEMS = 40000 };

#define BYTES     (ELEMS * sizeof(float))
#define MAP_BYTES ((BYTES + 65536) & ~4095ul)

static float *map_at(void *at)
{
	return pages_map(at, MAP_BYTES);
}

struct rig {
	struct bed bed;
	gs_trainer *t;
	gs_param *p;
	float *grad;
	float sum; /* of what was pushed */
	uint32_t pushes;
	bool straight; /* it can be done here */
};

static void rig_up(struct rig *r, enum srv_mode mode, uint64_t cache)
{
	struct srv_options opt = bed_options(1, mode);

	opt.block_kib = 64;
	bed_start(&r->bed, &opt);
	struct gs_options to = trainer_options(r->bed.uri, 0);

	/* Each rail has its share. */
	to.reg_cache_bytes = cache == UINT64_MAX ? cache : cache * wire_rails();
	ok(gs_connect(&to, &r->t));
	r->p = declare_line(r->t, "w", ELEMS, 1, 0);
	ok(gs_start(r->t));
	r->straight = wire_reads_straight(r->t->link.conn);
	r->grad = malloc(BYTES);
	r->sum = 0;
	r->pushes = 0;
}

static void rig_down(struct rig *r)
{
	leave(r->t);
	bed_stop(&r->bed);
	free(r->grad);
}

/* ---- pulls ------------------------------------------------------------------------------------- */

static void push(struct rig *r)
{
	float value = (float)++r->pushes;

	for (uint32_t i = 0; i < ELEMS; i++)
		r->grad[i] = value + (float)(i % 7);
	r->sum += value;
	ok(gs_push(r->t, r->p, r->grad));
}

/* w = -(sum of the values) - pushes (i % 7) */
static void check(const struct rig *r, const float *w)
{
	for (uint32_t i = 0; i < ELEMS; i++) {
		float want = -r->sum - (float)(r->pushes * (i % 7));

		must(w[i] == want, "element %u after %u: %g, not %g", i, r->pushes, (double)w[i],
		     (double)want);
	}
}

/* The last pull's READs went there, or to the landing area. */
static void check_way(const struct rig *r, const float *dst, bool straight)
{
	if (r->t->link.weights_map)
		return; /* it made none */
	must((r->p->read_to == (const uint8_t *)dst) == (straight && r->straight),
	     "its READs went to %p; %p, %sstraight", (void *)r->p->read_to, (const void *)dst,
	     straight ? "" : "not ");
}

enum way { RELAXED, CONSISTENT, STEP, WAYS };

/* A new update, pulled so often. */
static void pull_new(struct rig *r, enum way way, float *dst, int times)
{
	void *to = dst;

	push(r);
	if (way == STEP)
		ok(gs_step_pull(r->t, &r->p, &to, 1));
	else
		ok(gs_wait_applied(r->t, r->p));
	for (int i = way == STEP; i < times; i++) {
		if (i > 0)
			memset(dst, 0x55, BYTES);
		ok(gs_pull(r->t, r->p, way == CONSISTENT ? GS_CONSISTENT : GS_RELAXED, dst));
	}
	check(r, dst);
}

/* ---- memory that changes ----------------------------------------------------------------------- */

/* _i: how it changes, and how it is pulled. */
START_TEST(memory_that_changes)
{
	enum way way = (enum way)(_i / PAGES_CHANGES);
	float *mem = map_at(NULL);
	struct rig r;

	rig_up(&r, way == STEP ? SRV_SYNC : SRV_ASYNC, UINT64_MAX);
	for (uint32_t n = 0; n < scaled(20, 3); n++) {
		/* Not from a page's beginning. What lies around it is nobody's but the program's. */
		float *dst = mem + 1025;

		dst[-1] = dst[ELEMS] = 0.5f;
		/* After the first time it is where it was before, or can be seen not to be. */
		pull_new(&r, way, dst, 3);
		check_way(&r, dst, true);
		pull_new(&r, way, dst, 1);
		check_way(&r, dst, true);
		must(dst[-1] == 0.5f && dst[ELEMS] == 0.5f, "round %u: %g, %g beside it", n,
		     (double)dst[-1], (double)dst[ELEMS]);
		mem = pages_change(_i % PAGES_CHANGES, mem, MAP_BYTES);
	}
	rig_down(&r);
	munmap(mem, MAP_BYTES);
}
END_TEST

/* ---- when --------------------------------------------------------------------------------------- */

/* Memory is registered when it is pulled into again; and if that was for nothing, not so soon again. */
START_TEST(once_more)
{
	float *mem = map_at(NULL), *other = map_at(NULL);
	struct rig r;
	uint32_t straight = 0;

	rig_up(&r, SRV_ASYNC, UINT64_MAX);
	for (int i = 0; i < 3; i++) {
		pull_new(&r, RELAXED, mem, 1);
		check_way(&r, mem, false);
		pull_new(&r, RELAXED, other, 1);
		check_way(&r, other, false);
	}
	pull_new(&r, RELAXED, other, 1);
	check_way(&r, other, true);
	pull_new(&r, RELAXED, mem, 1);
	check_way(&r, mem, false);
	pull_new(&r, RELAXED, other, 1); /* it is known */
	check_way(&r, other, true);
	for (int i = 0; i < 32; i++) {
		pull_new(&r, RELAXED, mem, 1);
		straight += r.p->read_to == (uint8_t *)mem;
		mem = map_at(mem);
	}
	/* The second, and then every 2nd, 4th, 8th, 16th. */
	must(r.t->link.weights_map || straight == (r.straight ? 5 : 0), "%u times", straight);
	rig_down(&r);
	munmap(mem, MAP_BYTES);
	munmap(other, MAP_BYTES);
}
END_TEST

static float of_a_file[ELEMS] = {1}; /* of this program's */

START_TEST(all_kinds_of_memory)
{
	float *shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	float *heap = malloc(BYTES + 4), *lent = map_at(NULL);
	struct rig r;

	rig_up(&r, SRV_ASYNC, UINT64_MAX);
	pull_new(&r, RELAXED, heap + 1, 3);
	check_way(&r, heap + 1, true);
	/* What gradients leave from is registered for that, and read-only. */
	memset(lent, 0, BYTES);
	ok(gs_push_zcopy(r.t, r.p, lent));
	ok(gs_wait_applied(r.t, r.p));
	pull_new(&r, RELAXED, lent, 3); /* (a gradient of zeros changes nothing) */
	check_way(&r, lent, true);
	pull_new(&r, RELAXED, of_a_file, 3);
	check_way(&r, of_a_file, false);
	pull_new(&r, CONSISTENT, shared, 3);
	check_way(&r, shared, false);
	rig_down(&r);
	free(heap);
	munmap(lent, MAP_BYTES);
	munmap(shared, BYTES);
}
END_TEST

/* No room for it, or for one of two. */
START_TEST(a_small_cache)
{
	uint64_t limits[] = {0, 65536, BYTES + 3 * 4096};
	float *mem[2] = {map_at(NULL), map_at(NULL)};
	struct rig r;

	rig_up(&r, SRV_ASYNC, limits[_i]);
	for (uint32_t n = 0; n < 4; n++) {
		pull_new(&r, RELAXED, mem[n % 2], 3);
		check_way(&r, mem[n % 2], _i == 2);
	}
	rig_down(&r);
	munmap(mem[0], MAP_BYTES);
	munmap(mem[1], MAP_BYTES);
}
END_TEST

/* A child may do with its copy what it likes, and does not see what comes later. */
START_TEST(forks)
{
	float *mem = map_at(NULL);
	struct rig r;

	rig_up(&r, SRV_ASYNC, UINT64_MAX);
	for (uint32_t n = 0; n < scaled(10, 3); n++) {
		int go[2], status;

		pull_new(&r, RELAXED, mem, 2);
		check_way(&r, mem, true);
		must(pipe(go) == 0, "pipe");
		float first = mem[0];
		pid_t pid = fork();

		if (pid == 0) {
			char c;
			bool same = read(go[0], &c, 1) == 1 && mem[0] == first;

			memset(mem, 0x77, BYTES);
			munmap(mem, MAP_BYTES);
			_exit(same ? 0 : 1);
		}
		pull_new(&r, RELAXED, mem, 1);
		check_way(&r, mem, true);
		must(write(go[1], "", 1) == 1, "write");
		must(waitpid(pid, &status, 0) == pid && status == 0, "status 0x%x", status);
		check(&r, mem);
		close(go[0]);
		close(go[1]);
	}
	rig_down(&r);
	munmap(mem, MAP_BYTES);
}
END_TEST

/* ---- the end ------------------------------------------------------------------------------------ */

/* What was registered with a connection is not with the next. */
START_TEST(lost_and_back)
{
	float *mem = map_at(NULL);
	struct rig r;

	rig_up(&r, SRV_ASYNC, UINT64_MAX);
	for (uint32_t n = 0; n < scaled(10, 3); n++) {
		int rewound = 7, rc = 0;

		pull_new(&r, RELAXED, mem, 2);
		check_way(&r, mem, true);
		wire_cut(r.t->link.conn);
		while (rc == 0)
			rc = gs_pull(r.t, r.p, n % 2 ? GS_RELAXED : GS_CONSISTENT, mem);
		must(rc == -ECONNRESET, "%d: %s", rc, gs_last_error());
		memset(mem, 0x55, BYTES);
		ok(gs_reconnect(r.t, &rewound));
		must(rewound == 0, "rewound");
		ok(gs_pull(r.t, r.p, GS_RELAXED, mem));
		check(&r, mem);
	}
	rig_down(&r);
	munmap(mem, MAP_BYTES);
}
END_TEST

TCase *straight_case(void)
{
	TCase *t = e2e_wire_case("straight");

	tcase_add_loop_test(t, memory_that_changes, 0, PAGES_CHANGES * WAYS);
	tcase_add_test(t, once_more);
	tcase_add_test(t, all_kinds_of_memory);
	tcase_add_loop_test(t, a_small_cache, 0, 3);
	tcase_add_test(t, forks);
	tcase_add_test(t, lost_and_back);
	return t;
}
