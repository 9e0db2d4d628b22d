/* SPDX-License-Identifier: Apache-2.0
 *
 * The scripted server, and the trainer's rig around it.
 */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"

#define ck_tp(call)                                                                      \
	do {                                                                             \
		int ck_rc = (call);                                                      \
		ck_assert_msg(ck_rc >= 0, "fake: %s: %d: %s", #call, ck_rc, err_text()); \
	} while (0)

/* ---- life ------------------------------------------------------------------------------------ */

static void *run(void *arg)
{
	struct fake *f = arg;

	f->script(f);
	return NULL;
}

void fake_start(struct fake *f, void (*script)(struct fake *f))
{
	static unsigned count;
	struct tp_options opt = {.depth = 64};

	f->script = script;
	if (!f->mode)
		f->mode = WIRE_ASYNC;
	if (!f->slots)
		f->slots = 2;
	if (!f->block_elems)
		f->block_elems = 28;
	if (!f->server)
		f->server = 1;
	if (!f->start_step)
		f->start_step = 1;
	if (!f->uri[0])
		snprintf(f->uri, sizeof(f->uri), "shm:gs-fake-%d-%u", (int)getpid(), count++);
	ck_tp(tp_cq_create(50, &f->cq));
	ck_tp(tp_listen(f->uri, &opt, &f->listener));
	ck_assert_int_eq(pthread_create(&f->thread, NULL, run, f), 0);
}

static void free_connection(struct fake *f)
{
	tp_conn_destroy(f->conn);
	tp_arena_destroy(f->weights_mem);
	tp_arena_destroy(f->slot_mem);
	tp_arena_destroy(f->words_mem);
	f->conn = NULL;
	f->weights_mem = f->slot_mem = f->words_mem = NULL;
}

void fake_join(struct fake *f)
{
	pthread_join(f->thread, NULL);
	free_connection(f);
	tp_listener_destroy(f->listener);
	tp_cq_destroy(f->cq);
	free(f->saved);
}

/* ---- events ---------------------------------------------------------------------------------- */

bool fake_try_accept(struct fake *f)
{
	uint64_t end = clock_ns() + FAKE_WAIT_MS * NS_PER_MS;

	while (clock_ns() < end) {
		int rc = tp_accept(f->listener, f->cq, f, &f->conn);

		if (rc == 1)
			return true;
		ck_tp(rc);
		if (atomic_load(&f->done))
			return false;
		usleep(200);
	}
	ck_abort_msg("fake: nobody connected");
}

void fake_accept(struct fake *f)
{
	ck_assert(fake_try_accept(f));
}

static bool interesting(const struct tp_event *ev)
{
	return ev->kind == TP_EV_IMM || ev->kind == TP_EV_MSG || ev->kind == TP_EV_CLOSED;
}

bool fake_next(struct fake *f, struct tp_event *ev, int ms)
{
	uint64_t end = clock_ns() + (uint64_t)ms * NS_PER_MS;

	for (;;) {
		while (f->ev_next < f->ev_n) {
			*ev = f->ev[f->ev_next++];
			if (!interesting(ev))
				continue;
			if (ev->kind == TP_EV_CLOSED)
				f->closed = true;
			if (ev->kind == TP_EV_MSG)
				ck_tp(wire_decode(ev->msg, ev->len, &f->msg));
			return true;
		}
		f->ev_next = 0;
		f->ev_n = tp_cq_poll(f->cq, f->ev, FAKE_BATCH);
		if (f->ev_n > 0)
			continue;
		if (clock_ns() >= end)
			return false;
		tp_cq_wait(f->cq, 20);
	}
}

void fake_expect(struct fake *f, enum wire_kind kind)
{
	struct tp_event ev;

	ck_assert_msg(fake_next(f, &ev, FAKE_WAIT_MS), "fake: no %s came", wire_kind_name(kind));
	ck_assert_msg(ev.kind == TP_EV_MSG, "fake: event %d instead of %s", (int)ev.kind,
		      wire_kind_name(kind));
	ck_assert_msg(f->msg.kind == kind, "fake: %s instead of %s%s%s",
		      wire_kind_name(f->msg.kind), wire_kind_name(kind),
		      f->msg.kind == WIRE_ERROR ? ": " : "",
		      f->msg.kind == WIRE_ERROR ? f->msg.error.text : "");
}

struct imm fake_expect_imm(struct fake *f, enum imm_kind kind)
{
	struct tp_event ev;

	ck_assert_msg(fake_next(f, &ev, FAKE_WAIT_MS), "fake: no immediate %d came", (int)kind);
	ck_assert_msg(ev.kind == TP_EV_IMM, "fake: event %d instead of an immediate", (int)ev.kind);
	struct imm imm = imm_unpack(ev.imm);
	ck_assert_uint_eq(imm.kind, kind);
	return imm;
}

void fake_expect_closed(struct fake *f)
{
	struct tp_event ev;

	do
		ck_assert_msg(fake_next(f, &ev, FAKE_WAIT_MS), "fake: the trainer stays");
	while (ev.kind != TP_EV_CLOSED);
}

/* ---- sending --------------------------------------------------------------------------------- */

void fake_send(struct fake *f, const struct wire_msg *msg)
{
	uint8_t buf[WIRE_MSG_MAX];
	int len = wire_encode(msg, buf, sizeof(buf));

	ck_tp(len);
	ck_tp(tp_send(f->conn, buf, (size_t)len));
}

void fake_send_error(struct fake *f, enum wire_error_code code, const char *text)
{
	struct wire_msg msg = {.kind = WIRE_ERROR, .error = {.code = code}};

	snprintf(msg.error.text, sizeof(msg.error.text), "%s", text);
	fake_send(f, &msg);
}

/* Room comes with polling. What is polled waits for fake_next; immediates alone can. */
static void poll_ahead(struct fake *f)
{
	ck_assert_int_le(f->ev_n, FAKE_EVENTS - FAKE_BATCH);
	int n = tp_cq_poll(f->cq, f->ev + f->ev_n, FAKE_BATCH);

	for (int i = 0; i < n; i++)
		ck_assert_int_ne(f->ev[f->ev_n + i].kind, TP_EV_MSG);
	f->ev_n += n;
	if (n == 0)
		usleep(50);
}

static void post(struct fake *f, unsigned flags, uint32_t imm, void *from, uint64_t off,
		 uint64_t len)
{
	struct tp_op op = {
	    .kind = TP_OP_WRITE,
	    .flags = flags,
	    .imm = imm,
	    .local = from,
	    .region = f->words_region,
	    .remote = f->mailbox,
	    .offset = off,
	    .len = len,
	};

	for (int i = 0; i < 100000; i++) {
		int rc = tp_post(f->conn, &op, 1);

		if (rc == 1 || (rc == -ENOTCONN && f->may_end))
			return;
		ck_assert_msg(rc == -EAGAIN, "fake: post: %d: %s", rc, err_text());
		poll_ahead(f);
	}
	ck_abort_msg("fake: no room");
}

void fake_imm(struct fake *f, uint32_t imm, uint64_t off, uint64_t word)
{
	memcpy(f->words, &word, 8);
	post(f, TP_F_IMM, imm, f->words, off, 8);
}

void fake_word(struct fake *f, uint64_t off, uint64_t word)
{
	memcpy(f->words, &word, 8);
	post(f, 0, 0, f->words, off, 8);
}

void fake_credit(struct fake *f, uint32_t block, uint64_t count, bool notify)
{
	if (notify)
		fake_imm(f, imm_block(IMM_APPLIED, block, 0, false), layout_credit_off(block),
			 count);
	else
		fake_word(f, layout_credit_off(block), count);
}

void fake_release(struct fake *f, uint64_t step)
{
	fake_imm(f, imm_step(IMM_RELEASE, step), 0, step);
}

void fake_land(struct fake *f, uint32_t imm, uint64_t off, const void *bytes, uint64_t len)
{
	memcpy(f->words, bytes, len);
	post(f, TP_F_IMM, imm, f->words, off, len);
}

static uint64_t offset_in_param(const struct wire_place *p, uint32_t block);

void fake_pulled(struct fake *f, uint32_t block)
{
	const struct wire_place *p = &f->place[fake_owner(f, block)];
	float *from = fake_weights(f, block);

	post(f, TP_F_IMM, imm_block(IMM_PULLED, block, 0, false), from,
	     p->landing_off + offset_in_param(p, block), 4 * fake_block_elems(f, block));
}

void fake_close(struct fake *f)
{
	tp_conn_close(f->conn);
	if (!f->closed)
		fake_expect_closed(f);
}

void fake_drop(struct fake *f)
{
	fake_close(f);
	if (f->weights_mem) {
		f->saved_len = tp_arena_size(f->weights_mem);
		f->saved = realloc(f->saved, f->saved_len);
		memcpy(f->saved, f->weights, f->saved_len);
	}
	free_connection(f);
	f->closed = false;
	f->ev_next = f->ev_n = 0;
	f->n = f->blocks = 0;
	f->mailbox = NULL;
	f->stage_done = 0;
	memset(f->place, 0, sizeof(f->place));
}

void fake_restart(struct fake *f)
{
	free(f->saved);
	f->saved = NULL;
	f->server++;
}

/* ---- geometry -------------------------------------------------------------------------------- */

uint32_t fake_owner(const struct fake *f, uint32_t block)
{
	uint32_t i = 0;

	while (block >= f->place[i].first_block + f->place[i].blocks)
		i++;
	return i;
}

uint64_t fake_block_elems(const struct fake *f, uint32_t block)
{
	const struct wire_place *p = &f->place[fake_owner(f, block)];
	uint64_t before = (block - p->first_block) * p->block_elems;

	return p->elems - before < p->block_elems ? p->elems - before : p->block_elems;
}

static uint64_t offset_in_param(const struct wire_place *p, uint32_t block)
{
	return 4 * (block - p->first_block) * p->block_elems;
}

float *fake_weights(struct fake *f, uint32_t block)
{
	const struct wire_place *p = &f->place[fake_owner(f, block)];

	return (float *)(void *)(f->weights + p->weights_off + offset_in_param(p, block));
}

float *fake_slot(struct fake *f, uint32_t block, uint32_t slot)
{
	const struct wire_place *p = &f->place[fake_owner(f, block)];

	return (float *)(void *)(f->slot + p->slots_off + slot * p->slots_stride +
				 offset_in_param(p, block));
}

static uint64_t *barrier_word(struct fake *f)
{
	return &((struct layout_slots_head *)(void *)f->slot)->barrier;
}

uint64_t *fake_version(struct fake *f, uint32_t block)
{
	return (uint64_t *)(void *)(f->weights + layout_version_off(block));
}

static void lay_out_param(struct fake *f, uint32_t i, uint64_t *weights, uint64_t *slots)
{
	struct wire_place *p = &f->place[i];

	p->elems = 1;
	for (uint32_t d = 0; d < f->param[i].ndim; d++)
		p->elems *= f->param[i].dim[d];
	p->block_elems = p->elems < f->block_elems ? p->elems : f->block_elems;
	p->first_block = f->blocks;
	p->blocks = (uint32_t)((p->elems + p->block_elems - 1) / p->block_elems);
	f->blocks += p->blocks;
	p->weights_off = *weights; /* from the start of the tensors, for now */
	*weights += layout_align(4 * p->elems, LAYOUT_ALIGN);
	p->landing_off = p->weights_off;
	p->heads_off = *slots;
	p->heads_stride = sizeof(struct layout_push_head);
	*slots += f->slots * sizeof(struct layout_push_head);
	if (f->param[i].storage != WIRE_DENSE) {
		p->request_off = *slots;
		*slots += layout_align(layout_request_bytes(f->param[i].pull_rows), LAYOUT_ALIGN);
	}
	p->slots_off = *slots;
	p->slots_stride = layout_align(4 * p->elems, LAYOUT_ALIGN);
	if (f->param[i].storage != WIRE_DENSE)
		p->slots_stride = layout_align(
		    layout_slot_bytes(f->param[i].slot_rows, 4 * f->param[i].dim[1]), LAYOUT_ALIGN);
	*slots += f->slots * p->slots_stride;
}

/* Instead of what lay_out_param said. */
static void lay_out_pack(struct fake *f, uint64_t *slots)
{
	uint64_t stride = 0, heads = f->n * sizeof(struct layout_push_head);
	uint64_t at = sizeof(struct layout_slots_head);

	for (uint32_t i = 0; i < f->n; i++)
		stride += f->place[i].slots_stride;
	*slots = at + f->slots * (heads + stride);
	for (uint32_t i = 0, off = 0; i < f->n; i++) {
		struct wire_place *p = &f->place[i];

		p->pack = 1;
		p->heads_off = at + i * sizeof(struct layout_push_head);
		p->heads_stride = heads;
		p->slots_off = at + f->slots * heads + off;
		off += (uint32_t)p->slots_stride;
		p->slots_stride = stride;
	}
}

struct wire_grant fake_lay_out(struct fake *f)
{
	struct wire_grant g = {.last = true, .slots = f->slots};
	uint64_t weights = 0, slots = sizeof(struct layout_slots_head);

	for (uint32_t i = 0; i < f->n; i++)
		lay_out_param(f, i, &weights, &slots);
	if (f->packed)
		lay_out_pack(f, &slots);
	for (uint32_t i = 0; i < f->n; i++) {
		f->place[i].weights_off += layout_weights_start(f->blocks);
		f->place[i].landing_off += layout_landing_start(f->blocks);
	}
	weights += layout_weights_start(f->blocks);
	ck_tp(
	    tp_arena_create("fake weights", weights, TP_ARENA_READ_ONLY_TO_PEERS, &f->weights_mem));
	ck_tp(tp_arena_create("fake slots", slots, 0, &f->slot_mem));
	ck_tp(tp_arena_create("fake words", 256 << 10, 0, &f->words_mem));
	ck_tp(tp_expose(f->conn, f->weights_mem, TP_PEER_READ, &f->weights_region));
	ck_tp(tp_expose(f->conn, f->slot_mem, TP_PEER_WRITE, &f->slot_region));
	ck_tp(tp_expose(f->conn, f->words_mem, TP_LOCAL, &f->words_region));
	f->weights = tp_arena_base(f->weights_mem);
	f->slot = tp_arena_base(f->slot_mem);
	*barrier_word(f) = FAKE_NO_BARRIER;
	f->words = tp_arena_base(f->words_mem);
	if (f->saved)
		memcpy(f->weights, f->saved, f->saved_len);
	struct tp_ref w = tp_region_ref(f->weights_region), s = tp_region_ref(f->slot_region);
	g.blocks = f->blocks;
	g.weights = (struct wire_ref){w.addr, w.len, w.key, .more = w.more};
	g.slot_mem = (struct wire_ref){s.addr, s.len, s.key, .more = s.more};
	memcpy(g.weights.more_key, w.more_key, sizeof(w.more_key));
	memcpy(g.slot_mem.more_key, s.more_key, sizeof(s.more_key));
	return g;
}

/* ---- the conversation ------------------------------------------------------------------------ */

static void take_declares(struct fake *f)
{
	do {
		fake_expect(f, WIRE_DECLARE);
		for (uint32_t i = 0; i < f->msg.declare.n; i++) {
			ck_assert_uint_lt(f->n, FAKE_PARAMS);
			f->param[f->n++] = f->msg.declare.param[i];
		}
	} while (!f->msg.declare.last);
}

static void send_grants(struct fake *f)
{
	struct wire_grant last = fake_lay_out(f);

	for (uint32_t i = 0; i < f->n; i += WIRE_PARAMS_MAX) {
		struct wire_msg msg = {.kind = WIRE_GRANT};
		uint32_t left = f->n - i;

		if (left <= WIRE_PARAMS_MAX)
			msg.grant = last;
		msg.grant.n = left < WIRE_PARAMS_MAX ? left : WIRE_PARAMS_MAX;
		memcpy(msg.grant.place, f->place + i, msg.grant.n * sizeof(f->place[0]));
		fake_send(f, &msg);
	}
}

static void take_attach(struct fake *f)
{
	fake_expect(f, WIRE_ATTACH);
	struct wire_ref *r = &f->msg.attach.mailbox;
	struct tp_ref ref = {r->addr, r->len, r->key, .more = r->more};
	memcpy(ref.more_key, r->more_key, sizeof(ref.more_key));
	ck_tp(tp_attach(f->conn, &ref, TP_PEER_WRITE, ref.len, &f->mailbox));
	ck_assert_uint_ge(ref.len, f->place[f->n - 1].landing_off + 4 * f->place[f->n - 1].elems);
}

static void send_welcome(struct fake *f)
{
	struct wire_msg msg = {.kind = WIRE_WELCOME,
			       .welcome = {.version = WIRE_VERSION,
					   .trainers = 2,
					   .mode = f->mode,
					   .staleness = f->mode == WIRE_SSP,
					   .server = f->server}};

	if (f->resumes && f->msg.hello.resumes) {
		ck_assert_int_eq(f->msg.hello.rank, 0);
		ck_assert_uint_eq(f->msg.hello.session[0], f->sessions);
		ck_assert_uint_eq(f->msg.hello.session[15], f->sessions);
		msg.welcome.resumed = true;
	}
	memset(msg.welcome.session, ++f->sessions, sizeof(msg.welcome.session));
	fake_send(f, &msg);
}

static uint64_t least_kept(const struct fake *f, const struct wire_place *p)
{
	uint64_t least = f->kept[p->first_block];

	for (uint32_t i = 1; i < p->blocks; i++) {
		if (f->kept[p->first_block + i] < least)
			least = f->kept[p->first_block + i];
	}
	return least;
}

static void write_kept(struct fake *f)
{
	for (uint32_t b = 0; b < f->blocks; b++) {
		uint32_t i = fake_owner(f, b);
		uint64_t lead = f->kept[b] - least_kept(f, &f->place[i]);

		if (f->kept[b])
			fake_word(f, layout_kept_off(f->blocks, b), f->kept[b]);
		if (lead && !f->unseeded && f->mode != WIRE_SYNC &&
		    f->param[i].storage == WIRE_DENSE)
			fake_word(f, layout_credit_off(b), lead);
	}
}

static void one_stage(struct fake *f, enum stage stage)
{
	struct wire_msg ready = {.kind = WIRE_READY};
	struct wire_msg start = {.kind = WIRE_START, .start = {f->start_step}};

	switch (stage) {
	case STAGE_ACCEPTED:
		fake_accept(f);
		break;
	case STAGE_HELLO:
		fake_expect(f, WIRE_HELLO);
		break;
	case STAGE_WELCOMED:
		send_welcome(f);
		break;
	case STAGE_DECLARED:
		take_declares(f);
		break;
	case STAGE_GRANTED:
		send_grants(f);
		break;
	case STAGE_ATTACHED:
		take_attach(f);
		break;
	case STAGE_READY:
		write_kept(f);
		fake_send(f, &ready);
		break;
	case STAGE_STARTED:
		fake_send(f, &start);
		break;
	}
}

void fake_up_to(struct fake *f, enum stage stage)
{
	for (; f->stage_done <= (int)stage; f->stage_done++)
		one_stage(f, (enum stage)f->stage_done);
}

/* ---- a good server --------------------------------------------------------------------------- */

static void apply(struct fake *f, uint32_t block, uint32_t slot)
{
	float *w = fake_weights(f, block), *g = fake_slot(f, block, slot);

	__atomic_add_fetch(fake_version(f, block), 1, __ATOMIC_SEQ_CST);
	for (uint64_t i = 0; i < fake_block_elems(f, block); i++)
		w[i] -= g[i];
	__atomic_add_fetch(fake_version(f, block), 1, __ATOMIC_SEQ_CST);
}

static void serve_grad(struct fake *f, const struct imm *imm)
{
	struct imm each = {.slot = imm->slot};

	/* Of the pack. The last one's credit answers. */
	for (; imm->block >= f->blocks && each.block < f->blocks; each.block++) {
		each.notify = imm->notify && each.block == f->blocks - 1;
		serve_grad(f, &each);
	}
	if (imm->block >= f->blocks)
		return;
	apply(f, imm->block, imm->slot);
	f->applied[imm->block]++;
	if (f->mode == WIRE_ASYNC)
		fake_credit(f, imm->block, f->applied[imm->block], imm->notify);
	atomic_fetch_add(&f->seen, 1);
}

void fake_take_barrier(struct fake *f)
{
	ck_assert_uint_eq(*barrier_word(f), 0);
	*barrier_word(f) = FAKE_NO_BARRIER;
}

bool fake_serve_one(struct fake *f, const struct tp_event *ev)
{
	struct wire_msg bye = {.kind = WIRE_BYE};
	struct imm imm = imm_unpack(ev->imm);

	if (ev->kind == TP_EV_CLOSED)
		return false;
	if (ev->kind == TP_EV_MSG) {
		ck_assert_msg(f->msg.kind == WIRE_BYE, "fake: %s", wire_kind_name(f->msg.kind));
		fake_send(f, &bye);
		return true;
	}
	switch (imm.kind) {
	case IMM_GRAD:
		serve_grad(f, &imm);
		break;
	case IMM_PULL:
		fake_pulled(f, imm.block);
		break;
	case IMM_BARRIER:
		f->barriers++;
		ck_assert_uint_eq(imm.step, f->barriers);
		fake_take_barrier(f);
		fake_release(f, f->barriers);
		break;
	default:
		ck_abort_msg("fake: immediate of kind %u", imm.kind);
	}
	return true;
}

void fake_serve(struct fake *f)
{
	struct tp_event ev;

	do
		ck_assert_msg(fake_next(f, &ev, FAKE_WAIT_MS), "fake: the trainer is silent");
	while (fake_serve_one(f, &ev));
}

void fake_gate(struct fake *f, int n)
{
	for (int i = 0; atomic_load(&f->allow) < n; i++) {
		ck_assert_int_lt(i, 100000);
		usleep(100);
	}
}

/* ---- the rig --------------------------------------------------------------------------------- */

struct gs_options rig_options(struct rig *r)
{
	struct gs_options opt = GS_OPTIONS_INIT;

	opt.uri = r->f.uri;
	opt.timeout_ms = 5000;
	return opt;
}

int rig_connect(struct rig *r)
{
	struct gs_options opt = rig_options(r);

	return gs_connect(&opt, &r->t);
}

int rig_try_declare(struct rig *r, const float *init_data)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;

	d.name = "w";
	d.ndim = 2;
	d.shape[0] = 10;
	d.shape[1] = 7;
	gs_setting(&d, "lr", 1);
	if (init_data) {
		d.init = GS_INIT_DATA;
		d.init_data = init_data;
	}
	int rc = gs_declare(r->t, &d, &r->w);
	if (rc < 0)
		return rc;
	d = (struct gs_param_desc)GS_PARAM_DESC_INIT;
	d.name = "b";
	d.ndim = 1;
	d.shape[0] = 3;
	gs_setting(&d, "lr", 1);
	return gs_declare(r->t, &d, &r->b);
}

void rig_declare(struct rig *r, const float *init_data)
{
	ck_ok(rig_try_declare(r, init_data));
}

void rig_up(struct rig *r, enum wire_mode mode, void (*script)(struct fake *f))
{
	r->f.mode = mode;
	fake_start(&r->f, script);
	ck_ok(rig_connect(r));
	rig_declare(r, NULL);
	ck_ok(gs_start(r->t));
}

void rig_down(struct rig *r)
{
	gs_close(r->t);
	fake_join(&r->f);
}

void rig_seen(struct rig *r, int n)
{
	for (int i = 0; atomic_load(&r->f.seen) < n; i++) {
		ck_assert_int_lt(i, 100000);
		usleep(100);
	}
}

void rig_up_for(struct rig *r, enum wire_mode mode, void (*script)(struct fake *f),
		   uint32_t reconnect_ms)
{
	r->f.mode = mode;
	fake_start(&r->f, script);
	struct gs_options opt = rig_options(r);
	opt.reconnect_ms = reconnect_ms;
	ck_ok(gs_connect(&opt, &r->t));
	rig_declare(r, NULL);
	ck_ok(gs_start(r->t));
}

void rig_be_lost(struct rig *r)
{
	float w[W_ELEMS];
	int rc;

	while ((rc = gs_pull(r->t, r->w, GS_RELAXED, w)) == 0)
		usleep(100);
	ck_assert_int_eq(rc, -ECONNRESET);
}

void fake_end_for_good(struct fake *f)
{
	fake_up_to(f, STAGE_STARTED);
	fake_drop(f);
	tp_listener_destroy(f->listener);
	f->listener = NULL;
}
