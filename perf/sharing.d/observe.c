/* SPDX-License-Identifier: Apache-2.0 */
#include "perf/sharing.d/observe.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "perf/sharing.d/lines.h"

enum {
	MAX_LINES = 1 << 17,
	MAX_MAPS = 256,
	MAX_ALLOCATIONS = 1 << 16,
	TURN = 300, /* accesses, more or less */
};

/* A line's name: of a file (bit 63), by its number and the offset in it, or of a process, by address. */
#define KEY_FILE (UINT64_C(1) << 63)
enum { KEY_SHIFT = 48 };

struct map {
	uintptr_t from, to;
	uint64_t offset, inode;
	unsigned file;
	char device[16], name[64];
};

struct place {
	_Atomic uint64_t key; /* 0: free */
	atomic_flag lock;
	struct line line;
};

struct allocation {
	uintptr_t at, len, pc;
	unsigned process;
};

struct thread {
	unsigned process;
	uintptr_t entry;
	const char *name;
};

static struct {
	atomic_bool on;
	bool turns;
	struct map map[MAX_MAPS];
	unsigned maps;
	struct place *place;
	struct allocation allocation[MAX_ALLOCATIONS];
	atomic_uint allocations;
	struct thread thread[LINE_THREADS];
	atomic_uint threads;
} observed;

static __thread struct {
	bool known, inside;
	unsigned number; /* in observed.thread */
	struct thread self;
	unsigned until; /* its turn is over */
} me;

static void fail(const char *text)
{
	fprintf(stderr, "sharing: %s\n", text);
	exit(2);
}

void observe_process(unsigned process)
{
	me.self.process = process;
}

void observe_name(const char *name)
{
	me.self.name = name;
}

struct observe_birth observe_birth(void *(*entry)(void *))
{
	return (struct observe_birth){.process = me.self.process, .entry = (uintptr_t)entry};
}

void observe_born(const struct observe_birth *birth)
{
	me.self.process = birth->process;
	me.self.entry = birth->entry;
}

void observe_take_turns(void)
{
	observed.turns = true;
}

void observe_allocated(const void *at, size_t len, uintptr_t pc)
{
	unsigned i = at ? atomic_fetch_add(&observed.allocations, 1) : MAX_ALLOCATIONS;

	if (i < MAX_ALLOCATIONS)
		observed.allocation[i] = (struct allocation){.at = (uintptr_t)at,
							  .len = len,
							  .pc = pc,
							  .process = me.self.process};
}

/* ---- what is mapped ---------------------------------------------------------------------------- */

static void number_file(struct map *m)
{
	for (unsigned i = 0; i < observed.maps; i++) {
		if (observed.map[i].inode == m->inode && strcmp(observed.map[i].device, m->device) == 0) {
			m->file = observed.map[i].file;
			return;
		}
	}
	m->file = observed.maps;
}

/* Shared ones; they are in the order of their addresses. */
static void read_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char text[512], perms[8];

	if (!f)
		fail("/proc/self/maps can't be read");
	while (fgets(text, sizeof(text), f)) {
		struct map m = {0};

		if (sscanf(text,
			   "%" SCNxPTR "-%" SCNxPTR " %7s %" SCNx64 " %15s %" SCNu64 " %63[^\n]",
			   &m.from, &m.to, perms, &m.offset, m.device, &m.inode, m.name) < 6)
			fail("a line of /proc/self/maps is not as expected");
		if (perms[3] != 's')
			continue;
		if (observed.maps == MAX_MAPS)
			fail("too many mappings");
		number_file(&m);
		observed.map[observed.maps++] = m;
	}
	fclose(f);
}

static uint64_t key_of(uintptr_t at)
{
	unsigned low = 0, high = observed.maps;

	while (low < high) {
		unsigned mid = (low + high) / 2;
		const struct map *m = &observed.map[mid];

		if (at >= m->to)
			low = mid + 1;
		else if (at < m->from)
			high = mid;
		else
			return KEY_FILE | (uint64_t)m->file << KEY_SHIFT |
			       (at - m->from + m->offset) / LINE_BYTES;
	}
	return (uint64_t)(me.self.process + 1) << KEY_SHIFT | at / LINE_BYTES;
}

/* ---- lines ------------------------------------------------------------------------------------- */

static struct place *find(uint64_t key)
{
	uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15) >> 32;

	for (unsigned i = 0; i < MAX_LINES; i++) {
		struct place *p = &observed.place[(hash + i) % MAX_LINES];
		uint64_t found = atomic_load_explicit(&p->key, memory_order_acquire);

		if (found == key || (!found && atomic_compare_exchange_strong(&p->key, &found, key)) ||
		    found == key)
			return p;
	}
	fail("too many lines: a smaller job");
	return NULL;
}

static void touch(uintptr_t at, size_t len, enum observe_kind kind, uintptr_t pc)
{
	while (len) {
		unsigned offset = at % LINE_BYTES;
		size_t n = len < LINE_BYTES - offset ? len : LINE_BYTES - offset;
		struct place *p = find(key_of(at));

		while (atomic_flag_test_and_set_explicit(&p->lock, memory_order_acquire))
			;
		line_touch(&p->line, me.number, line_bytes(offset, n), kind == OBSERVE_WRITE, pc);
		atomic_flag_clear_explicit(&p->lock, memory_order_release);
		at += n;
		len -= n;
	}
}

static void get_known(void)
{
	me.number = atomic_fetch_add(&observed.threads, 1);
	if (me.number >= LINE_THREADS)
		fail("too many threads");
	observed.thread[me.number] = me.self;
	me.known = true;
}

/* Of lengths that differ, or threads might fall into step. */
static void take_turn(void)
{
	static _Thread_local unsigned seed = 1;

	if (me.until-- > 0)
		return;
	seed = seed * 1103515245 + 12345;
	me.until = TURN / 2 + (seed >> 16) % TURN;
	sched_yield();
}

void observe_access(const volatile void *at, size_t len, enum observe_kind kind, uintptr_t pc)
{
	if (!atomic_load_explicit(&observed.on, memory_order_relaxed) || me.inside)
		return;
	me.inside = true;
	if (!me.known)
		get_known();
	touch((uintptr_t)at, len, kind, pc);
	if (observed.turns)
		take_turn();
	me.inside = false;
}

void observe_begin(void)
{
	me.inside = true;
	read_maps();
	observed.place = mmap(NULL, MAX_LINES * sizeof(*observed.place), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (observed.place == MAP_FAILED)
		fail("no memory");
	me.inside = false;
	atomic_store(&observed.on, true);
}

void observe_end(void)
{
	atomic_store(&observed.on, false);
}

/* ---- what came of it --------------------------------------------------------------------------- */

/* Of the file of a shared mapping, or of the memory that was allocated last at the address. */
static void print_object(FILE *out, uint64_t key)
{
	uint64_t low = (key & ((UINT64_C(1) << KEY_SHIFT) - 1)) * LINE_BYTES;
	unsigned high = (unsigned)((key & ~KEY_FILE) >> KEY_SHIFT);
	unsigned n = atomic_load(&observed.allocations);

	if (key & KEY_FILE) {
		for (unsigned i = 0; i < observed.maps; i++) {
			if (observed.map[i].file != high)
				continue;
			fprintf(out, "file %u %" PRIu64 " %s\n", high, low, observed.map[i].name);
			return;
		}
	}
	if (n > MAX_ALLOCATIONS)
		n = MAX_ALLOCATIONS;
	while (n-- > 0) {
		const struct allocation *a = &observed.allocation[n];

		if (a->process + 1 != high || low + LINE_BYTES <= a->at || low >= a->at + a->len)
			continue;
		/* Where the line begins; an object may begin within it. */
		fprintf(out, "heap %#" PRIxPTR " %" PRId64 " %" PRIuPTR "\n", a->pc,
			(int64_t)(low - a->at), a->len);
		return;
	}
	fprintf(out, "other %#" PRIx64 "\n", low);
}

static void print_use(FILE *out, unsigned thread, const struct line_use *use)
{
	const struct thread *t = &observed.thread[thread];

	fprintf(out, "use %" PRIu64 " %" PRIu64 " %#" PRIx64 " %#" PRIxPTR " %s\n", use->needed,
		use->useless, use->written, t->entry, t->name ? t->name : "");
	for (unsigned i = 0; i < LINE_PLACES && use->place[i].pc; i++)
		fprintf(out, "place %#" PRIxPTR " %#" PRIx64 " %#" PRIx64 " %" PRIu64 "\n",
			use->place[i].pc, use->place[i].read, use->place[i].written,
			use->place[i].n);
}

static void print_line(FILE *out, uint64_t key, const struct line *line)
{
	uint64_t moves = 0;

	for (unsigned i = 0; i < LINE_THREADS; i++)
		moves += line->use[i].needed + line->use[i].useless;
	if (!moves)
		return;
	fprintf(out, "line\n");
	print_object(out, key);
	for (unsigned i = 0; i < LINE_THREADS; i++)
		if (line->use[i].knows)
			print_use(out, i, &line->use[i]);
}

void observe_print(FILE *out, unsigned steps)
{
	fprintf(out, "steps %u\nthreads %u\n", steps, atomic_load(&observed.threads));
	for (unsigned i = 0; i < MAX_LINES; i++) {
		struct place *p = &observed.place[i];

		if (!atomic_load(&p->key))
			continue;
		line_end(&p->line);
		print_line(out, atomic_load(&p->key), &p->line);
	}
}
