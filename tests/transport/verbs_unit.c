/* SPDX-License-Identifier: Apache-2.0
 *
 * The verbs backend's parts that need no device: the send queue's accounts, receive credits, the
 * hello, chunks, and names that do not resolve in time.
 */
#include "base/clock.h"
#include "base/err.h"
#include "transport/verbs/chunk.h"
#include "transport/verbs/credit.h"
#include "transport/verbs/hello.h"
#include "transport/verbs/refused.h"
#include "transport/verbs/resolve.h"
#include "transport/verbs/sendq.h"
#include "transport/verbs/tuning.h"

#include <check.h>
#include <errno.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "run.h"

/* ---- what a URI asks for ------------------------------------------------------------------------
 */

static const struct tuning_device infiniband = {.name = "ib0"}, rxe = {.name = "rxe0", .rxe = true},
				  iwarp = {.name = "siw0", .iwarp = true};

START_TEST(tuning_by_default)
{
	struct tp_tuning asked = TP_TUNING_DEFAULT;
	struct tuning t;
	char text[64] = "x";

	ck_assert_int_eq(tuning_settle(&asked, &iwarp, &t), 0);
	ck_assert_int_eq(tuning_settle(&asked, &rxe, &t), 0);
	ck_assert_uint_eq(t.timeout, 18);
	ck_assert_uint_eq(t.retry, 6);
	ck_assert_uint_eq(t.rnr, 6);
	ck_assert_uint_eq(t.rnr_timer, 14);
	ck_assert_uint_eq(t.max_inline, 512);
	ck_assert(!t.inline_asked && t.relaxed && !t.cq_count);
	tuning_text(&t, text, sizeof(text));
	ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(tuning_as_asked)
{
	struct tp_tuning asked = {0, 7, 1, 31, 5, 0, 0, 16, 20};
	struct tuning t;
	char text[128], cut[8];

	ck_assert_int_eq(tuning_settle(&asked, &infiniband, &t), 0);
	ck_assert_uint_eq(t.timeout, 0);
	ck_assert_uint_eq(t.retry, 7);
	ck_assert_uint_eq(t.rnr, 1);
	ck_assert_uint_eq(t.rnr_timer, 31);
	ck_assert_uint_eq(t.max_inline, 0);
	ck_assert(t.inline_asked && !t.relaxed);
	ck_assert_uint_eq(t.cq_count, 16);
	ck_assert_uint_eq(t.cq_usec, 20);
	tuning_text(&t, text, sizeof(text));
	ck_assert_str_eq(text, ", timeout 0, retry 7, rnr 1, rnr_timer 31, depth 5, inline 0, ro 0, "
			       "cq_mod 16/20");
	tuning_text(&t, cut, sizeof(cut));
	ck_assert_str_eq(cut, ", timeo");
}
END_TEST

START_TEST(tuning_refused)
{
	struct tp_tuning asked = TP_TUNING_DEFAULT;
	struct tuning t = {.timeout = 99};

	asked.retry = 7;
	ck_assert_int_eq(tuning_settle(&asked, &infiniband, &t), 0);
	t.timeout = 99;
	ck_assert_int_eq(tuning_settle(&asked, &rxe, &t), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "0 to 6"));
	ck_assert_int_eq(tuning_settle(&asked, &iwarp, &t), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "no retry"));
	int *const not_tcps[] = {&asked.timeout, &asked.rnr, &asked.rnr_timer};

	for (int i = 0; i < 3; i++) {
		asked = (struct tp_tuning)TP_TUNING_DEFAULT;
		*not_tcps[i] = 1;
		ck_assert_int_eq(tuning_settle(&asked, &iwarp, &t), -EINVAL);
	}
	ck_assert_uint_eq(t.timeout, 99); /* untouched */
}
END_TEST

/* ---- the send queue ---------------------------------------------------------------------------
 */

/* Retires up to and with `pos`, as a completion does. */
static void complete(struct sendq *q, uint32_t pos)
{
	struct sendq_wr wr;

	ck_assert(sendq_under_way(q, pos));
	while (q->tail != pos + 1)
		ck_assert(sendq_pop(q, &wr));
}

START_TEST(one_completion_retires_all_before_it)
{
	struct sendq q;

	ck_assert_int_eq(sendq_init(&q, 64, 4), 0);
	for (int i = 0; i < 7; i++)
		ck_assert(!sendq_push(&q, SENDQ_PART, 0, false));
	ck_assert(sendq_push(&q, SENDQ_OP, 42, true));
	ck_assert_uint_eq(sendq_room(&q), 56);
	ck_assert_uint_eq(sendq_at(&q, 7)->arg, 42);
	complete(&q, 7);
	ck_assert_uint_eq(sendq_room(&q), 64);
	ck_assert(!sendq_under_way(&q, 7));
	sendq_free(&q);
}
END_TEST

/* Invariant 3: whoever finds no room can count on a completion. */
START_TEST(room_or_a_signalled_one)
{
	struct sendq q;

	ck_assert_int_eq(sendq_init(&q, 64, 4), 0);
	srandom(1);
	for (int round = 0; round < 20000; round++) {
		uint32_t want = 1 + (uint32_t)random() % sendq_longest(&q);
		uint32_t last = 0;
		bool signalled = false;

		if (sendq_room(&q) >= want) {
			for (uint32_t i = 0; i < want; i++)
				sendq_push(&q, SENDQ_PART, 0, random() % 50 == 0);
			continue;
		}
		for (uint32_t pos = q.tail; pos != q.head; pos++)
			if (sendq_at(&q, pos)->signalled) {
				signalled = true;
				last = pos;
				if (random() % 3)
					break;
			}
		ck_assert_msg(signalled, "no room, and no completion to come");
		complete(&q, last);
	}
	sendq_free(&q);
}
END_TEST

START_TEST(reserve_is_apart)
{
	struct sendq q;

	ck_assert_int_eq(sendq_init(&q, 16, 2), 0);
	while (sendq_room(&q))
		sendq_push(&q, SENDQ_PART, 0, false);
	ck_assert_uint_eq(sendq_reserve_room(&q), 2);
	ck_assert(sendq_push(&q, SENDQ_CREDIT, 0, false));
	ck_assert(sendq_push(&q, SENDQ_BYE, 0, false));
	ck_assert_uint_eq(sendq_reserve_room(&q), 0);
	ck_assert_uint_eq(sendq_room(&q), 0);
	complete(&q, 15);
	ck_assert_uint_eq(sendq_room(&q), 16);
	ck_assert_uint_eq(sendq_reserve_room(&q), 0);
	complete(&q, 17);
	ck_assert_uint_eq(sendq_reserve_room(&q), 2);
	sendq_free(&q);
}
END_TEST

START_TEST(taken_back)
{
	struct sendq q;

	ck_assert_int_eq(sendq_init(&q, 64, 4), 0);
	sendq_push(&q, SENDQ_OP, 1, true);
	for (int i = 0; i < 3; i++)
		sendq_push(&q, SENDQ_PART, 0, false);
	sendq_push(&q, SENDQ_CREDIT, 0, true);
	sendq_push(&q, SENDQ_PART, 0, false);
	sendq_unpush(&q, 3);
	ck_assert_uint_eq(q.head, 3);
	ck_assert_uint_eq(q.quiet, 2);
	ck_assert_uint_eq(sendq_reserve_room(&q), 4);
	ck_assert_uint_eq(sendq_room(&q), 61);
	sendq_free(&q);
}
END_TEST

START_TEST(positions_wrap)
{
	struct sendq q;

	ck_assert_int_eq(sendq_init(&q, 16, 2), 0);
	q.head = q.tail = UINT32_MAX - 5;
	for (int i = 0; i < 100; i++) {
		uint32_t pos = q.head;

		sendq_push(&q, SENDQ_PART, 0, false);
		ck_assert(sendq_push(&q, SENDQ_OP, (uint64_t)i, true));
		ck_assert(sendq_under_way(&q, pos + 1));
		ck_assert(!sendq_under_way(&q, pos + 2));
		complete(&q, pos + 1);
		ck_assert_uint_eq(sendq_room(&q), 16);
	}
	sendq_free(&q);
}
END_TEST

/* ---- credits ----------------------------------------------------------------------------------
 */

/* One direction: a sender, a receiver, and the two paths between them. */
struct flow {
	struct credit_tx tx;
	struct credit_rx rx;
	uint32_t on_wire;     /* sent, not arrived */
	uint32_t held;        /* arrived, receive not posted again */
	uint32_t posted;      /* receives for credits at the receiver */
	uint32_t updates[64]; /* under way to the sender */
	unsigned n_updates, most_updates;
};

static void flow_init(struct flow *f, uint32_t depth, uint32_t base)
{
	memset(f, 0, sizeof(*f));
	f->tx = (struct credit_tx){.depth = depth, .used = base, .returned = base};
	f->rx = (struct credit_rx){.depth = depth, .arrived = base, .reposted = base, .told = base};
	f->posted = depth;
}

static void flow_step(struct flow *f, int what)
{
	if (what == 0 && credit_tx_room(&f->tx)) {
		f->tx.used++;
		f->on_wire++;
	} else if (what == 1 && f->on_wire) {
		ck_assert_msg(f->posted > 0, "RNR: no receive");
		f->posted--;
		f->on_wire--;
		f->held++;
		ck_assert_int_eq(credit_rx_arrive(&f->rx), 0);
	} else if (what == 2 && f->held) {
		f->held--;
		f->posted++;
		f->rx.reposted++;
		if (credit_rx_due(&f->rx)) {
			f->rx.told = f->rx.reposted;
			f->updates[f->n_updates++] = f->rx.told;
			if (f->n_updates > f->most_updates)
				f->most_updates = f->n_updates;
		}
	} else if (what == 3 && f->n_updates) {
		ck_assert_int_eq(credit_tx_learn(&f->tx, f->updates[0]), 0);
		memmove(f->updates, f->updates + 1, --f->n_updates * sizeof(f->updates[0]));
	}
}

/* Any order of events: no receive is missing, and no more updates are under way than there are
 * receives for. The counts wrap on the way. */
START_TEST(never_rnr)
{
	srandom((unsigned)_i);
	for (uint32_t depth = 1; depth <= 70; depth++) {
		struct flow f;

		flow_init(&f, depth, UINT32_MAX - 100);
		/* A bias for each stretch, so that queues fill and empty. */
		for (int i = 0; i < 4000; i++) {
			int lazy = (i / 200) % 5;
			int what = (int)(random() % 4);

			if (what != lazy)
				flow_step(&f, what);
		}
		ck_assert_uint_le(f.most_updates, CREDIT_UPDATES);
	}
}
END_TEST

/* A sender that has used up everything is always told. */
START_TEST(never_stuck)
{
	for (uint32_t depth = 1; depth <= 300; depth++) {
		struct flow f;

		flow_init(&f, depth, 0);
		for (int round = 0; round < 5; round++) {
			while (credit_tx_room(&f.tx))
				flow_step(&f, 0);
			while (f.on_wire)
				flow_step(&f, 1);
			while (f.held)
				flow_step(&f, 2);
			ck_assert_uint_gt(f.n_updates, 0);
			while (f.n_updates)
				flow_step(&f, 3);
			ck_assert_uint_gt(credit_tx_room(&f.tx), 0);
		}
	}
}
END_TEST

START_TEST(hostile_credits)
{
	struct credit_tx tx = {.depth = 8, .used = 5, .returned = 2};
	struct credit_rx rx = {.depth = 2};

	ck_assert_int_eq(credit_tx_learn(&tx, 2), -EPROTO);
	ck_assert_int_eq(credit_tx_learn(&tx, 1), -EPROTO);
	ck_assert_int_eq(credit_tx_learn(&tx, 6), -EPROTO);
	ck_assert_int_eq(credit_tx_learn(&tx, 0x80000000u), -EPROTO);
	ck_assert_uint_eq(tx.returned, 2);
	ck_assert_int_eq(credit_tx_learn(&tx, 5), 0);
	ck_assert_int_eq(credit_rx_arrive(&rx), 0);
	ck_assert_int_eq(credit_rx_arrive(&rx), 0);
	ck_assert_int_eq(credit_rx_arrive(&rx), -EPROTO);
}
END_TEST

/* The peer has taken everything and says so, while completions of what was sent are still to come:
 * there are receives enough and the queue is as full as it was. */
START_TEST(credits_are_no_room)
{
	struct credit_tx tx = {.depth = 64};
	struct sendq q;

	ck_assert_int_eq(sendq_init(&q, 64, 4), 0);
	while (sendq_room(&q)) {
		sendq_push(&q, SENDQ_OP, tx.used, true);
		tx.used++;
	}
	ck_assert_uint_eq(credit_tx_room(&tx), 0);
	ck_assert_int_eq(credit_tx_learn(&tx, tx.used), 0);
	ck_assert_uint_eq(credit_tx_room(&tx), 64);
	ck_assert_uint_eq(sendq_room(&q), 0);
	/* And the other way round. */
	tx.used += 64;
	complete(&q, 63);
	ck_assert_uint_eq(sendq_room(&q), 64);
	ck_assert_uint_eq(credit_tx_room(&tx), 0);
	sendq_free(&q);
}
END_TEST

/* Three reasons for one errno, three texts. */
START_TEST(refusals_are_told_apart)
{
	static const int errs[] = {ENOMEM, EINVAL};
	struct refused good = {
	    .under_way = 5, .cap = 68, .sges = 1, .max_sges = 1, .inline_len = 64, .max_inline = 64};

	for (int i = 0; i < 2; i++) {
		struct refused r = good;
		char text[160];

		r.err = errs[i];
		refused_text(&r, text, sizeof(text));
		ck_assert_msg(strstr(text, strerror(errs[i])) && strstr(text, "not for want"), "%s",
			      text);
		r.under_way = 68;
		refused_text(&r, text, sizeof(text));
		ck_assert_msg(strstr(text, "queue is full: 68 of 68"), "%s", text);
		r.inline_len = 65;
		refused_text(&r, text, sizeof(text));
		ck_assert_msg(strstr(text, "65 bytes inline, the queue pair takes 64"), "%s", text);
		r.sges = 2;
		refused_text(&r, text, sizeof(text));
		ck_assert_msg(strstr(text, "2 SGEs, the queue pair takes 1"), "%s", text);
	}
}
END_TEST

/* ---- the hello --------------------------------------------------------------------------------
 */

static struct hello sample(void)
{
	return (struct hello){
	    .version = HELLO_VERSION,
	    .kind = HELLO_OFFER,
	    .flags = HELLO_NATIVE_IMM,
	    .depth = 256,
	    .max_chunk = 1 << 30,
	    .mtu = 4096,
	    .reads_out = 16,
	    .reads_in = 128,
	    .probe_addr = 0x123456789abcdef0,
	    .probe_key = 0xcafe,
	    .qp_num = 0xfedcba,
	    .drawn = {1, 2, 3, 4, 5, 6},
	};
}

START_TEST(hello_survives_padding)
{
	struct hello in = sample(), out;
	uint8_t wire[196] = {0};

	hello_encode(&in, wire);
	for (size_t len = HELLO_BYTES; len <= sizeof(wire); len++) {
		ck_assert_int_eq(hello_decode(wire, len, &out), HELLO_GOOD);
		ck_assert_uint_eq(out.depth, in.depth);
		ck_assert_uint_eq(out.max_chunk, in.max_chunk);
		ck_assert_uint_eq(out.mtu, in.mtu);
		ck_assert_uint_eq(out.reads_out, 16);
		ck_assert_uint_eq(out.reads_in, 128);
		ck_assert_uint_eq(out.probe_addr, in.probe_addr);
		ck_assert_uint_eq(out.probe_key, in.probe_key);
		ck_assert_uint_eq(out.qp_num, in.qp_num);
		ck_assert_mem_eq(out.drawn, in.drawn, HELLO_DRAWN);
	}
	ck_assert_int_le(HELLO_BYTES, 56); /* what a connect has room for */
}
END_TEST

START_TEST(hello_of_others)
{
	struct hello in = sample(), out;
	uint8_t wire[HELLO_BYTES];

	hello_encode(&in, wire);
	for (size_t len = 0; len < HELLO_BYTES; len++)
		ck_assert_int_eq(hello_decode(wire, len, &out), HELLO_FOREIGN);
	ck_assert_int_eq(hello_decode(NULL, 56, &out), HELLO_FOREIGN);
	wire[0] ^= 1;
	ck_assert_int_eq(hello_decode(wire, sizeof(wire), &out), HELLO_FOREIGN);
	wire[0] ^= 1;
	wire[4] = 255;
	ck_assert_int_eq(hello_decode(wire, sizeof(wire), &out), HELLO_FOREIGN);
	/* Another version is named whatever else it says. */
	in.version = 77;
	hello_encode(&in, wire);
	memset(wire + 16, 0xff, sizeof(wire) - 16);
	ck_assert_int_eq(hello_decode(wire, sizeof(wire), &out), HELLO_OTHER_VERSION);
	ck_assert_uint_eq(out.version, 77);
}
END_TEST

static void bad(struct hello h)
{
	uint8_t wire[HELLO_BYTES];
	struct hello out;

	hello_encode(&h, wire);
	ck_assert_int_eq(hello_decode(wire, sizeof(wire), &out), HELLO_BAD);
}

START_TEST(hello_of_a_rail)
{
	struct hello in = sample(), out;
	uint8_t wire[HELLO_BYTES];

	in.rails = 8;
	in.rail = 7;
	in.bundle = 0xa1b2c3d4e5f6;
	in.depth = 16384;
	hello_encode(&in, wire);
	ck_assert_int_eq(hello_decode(wire, sizeof(wire), &out), HELLO_GOOD);
	ck_assert_uint_eq(out.rails, 8);
	ck_assert_uint_eq(out.rail, 7);
	ck_assert_uint_eq(out.bundle, in.bundle);
	ck_assert_uint_eq(out.depth, 16384);
	ck_assert_uint_eq(out.probe_key, in.probe_key);
}
END_TEST

START_TEST(hello_nonsense)
{
	struct hello h = sample();

#define BAD(field, value)        \
	do {                     \
		h = sample();    \
		h.field = value; \
		bad(h);          \
	} while (0)
	BAD(kind, 9);
	BAD(reason, 1);
	BAD(depth, 0);
	BAD(depth, 1 << 20);
	BAD(max_chunk, 63);
	BAD(mtu, 100);
	BAD(mtu, 8192);
	BAD(rails, 1);
	BAD(rails, 9);
	BAD(rail, 1);
	h = sample();
	h.rails = h.rail = 4;
	bad(h);
	h.rail = 3;
	h.kind = HELLO_ANSWER;
	bad(h);
	BAD(reads_out, 0);
	BAD(reads_in, 0);
	h = (struct hello){.version = HELLO_VERSION, .kind = HELLO_REFUSAL};
	bad(h);
#undef BAD
}
END_TEST

START_TEST(hello_smaller_of_each)
{
	struct hello offer = sample(), own = sample();

	offer.depth = 10;
	own.max_chunk = 4096;
	offer.mtu = 1024;
	own.reads_in = 4;
	offer.reads_in = 7;
	struct hello agreed = hello_agree(&offer, &own);

	ck_assert_uint_eq(agreed.depth, 10);
	ck_assert_uint_eq(agreed.max_chunk, 4096);
	ck_assert_uint_eq(agreed.mtu, 1024);
	ck_assert_uint_eq(agreed.reads_in, 4);  /* the listener takes 4 of the offered 16 */
	ck_assert_uint_eq(agreed.reads_out, 7); /* and sends no more than the other takes */
	ck_assert(hello_fits(&offer, &agreed));
	agreed.depth = 11;
	ck_assert(!hello_fits(&offer, &agreed));
	agreed.depth = 10;
	agreed.flags = 0;
	ck_assert(!hello_fits(&offer, &agreed));
}
END_TEST

/* ---- chunks -----------------------------------------------------------------------------------
 */

START_TEST(chunks_cover)
{
	static const uint64_t lens[] = {1, 63, 64, 65, 4096, 12345, (1ull << 33) + 5};

	for (size_t k = 0; k < sizeof(lens) / sizeof(*lens); k++) {
		uint64_t max = lens[k] > 1 << 20 ? 1 << 30 : 64, sum = 0;
		uint64_t n = chunk_count(lens[k], max);

		for (uint64_t i = 0; i < n; i++) {
			uint32_t len = chunk_len(lens[k], max, i);

			ck_assert_uint_ge(len, 1);
			ck_assert_uint_le(len, max);
			ck_assert(i + 1 == n || len == max);
			sum += len;
		}
		ck_assert_uint_eq(sum, lens[k]);
	}
}
END_TEST

/* ---- names ------------------------------------------------------------------------------------
 */

static atomic_int hang_ms;
static atomic_int lookups_ended;

/* In place of libc's: a resolver that hangs. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
		struct addrinfo **list)
{
	static struct sockaddr_in addr;
	struct addrinfo *one;

	if (hints->ai_flags & AI_NUMERICHOST)
		return EAI_NONAME;
	usleep((useconds_t)hang_ms * 1000);
	lookups_ended++;
	if (!strcmp(node, "nowhere"))
		return EAI_NONAME;
	addr = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000007)};
	one = calloc(1, sizeof(*one));
	one->ai_family = AF_INET;
	one->ai_addr = (struct sockaddr *)&addr;
	one->ai_addrlen = sizeof(addr);
	*list = one;
	return 0;
}

void freeaddrinfo(struct addrinfo *list)
{
	free(list);
}

START_TEST(names)
{
	struct addresses found = {0};
	char text[96];

	ck_assert_int_eq(resolve_host("here", 4711, clock_ns() + NS_PER_S, &found), 0);
	ck_assert_int_eq(found.n, 1);
	ck_assert_str_eq(address_text(&found.at[0], text, sizeof(text)), "10.0.0.7:4711");
	ck_assert_int_eq(resolve_host("nowhere", 1, clock_ns() + NS_PER_S, &found), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err_text(), "nowhere"));
}
END_TEST

START_TEST(hanging_resolver)
{
	struct addresses found = {0};
	uint64_t start = clock_ns();

	hang_ms = 600;
	ck_assert_int_eq(resolve_host("here", 1, start + 100 * NS_PER_MS, &found), -ETIMEDOUT);
	ck_assert_uint_lt(clock_ns() - start, 500 * NS_PER_MS);
	ck_assert_ptr_nonnull(strstr(err_text(), "here"));
	ck_assert_int_eq(found.n, 0);
	/* The helper ends by itself, and frees what it was given (a sanitizer would tell). */
	while (!lookups_ended && clock_ns() - start < 10 * NS_PER_S)
		usleep(10000);
	ck_assert_int_eq(lookups_ended, 1);
	usleep(50000);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("verbs, without a device");
	TCase *t = tcase_create("sendq");

	tcase_add_test(t, one_completion_retires_all_before_it);
	tcase_add_test(t, room_or_a_signalled_one);
	tcase_add_test(t, reserve_is_apart);
	tcase_add_test(t, taken_back);
	tcase_add_test(t, positions_wrap);
	suite_add_tcase(s, t);
	t = tcase_create("tuning");
	tcase_add_test(t, tuning_by_default);
	tcase_add_test(t, tuning_as_asked);
	tcase_add_test(t, tuning_refused);
	suite_add_tcase(s, t);
	t = tcase_create("credit");
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, never_rnr, 0, 4);
	tcase_add_test(t, never_stuck);
	tcase_add_test(t, hostile_credits);
	tcase_add_test(t, credits_are_no_room);
	tcase_add_test(t, refusals_are_told_apart);
	suite_add_tcase(s, t);
	t = tcase_create("hello");
	tcase_add_test(t, hello_survives_padding);
	tcase_add_test(t, hello_of_others);
	tcase_add_test(t, hello_of_a_rail);
	tcase_add_test(t, hello_nonsense);
	tcase_add_test(t, hello_smaller_of_each);
	suite_add_tcase(s, t);
	t = tcase_create("chunks and names");
	tcase_set_timeout(t, 30);
	tcase_add_test(t, chunks_cover);
	tcase_add_test(t, names);
	tcase_add_test(t, hanging_resolver);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(suite());
	return run_all(runner);
}
