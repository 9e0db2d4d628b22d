/* SPDX-License-Identifier: Apache-2.0
 *
 * The server against trainers that do anything. A whole server runs, in one thread and with no
 * network (stub.h); the input is a list of what its trainers do: messages, immediates, and what they
 * write into heads, slots and requests, sound or not, in any order.
 *
 * With the first bit set trainers keep to the protocol, and die: then nobody may be ended for a breach
 * of it, and each block must have been updated as often as its gradients say.
 */
#include "base/err.h"
#include "decls.h"
#include "input.h"
#include "proto/imm.h"
#include "proto/layout.h"
#include "server/internal.h"
#include "server/rows.h"
#include "stub.h"
#include "trainer/credits.h"

enum { PEERS = 4, MAX_BLOCKS = 64, MAX_STEPS = 4096 /* an act takes two bytes */ };

struct peer {
	struct tp_conn *conn;
	uint32_t step;               /* sync, ssp: being made; 0: not started */
	bool barrier;                /* of it was posted */
	uint32_t session_pushes[DECLS]; /* of each parameter */
	bool pushed[DECLS];          /* in this step */
	bool greeted, declared, attached, asked_init, left, init_done;
	bool told_ready, told_start; /* these messages have come */
};

static struct {
	struct input in;
	struct srv *srv;
	struct peer peer[PEERS];
	bool legal, load_store, ending;
	uint64_t updates[MAX_BLOCKS];       /* async, ssp: that must be */
	uint64_t touched[MAX_STEPS]; /* sync: blocks that gradients were delivered of */
	uint32_t decls; /* how many of them are declared */
	unsigned ticks;
} f;

/* ---- what is known of the server --------------------------------------------------------------- */

static struct session *session_at(struct peer *p)
{
	return p->conn && !p->conn->destroyed ? p->conn->user : NULL;
}

static enum session_state state_of(struct peer *p)
{
	struct session *s = session_at(p);

	return s && !p->conn->closing ? session_state(s) : SESSION_CLOSED;
}

static uint64_t mail_word(struct peer *p, uint64_t off)
{
	uint64_t word;

	memcpy(&word, p->conn->remote[0]->base + off, sizeof(word));
	return word;
}

static bool is_sync(void)
{
	return f.srv->opt.mode == SRV_SYNC;
}

/* ---- what trainers do -------------------------------------------------------------------------- */

static void say(struct peer *p, const struct wire_msg *msg)
{
	uint8_t buf[WIRE_MSG_MAX];
	int len = wire_encode(msg, buf, sizeof(buf));

	if (len > 0)
		stub_msg(p->conn, buf, (size_t)len);
}

static void say_hello(struct peer *p, uint8_t how)
{
	struct wire_msg msg = {.kind = WIRE_HELLO,
			       .hello = {.version = WIRE_VERSION, .rank = (int8_t)how % 4 - 1,
					 .name = "fuzz"}};

	if (f.legal)
		msg.hello.rank = -1;
	say(p, &msg);
}

static void say_declare(struct peer *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct wire_msg msg = {.kind = WIRE_DECLARE,
				       .declare = {.last = i + 1 == n, .n = 1, .param = {decls[i]}}};

		say(p, &msg);
	}
}

static void say_attach(struct peer *p)
{
	struct wire_msg msg = {.kind = WIRE_ATTACH, .attach = {.mailbox = {1, 1 << 16, 0}}};

	say(p, &msg);
}

static void enter(struct peer *p, uint8_t how)
{
	if (p->greeted)
		return;
	p->greeted = f.legal;
	say_hello(p, how);
	if (f.legal)
		return;
	say_declare(p, f.decls);
	say_attach(p);
}

/* A good trainer waits for its welcome, which may take until its rank is free, and for its grant. */
static void go_on(struct peer *p)
{
	if (!p->declared && state_of(p) == SESSION_DECLARING) {
		p->declared = true;
		say_declare(p, f.decls);
	} else if (!p->attached && state_of(p) == SESSION_ATTACHING) {
		p->attached = true;
		say_attach(p);
	}
}

/* The slot of the next push of a parameter, or -1: it has no credit. */
static int next_slot(struct peer *p, const struct param *param)
{
	const struct table *t = srv_table(f.srv);
	uint32_t i = (uint32_t)(param - t->param), n = p->session_pushes[i];
	uint32_t blocks = is_table(param) ? 1 : param->place.blocks;

	if (!is_sync() || state_of(p) == SESSION_INITIALISING)
		for (uint32_t b = 0; b < blocks; b++)
			if (mail_word(p, layout_credit_off(param->place.first_block + b)) <
			    credits_needed(n, t->slots))
				return -1;
	return (int)credits_slot(n, t->slots);
}

static uint8_t *slot_mem(struct session *s)
{
	return tp_arena_base(s->slot_mem);
}

static void count(struct peer *p, const struct block *b)
{
	if (b->id >= MAX_BLOCKS)
		return;
	if (is_sync())
		f.touched[p->step % MAX_STEPS] |= UINT64_C(1) << b->id;
	else
		f.updates[b->id]++;
}

/* A whole push of a dense parameter, as a good trainer makes it. */
static void push_dense(struct peer *p, const struct param *param, uint32_t slot, enum imm_kind kind)
{
	const struct table *t = srv_table(f.srv);

	for (uint32_t i = 0; i < param->place.blocks; i++) {
		const struct block *b = &t->block[param->place.first_block + i];

		if (is_sync() && kind == IMM_GRAD &&
		    mail_word(p, layout_kept_off(t->blocks, b->id)) == p->step)
			continue;
		if (!is_sync() && kind == IMM_GRAD &&
		    mail_word(p, layout_credit_off(b->id)) >
			    p->session_pushes[param - t->param])
			continue;
		stub_imm(p->conn, imm_block(kind, b->id, slot, i + 1 == param->place.blocks),
			 tp_imm_len(p->conn, block_grad_bytes(b)));
		if (kind == IMM_GRAD)
			count(p, b);
	}
	p->session_pushes[param - t->param]++;
}

/* One piece of a push of a table. The last, in a good trainer's sync step. */
static void push_rows(struct peer *p, const struct param *param, uint32_t slot, uint32_t rows,
		      bool more)
{
	struct session *s = session_at(p);
	struct layout_push_head *head = (void *)(slot_mem(s) + param->place.heads_off +
						 slot * param->place.heads_stride);
	uint8_t *at = slot_mem(s) + param->place.slots_off + slot * param->place.slots_stride;

	if (f.legal && rows > param->decl.slot_rows)
		rows = param->decl.slot_rows;
	head->rows = rows;
	head->flags = more ? LAYOUT_MORE_ROWS : 0;
	for (uint32_t r = 0; r < rows && r < param->decl.slot_rows; r++) {
		int64_t id = input_u8(&f.in) % (is_hashed(param) ? 64 : param->decl.dim[0]);

		memcpy(at + r * sizeof(id), &id, sizeof(id));
	}
	stub_imm(p->conn, imm_block(IMM_GRAD, param->place.first_block, slot, true),
		 tp_imm_len(p->conn, layout_slot_bytes(rows, row_grad_bytes(param))));
	p->session_pushes[param - srv_table(f.srv)->param]++;
}

/* The step that start says, which comes before anything is pushed. */
static void take_start(struct peer *p)
{
	if (!p->step && f.srv->opt.mode != SRV_ASYNC)
		p->step = (uint32_t)session_at(p)->posting;
}

/* All that one of a pack needs to be pushed with the others, in this slot. */
static bool may_go_along(struct peer *p, uint32_t i, uint32_t slot)
{
	const struct table *t = srv_table(f.srv);
	const struct param *param = &t->param[i];
	uint32_t block = param->place.first_block;

	if (p->pushed[i] || next_slot(p, param) != (int)slot)
		return false;
	return is_sync() ? mail_word(p, layout_kept_off(t->blocks, block)) != p->step
			 : mail_word(p, layout_credit_off(block)) <= p->session_pushes[i];
}

static bool push_pack(struct peer *p, uint32_t number, uint32_t slot)
{
	const struct table *t = srv_table(f.srv);
	const struct pack *pack = &t->pack[number];

	for (uint32_t i = 0; i < pack->n; i++)
		if (!may_go_along(p, pack->param + i, slot))
			return false;
	stub_imm(p->conn, imm_block(IMM_GRAD, t->blocks + number, slot, false),
		 tp_imm_len(p->conn, pack->bytes));
	for (uint32_t i = 0; i < pack->n; i++) {
		p->pushed[pack->param + i] = is_sync();
		p->session_pushes[pack->param + i]++;
		count(p, &t->block[pack->block + i]);
	}
	return true;
}

static void push(struct peer *p, uint8_t which)
{
	struct table *t = srv_table(f.srv);

	take_start(p);
	uint32_t i = which % t->params;
	struct param *param = &t->param[i];
	int slot = next_slot(p, param);

	if (slot < 0 || (f.srv->opt.mode != SRV_ASYNC && (p->barrier || p->pushed[i])))
		return;
	if (param->place.pack && (which & 128) &&
	    push_pack(p, param->place.pack - 1, (uint32_t)slot))
		return;
	p->pushed[i] = is_sync();
	if (is_table(param) && is_sync() &&
	    mail_word(p, layout_kept_off(t->blocks, param->place.first_block)) == p->step)
		return; /* it is there, from before */
	if (is_table(param))
		push_rows(p, param, (uint32_t)slot, which >> 4, false);
	else
		push_dense(p, param, (uint32_t)slot, IMM_GRAD);
}

/* No more credits than pushes. */
static void check_credits(struct peer *p)
{
	struct table *t = srv_table(f.srv);

	for (uint32_t b = 0; b < t->blocks; b++) {
		struct param *param = t->block[b].param;

		FUZZ_MUST(mail_word(p, layout_credit_off(b)) <=
			      p->session_pushes[param - t->param] + t->slots *
			      (mail_word(p, layout_kept_off(t->blocks, b)) > 0),
			  "block %u: %llu credits", b,
			  (unsigned long long)mail_word(p, layout_credit_off(b)));
	}
}

/* The step after the one that was passed, if the server says so. */
static void follow(struct peer *p)
{

	if (f.legal && state_of(p) == SESSION_ACTIVE)
		check_credits(p);
	if (state_of(p) != SESSION_ACTIVE || f.srv->opt.mode == SRV_ASYNC)
		return;
	take_start(p);
	if (!p->barrier || mail_word(p, 0) < p->step)
		return;
	p->step++;
	p->barrier = false;
	memset(p->pushed, 0, sizeof(p->pushed));
}

static void barrier(struct peer *p)
{
	if (f.srv->opt.mode == SRV_ASYNC || p->barrier || p->step + 1 >= MAX_STEPS)
		return;
	p->barrier = true;
	stub_imm(p->conn, imm_step(IMM_BARRIER, p->step), 8);
}

static void give_initial(struct peer *p)
{
	struct table *t = srv_table(f.srv);

	if (p->init_done)
		return;
	if (!p->asked_init) {
		p->asked_init = true;
		for (uint32_t i = 0; i < t->params; i++)
			if (t->param[i].decl.init == WIRE_INIT_TRAINER)
				for (int half = t->param[i].decl.grad_type == WIRE_F32; half < 2; half++)
					push_dense(p, &t->param[i],
						   p->session_pushes[i] % t->slots, IMM_INIT);
		return;
	}
	for (uint32_t b = 0; b < t->blocks; b++)
		if (mail_word(p, layout_credit_off(b)) <
		    p->session_pushes[t->block[b].param - t->param])
			return;
	p->init_done = true;
	say(p, &(struct wire_msg){.kind = WIRE_INIT_DONE});
}

static void pull(struct peer *p, uint8_t which)
{
	struct table *t = srv_table(f.srv);
	struct param *param = &t->param[which % t->params];
	struct layout_request_head *head =
	    (void *)(slot_mem(session_at(p)) + param->place.request_off);

	if (f.legal && atomic_load(&session_at(p)->pull[param->place.first_block].wanted))
		return;
	if (!is_table(param)) {
		stub_imm(p->conn, imm_block(IMM_PULL, param->place.first_block, 0, false), 8);
		return;
	}
	head->rows = which / t->params % param->decl.pull_rows + 1;
	for (uint32_t r = 0; r < head->rows; r++)
		((int64_t *)(void *)(head + 1))[r] = input_u8(&f.in) % param->decl.dim[0];
	stub_imm(p->conn, imm_block(IMM_PULL, param->place.first_block, 0, false),
		 tp_imm_len(p->conn, layout_request_bytes(head->rows)));
}

/* ---- what trainers should not do ------------------------------------------------------------- */

static void raw_imm(struct peer *p)
{
	uint32_t imm = input_u32(&f.in);
	uint8_t how = input_u8(&f.in);
	struct table *t = srv_table(f.srv);
	uint32_t len = input_u8(&f.in);

	if ((how & 1) && t) { /* of a block that there is, in its length */
		const struct block *b = &t->block[imm_unpack(imm).block % t->blocks];

		imm = (imm & ~(uint32_t)(IMM_MAX_BLOCKS - 1)) | b->id;
		if (how & 2)
			len = tp_imm_len(p->conn, block_grad_bytes(b));
		else
			len = tp_imm_len(p->conn, layout_slot_bytes(len, is_table(b->param)
						      ? row_grad_bytes(b->param) : 4));
	}
	if ((how & 4) && t && t->packs) {
		uint32_t pack = imm_unpack(imm).block % t->packs;

		imm = (imm & ~(uint32_t)(IMM_MAX_BLOCKS - 1)) | (t->blocks + pack);
		if (how & 2)
			len = tp_imm_len(p->conn, t->pack[pack].bytes);
	}
	stub_imm(p->conn, imm, len);
}

/* A push without a look at credits, steps, or limits of rows. */
static void push_anyway(struct peer *p)
{
	struct table *t = srv_table(f.srv);
	struct param *param = &t->param[input_u8(&f.in) % t->params];
	uint8_t how = input_u8(&f.in);
	uint32_t slot = how % t->slots;

	if (is_table(param))
		push_rows(p, param, slot, how >> 3 & 7, how & 64);
	else
		push_dense(p, param, slot, IMM_GRAD);
}

static void raw_memory(struct peer *p)
{
	struct session *s = session_at(p);
	uint32_t at = input_u32(&f.in);
	uint8_t bytes[64];
	size_t n = input_u8(&f.in) % sizeof(bytes);

	input_bytes(&f.in, bytes, n);
	if (!s || !s->slot_mem || p->conn->closing)
		return;
	at %= (uint32_t)tp_arena_size(s->slot_mem);
	if (n > tp_arena_size(s->slot_mem) - at)
		n = tp_arena_size(s->slot_mem) - at;
	memcpy(slot_mem(s) + at, bytes, n);
}

static void raw_head(struct peer *p)
{
	struct session *s = session_at(p);
	struct table *t = srv_table(f.srv);
	struct layout_push_head head = {0};
	uint8_t which = input_u8(&f.in);

	input_bytes(&f.in, &head, 24);
	head.rows %= 12;
	if (!s || !t || !s->slot_mem || p->conn->closing)
		return;
	memcpy(slot_mem(s) + t->param[which % t->params].place.heads_off +
		   (which >> 5) % t->slots * t->param[which % t->params].place.heads_stride,
	       &head, sizeof(head));
}

static void raw_message(struct peer *p)
{
	const uint8_t *bytes;
	size_t n = input_span(&f.in, input_u8(&f.in) * 2u, &bytes);

	stub_msg(p->conn, bytes, n);
}

static void some_message(struct peer *p)
{
	uint8_t how = input_u8(&f.in);
	struct wire_msg msg = {.kind = (enum wire_kind)(how % (WIRE_SAVED + 1))};

	switch (msg.kind) {
	case WIRE_HELLO:
		say_hello(p, input_u8(&f.in));
		return;
	case WIRE_DECLARE:
		say_declare(p, input_u8(&f.in) % (DECLS + 1));
		return;
	case WIRE_ATTACH:
		msg.attach.mailbox = (struct wire_ref){1, input_u32(&f.in) >> 12, 0};
		break;
	case WIRE_SET_RATE:
		msg.set_rate.param = input_u8(&f.in) % 8;
		msg.set_rate.rate = input_u8(&f.in) / 16.0;
		break;
	case WIRE_ERROR:
		msg.error.code = WIRE_E_INTERNAL;
		break;
	default:
		break;
	}
	say(p, &msg);
}

/* ---- the play ---------------------------------------------------------------------------------- */

static void drain_poller(void)
{
	struct poller *poller = &f.srv->poller[0];

	atomic_store(&f.srv->pollers_end, false);
	poller_main(poller);
}

static bool poller_idle(struct tp_cq *cq)
{
	atomic_store(&f.srv->pollers_end, true);
	return true;
}

static void knock(struct peer *p)
{
	if (p->conn && !p->conn->destroyed)
		return;
	*p = (struct peer){0};
	stub_knock(f.load_store, p);
}

static void on_sent(struct tp_conn *conn, const struct wire_msg *msg)
{
	struct peer *p = conn->peer;

	p->told_ready |= msg->kind == WIRE_READY;
	p->told_start |= msg->kind == WIRE_START;
}

/* As far as a trainer knows: what it was not told yet, for want of room, is not so. */
static enum session_state told_state(struct peer *p)
{
	enum session_state state = state_of(p);

	if ((state == SESSION_ACTIVE && !p->told_start) ||
	    (state == SESSION_INITIALISING && !p->told_ready))
		return SESSION_HELD;
	return state;
}

static void good_act(struct peer *p, uint8_t what)
{
	enum session_state state = told_state(p);

	follow(p);
	switch (what % 16) {
	case 0:
	case 1:
		if (state == SESSION_INITIALISING)
			give_initial(p);
		else if (state == SESSION_ACTIVE)
			barrier(p);
		break;
	case 2:
		if (state == SESSION_ACTIVE)
			pull(p, input_u8(&f.in));
		break;
	case 3:
		stub_room(p->conn, input_u8(&f.in) % 8);
		break;
	case 4:
		stub_room(p->conn, STUB_ROOM);
		break;
	case 5:
		stub_dones(p->conn);
		p->conn->hold_dones = input_u8(&f.in) & 1;
		break;
	case 6:
		if (!p->left && state == SESSION_ACTIVE) {
			p->left = true;
			say(p, &(struct wire_msg){.kind = WIRE_BYE});
		}
		break;
	case 7:
		stub_close(p->conn, -104);
		break;
	default:
		if (state == SESSION_ACTIVE && !p->left)
			push(p, input_u8(&f.in));
		else if (state == SESSION_INITIALISING)
			give_initial(p);
	}
}

static void bad_act(struct peer *p, uint8_t what)
{
	enum session_state state = state_of(p);

	switch (what % 16) {
	case 0:
	case 1:
		raw_imm(p);
		break;
	case 2:
		raw_memory(p);
		break;
	case 3:
		raw_head(p);
		break;
	case 4:
		raw_message(p);
		break;
	case 5:
		some_message(p);
		break;
	case 6:
		if (state == SESSION_ACTIVE)
			push_anyway(p);
		break;
	case 7:
		stub_pass((uint64_t)input_u8(&f.in) * 100000000);
		break;
	default:
		if (!p->left)
			good_act(p, what >> 4);
	}
}

/* One act, whose trainer may have to come first. */
static void act(void)
{
	uint8_t what = input_u8(&f.in);
	struct peer *p = &f.peer[what & 3];

	what = (uint8_t)(what >> 2 | input_u8(&f.in) << 6);
	if (!p->conn || p->conn->destroyed) {
		knock(p);
	} else if (state_of(p) == SESSION_HELLO && (f.legal || what % 4)) {
		enter(p, what);
	} else if (f.legal) {
		if (!p->left && !p->conn->closing)
			good_act(p, what);
	} else {
		bad_act(p, what);
	}
}

/* The server waits: the next act, and what came of it. */
static void on_poll(void)
{
	for (int i = 0; i < PEERS; i++) /* whom the server has taken since */
		if (!f.peer[i].conn && stub_last() && stub_last()->peer == &f.peer[i] &&
		    !stub_last()->destroyed)
			f.peer[i].conn = stub_last();
	for (int i = 0; i < PEERS && f.legal && !f.ending; i++)
		if (f.peer[i].conn)
			go_on(&f.peer[i]);
	if (f.in.left) {
		act();
	} else {
		if (!f.ending) {
			for (int i = 0; i < PEERS; i++)
				if (f.peer[i].conn && !f.peer[i].conn->destroyed)
					stub_room(f.peer[i].conn, STUB_ROOM);
			f.ending = true;
			srv_stop(f.srv);
		}
		for (int i = 0; i < PEERS; i++)
			if (f.peer[i].conn && !f.peer[i].conn->destroyed)
				stub_dones(f.peer[i].conn);
		stub_pass(10000000);
	}
	drain_poller();
}

/* ---- what must hold ---------------------------------------------------------------------------- */

static void check_block(const struct block *b)
{
	uint64_t n = block_updates(b), least = 0, most, step = f.srv->round.barrier.step;

	FUZZ_MUST(atomic_load(b->version) % 2 == 0, "block %u: its version is odd", b->id);
	/* A table's rows are written some at a time. */
	if (is_sync() && !is_table(b->param))
		FUZZ_MUST(n <= step, "block %u: %llu updates in %llu steps", b->id,
			  (unsigned long long)n, (unsigned long long)step);
	/* What is refused for an infinity or a NaN, or belongs to a table, is counted otherwise. */
	if (!f.legal || is_table(b->param) || b->id >= MAX_BLOCKS || b->param->global)
		return;
	for (uint64_t s = 1; s < step && s < MAX_STEPS; s++)
		least += f.touched[s] >> b->id & 1;
	most = is_sync() ? least + (f.touched[step % MAX_STEPS] >> b->id & 1) : f.updates[b->id];
	if (!is_sync())
		least = b->param->whole ? 0 : most;
	FUZZ_MUST(least <= n && n <= most, "block %u: %llu updates instead of %llu to %llu", b->id,
		  (unsigned long long)n, (unsigned long long)least, (unsigned long long)most);
}

static void check_end(void)
{
	struct table *t = srv_table(f.srv);
	struct srv_stats stats;

	srv_get_stats(f.srv, &stats);
	FUZZ_MUST(f.srv->n_sessions == 0, "%u sessions did not end", f.srv->n_sessions);
	FUZZ_MUST(!f.legal || stats.violations == 0, "%llu good trainers were ended",
		  (unsigned long long)stats.violations);
	for (uint32_t i = 0; t && i < t->blocks; i++)
		check_block(&t->block[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct stub_hooks hooks = {.poll = on_poll, .idle = poller_idle, .sent = on_sent};
	struct srv_options opt = srv_options_default();
	uint8_t how, more;

	if (size > 4096)
		return 0;
	memset(&f, 0, sizeof(f));
	f.in = (struct input){data, size};
	how = input_u8(&f.in);
	more = input_u8(&f.in);
	f.legal = how & 1;
	f.load_store = how & 2;
	f.decls = (how >> 5) % DECLS + 1;
	opt.listen[0] = "shm:fuzz";
	opt.n_listen = 1;
	opt.workers = 0;
	opt.spin_us = 0;
	opt.block_kib = 1;
	opt.slots = more % 4 + 1;
	opt.trainers = more / 4 % 3 + 1;
	opt.mode = (enum srv_mode)(how / 4 % 3 + 1);
	opt.staleness = opt.mode == SRV_SSP ? more / 16 % 3 : 0;
	if (opt.mode == SRV_SYNC)
		opt.on_loss = more / 64 % 2 ? SRV_LOSS_WAIT : SRV_LOSS_CONTINUE;
	opt.loss_wait_ms = 2000;
	opt.keepalive_ms = 0;
	opt.max_memory = 8 << 20;
	opt.insecure = true;
	stub_begin(&hooks);
	FUZZ_MUST(srv_create(&opt, &f.srv) == 0, "srv_create: %s", err_text());
	srv_run(f.srv);
	check_end();
	srv_destroy(f.srv);
	stub_end();
	return 0;
}
