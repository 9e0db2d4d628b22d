/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that leave from the program's own memory (gs_push_zcopy): what arrives is what is there now,
 * whatever the memory was before, and what is sent again after a loss is read from there. Over shm all of
 * it is copied, and comes out the same.
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

static uint32_t elems = ELEMS;

#define BYTES     ((size_t)elems * 4)
#define MAP_BYTES ((BYTES + 65536) & ~4095ul)

static float *map_at(void *at)
{
	return pages_map(at, MAP_BYTES);
}

static void set(float *g, float value)
{
	for (uint32_t i = 0; i < elems; i++)
		g[i] = value + (float)(i % 7);
}

/* w = -(sum of the values) - n (i % 7) */
static void check(gs_trainer *t, gs_param *p, float sum, uint32_t n)
{
	float *w = malloc(BYTES);

	ok(gs_pull(t, p, GS_ORDERED, w));
	for (uint32_t i = 0; i < elems; i++)
		must(w[i] == -sum - (float)(n * (i % 7)), "element %u after %u: %g, not %g", i, n,
		     (double)w[i], (double)(-sum - (float)(n * (i % 7))));
	free(w);
}

static void applied(gs_trainer *t, gs_param *p, bool sync)
{
	ok(sync ? gs_step_end(t) : gs_wait_applied(t, p));
}

/* It left from there, where that can be. */
static void check_lent(gs_param *p, const void *grad, bool lent)
{
	uint32_t slot = credits_slot(p->out.pushes - 1, p->t->link.slots);

	must(p->out.lent[slot].at == (lent ? grad : NULL), "it left from %p, not %p",
	     (const void *)p->out.lent[slot].at, grad);
}

struct rig {
	struct bed bed;
	gs_trainer *t;
	gs_param *p;
	bool lends;
};

static void rig_up(struct rig *r, enum srv_mode mode, uint64_t cache)
{
	struct srv_options opt = bed_options(1, mode);

	opt.block_kib = elems > ELEMS ? 256 : 16;
	bed_start(&r->bed, &opt);
	struct gs_options to = trainer_options(r->bed.uri, 0);

	/* Each rail has its share. */
	to.reg_cache_bytes = cache == UINT64_MAX ? cache : cache * wire_rails();
	ok(gs_connect(&to, &r->t));
	r->p = declare_line(r->t, "w", elems, 1, 0);
	ok(gs_start(r->t));
	r->lends = wire_lends();
}

static void rig_down(struct rig *r)
{
	leave(r->t);
	bed_stop(&r->bed);
}

/* ---- memory that changes ----------------------------------------------------------------------- */

/* _i: how it changes, and the mode. */
START_TEST(memory_that_changes)
{
	bool sync = _i >= PAGES_CHANGES;
	struct rig r;
	float *mem = map_at(NULL), sum = 0;

	rig_up(&r, sync ? SRV_SYNC : SRV_ASYNC, UINT64_MAX);
	for (uint32_t n = 1; n <= scaled(40, 4); n++) {
		/* Not from a page's beginning, and not always from the same place. */
		float *grad = mem + 16 + (n % 3 == 0 ? 1024 : 0);

		set(grad, (float)n);
		ok(gs_push_zcopy(r.t, r.p, grad));
		check_lent(r.p, grad, r.lends);
		applied(r.t, r.p, sync);
		sum += (float)n;
		check(r.t, r.p, sum, n);
		mem = pages_change(_i % PAGES_CHANGES, mem, MAP_BYTES);
	}
	rig_down(&r);
	munmap(mem, MAP_BYTES);
}
END_TEST

/* ---- a cache that is too small, memory that can't be lent --------------------------------------- */

START_TEST(a_small_cache)
{
	/* Room for one, for two, none at all. */
	uint64_t limits[] = {BYTES + 3 * 4096, 2 * (BYTES + 3 * 4096), 4096, 0};
	float *mem[4], sum = 0;
	bool idle = true;
	float *spare = malloc(BYTES);
	struct rig r;

	rig_up(&r, SRV_ASYNC, limits[_i]);
	for (int i = 0; i < 4; i++)
		mem[i] = map_at(NULL);
	for (uint32_t n = 1; n <= scaled(60, 12); n++) {
		float *grad = mem[(n * n / 3) % 4];

		set(grad, (float)n);
		ok(gs_push_zcopy(r.t, r.p, grad));
		/* Copied where there is no room; there is some when nothing is under way. */
		if (_i >= 2 || idle)
			check_lent(r.p, grad, _i < 2 && r.lends);
		sum += (float)n;
		/* Two under way at times, which may not fit. */
		if (n % 3 != 1)
			ok(gs_wait_applied(r.t, r.p));
		idle = n % 3 == 0;
		if (idle) {
			check(r.t, r.p, sum, n);
			/* A READ ends behind all that was posted before it. */
			ok(gs_pull(r.t, r.p, GS_RELAXED, spare));
		}
	}
	free(spare);
	rig_down(&r);
	for (int i = 0; i < 4; i++)
		munmap(mem[i], MAP_BYTES);
}
END_TEST

static float of_a_file[ELEMS] = {1}; /* of this program's */

START_TEST(all_kinds_of_memory)
{
	float *shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	float *own = map_at(NULL), *heap = malloc(BYTES + 4), *slot;
	struct rig r;

	rig_up(&r, SRV_ASYNC, UINT64_MAX);
	set(of_a_file, 1);
	set(shared, 2);
	set(own, 4);
	set(heap + 1, 8);
	must(mprotect(own, MAP_BYTES, PROT_READ) == 0, "mprotect");
	ok(gs_push_zcopy(r.t, r.p, of_a_file));
	check_lent(r.p, of_a_file, false);
	ok(gs_push_zcopy(r.t, r.p, shared));
	check_lent(r.p, shared, false);
	/* Copied: they may change at once. */
	set(of_a_file, 99);
	set(shared, 99);
	ok(gs_push_zcopy(r.t, r.p, own)); /* which nobody may write */
	check_lent(r.p, own, r.lends);
	ok(gs_push_zcopy(r.t, r.p, heap + 1));
	check_lent(r.p, heap + 1, r.lends);
	ok(gs_grad_buffer(r.t, r.p, (void **)&slot));
	set(slot, 16);
	ok(gs_push_zcopy(r.t, r.p, slot));
	check_lent(r.p, slot, false);
	check(r.t, r.p, 31, 5);
	/* gs_push of the same copies. */
	ok(gs_wait_applied(r.t, r.p));
	set(heap + 1, 32);
	ok(gs_push(r.t, r.p, heap + 1));
	check_lent(r.p, heap + 1, false);
	set(heap + 1, 77);
	check(r.t, r.p, 63, 6);
	fails(gs_push_zcopy(r.t, r.p, NULL), EINVAL, "NULL");
	rig_down(&r);
	free(heap);
	munmap(own, MAP_BYTES);
	munmap(shared, BYTES);
}
END_TEST

/* A child may do with its copy what it likes, while the parent's is under way. */
START_TEST(forks)
{
	struct rig r;
	float *mem = map_at(NULL), sum = 0;

	rig_up(&r, SRV_ASYNC, UINT64_MAX);
	for (uint32_t n = 1; n <= scaled(20, 5); n++) {
		set(mem, (float)n);
		ok(gs_push_zcopy(r.t, r.p, mem));
		pid_t pid = fork();

		if (pid == 0) {
			set(mem, 1000);
			munmap(mem, MAP_BYTES);
			_exit(gs_push_zcopy(r.t, r.p, mem) == -EINVAL ? 0 : 1);
		}
		ok(gs_wait_applied(r.t, r.p));
		sum += (float)n;
		/* While the child may still share the pages, the parent writes them. */
		set(mem, (float)(n + 1));
		ok(gs_push_zcopy(r.t, r.p, mem));
		check_lent(r.p, mem, r.lends);
		ok(gs_wait_applied(r.t, r.p));
		sum += (float)(n + 1);
		check(r.t, r.p, sum, 2 * n);
		int status;

		must(waitpid(pid, &status, 0) == pid && status == 0, "status 0x%x", status);
	}
	rig_down(&r);
	munmap(mem, MAP_BYTES);
}
END_TEST

/* ---- losses ------------------------------------------------------------------------------------ */

/* _i: how many are on their way when it is cut; the old slots hold other bytes. */
START_TEST(sent_again_from_there)
{
	struct rig r;
	float *mem[2], *slot, sum = 0;
	uint32_t pushes = 0;
	int rewound = 7;

	/* Long enough that some of it is still here when the connection is cut. */
	elems = 1 << 20;
	mem[0] = map_at(NULL);
	mem[1] = map_at(NULL);
	rig_up(&r, SRV_ASYNC, UINT64_MAX);
	for (uint32_t round = 0; round < scaled(10, 2); round++) {
		/* What would be sent if it came from the slots. */
		for (int i = 0; i < 2; i++) {
			ok(gs_grad_buffer(r.t, r.p, (void **)&slot));
			set(slot, 5);
			ok(gs_push(r.t, r.p, slot));
			pushes++;
			sum += 5;
		}
		ok(gs_wait_applied(r.t, r.p));
		for (int i = 0; i <= _i; i++) {
			set(mem[i], (float)(round + 100 * (uint32_t)i));
			ok(gs_push_zcopy(r.t, r.p, mem[i]));
			check_lent(r.p, mem[i], r.lends);
			pushes++;
			sum += (float)(round + 100 * (uint32_t)i);
		}
		wire_cut(r.t->link.conn);
		int rc = gs_wait_applied(r.t, r.p);

		must(rc == 0 || rc == -ECONNRESET, "%d: %s", rc, gs_last_error());
		/* Noticed later. */
		float *w = malloc(BYTES);
		while (rc == 0)
			rc = gs_pull(r.t, r.p, GS_ORDERED, w);
		free(w);
		ok(gs_reconnect(r.t, &rewound));
		must(rewound == 0, "rewound");
		ok(gs_wait_applied(r.t, r.p));
		set(mem[0], -1);
		set(mem[1], -1);
		check(r.t, r.p, sum, pushes);
	}
	rig_down(&r);
	munmap(mem[0], MAP_BYTES);
	munmap(mem[1], MAP_BYTES);
}
END_TEST

/* It ends with gradients under way, and their memory is unmapped then. */
START_TEST(closed_under_way)
{
	struct rig r;
	float *mem = map_at(NULL);

	rig_up(&r, SRV_ASYNC, UINT64_MAX);
	set(mem, 1);
	ok(gs_push_zcopy(r.t, r.p, mem));
	gs_close(r.t);
	munmap(mem, MAP_BYTES);
	bed_wait_lost(&r.bed, 1);
	bed_stop(&r.bed);
}
END_TEST

TCase *zcopy_case(void)
{
	TCase *t = e2e_wire_case("zcopy");

	tcase_add_loop_test(t, memory_that_changes, 0, 2 * PAGES_CHANGES);
	tcase_add_loop_test(t, a_small_cache, 0, 4);
	tcase_add_test(t, all_kinds_of_memory);
	tcase_add_test(t, forks);
	tcase_add_loop_test(t, sent_again_from_there, 0, 2);
	tcase_add_test(t, closed_under_way);
	return t;
}
