/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainer's library against a server that does anything: its messages, grants, immediates, words
 * in the mailbox and versions come from the input, sound or not, whenever the library waits. What the
 * program calls does too.
 *
 * Nothing may crash, and no call may wait for ever: the server goes when the input ends.
 */
#include "gradslot/gradslot.h"
#include "input.h"
#include "proto/imm.h"
#include "proto/layout.h"
#include "stub.h"

enum { MAX_PARAMS = 4, MAX_BLOCKS = 64, BLOCK_ELEMS = 16 };

static struct {
	struct input in;
	struct tp_conn *conn;
	uint32_t slots, n; /* n: parameters that were declared so far */
	enum wire_mode mode;
	struct wire_param param[MAX_PARAMS];
	struct wire_place place[MAX_PARAMS];
	uint32_t blocks;
	/* What the library said, and the server has yet to answer. */
	bool hello, declared, attached, ready, bye, rate, over;
	uint64_t pushes[MAX_BLOCKS], barrier;
	bool pull[MAX_BLOCKS];
	uint32_t rate_of;
} f;

/* ---- what the library says --------------------------------------------------------------------- */

static void on_sent(struct tp_conn *conn, const struct wire_msg *msg)
{
	f.conn = conn;
	switch (msg->kind) {
	case WIRE_HELLO:
		memset(&f.hello, 0, sizeof(f) - offsetof(__typeof__(f), hello));
		f.n = f.blocks = 0;
		f.hello = true;
		break;
	case WIRE_DECLARE:
		for (uint32_t i = 0; i < msg->declare.n && f.n < MAX_PARAMS; i++)
			f.param[f.n++] = msg->declare.param[i];
		f.declared |= msg->declare.last;
		break;
	case WIRE_ATTACH:
		f.attached = true;
		break;
	case WIRE_INIT_DONE:
		f.ready = true;
		break;
	case WIRE_SET_RATE:
		f.rate = true;
		f.rate_of = msg->set_rate.param;
		break;
	case WIRE_BYE:
		f.bye = true;
		break;
	default:
		break;
	}
}

static void on_pack(uint32_t pack)
{
	for (uint32_t i = 0; i < f.n; i++)
		if (f.place[i].pack == pack && f.place[i].first_block < MAX_BLOCKS)
			f.pushes[f.place[i].first_block]++;
}

static void on_imm(struct tp_conn *conn, uint32_t word, uint64_t len)
{
	struct imm imm = imm_unpack(word);

	if (imm.kind == IMM_BARRIER)
		f.barrier++;
	else if (imm.kind == IMM_GRAD && imm.block >= f.blocks)
		on_pack(imm.block - f.blocks + 1);
	else if (imm.block < MAX_BLOCKS && imm.kind == IMM_PULL)
		f.pull[imm.block] = true;
	else if (imm.block < MAX_BLOCKS)
		f.pushes[imm.block]++;
}

/* ---- what the server does ---------------------------------------------------------------------- */

static void say(const struct wire_msg *msg)
{
	uint8_t buf[WIRE_MSG_MAX];
	int len = wire_encode(msg, buf, sizeof(buf));

	if (len > 0)
		stub_msg(f.conn, buf, (size_t)len);
}

static uint8_t *mailbox(uint64_t *len)
{
	return f.conn && !f.conn->destroyed ? stub_exposed(f.conn, 0, len) : NULL;
}

static void write_word(uint64_t off, uint64_t word)
{
	uint64_t len;
	uint8_t *mail = mailbox(&len);

	if (mail && off + 8 <= len)
		memcpy(mail + off, &word, sizeof(word));
}

/* What may be packed: how many from this one on. */
static uint32_t small_ones(uint32_t first)
{
	uint32_t n = 0;

	while (first + n < f.n && f.param[first + n].storage == WIRE_DENSE &&
	       f.param[first + n].dim[0] <= BLOCK_ELEMS)
		n++;
	return n;
}

static void lay_out_pack(uint32_t first, uint32_t n, uint32_t number, uint64_t *slots)
{
	uint64_t head = sizeof(struct layout_push_head), heads = *slots;

	*slots += f.slots * n * head;
	for (uint32_t i = 0; i < n; i++) {
		struct wire_place *p = &f.place[first + i];

		p->pack = number;
		p->heads_stride = n * head;
		p->heads_off = heads + i * head;
		p->slots_stride = n * LAYOUT_ALIGN; /* a member fits the least there is */
		p->slots_off = *slots + i * LAYOUT_ALIGN;
	}
	*slots += f.slots * n * LAYOUT_ALIGN;
}

static void lay_out_slots(uint32_t i, uint64_t *slots)
{
	struct wire_place *p = &f.place[i];
	struct wire_param *d = &f.param[i];
	bool table = d->storage != WIRE_DENSE;
	uint64_t row = table ? d->dim[1] : 1;

	p->heads_off = *slots;
	p->heads_stride = sizeof(struct layout_push_head);
	*slots += f.slots * sizeof(struct layout_push_head);
	if (table) {
		p->request_off = *slots;
		*slots += layout_align(layout_request_bytes(d->pull_rows), LAYOUT_ALIGN);
	}
	p->slots_off = *slots;
	p->slots_stride = layout_align(table ? layout_slot_bytes(d->slot_rows, 4 * row) : 4 * p->elems,
				       LAYOUT_ALIGN);
	*slots += f.slots * p->slots_stride;
}

static void lay_out_all_slots(bool packed, uint64_t *slots)
{
	uint32_t packs = 0;

	for (uint32_t i = 0, n; i < f.n; i += n) {
		n = packed ? small_ones(i) : 0;
		if (n > 1) {
			lay_out_pack(i, n, ++packs, slots);
		} else {
			n = 1;
			lay_out_slots(i, slots);
		}
	}
}

static void lay_out(uint32_t i, uint64_t *weights)
{
	struct wire_param *d = &f.param[i];
	struct wire_place *p = &f.place[i];
	bool table = d->storage != WIRE_DENSE;
	uint64_t row = table ? d->dim[1] : 1;

	*p = (struct wire_place){.elems = d->dim[0] * (table ? row : 1), .first_block = f.blocks};
	p->block_elems = BLOCK_ELEMS / row ? BLOCK_ELEMS / row * row : row;
	if (p->block_elems > p->elems)
		p->block_elems = p->elems;
	p->blocks = (uint32_t)((p->elems + p->block_elems - 1) / p->block_elems);
	f.blocks += p->blocks;
	p->weights_off = p->landing_off = *weights;
	*weights += layout_align(4 * p->elems + 8 * d->pull_rows * row, LAYOUT_ALIGN);
}

/* One of its numbers may be another. */
static void spoil(struct wire_msg *msg)
{
	uint8_t how = input_u8(&f.in);
	struct wire_place *p = &msg->grant.place[how & 1];
	uint64_t by = how & 64 ? input_u64(&f.in) : (uint64_t)(int64_t)(int8_t)input_u8(&f.in);

	if (how & 128) {
		switch (how >> 1 & 3) {
		case 0: p->pack += (uint32_t)by; break;
		case 1: p->heads_stride += by; break;
		case 2: msg->grant.weights.more = (uint32_t)by % WIRE_RAILS_MAX; break;
		default: msg->grant.slot_mem.more = (uint32_t)by % WIRE_RAILS_MAX; break;
		}
		return;
	}
	switch (how >> 1 & 15) {
	case 0: p->elems += by; break;
	case 1: p->block_elems += by; break;
	case 2: p->weights_off += by; break;
	case 3: p->slots_off += by; break;
	case 4: p->slots_stride += by; break;
	case 5: p->first_block += (uint32_t)by; break;
	case 6: p->blocks += (uint32_t)by; break;
	case 7: p->heads_off += by; break;
	case 8: p->landing_off += by; break;
	case 9: p->request_off += by; break;
	case 10: msg->grant.slots += (uint32_t)by; break;
	case 11: msg->grant.blocks += (uint32_t)by; break;
	case 12: msg->grant.weights.len += by; break;
	case 13: msg->grant.slot_mem.len += by; break;
	case 14: msg->grant.last = !msg->grant.last; break;
	default: msg->grant.n = (uint32_t)by % (WIRE_PARAMS_MAX + 1); break;
	}
}

static void say_grants(bool spoiled, bool packed)
{
	uint64_t weights = 0, slots = sizeof(struct layout_slots_head);

	f.blocks = 0;
	for (uint32_t i = 0; i < f.n; i++)
		lay_out(i, &weights);
	lay_out_all_slots(packed, &slots);
	for (uint32_t i = 0; i < f.n; i++) {
		f.place[i].weights_off += layout_weights_start(f.blocks);
		f.place[i].landing_off += layout_landing_start(f.blocks);
	}
	for (uint32_t i = 0; i < f.n; i += WIRE_PARAMS_MAX) {
		struct wire_msg msg = {.kind = WIRE_GRANT};
		struct wire_grant *g = &msg.grant;

		for (g->n = 0; g->n < WIRE_PARAMS_MAX && i + g->n < f.n; g->n++)
			g->place[g->n] = f.place[i + g->n];
		g->last = i + g->n == f.n;
		if (g->last) {
			g->slots = f.slots;
			g->blocks = f.blocks;
			g->weights.len = weights + layout_weights_start(f.blocks);
			g->slot_mem.len = slots;
		}
		if (spoiled)
			spoil(&msg);
		say(&msg);
	}
}

/* What a good server would do next. False: nothing is to be done. */
static bool answer(uint8_t how)
{
	struct wire_msg msg = {0};

	if (f.hello) {
		f.hello = false;
		msg.kind = WIRE_WELCOME;
		msg.welcome = (struct wire_welcome){
			.version = WIRE_VERSION, .trainers = 1, .mode = f.mode, .server = 1,
			.staleness = f.mode == WIRE_SSP};
	} else if (f.declared) {
		f.declared = false;
		say_grants(how & 16, how & 64);
		return true;
	} else if (f.attached) {
		f.attached = false;
		f.ready = !(how & 16);
		msg.kind = WIRE_READY;
		msg.ready.init = how & 16;
	} else if (f.ready) {
		f.ready = false;
		msg.kind = WIRE_START;
		msg.start.step = f.mode != WIRE_ASYNC;
	} else if (f.rate) {
		f.rate = false;
		msg.kind = WIRE_RATE_SET;
		msg.rate_set.param = f.rate_of;
	} else if (f.bye) {
		f.bye = false;
		msg.kind = WIRE_BYE;
	} else {
		return false;
	}
	say(&msg);
	return true;
}

static uint64_t param_of(uint32_t block)
{
	uint32_t i = 0;

	while (i + 1 < f.n && block >= f.place[i + 1].first_block)
		i++;
	return i;
}

/* Weights land, as long as they should be, or not. */
static void land(uint32_t block, int8_t off)
{
	uint64_t i = param_of(block), len, bytes;
	const struct wire_place *p = &f.place[i];
	uint64_t first = (block - p->first_block) * p->block_elems;
	uint64_t elems = p->elems - first < p->block_elems ? p->elems - first : p->block_elems;
	uint8_t *slot = NULL;
	uint32_t rows = 0;

	f.pull[block] = false;
	bytes = elems * (f.param[i].weight_type == WIRE_F32 ? 4 : 2);
	if (f.param[i].storage != WIRE_DENSE && f.conn->remotes == 2) {
		slot = f.conn->remote[1]->base + p->request_off;
		memcpy(&rows, slot, sizeof(rows));
		bytes = rows * f.param[i].dim[1] * (f.param[i].weight_type == WIRE_F32 ? 4 : 2);
	}
	len = bytes + (uint64_t)(int64_t)off;
	stub_imm(f.conn, imm_block(IMM_PULLED, block, off & 1, false), tp_imm_len(f.conn, len));
}

/* All that was pushed is applied, pulls are answered, the step is released. */
static void work(uint8_t how)
{
	for (uint32_t b = 0; b < f.blocks && b < MAX_BLOCKS; b++) {
		write_word(layout_credit_off(b), f.pushes[b]);
		if (f.pushes[b])
			stub_imm(f.conn, imm_block(IMM_APPLIED, b, 0, false), 8);
		if (f.pull[b])
			land(b, how & 16 ? (int8_t)input_u8(&f.in) : 0);
	}
	if (f.mode != WIRE_ASYNC && f.barrier) {
		write_word(0, f.barrier);
		stub_imm(f.conn, imm_step(IMM_RELEASE, f.barrier), 8);
	}
}

static void some_message(void)
{
	uint8_t how = input_u8(&f.in);
	struct wire_msg msg = {.kind = (enum wire_kind)(how % (WIRE_SAVED + 1))};

	switch (msg.kind) {
	case WIRE_WELCOME:
		msg.welcome = (struct wire_welcome){
			.version = WIRE_VERSION - (how >> 7), .rank = input_u8(&f.in) % 3,
			.trainers = input_u8(&f.in) % 3, .mode = f.mode, .server = 1,
			.staleness = f.mode == WIRE_SSP};
		break;
	case WIRE_GRANT:
		say_grants(true, how & 128);
		return;
	case WIRE_START:
		msg.start.step = input_u8(&f.in);
		break;
	case WIRE_NOTICE:
		msg.notice.param = input_u8(&f.in) % 6;
		msg.notice.code = WIRE_E_CAPACITY;
		msg.notice.refused = input_u8(&f.in);
		break;
	case WIRE_ERROR:
		msg.error.code = (enum wire_error_code)(input_u8(&f.in) % 13);
		break;
	default:
		break;
	}
	say(&msg);
}

static void raw_message(void)
{
	const uint8_t *bytes;
	size_t n = input_span(&f.in, input_u8(&f.in) * 2u, &bytes);

	stub_msg(f.conn, bytes, n);
}

static void raw_weights(void)
{
	uint32_t at = input_u8(&f.in) * 8u;
	uint64_t word = input_u8(&f.in);

	if (f.conn->remotes && at + 8 <= f.conn->remote[0]->len)
		memcpy(f.conn->remote[0]->base + at, &word, sizeof(word));
}

static void act(uint8_t what)
{
	uint64_t word;

	switch (what % 16) {
	case 0:
		raw_message();
		break;
	case 1:
		some_message();
		break;
	case 2:
		stub_imm(f.conn, input_u32(&f.in), input_u8(&f.in));
		break;
	case 3:
		word = input_u8(&f.in) * 8u;
		write_word(word, what & 16 ? input_u64(&f.in) : input_u8(&f.in));
		break;
	case 4:
		raw_weights();
		break;
	case 5:
		stub_room(f.conn, what >> 4);
		break;
	case 6:
		f.conn->hold_dones = what & 16;
		stub_dones(f.conn);
		break;
	case 7:
		if (what & 16)
			stub_close(f.conn, what & 32 ? -71 : 0);
		break;
	default:
		if (!answer(what))
			work(what);
		if (!(what & 32)) {
			stub_dones(f.conn);
			stub_room(f.conn, STUB_ROOM);
		}
	}
}

/* The library waits. */
static bool idle(struct tp_cq *cq)
{
	f.conn = stub_last();
	if (!f.conn)
		return false;
	/* Once its end was polled there is nothing to wait for. */
	FUZZ_MUST(!f.conn->closed, "it waits, and its connection is over");
	if (f.in.left)
		act(input_u8(&f.in));
	else
		stub_close(f.conn, 0);
	return true;
}

/* ---- what the program calls -------------------------------------------------------------------- */

struct buffers {
	float grad[64];
	float weights[64];
	int64_t ids[8];
};

static struct gs_param_desc describe(uint8_t how, unsigned i, const float *init)
{
	static const char *const names[] = {"a", "b", "c", "d"};
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	d.name = names[i];
	gs_setting(&d, "lr", 1);
	d.grad_dtype = (enum gs_dtype)(how >> 2 & 3) % 3;
	d.weight_dtype = (enum gs_dtype)(how >> 4 & 3) % 3;
	if (how & 1) {
		d.kind = how & 2 ? GS_HASHED : GS_TABLE;
		d.ndim = 2;
		d.shape[0] = 12;
		d.shape[1] = 3;
		d.push_rows = 8;
		d.slot_rows = 3;
		d.pull_rows = 4;
	} else {
		d.ndim = 1;
		d.shape[0] = how & 2 ? 40 : 3;
		d.init = how & 64 ? GS_INIT_DATA : GS_INIT_CONSTANT;
		d.init_data = how & 64 ? init : NULL;
		d.accumulate = how & 128 ? 2 : 1;
	}
	return d;
}

static void call(gs_trainer *t, gs_param *const *param, unsigned n, struct buffers *b)
{
	uint8_t what = input_u8(&f.in);
	gs_param *p = param[(what >> 4 & 3) % n];
	uint64_t version;
	void *buffer;

	switch (what % 16) {
	case 0:
		gs_pull(t, p, (enum gs_consistency)(what >> 6 & 3) % 3, b->weights);
		break;
	case 1:
	case 2:
		for (unsigned i = 0; i < 8; i++)
			b->ids[i] = input_u8(&f.in) % 12;
		if (what % 16 == 1)
			gs_push_rows(t, p, b->ids, b->grad, input_u8(&f.in) % 9);
		else
			gs_pull_rows(t, p, b->ids, input_u8(&f.in) % 9,
				     (enum gs_rows_way)(what >> 6), b->weights);
		break;
	case 3:
		gs_step_post(t);
		break;
	case 4:
		gs_step_wait(t);
		break;
	case 5:
		gs_step_end(t);
		break;
	case 6:
		gs_wait_applied(t, p);
		break;
	case 7:
		gs_set_lr(t, p, 0.5);
		break;
	case 8:
		gs_set_samples(t, input_u8(&f.in));
		gs_set_grad_scale(t, input_u8(&f.in));
		break;
	case 9:
		gs_block_version(t, p, input_u8(&f.in), &version);
		break;
	case 10:
		if (gs_grad_buffer(t, p, &buffer) == 0)
			gs_push(t, p, buffer);
		break;
	case 11:
		gs_pull_many(t, param, (void *const[]){b->weights, b->grad}, n < 2 ? n : 2,
			     (enum gs_consistency)(what >> 6 & 3) % 3);
		break;
	default:
		gs_push(t, p, b->grad);
	}
}

static void train(gs_trainer *t, unsigned n, struct buffers *b)
{
	gs_param *param[MAX_PARAMS] = {0};

	for (unsigned i = 0; i < n; i++) {
		struct gs_param_desc d = describe(input_u8(&f.in), i, b->weights);

		FUZZ_MUST(gs_declare(t, &d, &param[i]) == 0, "gs_declare: %s", gs_last_error());
	}
	if (gs_start(t))
		return;
	while (f.in.left && !f.conn->closing)
		call(t, param, n, b);
	gs_leave(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct stub_hooks hooks = {.idle = idle, .sent = on_sent, .imm = on_imm};
	static struct buffers b;
	struct gs_options opt = GS_OPTIONS_INIT;
	gs_trainer *t;
	uint8_t how;

	if (size > 4096)
		return 0;
	memset(&f, 0, sizeof(f));
	f.in = (struct input){data, size};
	how = input_u8(&f.in);
	f.slots = (how >> 1 & 3) + 1;
	f.mode = (enum wire_mode)((how >> 3 & 3) % 3 + 1);
	opt.uri = "shm:fuzz";
	opt.name = "fuzz";
	opt.keepalive_ms = 0;
	stub_begin(&hooks);
	stub_answer(how & 1, NULL);
	if (gs_connect(&opt, &t) == 0) {
		train(t, (how >> 5) % MAX_PARAMS + 1, &b);
		gs_close(t);
	}
	stub_end();
	return 0;
}
