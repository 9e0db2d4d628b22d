/* SPDX-License-Identifier: Apache-2.0
 *
 * WRITEs and READs: bytes, immediates, order, bounds, access.
 */
#include "contract.h"
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define RW (TP_PEER_READ | TP_PEER_WRITE)

/* Writes `len` bytes at a time, with an immediate, and looks at all around them. */
static void write_checked(struct pair *p, struct side *from, struct side *to, size_t offset,
			  size_t len, uint32_t imm)
{
	char *window = side_window(to);
	size_t size = tp_arena_size(to->window_arena);

	memset(window, 0x5a, size);
	fill(side_local(from), len, imm);
	struct tp_op op = with_signal(with_imm(op_write(from, 0, offset, len), imm), len);

	side_post(from, to, &op);
	struct tp_event ev = expect_past_room(p, to, TP_EV_IMM);

	ck_assert_uint_eq(ev.imm, imm);
	ck_assert_uint_eq(ev.len, tp_imm_len(from->conn, len));
	ck_assert_uint_eq(ev.len, tp_imm_len(to->conn, len));
	check_filled(window + offset, len, imm);
	if (offset)
		ck_assert_int_eq(window[offset - 1], 0x5a);
	if (offset + len < size)
		ck_assert_int_eq(window[offset + len], 0x5a);
	ev = expect_past_room(p, from, TP_EV_DONE);
	ck_assert_int_eq(ev.status, 0);
	ck_assert_uint_eq(ev.cookie, len);
}

static const size_t sizes[] = {1,   2,    3,    4,    7,    8,    9,     63,    64,    65,   100,
			       255, 1000, 4095, 4096, 4097, 8191, 12289, 65535, 65536, 65537};

START_TEST(write_sizes)
{
	struct pair p;

	pair_open(&p, NULL);
	pair_memory(&p, 131072, RW);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		write_checked(&p, &p.a, &p.b, 0, sizes[i], (uint32_t)i);
		write_checked(&p, &p.b, &p.a, i * 3 + 1, sizes[i], (uint32_t)i + 100);
	}
	pair_close(&p);
}
END_TEST

START_TEST(write_in_chunks)
{
	struct pair_options opt = {.a = {.max_chunk = 4096}, .b = {.max_chunk = 8192}};
	struct pair p;

	pair_open(&p, &opt);
	ck_assert_uint_le(tp_conn_limits(p.a.conn).max_chunk, 4096);
	pair_memory(&p, 131072, RW);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		write_checked(&p, &p.a, &p.b, i, sizes[i], (uint32_t)i);
	ck_assert_uint_eq(tp_imm_len(p.a.conn, 4096 * 3), 4096);
	ck_assert_uint_eq(tp_imm_len(p.a.conn, 4096 * 3 + 5), 5);
	pair_close(&p);
}
END_TEST

START_TEST(write_around_inline)
{
	struct pair p;

	pair_open(&p, NULL);
	pair_memory(&p, 65536, RW);
	uint32_t limit = tp_conn_limits(p.a.conn).max_inline;

	for (uint32_t len = limit > 3 ? limit - 3 : 1; len <= limit + 3; len++)
		write_checked(&p, &p.a, &p.b, 8, len, len);
	/* A short source may be anywhere and is taken at once. */
	for (uint32_t len = 1; len <= limit && len <= 64; len++) {
		char stack[64];
		struct tp_op op = with_imm(op_write(&p.a, 0, 16, len), len);

		fill(stack, len, len);
		op.local = stack;
		op.region = NULL;
		side_post(&p.a, &p.b, &op);
		memset(stack, 0xee, sizeof(stack));
		expect_past_room(&p, &p.b, TP_EV_IMM);
		check_filled(side_window(&p.b) + 16, len, len);
	}
	pair_close(&p);
}
END_TEST

START_TEST(write_big)
{
	size_t len = (size_t)scaled(64 << 20, 4 << 20);
	struct pair p;

	pair_open(&p, NULL);
	pair_memory(&p, len + 4096, RW);
	write_checked(&p, &p.a, &p.b, 0, len, 1);
	write_checked(&p, &p.b, &p.a, 4095, len + 1, 2);
	memset(side_local(&p.a), 0, len);
	fill(side_window(&p.b), len, 3);
	struct tp_op op = with_signal(op_read(&p.a, 0, 0, len), 9);

	side_post(&p.a, &p.b, &op);
	ck_assert_int_eq(expect_past_room(&p, &p.a, TP_EV_DONE).status, 0);
	check_filled(side_local(&p.a), len, 3);
	pair_close(&p);
}
END_TEST

START_TEST(immediate_values)
{
	static const uint32_t imms[] = {0, 1, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
	struct pair p;

	pair_open(&p, NULL);
	pair_memory(&p, 4096, RW);
	for (size_t i = 0; i < sizeof(imms) / sizeof(*imms); i++) {
		write_checked(&p, &p.a, &p.b, 0, 5, imms[i]);
		write_checked(&p, &p.b, &p.a, 0, 5, imms[i]);
	}
	pair_close(&p);
}
END_TEST

START_TEST(read_sizes)
{
	struct pair p;

	pair_open(&p, NULL);
	pair_memory(&p, 131072, RW);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		size_t len = sizes[i], offset = i * 7;
		char *local = side_local(&p.a);

		memset(local, 0x5a, 131072);
		fill(side_window(&p.b) + offset, len, (uint32_t)i);
		struct tp_op op = with_signal(op_read(&p.a, 1, offset, len), i);

		side_post(&p.a, &p.b, &op);
		struct tp_event ev = expect(&p, &p.a, TP_EV_DONE);

		ck_assert_uint_eq(ev.cookie, i);
		ck_assert_int_eq(ev.status, 0);
		ck_assert_int_eq(local[0], 0x5a);
		check_filled(local + 1, len, (uint32_t)i);
		ck_assert_int_eq(local[1 + len], 0x5a);
	}
	pair_close(&p);
}
END_TEST

/* Short ones that begin in one page and end in the next. */
START_TEST(over_a_pages_edge)
{
	struct pair p;

	pair_open(&p, NULL);
	pair_memory(&p, 16384, RW);
	for (size_t len = 2; len <= 70; len += scaled(1, 3)) {
		for (size_t before = 1; before < len; before += scaled(3, 7)) {
			size_t at = 4096 - before;
			char *local = side_local(&p.a);

			memset(local, 0x5a, 16384);
			fill(side_window(&p.b) + at, len, (uint32_t)len);
			struct tp_op op = with_signal(op_read(&p.a, at + 4096, at, len), len);
			side_post(&p.a, &p.b, &op);
			struct tp_event ev = expect(&p, &p.a, TP_EV_DONE);
			ck_assert_int_eq(ev.status, 0);
			check_filled(local + at + 4096, len, (uint32_t)len);
			ck_assert_int_eq(local[at + 4095], 0x5a);
			ck_assert_int_eq(local[at + 4096 + len], 0x5a);

			op = with_imm(op_write(&p.a, at + 4096, at + 8192, len), (uint32_t)len);
			side_post(&p.a, &p.b, &op);
			ck_assert_uint_eq(expect(&p, &p.b, TP_EV_IMM).imm, len);
			check_filled(side_window(&p.b) + at + 8192, len, (uint32_t)len);
		}
	}
	pair_close(&p);
}
END_TEST

/* One chain: WRITE, WRITE, READ of what they wrote (fenced behind them), WRITE of what was read. */
START_TEST(chain)
{
	struct pair p;

	pair_open(&p, NULL);
	pair_memory(&p, 65536, RW);
	for (uint32_t round = 0; round < scaled(500, 50); round++) {
		char *local = side_local(&p.a);

		fill(local, 3000, round);
		struct tp_op ops[] = {
		    op_write(&p.a, 0, 0, 1000),
		    op_write(&p.a, 1000, 1000, 2000),
		    with_signal(op_read(&p.a, 8192, 0, 3000), 1),
		    with_signal(with_imm(op_write(&p.a, 8192, 16384, 3000), round), 2),
		};

		ops[3].flags |= TP_F_FENCE;
		ck_assert_int_eq(tp_post(p.a.conn, ops, 4), 4);
		ck_assert_uint_eq(expect(&p, &p.b, TP_EV_IMM).imm, round);
		check_filled(side_window(&p.b) + 16384, 3000, round);
		ck_assert_uint_eq(expect(&p, &p.a, TP_EV_DONE).cookie, 1);
		ck_assert_uint_eq(expect(&p, &p.a, TP_EV_DONE).cookie, 2);
	}
	pair_close(&p);
}
END_TEST

/* Each READ begins when the one before it has ended: what a sequence lock's reader asks for. */
START_TEST(fenced_reads)
{
	struct pair p;

	pair_open(&p, NULL);
	pair_memory(&p, 65536, RW);
	for (uint32_t round = 0; round < scaled(200, 30); round++) {
		struct tp_op ops[] = {
		    with_signal(op_read(&p.a, 0, 0, 8), 1),
		    with_signal(op_read(&p.a, 64, 64, 5000), 2),
		    with_signal(op_read(&p.a, 8, 0, 8), 3),
		};

		fill(side_window(&p.b), 8, round);
		fill(side_window(&p.b) + 64, 5000, round);
		ops[1].flags |= TP_F_FENCE;
		ops[2].flags |= TP_F_FENCE;
		for (int i = 0; i < 3; i++)
			side_post(&p.a, &p.b, &ops[i]);
		for (uint64_t i = 1; i <= 3; i++) {
			struct tp_event ev = expect_past_room(&p, &p.a, TP_EV_DONE);

			ck_assert_uint_eq(ev.cookie, i);
			ck_assert_int_eq(ev.status, 0);
		}
		check_filled(side_local(&p.a), 8, round);
		check_filled(side_local(&p.a) + 8, 8, round);
		check_filled(side_local(&p.a) + 64, 5000, round);
	}
	pair_close(&p);
}
END_TEST

/* ---- data before its immediate --------------------------------------------------------------- */

/* What the design does with it: gradients into slots one way, an 8-byte count of credits the other
 * way, which takes no immediate and no completion. */
struct stream {
	struct side *writer, *reader;
	uint32_t slots, rounds;
	size_t slot, len;
	_Atomic bool failed;
};

static void *read_stream(void *arg)
{
	struct stream *st = arg;
	struct side *s = st->reader;
	uint64_t taken = 0, start = clock_ns();

	while (taken < st->rounds) {
		struct tp_event ev[8];
		int n = tp_cq_poll(s->cq, ev, 8);

		if (n == 0)
			sched_yield();
		else
			start = clock_ns();
		for (int i = 0; i < n; i++) {
			ck_assert_int_eq(ev[i].kind, TP_EV_IMM);
			ck_assert_uint_eq(ev[i].imm, (uint32_t)taken);
			check_filled(side_window(s) + taken % st->slots * st->slot, st->len,
				     (uint32_t)taken);
			taken++;
			/* The count goes to the end of the writer's window. */
			struct tp_op op = op_write(s, 0, tp_arena_size(s->window_arena) - 8, 8);

			op.local = &taken;
			op.region = NULL;
			int rc = tp_post(s->conn, &op, 1);

			ck_assert_msg(rc == 1 || rc == -EAGAIN, "credit: %d: %s", rc, err_text());
		}
		ck_in_time(start);
	}
	/* If the last count found no room. */
	struct tp_op op = op_write(s, 0, tp_arena_size(s->window_arena) - 8, 8);

	op.local = &taken;
	op.region = NULL;
	for (;;) {
		struct tp_event ev[8];
		int rc = tp_post(s->conn, &op, 1);

		if (rc == 1)
			return NULL;
		tp_cq_poll(s->cq, ev, 8);
		ck_in_time(start);
	}
}

static void stream(size_t len, uint32_t max_chunk, uint32_t rounds)
{
	struct pair_options opt = {.a = {.max_chunk = max_chunk}};
	struct pair p;
	pthread_t thread;

	pair_open(&p, &opt);
	struct stream st = {
	    .writer = &p.b, .reader = &p.a, .slots = 4, .rounds = rounds, .len = len};

	st.slot = (len + 63) & ~(size_t)63;
	pair_memory(&p, st.slots * st.slot + 64, RW);
	pthread_create(&thread, NULL, read_stream, &st);

	_Atomic uint64_t *credits =
	    (_Atomic uint64_t *)(side_window(&p.b) + tp_arena_size(p.b.window_arena) - 8);
	uint64_t start = clock_ns();

	for (uint32_t i = 0; i < rounds; i++) {
		size_t at = i % st.slots * st.slot;

		while (atomic_load_explicit(credits, memory_order_acquire) + st.slots <= i) {
			side_pump(&p.b);
			sched_yield();
			ck_in_time(start);
		}
		start = clock_ns();
		fill(side_local(&p.b) + at, len, i);
		struct tp_op op = with_imm(op_write(&p.b, at, at, len), i);

		side_post(&p.b, NULL, &op);
	}
	pthread_join(thread, NULL);
	while (atomic_load(credits) < rounds) {
		side_pump(&p.b);
		ck_in_time(start);
	}
	pair_close(&p);
}

START_TEST(data_before_immediate)
{
	stream(48, 0, (uint32_t)scaled(50000, 2000));
	stream(1000, 0, (uint32_t)scaled(20000, 1000));
	stream(20000, 0, (uint32_t)scaled(1000, 100));
}
END_TEST

START_TEST(data_before_immediate_chunked)
{
	stream(10000, 4096, (uint32_t)scaled(1000, 100));
	stream(10000, 512, (uint32_t)scaled(500, 50));
}
END_TEST

START_TEST(data_before_immediate_big)
{
	size_t len = (size_t)scaled(9 << 20, 1 << 20);

	stream(len, 0, (uint32_t)scaled(10, 4));
}
END_TEST

/* ---- bounds and access ----------------------------------------------------------------------- */

START_TEST(bounds)
{
	struct pair p;

	pair_open(&p, NULL);
	pair_memory(&p, 8192, RW);
	uint64_t size = tp_region_ref(p.b.window).len;
	struct tp_op good = op_write(&p.a, 0, 0, 64), op;

	op = good, op.offset = size, op.len = 1;
	ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
	op = good, op.offset = size - 63;
	ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
	op = good, op.offset = UINT64_MAX - 10;
	ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
	op = good, op.len = size + 1;
	ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
	op = good, op.len = UINT64_MAX;
	ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
	op = good, op.len = 0;
	ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
	op = good, op.local = NULL;
	ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
	op = good, op.remote = NULL;
	ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
	op = good, op.remote = p.b.remote;
	ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
	op = good, op.flags = 1u << 20;
	ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
	op = op_read(&p.a, 0, 0, 64), op.flags = TP_F_IMM;
	ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
	ck_fails(tp_post(p.a.conn, &good, 0), EINVAL);
	if (!tp_conn_limits(p.a.conn).load_store) {
		op = op_read(&p.a, 0, 0, 64), op.local = side_local(&p.a) + 8192 - 63;
		ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
		op.local = side_local(&p.a) - 1;
		ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
		op.region = NULL;
		ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
	}
	/* Of a chain, what is before the bad one is taken. */
	struct tp_op ops[3] = {with_imm(good, 1), with_imm(good, 2), good};

	ops[2].offset = size;
	ck_assert_int_eq(tp_post(p.a.conn, ops, 3), 2);
	ck_assert_uint_eq(expect(&p, &p.b, TP_EV_IMM).imm, 1);
	ck_assert_uint_eq(expect(&p, &p.b, TP_EV_IMM).imm, 2);
	expect_none(&p, &p.b);
	pair_close(&p);
}
END_TEST

START_TEST(attach_checks)
{
	struct pair p;
	struct tp_remote *remote = NULL;

	pair_open(&p, NULL);
	pair_memory(&p, 8192, RW);
	struct tp_ref ref = tp_region_ref(p.b.window);

	ck_fails(tp_attach(p.a.conn, &ref, RW, ref.len - 1, &remote), EPROTO);
	ck_fails(tp_attach(p.a.conn, &ref, 0, ref.len, &remote), EINVAL);
	ck_fails(tp_attach(p.a.conn, &ref, 8, ref.len, &remote), EINVAL);
	ck_fails(tp_attach(p.a.conn, &ref, RW, 0, &remote), EINVAL);
	ref.len = 0;
	ck_fails(tp_attach(p.a.conn, &ref, RW, 8192, &remote), EPROTO);
	ref.len = 4096;
	ref.addr = UINT64_MAX - 100;
	ck_fails(tp_attach(p.a.conn, &ref, RW, 8192, &remote), EPROTO);
	ck_assert_ptr_null(remote);
	/* Less than it has, and once more: both are the attacher's choice. */
	ref = tp_region_ref(p.b.window);
	ref.len = 4096;
	ck_ok(tp_attach(p.a.conn, &ref, TP_PEER_WRITE, 4096, &remote));
	struct tp_op op = op_write(&p.a, 0, 4090, 8);

	op.remote = remote;
	ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
	op = op_read(&p.a, 0, 0, 8);
	op.remote = remote;
	ck_fails(tp_post(p.a.conn, &op, 1), EACCES);
	op = with_imm(op_write(&p.a, 0, 0, 8), 1);
	op.remote = remote;
	side_post(&p.a, &p.b, &op);
	expect(&p, &p.b, TP_EV_IMM);
	tp_remote_destroy(remote);
	tp_remote_destroy(NULL);
	tp_region_destroy(NULL);
	pair_close(&p);
}
END_TEST

/* The peer exposed its window to be read; this side tries to write it all the same. */
START_TEST(write_without_access)
{
	struct pair p;
	struct tp_remote *remote = NULL;

	pair_open(&p, NULL);
	pair_memory(&p, 8192, TP_PEER_READ);
	struct tp_ref ref = tp_region_ref(p.b.window);
	struct tp_op op = op_write(&p.a, 0, 0, 64);

	ck_fails(tp_post(p.a.conn, &op, 1), EACCES);
	int rc = tp_attach(p.a.conn, &ref, TP_PEER_WRITE, ref.len, &remote);

	if (test_is_shm()) {
		ck_assert_int_eq(rc, -EACCES);
		pair_close(&p);
		return;
	}
	ck_ok(rc);
	memset(side_local(&p.a), 0xff, 64);
	op = with_signal(op, 1);
	op.remote = remote;
	side_post(&p.a, &p.b, &op);
	/* Without native immediates (iWARP) a WRITE has ended when it has left this machine. */
	int status = expect(&p, &p.a, TP_EV_DONE).status;

	ck_assert(status < 0 || !tp_conn_limits(p.a.conn).native_imm);
	ck_assert_int_lt(expect(&p, &p.a, TP_EV_CLOSED).status, 0);
	ck_assert_str_ne(tp_conn_reason(p.a.conn), "");
	expect(&p, &p.b, TP_EV_CLOSED);
	for (int i = 0; i < 64; i++)
		ck_assert_int_eq(side_window(&p.b)[i], 0);
	pair_free(&p);
}
END_TEST

START_TEST(read_only_arena)
{
	struct pair p;
	struct tp_arena *arena;
	struct tp_region *region = NULL;
	struct tp_remote *remote = NULL;

	pair_open(&p, NULL);
	pair_memory(&p, 4096, RW);
	ck_ok(tp_arena_create("weights", 8192, TP_ARENA_READ_ONLY_TO_PEERS, &arena));
	ck_fails(tp_expose(p.b.conn, arena, RW, &region), EINVAL);
	ck_ok(tp_expose(p.b.conn, arena, TP_PEER_READ, &region));
	struct tp_ref ref = tp_region_ref(region);

	fill(tp_arena_base(arena), 8192, 3);
	ck_ok(tp_attach(p.a.conn, &ref, TP_PEER_READ, ref.len, &remote));
	struct tp_op op = with_signal(op_read(&p.a, 0, 100, 4000), 1);

	op.remote = remote;
	side_post(&p.a, &p.b, &op);
	ck_assert_int_eq(expect(&p, &p.a, TP_EV_DONE).status, 0);
	ck_assert(!memcmp(side_local(&p.a), (char *)tp_arena_base(arena) + 100, 4000));
	pair_close(&p);
	tp_arena_destroy(arena);
}
END_TEST

/* Where remotes are mapped, a WRITE from the remote's own memory moves no byte and still tells. */
START_TEST(zero_copy)
{
	struct pair p;

	pair_open(&p, NULL);
	pair_memory(&p, 65536, RW);
	char *map = tp_remote_map(p.a.remote);

	ck_assert((map != NULL) == tp_conn_limits(p.a.conn).load_store);
	if (map) {
		fill(map + 128, 5000, 12);
		struct tp_op op = with_imm(op_write(&p.a, 0, 128, 5000), 3);

		op.local = map + 128;
		op.region = NULL;
		side_post(&p.a, &p.b, &op);
		ck_assert_uint_eq(expect(&p, &p.b, TP_EV_IMM).len, 5000);
		check_filled(side_window(&p.b) + 128, 5000, 12);
	}
	pair_close(&p);
}
END_TEST

TCase *data_tests(void)
{
	TCase *t = tcase_create("data");

	tcase_set_timeout(t, 240);
	tcase_add_test(t, write_sizes);
	tcase_add_test(t, write_in_chunks);
	tcase_add_test(t, write_around_inline);
	tcase_add_test(t, write_big);
	tcase_add_test(t, immediate_values);
	tcase_add_test(t, read_sizes);
	tcase_add_test(t, over_a_pages_edge);
	tcase_add_test(t, chain);
	tcase_add_test(t, fenced_reads);
	tcase_add_test(t, data_before_immediate);
	tcase_add_test(t, data_before_immediate_chunked);
	tcase_add_test(t, data_before_immediate_big);
	tcase_add_test(t, bounds);
	tcase_add_test(t, attach_checks);
	tcase_add_test(t, write_without_access);
	tcase_add_test(t, read_only_arena);
	tcase_add_test(t, zero_copy);
	return t;
}
