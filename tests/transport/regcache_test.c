/* SPDX-License-Identifier: Apache-2.0
 *
 * The registration cache, against a made-up address space whose pages have generations: what it finds
 * must be of the pages that are there now. And the watch, on this process's own memory: what changes is
 * told before the call that changes it returns.
 */
#include "base/err.h"
#include "transport/verbs/regcache.h"
#include "transport/verbs/vmwatch.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "run.h"

#define PAGE 4096ul

static char mark[4];

static struct regcache *new_cache(uint64_t limit)
{
	struct regcache *c = malloc(sizeof(*c));

	ck_assert_ptr_nonnull(c);
	regcache_init(c, limit);
	return c;
}

static struct regcache_entry *add(struct regcache *c, uintptr_t first, uintptr_t end, void *handle)
{
	ck_assert(regcache_has_room(c, first, end));
	struct regcache_entry *e = regcache_add(c, first, end, false);

	regcache_set(e, handle);
	return e;
}

START_TEST(found_again)
{
	struct regcache *c = new_cache(UINT64_MAX);

	ck_assert_ptr_null(regcache_find(c, PAGE, 2 * PAGE, false));
	struct regcache_entry *e = regcache_add(c, PAGE, 4 * PAGE, false);

	/* Not before it is registered. */
	ck_assert_ptr_null(regcache_find(c, PAGE, 4 * PAGE, false));
	regcache_set(e, mark);
	ck_assert_ptr_eq(regcache_find(c, PAGE, 4 * PAGE, false), e);
	ck_assert_ptr_eq(regcache_find(c, PAGE, 2 * PAGE, false), e);
	ck_assert_ptr_null(regcache_find(c, PAGE, 5 * PAGE, false));
	ck_assert_ptr_null(regcache_find(c, 2 * PAGE, 3 * PAGE, false));
	ck_assert_uint_eq(e->users, 3);
	ck_assert_uint_eq(c->bytes, 3 * PAGE);
	/* A longer one from there may stand beside it. */
	struct regcache_entry *longer = add(c, PAGE, 9 * PAGE, mark + 1);

	ck_assert_ptr_eq(regcache_find(c, PAGE, 9 * PAGE, false), longer);
	ck_assert_uint_eq(c->bytes, 11 * PAGE);
	free(c);
}
END_TEST

START_TEST(gone_is_gone)
{
	struct regcache *c = new_cache(UINT64_MAX);
	struct regcache_entry *a = add(c, 10 * PAGE, 12 * PAGE, mark), out;
	struct regcache_entry *b = add(c, 12 * PAGE, 14 * PAGE, mark + 1);

	/* The neighbours' edges are not its own. */
	regcache_gone(c, 8 * PAGE, 10 * PAGE);
	regcache_gone(c, 14 * PAGE, 15 * PAGE);
	ck_assert(!a->dead && !b->dead);
	regcache_gone(c, 11 * PAGE, 12 * PAGE);
	ck_assert(a->dead && !b->dead);
	ck_assert_ptr_null(regcache_find(c, 10 * PAGE, 12 * PAGE, false));
	ck_assert(!regcache_overlaps(c, 10 * PAGE, 12 * PAGE));
	/* In use: it stays until it is given back, beside what is there now. */
	ck_assert(!regcache_take_out(c, false, &out));
	struct regcache_entry *anew = add(c, 10 * PAGE, 12 * PAGE, mark + 2);

	ck_assert_ptr_eq(regcache_find(c, 10 * PAGE, 12 * PAGE, false), anew);
	regcache_put(c, anew);
	ck_assert_uint_eq(c->bytes, 6 * PAGE);
	regcache_put(c, a);
	ck_assert(regcache_take_out(c, false, &out));
	ck_assert_ptr_eq(out.handle, mark);
	ck_assert(!regcache_take_out(c, false, &out));
	ck_assert_uint_eq(c->bytes, 4 * PAGE);
	free(c);
}
END_TEST

/* What the device may only read is no target, and what it may write is a source, too. */
START_TEST(targets)
{
	struct regcache *c = new_cache(UINT64_MAX);
	struct regcache_entry *source = add(c, PAGE, 4 * PAGE, mark);

	ck_assert_ptr_null(regcache_find(c, PAGE, 4 * PAGE, true));
	struct regcache_entry *target = regcache_add(c, PAGE, 4 * PAGE, true);

	regcache_set(target, mark);
	ck_assert_ptr_eq(regcache_find(c, PAGE, 4 * PAGE, true), target);
	regcache_put(c, source);
	regcache_put(c, target);
	regcache_put(c, target);
	regcache_gone(c, 3 * PAGE, 4 * PAGE);
	ck_assert_ptr_null(regcache_find(c, PAGE, 4 * PAGE, true));
	ck_assert_ptr_null(regcache_find(c, PAGE, 4 * PAGE, false));
	target = regcache_add(c, PAGE, 4 * PAGE, true);
	regcache_set(target, mark);
	ck_assert_ptr_eq(regcache_find(c, PAGE, 2 * PAGE, false), target);
	free(c);
}
END_TEST

/* One that dies while it is being registered. */
START_TEST(gone_too_early)
{
	struct regcache *c = new_cache(UINT64_MAX);
	struct regcache_entry *e = regcache_add(c, PAGE, 2 * PAGE, false), out;

	regcache_gone(c, 0, UINTPTR_MAX);
	regcache_set(e, mark);
	ck_assert_ptr_null(regcache_find(c, PAGE, 2 * PAGE, false));
	regcache_put(c, e);
	ck_assert(regcache_take_out(c, false, &out));
	ck_assert_uint_eq(c->entries, 0);
	e = regcache_add(c, PAGE, 2 * PAGE, false);
	regcache_cancel(c, e);
	ck_assert_uint_eq(c->bytes, 0);
	free(c);
}
END_TEST

START_TEST(longest_unused_gives_way)
{
	struct regcache *c = new_cache(4 * PAGE);
	struct regcache_entry *e[4], out;

	for (uintptr_t i = 0; i < 4; i++)
		e[i] = add(c, i * PAGE, (i + 1) * PAGE, mark + i);
	ck_assert(!regcache_has_room(c, 9 * PAGE, 10 * PAGE));
	ck_assert(!regcache_has_room(c, 9 * PAGE, 19 * PAGE));
	/* All are in use. */
	ck_assert(!regcache_take_out(c, true, &out));
	for (int i = 0; i < 4; i++)
		regcache_put(c, e[i]);
	/* 0 is used once more, so 1 is the oldest; 2 is in use. */
	ck_assert_ptr_eq(regcache_find(c, 0, PAGE, false), e[0]);
	regcache_put(c, e[0]);
	ck_assert_ptr_eq(regcache_find(c, 2 * PAGE, 3 * PAGE, false), e[2]);
	ck_assert(regcache_take_out(c, true, &out));
	ck_assert_ptr_eq(out.handle, mark + 1);
	ck_assert(regcache_has_room(c, 9 * PAGE, 10 * PAGE));
	ck_assert(regcache_take_out(c, true, &out));
	ck_assert_ptr_eq(out.handle, mark + 3);
	/* The dead go before the old. */
	add(c, 20 * PAGE, 21 * PAGE, mark + 3)->users = 0;
	regcache_gone(c, 20 * PAGE, 21 * PAGE);
	ck_assert(regcache_take_out(c, true, &out));
	ck_assert_uint_eq(out.first, 20 * PAGE);
	ck_assert(regcache_take_out(c, true, &out));
	ck_assert_ptr_eq(out.handle, mark);
	ck_assert(!regcache_take_out(c, true, &out));
	regcache_end(c);
	ck_assert(regcache_take_out(c, false, &out));
	ck_assert_ptr_eq(out.handle, mark + 2);
	ck_assert_uint_eq(c->bytes, 0);
	free(c);
}
END_TEST

START_TEST(entries_run_out)
{
	struct regcache *c = new_cache(UINT64_MAX);
	struct regcache_entry out;

	for (uintptr_t i = 0; i < REGCACHE_ENTRIES; i++)
		regcache_put(c, add(c, i * PAGE, (i + 1) * PAGE, mark));
	ck_assert(!regcache_has_room(c, 0, PAGE));
	ck_assert(regcache_take_out(c, true, &out));
	ck_assert_uint_eq(out.first, 0);
	ck_assert(regcache_has_room(c, 0, PAGE));
	free(c);
}
END_TEST

/* ---- a made-up address space -------------------------------------------------------------------- */

#define PAGES 64

struct made_up {
	unsigned generation[PAGES];
	unsigned registered, live;
};

/* A registration: the pages' generations when it was made. */
struct pin {
	uintptr_t first, end;
	unsigned generation[PAGES];
};

static struct pin *pin(struct made_up *m, uintptr_t first, uintptr_t end)
{
	struct pin *p = malloc(sizeof(*p));

	*p = (struct pin){.first = first, .end = end};
	memcpy(p->generation, m->generation, sizeof(p->generation));
	m->registered++;
	m->live++;
	return p;
}

static void check_pin(const struct made_up *m, const struct pin *p, uintptr_t first, uintptr_t end)
{
	ck_assert(p->first <= first && p->end >= end);
	for (uintptr_t i = first / PAGE; i < end / PAGE; i++)
		ck_assert_uint_eq(p->generation[i], m->generation[i]);
}

static void unpin(struct made_up *m, const struct regcache_entry *e)
{
	ck_assert_uint_eq(e->users, 0);
	free(e->handle);
	m->live--;
}

static struct regcache_entry *use(struct made_up *m, struct regcache *c, uintptr_t first,
				  uintptr_t end)
{
	struct regcache_entry *e = regcache_find(c, first, end, false), out;

	if (e) {
		check_pin(m, e->handle, first, end);
		return e;
	}
	while (regcache_take_out(c, !regcache_has_room(c, first, end), &out))
		unpin(m, &out);
	return regcache_has_room(c, first, end) ? add(c, first, end, pin(m, first, end)) : NULL;
}

START_TEST(never_stale)
{
	struct made_up m = {.live = 0};
	struct regcache *c = new_cache(40 * PAGE);
	struct regcache_entry *used[8] = {NULL}, out;
	unsigned uses = 0;

	srandom(7);
	for (int round = 0; round < 200000; round++) {
		uintptr_t at = (uintptr_t)(random() % 8) * 8, n = 1 + (uintptr_t)random() % 8;
		int k = (int)(random() % 8);

		if (used[k]) {
			regcache_put(c, used[k]);
			used[k] = NULL;
		}
		if (random() % 5 == 0) {
			for (uintptr_t i = at; i < at + n; i++)
				m.generation[i]++;
			regcache_gone(c, at * PAGE, (at + n) * PAGE);
		} else {
			used[k] = use(&m, c, at * PAGE, (at + n) * PAGE);
			uses += used[k] != NULL;
		}
		ck_assert_uint_eq(m.live, c->entries);
		ck_assert_uint_le(c->bytes, c->limit);
	}
	ck_assert_uint_gt(uses, 100000);
	ck_assert_uint_lt(m.registered, uses); /* some were found */
	regcache_end(c);
	while (regcache_take_out(c, false, &out))
		unpin(&m, &out);
	ck_assert_uint_eq(m.live, 0);
	ck_assert_uint_eq(c->bytes, 0);
	free(c);
}
END_TEST

/* ---- this process's own ------------------------------------------------------------------------- */

struct member {
	struct vmwatch watch;
	struct regcache *cache;
	atomic_int told;
};

static void member_gone(struct vmwatch *w, uintptr_t first, uintptr_t end)
{
	struct member *m = (struct member *)w;

	m->told++;
	regcache_gone(m->cache, first, end);
}

static bool member_wants(struct vmwatch *w, uintptr_t first, uintptr_t end)
{
	return regcache_overlaps(((struct member *)w)->cache, first, end);
}

static struct member *join(void)
{
	struct member *m = calloc(1, sizeof(*m));

	m->watch = (struct vmwatch){.gone = member_gone, .wants = member_wants};
	m->cache = new_cache(UINT64_MAX);
	ck_assert_msg(vmwatch_join(&m->watch) == 0, "%s", err_text());
	return m;
}

static void leave(struct member *m)
{
	vmwatch_leave(&m->watch);
	free(m->cache);
	free(m);
}

static void *map(void *at, size_t size)
{
	void *mem = mmap(at, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	ck_assert_ptr_ne(mem, MAP_FAILED);
	return mem;
}

static void watch_range(struct member *m, void *at, size_t size)
{
	uintptr_t first = (uintptr_t)at;

	ck_assert(vmwatch_is_anonymous(first, first + size));
	vmwatch_lock();
	regcache_put(m->cache, add(m->cache, first, first + size, mark));
	int rc = vmwatch_add(first, first + size);

	vmwatch_unlock();
	ck_assert_msg(rc == 0, "%s", err_text());
}

static bool found(struct member *m, void *at, size_t size)
{
	uintptr_t first = (uintptr_t)at;

	vmwatch_lock();
	struct regcache_entry *e = regcache_find(m->cache, first, first + size, false);

	if (e)
		regcache_put(m->cache, e);
	vmwatch_unlock();
	return e != NULL;
}

#define SIZE (8 * PAGE)

/* Each way to lose memory; gives what is to be unmapped in the end. */
static void *by_munmap(void *mem)
{
	munmap(mem, SIZE);
	return NULL;
}

static void *by_munmap_of_one_page(void *mem)
{
	munmap((char *)mem + 3 * PAGE, PAGE);
	return mem;
}

static void *by_a_system_call_of_its_own(void *mem)
{
	syscall(SYS_munmap, mem, SIZE);
	return NULL;
}

static void *by_mapping_over(void *mem)
{
	return map(mem, SIZE);
}

static void *by_mapping_over_its_end(void *mem)
{
	map((char *)mem + 7 * PAGE, 2 * PAGE);
	return mem;
}

static void *by_dontneed(void *mem)
{
	ck_assert_int_eq(madvise((char *)mem + PAGE, PAGE, MADV_DONTNEED), 0);
	return mem;
}

static void *by_moving(void *mem)
{
	void *to = map(NULL, SIZE);

	ck_assert_ptr_eq(mremap(mem, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
	return to;
}

static void *by_moving_onto_it(void *mem)
{
	void *other = map(NULL, SIZE);

	ck_assert_ptr_eq(mremap(other, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, mem), mem);
	return mem;
}

static void *by_shrinking(void *mem)
{
	ck_assert_ptr_eq(mremap(mem, SIZE, SIZE / 2, 0), mem);
	return mem;
}

static void *(*const ways[])(void *mem) = {
    by_munmap,	by_munmap_of_one_page, by_a_system_call_of_its_own, by_mapping_over,
    by_mapping_over_its_end, by_dontneed, by_moving, by_moving_onto_it, by_shrinking,
};

START_TEST(told_in_time)
{
	struct member *m = join();

	for (int round = 0; round < 200; round++) {
		/* Room behind it, which is its own. */
		char *mem = map(NULL, SIZE + 2 * PAGE), *other = map(NULL, SIZE);

		memset(mem, 1, SIZE);
		watch_range(m, mem, SIZE);
		watch_range(m, other, SIZE);
		ck_assert(found(m, mem, SIZE));
		void *left = ways[_i](mem);

		ck_assert_msg(!found(m, mem, SIZE), "round %d", round);
		ck_assert(found(m, other, SIZE));
		if (left)
			munmap(left, SIZE);
		munmap(mem + SIZE, 2 * PAGE);
		munmap(other, SIZE);
		ck_assert(!found(m, other, SIZE));
		for (struct regcache_entry out; regcache_take_out(m->cache, false, &out);)
			;
	}
	leave(m);
}
END_TEST

/* What is watched behaves as it did: touched for the first time by the program and by the kernel. */
START_TEST(nothing_else_changes)
{
	struct member *m = join();
	char *mem = map(NULL, SIZE);
	int pipes[2];

	watch_range(m, mem, SIZE);
	ck_assert_int_eq(mem[PAGE], 0);
	mem[2 * PAGE] = 5;
	ck_assert_int_eq(pipe(pipes), 0);
	ck_assert_int_eq(write(pipes[1], "four", 4), 4);
	ck_assert_int_eq(read(pipes[0], mem + 3 * PAGE, 4), 4);
	ck_assert_int_eq(memcmp(mem + 3 * PAGE, "four", 4), 0);
	ck_assert_int_eq(write(pipes[1], mem + 5 * PAGE, 4), 4);
	ck_assert_int_eq(mprotect(mem, SIZE, PROT_READ), 0);
	ck_assert_int_eq(mprotect(mem, SIZE, PROT_READ | PROT_WRITE), 0);
	mem[0] = 1;
	ck_assert_int_eq(m->told, 0);
	ck_assert(found(m, mem, SIZE));
	/* Heap memory that grows: it moves, and its content with it. */
	char *heap = malloc(1 << 20);

	memset(heap, 3, 1 << 20);
	uintptr_t first = ((uintptr_t)heap + PAGE - 1) & ~(PAGE - 1);

	watch_range(m, (void *)first, 16 * PAGE);
	heap = realloc(heap, 8 << 20);
	ck_assert_ptr_nonnull(heap);
	for (int i = 0; i < 1 << 20; i++)
		ck_assert(heap[i] == 3);
	free(heap);
	close(pipes[0]);
	close(pipes[1]);
	munmap(mem, SIZE);
	leave(m);
}
END_TEST

START_TEST(kinds_of_memory)
{
	char *mem = map(NULL, 3 * PAGE);
	uintptr_t at = (uintptr_t)mem;
	char *shared =
	    mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int local;

	ck_assert(vmwatch_is_anonymous(at, at + 3 * PAGE));
	/* Cut in two, still all there. */
	ck_assert_int_eq(mprotect(mem, PAGE, PROT_READ), 0);
	ck_assert(vmwatch_is_anonymous(at, at + 3 * PAGE));
	ck_assert(vmwatch_is_anonymous((uintptr_t)&local, (uintptr_t)&local + 1));
	munmap(mem + PAGE, PAGE);
	ck_assert(!vmwatch_is_anonymous(at, at + 3 * PAGE));
	ck_assert(vmwatch_is_anonymous(at, at + PAGE));
	ck_assert(!vmwatch_is_anonymous((uintptr_t)shared, (uintptr_t)shared + PAGE));
	/* Of a file: this program's own constants. */
	ck_assert(!vmwatch_is_anonymous((uintptr_t)ways, (uintptr_t)ways + 1));
	munmap(shared, PAGE);
	munmap(mem, PAGE);
	munmap(mem + 2 * PAGE, PAGE);
}
END_TEST

START_TEST(dropped_is_not_told)
{
	struct member *a = join(), *b = join();
	char *mem = map(NULL, SIZE);
	uintptr_t first = (uintptr_t)mem;
	struct regcache_entry out;

	watch_range(a, mem, SIZE);
	watch_range(b, mem, SIZE);
	/* The other one still wants it. */
	vmwatch_lock();
	ck_assert(regcache_take_out(a->cache, true, &out));
	vmwatch_drop(first, first + SIZE);
	vmwatch_unlock();
	munmap(mem, PAGE);
	ck_assert(!found(b, mem, SIZE));
	map(mem, PAGE);
	watch_range(b, mem, SIZE);
	vmwatch_lock();
	while (regcache_take_out(b->cache, true, &out))
		;
	vmwatch_drop(first, first + SIZE);
	vmwatch_unlock();
	int told = b->told;

	munmap(mem, SIZE);
	ck_assert_int_eq(b->told, told);
	leave(a);
	/* Joined anew after the last has left. */
	leave(b);
	a = join();
	mem = map(NULL, SIZE);
	watch_range(a, mem, SIZE);
	munmap(mem, SIZE);
	ck_assert(!found(a, mem, SIZE));
	leave(a);
}
END_TEST

/* A child's memory is its own: it may unmap what its parent has watched, and watch for itself. */
START_TEST(children)
{
	struct member *m = join();
	char *mem = map(NULL, SIZE);
	int status;

	memset(mem, 1, SIZE);
	watch_range(m, mem, SIZE);
	pid_t pid = fork();

	if (pid == 0) {
		alarm(20);
		munmap(mem, SIZE);
		struct member *own = join();
		char *other = map(NULL, SIZE);

		watch_range(own, other, SIZE);
		munmap(other, SIZE);
		_exit(found(own, other, SIZE) ? 1 : 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status 0x%x", status);
	ck_assert_int_eq(m->told, 0);
	ck_assert(found(m, mem, SIZE));
	munmap(mem, SIZE);
	ck_assert(!found(m, mem, SIZE));
	leave(m);
}
END_TEST

struct thief {
	struct member *m;
	unsigned rounds;
};

static void *steal(void *arg)
{
	struct thief *t = arg;

	for (unsigned i = 0; i < t->rounds; i++) {
		char *mem = map(NULL, SIZE);

		struct regcache_entry out;

		watch_range(t->m, mem, SIZE);
		munmap(mem, SIZE);

		vmwatch_lock();
		regcache_take_out(t->m->cache, false, &out);
		vmwatch_unlock();
	}
	return NULL;
}

/* Many at once, none of whom hangs; all is told. */
START_TEST(many_threads)
{
	struct thief thief = {join(), 500};
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, steal, &thief), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(thief.m->told, 2000);
	leave(thief.m);
}
END_TEST

static Suite *suite(bool watched)
{
	Suite *s = suite_create("registration cache");
	TCase *t = tcase_create("cache");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, found_again);
	tcase_add_test(t, targets);
	tcase_add_test(t, gone_is_gone);
	tcase_add_test(t, gone_too_early);
	tcase_add_test(t, longest_unused_gives_way);
	tcase_add_test(t, entries_run_out);
	tcase_add_test(t, never_stale);
	suite_add_tcase(s, t);
	t = tcase_create("watch");
	tcase_set_timeout(t, 60);
	tcase_add_test(t, kinds_of_memory);
	suite_add_tcase(s, t);
	if (!watched)
		return s;
	tcase_add_loop_test(t, told_in_time, 0, (int)(sizeof(ways) / sizeof(*ways)));
	tcase_add_test(t, nothing_else_changes);
	tcase_add_test(t, dropped_is_not_told);
	tcase_add_test(t, children);
	tcase_add_test(t, many_threads);
	return s;
}

int main(void)
{
	struct member probe = {.watch = {.gone = member_gone, .wants = member_wants}};
	bool watched = vmwatch_join(&probe.watch) == 0;

	if (watched)
		vmwatch_leave(&probe.watch);
	else
		fprintf(stderr, "the watch is not tested: %s\n", err_text());
	SRunner *runner = srunner_create(suite(watched));
	return run_all(runner);
}
