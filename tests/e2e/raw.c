/* SPDX-License-Identifier: Apache-2.0
 *
 * The bare trainer.
 */
#include "raw.h"

#include <sched.h>
#include <stdatomic.h>

enum { SOURCE_BYTES = 256 << 10 };

#define LINE(line_name, elems)                                                                \
	{                                                                                     \
		.name = line_name, .ndim = 1, .dim = {elems}, .rule = "sgd", .n_settings = 1, \
		.setting = {{"lr", 1}}, .init = WIRE_INIT_CONSTANT,                           \
	}

const struct wire_param raw_lines[2] = {LINE("a", RAW_A_ELEMS), LINE("b", RAW_B_ELEMS)};

/* ---- events
 * -------------------------------------------------------------------------------------- */

void raw_poll(struct raw *r)
{
	struct tp_event ev;

	while (tp_cq_poll(r->cq, &ev, 1) == 1) {
		switch (ev.kind) {
		case TP_EV_MSG:
			must(r->last - r->first < 16, "too many messages");
			ok(wire_decode(ev.msg, ev.len, &r->inbox[r->last++ % 16]));
			break;
		case TP_EV_IMM:
			r->imms++;
			r->last_imm = ev.imm;
			break;
		case TP_EV_CLOSED:
			r->closed = true;
			break;
		default:
			break;
		}
	}
}

static void wait_for(struct raw *r, bool (*pred)(struct raw *, uint64_t, uint64_t), uint64_t a,
		     uint64_t b, const char *what)
{
	uint64_t deadline = clock_ns() + scaled(15, 60) * NS_PER_S;

	while (raw_poll(r), !pred(r, a, b)) {
		must(clock_ns() < deadline, "waited in vain for %s", what);
		must(!r->closed || what[0] == 'T', "closed (%s) while waiting for %s",
		     tp_conn_reason(r->conn), what);
		tp_cq_wait(r->cq, 5);
	}
}

uint32_t raw_rails = 1;

void raw_connect(struct raw *r, const char *uri, uint32_t depth)
{
	struct tp_options opt = {.rails = raw_rails, .depth = depth, .timeout_ms = scaled(10000, 60000)};

	*r = (struct raw){0};
	ok(tp_cq_create(50, &r->cq));
	ok(tp_connect(uri, &opt, r->cq, r, &r->conn));
}

void raw_free(struct raw *r)
{
	tp_conn_destroy(r->conn);
	tp_arena_destroy(r->mailbox);
	tp_arena_destroy(r->source);
	tp_cq_destroy(r->cq);
}

static bool is_closed(struct raw *r, uint64_t a, uint64_t b)
{
	return r->closed;
}

void raw_close(struct raw *r)
{
	tp_conn_close(r->conn);
	wait_for(r, is_closed, 0, 0, "The end");
	raw_free(r);
}

/* ---- messages
 * ------------------------------------------------------------------------------------ */

void raw_send_bytes(struct raw *r, const void *bytes, size_t len)
{
	int rc;

	while ((rc = tp_send(r->conn, bytes, len)) == -EAGAIN)
		raw_poll(r);
	must(rc == 0 || rc == -ENOTCONN, "tp_send: %d: %s", rc, err_text());
}

void raw_send(struct raw *r, const struct wire_msg *msg)
{
	uint8_t buf[WIRE_MSG_MAX];
	int len = wire_encode(msg, buf, sizeof(buf));

	must(len > 0, "wire_encode: %s", err_text());
	raw_send_bytes(r, buf, (size_t)len);
}

static bool has_message(struct raw *r, uint64_t a, uint64_t b)
{
	return r->first != r->last || r->closed;
}

struct wire_msg raw_expect(struct raw *r, enum wire_kind kind)
{
	struct wire_msg msg;

	wait_for(r, has_message, 0, 0, "The next message");
	must(r->first != r->last, "closed (%s) instead of %s", tp_conn_reason(r->conn),
	     wire_kind_name(kind));
	msg = r->inbox[r->first++ % 16];
	must(msg.kind == kind, "%s instead of %s: %s", wire_kind_name(msg.kind),
	     wire_kind_name(kind), msg.kind == WIRE_ERROR ? msg.error.text : "");
	return msg;
}

void raw_wait_end(struct raw *r)
{
	wait_for(r, is_closed, 0, 0, "The end");
}

void raw_expect_error(struct raw *r, enum wire_error_code code, const char *const *words)
{
	struct wire_msg msg = raw_expect(r, WIRE_ERROR);

	must(msg.error.code == code, "error %d instead of %d: %s", (int)msg.error.code, (int)code,
	     msg.error.text);
	has_words(msg.error.text, words);
	raw_wait_end(r);
	raw_free(r);
}

/* ---- the talk
 * ------------------------------------------------------------------------------------ */

void raw_hello(struct raw *r, int32_t rank)
{
	raw_hello_again(r, rank, NULL);
}

void raw_hello_again(struct raw *r, int32_t rank, const uint8_t *session)
{
	struct wire_msg msg = {.kind = WIRE_HELLO,
			       .hello = {.version = WIRE_VERSION, .rank = rank, .name = "raw"}};

	msg.hello.resumes = session;
	if (session)
		memcpy(msg.hello.session, session, WIRE_SESSION_LEN);
	raw_send(r, &msg);
}

void raw_declare(struct raw *r, const struct wire_param *param, uint32_t n)
{
	for (uint32_t i = 0, m; i < n; i += m) {
		struct wire_msg msg = {.kind = WIRE_DECLARE};

		m = n - i < WIRE_PARAMS_MAX ? n - i : WIRE_PARAMS_MAX;
		msg.declare.last = i + m == n;
		msg.declare.n = m;
		memcpy(msg.declare.param, param + i, m * sizeof(*param));
		raw_send(r, &msg);
	}
}

void raw_take_grant(struct raw *r)
{
	do {
		r->grant = raw_expect(r, WIRE_GRANT).grant;
		memcpy(r->place + r->n_places, r->grant.place, r->grant.n * sizeof(r->place[0]));
		r->n_places += r->grant.n;
	} while (!r->grant.last);
	r->slots = r->grant.slots;
	r->blocks = r->grant.blocks;
}

static struct tp_ref told(const struct wire_ref *by)
{
	struct tp_ref ref = {by->addr, by->len, by->key, .more = by->more};

	memcpy(ref.more_key, by->more_key, sizeof(ref.more_key));
	return ref;
}

void raw_attach(struct raw *r, uint64_t said)
{
	const struct tp_ref weights = told(&r->grant.weights), slots = told(&r->grant.slot_mem);
	const struct wire_place *last = &r->place[r->n_places - 1];
	uint64_t len = last->landing_off + layout_align(4 * last->elems, LAYOUT_ALIGN);
	struct wire_msg msg = {.kind = WIRE_ATTACH};
	struct tp_ref ref;

	ok(tp_attach(r->conn, &weights, TP_PEER_READ, weights.len, &r->weights));
	ok(tp_attach(r->conn, &slots, TP_PEER_WRITE, slots.len, &r->slot_mem));
	ok(tp_arena_create("mailbox", len, 0, &r->mailbox));
	ok(tp_expose(r->conn, r->mailbox, TP_PEER_WRITE, &r->mailbox_region));
	ok(tp_arena_create("source", SOURCE_BYTES, 0, &r->source));
	ok(tp_expose(r->conn, r->source, TP_LOCAL, &r->source_region));
	ref = tp_region_ref(r->mailbox_region);
	msg.attach.mailbox = (struct wire_ref){
	    ref.addr, said ? said : ref.len, ref.key, .more = ref.more};
	memcpy(msg.attach.mailbox.more_key, ref.more_key, sizeof(ref.more_key));
	raw_send(r, &msg);
}

void raw_join(struct raw *r, const char *uri, int32_t rank)
{
	raw_join_with(r, uri, rank, raw_lines, 2);
}

void raw_enter(struct raw *r, const char *uri, int32_t rank, const struct wire_param *param,
	       uint32_t n)
{
	raw_connect(r, uri, 0);
	raw_hello(r, rank);
	r->welcome = raw_expect(r, WIRE_WELCOME).welcome;
	raw_declare(r, param, n);
	raw_take_grant(r);
	raw_attach(r, 0);
}

void raw_bye(struct raw *r)
{
	struct wire_msg msg = {.kind = WIRE_BYE};

	raw_send(r, &msg);
	raw_expect(r, WIRE_BYE);
	raw_close(r);
}

void raw_join_with(struct raw *r, const char *uri, int32_t rank, const struct wire_param *param,
		   uint32_t n)
{
	raw_enter(r, uri, rank, param, n);
	must(!raw_expect(r, WIRE_READY).ready.init, "asked for initial weights");
}

void raw_wait_start(struct raw *r)
{
	r->step = raw_expect(r, WIRE_START).start.step;
}

/* ---- data
 * ---------------------------------------------------------------------------------------- */

bool raw_write(struct raw *r, uint64_t off, uint64_t len, uint32_t imm)
{
	return raw_write_from(r, 0, off, len, TP_F_IMM, imm);
}

bool raw_write_from(struct raw *r, uint64_t at, uint64_t off, uint64_t len, unsigned flags, uint32_t imm)
{
	struct tp_op op = {
	    .kind = TP_OP_WRITE,
	    .flags = flags,
	    .imm = imm,
	    .local = (uint8_t *)tp_arena_base(r->source) + at,
	    .region = r->source_region,
	    .remote = r->slot_mem,
	    .offset = off,
	    .len = len,
	    .rail = r->rail,
	};
	int rc;

	while ((rc = tp_post(r->conn, &op, 1)) == -EAGAIN && !r->deaf)
		raw_poll(r);
	must(rc == 1 || rc == -EAGAIN || rc == -ENOTCONN, "tp_post: %d: %s", rc, err_text());
	return rc != -EAGAIN;
}

bool raw_gradient(struct raw *r, uint32_t p, uint32_t b, uint32_t slot, float value, bool notify)
{
	const struct wire_place *place = &r->place[p];
	uint64_t first = b * place->block_elems, n = place->elems - first;
	float *source = tp_arena_base(r->source);

	n = n < place->block_elems ? n : place->block_elems;
	for (uint64_t i = 0; i < n; i++)
		source[i] = value;
	return raw_write(r, place->slots_off + slot * place->slots_stride + 4 * first, 4 * n,
			 imm_block(IMM_GRAD, place->first_block + b, slot, notify));
}

void raw_head(struct raw *r, uint32_t p, uint32_t slot, const struct layout_push_head *head)
{
	const uint64_t at = SOURCE_BYTES - sizeof(*head); /* behind what gradients leave from */

	memcpy((uint8_t *)tp_arena_base(r->source) + at, head, sizeof(*head));
	raw_write_from(r, at, r->place[p].heads_off + slot * r->place[p].heads_stride,
		       sizeof(*head), 0, 0);
}

void raw_led_gradient(struct raw *r, uint32_t p, uint32_t slot,
		      const struct layout_push_head *head, float value)
{
	const struct wire_place *place = &r->place[p];
	uint64_t n = place->elems < place->block_elems ? place->elems : place->block_elems;
	uint8_t *source = tp_arena_base(r->source);
	float *values = (float *)(void *)(source + sizeof(*head));

	memcpy(source, head, sizeof(*head));
	for (uint64_t i = 0; i < n; i++)
		values[i] = value;
	raw_write(r, place->heads_off + slot * place->heads_stride, sizeof(*head) + 4 * n,
		  imm_block(IMM_GRAD, place->first_block, slot, false));
}

void raw_barrier(struct raw *r, uint64_t step)
{
	raw_write(r, 0, 8, imm_step(IMM_BARRIER, step));
}

static uint64_t mail(struct raw *r, uint64_t off)
{
	uint8_t *base = tp_arena_base(r->mailbox);

	return atomic_load_explicit((_Atomic uint64_t *)(void *)(base + off), memory_order_acquire);
}

uint64_t raw_released(struct raw *r)
{
	return mail(r, 0);
}

uint64_t raw_kept(struct raw *r, uint32_t block)
{
	return mail(r, layout_kept_off(r->blocks, block));
}

uint64_t raw_credit(struct raw *r, uint32_t block)
{
	return mail(r, layout_credit_off(block));
}

static bool word_is(struct raw *r, uint64_t off, uint64_t value)
{
	return mail(r, off) == value;
}

void raw_wait_release(struct raw *r, uint64_t step)
{
	wait_for(r, word_is, 0, step, "a release");
}

void raw_wait_credit(struct raw *r, uint32_t block, uint64_t n)
{
	wait_for(r, word_is, layout_credit_off(block), n, "a credit");
}

void raw_look_for_credit(struct raw *r, uint32_t block, uint64_t n)
{
	uint64_t until = clock_ns() + NS_PER_MS;

	while (raw_poll(r), !word_is(r, layout_credit_off(block), n) && clock_ns() < until)
		sched_yield();
	raw_wait_credit(r, block, n);
}
