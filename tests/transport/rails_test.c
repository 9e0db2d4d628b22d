/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections of several rails: how they are gathered, and what each rail is by itself. (That a
 * connection of several is one like any other, the contract's tests show: transport_contract_rails.)
 */
#include "harness.h"

#include "run.h"
#include "transport/backend.h"
#include "transport/gather.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- gathering --------------------------------------------------------------------------------- */

#define MS NS_PER_MS

static void *request(uintptr_t n)
{
	return (void *)n;
}

START_TEST(gathers)
{
	struct gather g = {0};
	struct gathering out;

	ck_assert_uint_eq(gather_deadline(&g), UINT64_MAX);
	ck_assert_int_eq(gather_add(&g, 7, 3, 2, request(12), 1 * MS, &out), GATHER_WAITS);
	ck_assert_uint_eq(out.rails, 0);
	ck_assert_int_eq(gather_add(&g, 8, 2, 0, request(20), 2 * MS, &out), GATHER_WAITS);
	ck_assert_int_eq(gather_add(&g, 7, 3, 0, request(10), 3 * MS, &out), GATHER_WAITS);
	ck_assert_uint_eq(gather_deadline(&g), (1 + TP_RAILS_WAIT_MS) * MS);
	ck_assert_int_eq(gather_add(&g, 7, 3, 1, request(11), 4 * MS, &out), GATHER_COMPLETE);
	ck_assert_uint_eq(out.rails, 3);
	for (uintptr_t r = 0; r < 3; r++)
		ck_assert_ptr_eq(out.request[r], request(10 + r));
	/* Its place is free: the same id begins anew. */
	ck_assert_int_eq(gather_add(&g, 7, 3, 1, request(11), 4 * MS, &out), GATHER_WAITS);
	ck_assert_uint_eq(gather_deadline(&g), (2 + TP_RAILS_WAIT_MS) * MS);
}
END_TEST

START_TEST(gathers_no_nonsense)
{
	struct gather g = {0};
	struct gathering out;

	ck_assert_int_eq(gather_add(&g, 1, 0, 0, request(1), 0, &out), GATHER_WRONG);
	ck_assert_int_eq(gather_add(&g, 1, 1, 0, request(1), 0, &out), GATHER_WRONG);
	ck_assert_int_eq(gather_add(&g, 1, TP_RAILS_MAX + 1, 0, request(1), 0, &out), GATHER_WRONG);
	ck_assert_int_eq(gather_add(&g, 1, 2, 2, request(1), 0, &out), GATHER_WRONG);
	ck_assert_int_eq(gather_add(&g, 1, UINT32_MAX, 255, request(1), 0, &out), GATHER_WRONG);
	ck_assert_uint_eq(gather_deadline(&g), UINT64_MAX);

	ck_assert_int_eq(gather_add(&g, 1, 3, 1, request(1), 0, &out), GATHER_WAITS);
	/* It came already; another number of rails than before. */
	ck_assert_int_eq(gather_add(&g, 1, 3, 1, request(2), 0, &out), GATHER_WRONG);
	ck_assert_int_eq(gather_add(&g, 1, 4, 2, request(2), 0, &out), GATHER_WRONG);
	ck_assert_int_eq(gather_add(&g, 1, 2, 0, request(2), 0, &out), GATHER_WRONG);
	/* The honest one is not disturbed. */
	ck_assert_int_eq(gather_add(&g, 1, 3, 0, request(3), 0, &out), GATHER_WAITS);
	ck_assert_int_eq(gather_add(&g, 1, 3, 2, request(4), 0, &out), GATHER_COMPLETE);
	ck_assert_ptr_eq(out.request[1], request(1));
}
END_TEST

START_TEST(gathers_so_many_for_so_long)
{
	const uint64_t young = GATHER_YOUNG_MS * MS, wait = TP_RAILS_WAIT_MS * MS;
	struct gather g = {0};
	struct gathering out;

	for (uint64_t i = 0; i < GATHER_PLACES; i++)
		ck_assert_int_eq(gather_add(&g, 100 + i, 2, 0, request(1 + i), i, &out),
				 GATHER_WAITS);
	/* All of them are young. */
	ck_assert_int_eq(gather_add(&g, 1, 2, 0, request(1), young - 1, &out), GATHER_CROWDED);
	/* But what has a place can be completed. */
	ck_assert_int_eq(gather_add(&g, 105, 2, 1, request(9), young - 1, &out), GATHER_COMPLETE);
	ck_assert_int_eq(gather_add(&g, 105, 2, 0, request(1), young - 1, &out), GATHER_WAITS);
	ck_assert_uint_eq(out.rails, 0);
	/* The oldest makes room, and is the caller's. */
	ck_assert_int_eq(gather_add(&g, 1, 2, 1, request(50), young, &out), GATHER_WAITS);
	ck_assert_uint_eq(out.id, 100);
	ck_assert_uint_eq(out.rails, 2);
	ck_assert_ptr_eq(out.request[0], request(1));
	ck_assert_ptr_null(out.request[1]);

	ck_assert(!gather_expired(&g, wait, &out));
	ck_assert(gather_expired(&g, wait + 1, &out));
	ck_assert_uint_eq(out.id, 101);
	ck_assert(!gather_expired(&g, wait + 1, &out));
	ck_assert(gather_drop(&g, 102, &out));
	ck_assert_ptr_eq(out.request[0], request(3));
	ck_assert(!gather_drop(&g, 102, &out));
	int left = 0;

	while (gather_expired(&g, UINT64_MAX, &out))
		left++;
	ck_assert_int_eq(left, GATHER_PLACES - 2);
	ck_assert_uint_eq(gather_deadline(&g), UINT64_MAX);
}
END_TEST

/* ---- rails ------------------------------------------------------------------------------------- */

#define RW (TP_PEER_READ | TP_PEER_WRITE)

static struct tp_op by_rail(struct tp_op op, unsigned rail)
{
	op.rail = (uint8_t)rail;
	return op;
}

/* What goes by a rail comes by it, in its order, whatever the others do; one chain may take several. */
START_TEST(each_keeps_its_order)
{
	enum { RAILS = TP_RAILS_MAX, EACH = 40 };
	const struct pair_options opt = {.b = {.rails = RAILS}};
	uint32_t next[RAILS] = {0};
	struct pair p;

	pair_open(&p, &opt);
	pair_memory(&p, 65536, RW);
	ck_assert_uint_eq(tp_conn_limits(p.a.conn).rails, RAILS);
	ck_assert_uint_eq(tp_conn_limits(p.b.conn).rails, RAILS);
	ck_assert_ptr_nonnull(strstr(tp_conn_transport(p.a.conn), "8 "));
	for (uint32_t i = 0; i < EACH; i++) {
		struct tp_op op[RAILS];

		for (unsigned r = 0; r < RAILS; r++)
			op[r] = by_rail(with_imm(op_write(&p.b, r * 64, r * 64, 64), i), r);
		ck_assert_int_eq(tp_post(p.b.conn, op, RAILS), RAILS);
	}
	for (int n = 0; n < RAILS * EACH; n++) {
		struct tp_event ev = expect(&p, &p.a, TP_EV_IMM);

		ck_assert_uint_lt(ev.rail, RAILS);
		ck_assert_uint_eq(ev.imm, next[ev.rail]++);
	}
	for (unsigned r = 0; r < RAILS; r++)
		ck_assert_uint_eq(next[r], EACH);
	pair_close(&p);
}
END_TEST

/* Each rail reaches the same memory by its own key, both ways, and is signalled by itself. */
START_TEST(each_reaches_the_memory)
{
	const struct pair_options opt = {.b = {.rails = 4}};
	struct pair p;

	pair_open(&p, &opt);
	pair_memory(&p, 65536, RW);
	for (unsigned r = 0; r < 4; r++) {
		struct tp_op op = by_rail(with_signal(op_write(&p.a, 0, r * 8192, 8192), r), r);

		fill(side_local(&p.a), 8192, r);
		side_post(&p.a, &p.b, &op);
		ck_assert_uint_eq(expect(&p, &p.a, TP_EV_DONE).cookie, r);
		op = by_rail(with_signal(op_read(&p.a, 16384, r * 8192, 8192), 10 + r), r);
		side_post(&p.a, &p.b, &op);
		ck_assert_uint_eq(expect(&p, &p.a, TP_EV_DONE).cookie, 10 + r);
		check_filled(side_local(&p.a) + 16384, 8192, r);
		check_filled(side_window(&p.b) + r * 8192, 8192, r);
	}
	pair_close(&p);
}
END_TEST

START_TEST(no_other_rails)
{
	const struct pair_options opt = {.b = {.rails = 2}};
	struct tp_options many = {.rails = TP_RAILS_MAX + 1};
	struct tp_remote *remote = NULL;
	struct tp_conn *conn = NULL;
	struct pair p, one;

	pair_open(&p, &opt);
	pair_memory(&p, 4096, RW);
	struct tp_op op = by_rail(op_write(&p.a, 0, 0, 8), 2);
	struct tp_ref ref = tp_region_ref(p.b.window);

	ck_fails(tp_post(p.a.conn, &op, 1), EINVAL);
	ck_assert_uint_eq(ref.more, 1);
	for (ref.more = 0; ref.more < 9; ref.more += 1 + (ref.more == 0))
		ck_fails(tp_attach(p.a.conn, &ref, RW, ref.len, &remote), EPROTO);
	ck_fails(tp_connect(tp_listener_uri(p.listener), &many, p.b.cq, NULL, &conn), EINVAL);
	pair_close(&p);

	pair_open(&one, NULL);
	pair_memory(&one, 4096, RW);
	op = by_rail(op_write(&one.a, 0, 0, 8), 1);
	ref = tp_region_ref(one.b.window);
	ref.more = 1;
	ck_fails(tp_post(one.a.conn, &op, 1), EINVAL);
	ck_fails(tp_attach(one.a.conn, &ref, RW, ref.len, &remote), EPROTO);
	pair_close(&one);
}
END_TEST

/* ---- memory of the program's own --------------------------------------------------------------- */

#define OWN_BYTES 65536u

/* From own memory to the peer by one rail, and back behind it by the same. */
static void there_and_back(struct pair *p, uint8_t *own, struct tp_region *region, unsigned rail)
{
	struct tp_op op = by_rail(with_signal(op_write(&p->b, 0, 0, 8192), rail), rail);

	fill(own, 8192, rail);
	op.local = own;
	op.region = region;
	side_post(&p->b, &p->a, &op);
	ck_assert_uint_eq(expect(p, &p->b, TP_EV_DONE).cookie, rail);
	op = by_rail(with_signal(op_read(&p->b, 0, 0, 8192), 10 + rail), rail);
	op.local = own + 8192 + 4;
	op.region = region;
	side_post(&p->b, &p->a, &op);
	ck_assert_uint_eq(expect(p, &p->b, TP_EV_DONE).cookie, 10 + rail);
	check_filled(own + 8192 + 4, 8192, rail);
}

/* A neighbour needs no registration; over a network each rail has one of its own. */
START_TEST(lends_by_all)
{
	enum { RAILS = 4 };
	const struct pair_options opt = {.b = {.rails = RAILS}};
	uint8_t *own = mmap(NULL, OWN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct tp_region *region = NULL, *again = NULL;
	struct pair p;

	pair_open(&p, &opt);
	pair_memory(&p, OWN_BYTES, RW);
	bool mapped = tp_conn_limits(p.b.conn).load_store;
	int rc = tp_register(p.b.conn, own, OWN_BYTES, TP_LEND_TARGET | TP_LEND_KNOWN, &region);
	ck_assert_int_eq(rc, mapped ? 0 : tp_conn_limits(p.b.conn).native_imm ? -ENOENT : -EOPNOTSUPP);
	rc = tp_register(p.b.conn, own, OWN_BYTES, TP_LEND_TARGET, &region);
	if (rc == -EOPNOTSUPP) { /* iWARP, or a machine where nothing can be watched */
		ck_assert_ptr_null(region);
	} else {
		ck_ok(rc);
		ck_assert(!region == mapped);
		for (unsigned r = 0; r < RAILS; r++)
			there_and_back(&p, own, region, r);
		/* Held, it outlives the first who gives it back; and is found. */
		tp_hold(region);
		tp_unregister(region);
		there_and_back(&p, own, region, 1);
		tp_unregister(region);
		ck_ok(tp_register(p.b.conn, own, 8192, TP_LEND_KNOWN, &again));
		ck_assert_ptr_eq(again, region);
		there_and_back(&p, own, again, RAILS - 1);
		tp_unregister(again);
	}
	pair_close(&p);
	munmap(own, OWN_BYTES);
}
END_TEST

/* However many rails it has, it takes one place at the listener, and gives that back. */
START_TEST(counts_as_one)
{
	const struct pair_options opt = {.a = {.max_conns = 1}, .b = {.rails = TP_RAILS_MAX}};

	for (int i = 0; i < 3; i++) {
		struct side a = {0}, b = {0};
		struct pair p;

		pair_open(&p, &opt);
		tp_conn_close(p.a.conn);
		expect(&p, &p.a, TP_EV_CLOSED);
		expect(&p, &p.b, TP_EV_CLOSED);
		ck_ok(tp_cq_create(0, &a.cq));
		ck_ok(tp_cq_create(0, &b.cq));
		connect_to(p.listener, &opt.b, &a, &b);
		side_free(&a);
		side_free(&b);
		pair_free(&p);
	}
}
END_TEST

/* All that was posted before a close comes first, by whichever rail the end is seen first. */
START_TEST(close_delivers_by_all)
{
	enum { RAILS = 4, EACH = 50 };
	const struct pair_options opt = {.b = {.rails = RAILS}};

	for (int round = 0; round < scaled(50, 5); round++) {
		int got = 0;
		struct tp_event ev;
		struct pair p;

		pair_open(&p, &opt);
		pair_memory(&p, 4096, RW);
		for (uint32_t i = 0; i < RAILS * EACH; i++) {
			struct tp_op op = by_rail(with_imm(op_write(&p.b, 0, 0, 64), i), i % RAILS);

			side_post(&p.b, &p.a, &op);
		}
		tp_conn_close(p.b.conn);
		while (!p.a.closed) {
			side_pump(&p.a);
			side_pump(&p.b);
		}
		while (side_next(&p.a, &ev))
			got += ev.kind == TP_EV_IMM;
		ck_assert_int_eq(got, RAILS * EACH);
		ck_assert_int_eq(ev.kind, TP_EV_CLOSED);
		ck_assert_int_eq(ev.status, 0);
		expect_past_room(&p, &p.b, TP_EV_CLOSED);
		pair_free(&p);
	}
}
END_TEST

static Suite *rails(void)
{
	Suite *s = suite_create("rails");
	TCase *t = tcase_create("gather");

	tcase_add_test(t, gathers);
	tcase_add_test(t, gathers_no_nonsense);
	tcase_add_test(t, gathers_so_many_for_so_long);
	suite_add_tcase(s, t);
	t = tcase_create("rails");
	tcase_set_timeout(t, 60);
	tcase_add_test(t, each_keeps_its_order);
	tcase_add_test(t, each_reaches_the_memory);
	tcase_add_test(t, no_other_rails);
	tcase_add_test(t, lends_by_all);
	tcase_add_test(t, counts_as_one);
	tcase_add_test(t, close_delivers_by_all);
	suite_add_tcase(s, t);
	return s;
}

/* transport_rails [URI]: shm by default. */
int main(int argc, char **argv)
{
	static char own[64];

	snprintf(own, sizeof(own), "shm:rails-%d", (int)getpid());
	test_uri = argc > 1 ? argv[1] : own;
	test_small =
	    getenv("GRADSLOT_TEST_SCALE") && !strcmp(getenv("GRADSLOT_TEST_SCALE"), "small");
	return run_all(srunner_create(rails()));
}
