/* SPDX-License-Identifier: Apache-2.0
 *
 * Pollers: they drain completions in bounded batches, check what a trainer claims, and put it on
 * its parameter's queue. Nothing that a trainer sends is believed: a claim that does not hold ends
 * the session with a reason, before any weight is touched.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "proto/imm.h"
#include "server/internal.h"
#include "server/joint.h"
#include "server/packs.h"
#include "server/param.h"
#include "server/rows.h"

enum {
	BATCH = 64,
	/* Control messages that one trainer may have waiting for the control thread. */
	INBOX_MAX_BYTES = 32 << 20,
};

static bool block_exists(struct session *s, const struct imm *imm)
{
	const struct table *t = s->table;

	if (imm->block >= t->blocks)
		violation(s, "block %u slot %u: there are %u blocks, %u slots each", imm->block,
			  imm->slot, t->blocks, t->slots);
	return imm->block < t->blocks;
}

/* What a WRITE of so many bytes says that it has: its last piece. */
static inline uint32_t said_len(const struct session *s, uint64_t bytes)
{
	return bytes - 1 < s->max_chunk ? (uint32_t)bytes : tp_imm_len(s->conn, bytes);
}

static inline bool length_holds(struct session *s, const struct imm *imm, uint32_t len,
				uint64_t bytes)
{
	uint32_t want = said_len(s, bytes);

	if (len != want)
		violation(s, "block %u: %u bytes in the last piece instead of %u", imm->block, len,
			  want);
	return len == want;
}

/* Its pack is not in it. */
static bool free_of_pack(const struct session *s, const struct slot *slot, uint32_t i)
{
	return !slot->singles ||
	       delivery_is_free(joint_delivery(s, s->table->block[slot->block].param->joint, i));
}

bool poller_length(struct session *s, const struct imm *imm, uint32_t len, uint64_t bytes)
{
	return length_holds(s, imm, len, bytes);
}

/* The slot that is claimed; it is free. */
static inline struct slot *free_slot(struct session *s, const struct imm *imm)
{
	const struct table *t = s->table;
	struct slot *slot;

	if (imm->slot >= t->slots) {
		violation(s, "block %u slot %u: there are %u blocks, %u slots each", imm->block,
			  imm->slot, t->blocks, t->slots);
		return NULL;
	}
	slot = &s->slot[(size_t)imm->block * t->slots + imm->slot];
	/* The delivery over it first: it is free behind the slots that it stood for. */
	if (!free_of_pack(s, slot, imm->slot) ||
	    atomic_load_explicit(&slot->state, memory_order_acquire) != SLOT_FREE) {
		violation(s, "block %u slot %u: filled without a credit", imm->block, imm->slot);
		return NULL;
	}
	return slot;
}

struct slot *poller_slot(struct session *s, const struct imm *imm)
{
	return free_slot(s, imm);
}

static bool of_table(const struct session *s, const struct imm *imm)
{
	return is_table(s->table->block[imm->block].param);
}

/* A slot of a dense parameter: the length is the block's. */
static inline struct slot *claimed_slot(struct session *s, const struct imm *imm, uint32_t len)
{
	const struct block *b = &s->table->block[imm->block];

	return length_holds(s, imm, len, block_grad_bytes(b)) ? free_slot(s, imm) : NULL;
}

/* The trainer can write its head at any time: each word is read once, and what was read is kept. */
static uint32_t head_word(const float *at)
{
	return __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_RELAXED);
}

static float head_factor(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f == 0 ? 1 : f;
}

static bool odd_factors(struct session *s, uint32_t of_weight, uint32_t of_scale, uint32_t block,
			float *weight, float *scale)
{
	*weight = head_factor(of_weight);
	*scale = head_factor(of_scale);
	if (layout_factor_ok(*weight) && layout_factor_ok(*scale))
		return true;
	violation(s, "block %u: a gradient of %g samples, %g times too large: both must be from "
		     "2^-60 to 2^60", block, (double)*weight, (double)*scale);
	return false;
}

static inline bool read_factors(struct session *s, const struct layout_push_head *head, uint32_t block,
				float *weight, float *scale)
{
	uint32_t of_weight = head_word(&head->weight), of_scale = head_word(&head->scale);

	*weight = *scale = 1;
	return __builtin_expect(!(of_weight | of_scale), true) ||
	       odd_factors(s, of_weight, of_scale, block, weight, scale);
}

bool poller_factors(struct session *s, const struct layout_push_head *head, uint32_t block,
		    float *weight, float *scale)
{
	return read_factors(s, head, block, weight, scale);
}

/* What the trainer says about the push that this slot's gradient is a part of. */
static inline bool read_head(struct session *s, struct slot *slot)
{
	if (!read_factors(s, slot->head, slot->block, &slot->weight, &slot->scale))
		return false;
	slot->seen = __atomic_load_n(&slot->head->seen, __ATOMIC_RELAXED);
	/* Blocks of one push may come in any order: by several rails. In sync mode a step has one. */
	slot->push = srv_is_sync(s->srv) ? s->posting : ++s->pushes[slot->block];
	return true;
}

bool poller_head(struct session *s, struct slot *slot)
{
	return read_head(s, slot);
}

/* With a reference of the session's. */
static void enqueue(struct session *s, struct slot *slot, enum item_kind kind, bool notify)
{
	slot_set_state(slot, SLOT_QUEUED);
	slot->notify = notify;
	slot->item.kind = kind;
	srv_post(s->srv, slot->item.home, &slot->item);
}

/* The step of the next gradient that comes by this rail. */
static uint64_t posting_by(const struct session *s, uint8_t rail)
{
	return s->posting + (s->passing >> rail & 1);
}

static void not_released(struct session *s, uint32_t block, uint8_t rail, uint64_t step)
{
	violation(s, "block %u: a gradient of step %" PRIu64 " while step %" PRIu64
		  " is not released", block, posting_by(s, rail), step);
}

/* Sync: within the step that is being made. */
static bool step_is_open(struct session *s, uint32_t block, uint8_t rail)
{
	uint64_t step = round_step(&s->srv->round);

	if (posting_by(s, rail) == step)
		return true;
	not_released(s, block, rail, step);
	return false;
}

/* Sync: the first in the step for its block (a table's pieces are counted where they are claimed). One
 * that its rank's last session delivered counts too. */
bool poller_is_first(struct session *s, const struct slot *slot)
{
	if (s->last_step[slot->block] != s->posting &&
	    (!slot->singles || joint_lane_of(s, slot)->step != s->posting))
		return true;
	violation(s, "block %u: a second gradient in step %" PRIu64, slot->block, s->posting);
	return false;
}

/* The step before is released to it. */
static bool may_pass(struct session *s)
{
	if (srv_is_sync(s->srv))
		return s->posting == round_step(&s->srv->round);
	return atomic_load_explicit(&s->released, memory_order_acquire) + 1 == s->posting;
}

/* The gradient came with the push head before it. */
static bool came_with_head(const struct session *s, const struct block *b, uint32_t len)
{
	const struct wire_place *p = &b->param->place;

	return b->first == 0 &&
	       layout_heads_lead(p->heads_off, p->heads_stride, p->slots_off, p->slots_stride) &&
	       len == said_len(s, sizeof(struct layout_push_head) + block_grad_bytes(b));
}

static inline bool gradient_length(struct session *s, const struct imm *imm, uint32_t len)
{
	const struct block *b = &s->table->block[imm->block];
	uint64_t bytes = block_grad_bytes(b);

	return len == said_len(s, bytes) || came_with_head(s, b, len) ||
	       length_holds(s, imm, len, bytes);
}

static inline struct slot *claimed_gradient(struct session *s, const struct imm *imm, uint32_t len,
					    bool table)
{
	struct slot *slot;

	if (table)
		return rows_claim_push(s, imm, len);
	slot = gradient_length(s, imm, len) ? free_slot(s, imm) : NULL;
	return slot && read_head(s, slot) ? slot : NULL;
}

/* The trainer may send gradients now, by this rail. */
static inline bool step_allows(struct session *s, uint32_t block, uint8_t rail)
{
	if (srv_is_sync(s->srv))
		return step_is_open(s, block, rail);
	if (s->srv->opt.mode == SRV_ASYNC || (may_pass(s) && !(s->passing >> rail & 1)))
		return true;
	not_released(s, block, rail, posting_by(s, rail) - 1);
	return false;
}

void poller_count_taken(struct session *s, uint32_t n)
{
	_Atomic uint64_t *sum = &s->poller->gradients;

	if (srv_is_sync(s->srv))
		s->last_pushed = s->posting;
	else if (s->srv->opt.mode == SRV_SSP)
		atomic_fetch_add_explicit(&s->unsettled, n, memory_order_relaxed);
	atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static void count_single(struct slot *slot)
{
	atomic_fetch_add_explicit(slot->singles, 1, memory_order_relaxed);
}

void poller_mark_taken(struct session *s, struct slot *slot, bool packed)
{
	if (srv_is_sync(s->srv)) {
		atomic_store_explicit(&slot->step, s->posting, memory_order_relaxed);
		s->last_step[slot->block] = s->posting;
	}
	if (slot->singles) {
		joint_lane_of(s, slot)->singles_step = s->posting;
		count_single(slot);
	}
	slot->packed = packed;
}

void poller_take_gradient(struct session *s, struct slot *slot, bool packed, bool notify)
{
	poller_mark_taken(s, slot, packed);
	enqueue(s, slot, ITEM_GRAD, notify);
}

static void on_gradient(struct session *s, const struct imm *imm, uint32_t len, uint8_t rail)
{
	struct slot *slot;
	bool table;

	if (!block_exists(s, imm))
		return;
	table = of_table(s, imm);
	slot = claimed_gradient(s, imm, len, table);
	if (!slot || !step_allows(s, imm->block, rail))
		return;
	if (srv_is_sync(s->srv) && !table && !poller_is_first(s, slot))
		return;
	poller_count_taken(s, 1);
	session_get(s);
	poller_take_gradient(s, slot, false, imm->notify);
}

static void on_pack(struct session *s, const struct imm *imm, uint32_t len, uint8_t rail)
{
	const struct table *t = s->table;
	struct pack *pack = &t->pack[imm->block - t->blocks];

	if (!poller_length(s, imm, len, pack->bytes) || !step_allows(s, pack->block, rail))
		return;
	if (pack->joint)
		packs_take_joint(s, pack, imm);
	else
		packs_take(s, pack, imm);
}

/* Block numbers behind the last are packs'. */
static bool is_pack(const struct session *s, const struct imm *imm)
{
	const struct table *t = s->table;

	return imm->block >= t->blocks && imm->block - t->blocks < t->packs;
}

static void on_init(struct session *s, const struct imm *imm, uint32_t len)
{
	struct slot *slot = block_exists(s, imm) ? claimed_slot(s, imm, len) : NULL;

	if (!slot)
		return;
	if (s->table->block[imm->block].param->decl.init != WIRE_INIT_TRAINER) {
		violation(s, "block %u: its initial weights do not come from a trainer",
			  imm->block);
		return;
	}
	session_get(s);
	slot->packed = false;
	if (slot->singles)
		count_single(slot);
	enqueue(s, slot, ITEM_INIT, imm->notify);
}

static void on_pull(struct session *s, const struct imm *imm, uint32_t len)
{
	const struct table *t = s->table;
	struct pull *pull;
	uint32_t wanted;

	if (imm->block >= t->blocks) {
		violation(s, "pull of block %u: there are %u", imm->block, t->blocks);
		return;
	}
	if (of_table(s, imm) && !rows_claim_pull(s, imm, len))
		return;
	pull = &s->pull[imm->block];
	wanted = atomic_fetch_add(&pull->wanted, 1);
	if (wanted >= SESSION_MAX_PULLS)
		violation(s, "block %u: more than %d pulls unanswered", imm->block,
			  SESSION_MAX_PULLS);
	else if (wanted == 0)
		session_queue(s, &pull->item);
}

/* It came by all rails. */
static void pass(struct session *s)
{
	s->passing = 0;
	s->pass_step = s->posting++;
	if (srv_is_sync(s->srv))
		session_queue(s, &s->pass);
	else
		session_settled_one(s);
}

/* A barrier counts by step and rail: the one just passed, said again, changes nothing. */
static void on_barrier(struct session *s, const struct imm *imm, uint8_t rail)
{
	enum srv_mode mode = s->srv->opt.mode;

	if (mode == SRV_ASYNC) {
		violation(s, "a barrier in async mode, which has none");
	} else if (imm->step == ((s->posting - 1) & IMM_STEP_MASK)) {
		log_debug("%s: step %" PRIu64 " passed again", s->who, s->posting - 1);
	} else if (imm->step != (s->posting & IMM_STEP_MASK) || !may_pass(s)) {
		violation(s, "the barrier of step %u (low 29 bits), %" PRIu64
			  " is next and step %" PRIu64 " is not released", imm->step, s->posting,
			  s->posting - 1);
	} else {
		s->passing |= 1u << rail;
		if (s->passing == s->all_rails)
			pass(s);
	}
}

static void on_imm(struct session *s, const struct tp_event *ev)
{
	struct imm imm = imm_unpack(ev->imm);
	enum session_state state = session_state(s);

	if (state < SESSION_ATTACHING) {
		/* The control thread may still be writing down who this is: it is told. */
		if (!s->early)
			inbox_post(&s->srv->inbox, &s->early_note);
		s->early = true;
		return;
	}
	if ((state == SESSION_ACTIVE || state == SESSION_INITIALISING) && s->heard != s->data_after)
		violation(s, "data behind a message that ends it (bye, init_done)");
	else if (state == SESSION_ACTIVE && imm.kind == IMM_GRAD && is_pack(s, &imm))
		on_pack(s, &imm, ev->len, ev->rail);
	else if (state == SESSION_ACTIVE && imm.kind == IMM_GRAD)
		on_gradient(s, &imm, ev->len, ev->rail);
	else if (state == SESSION_ACTIVE && imm.kind == IMM_BARRIER)
		on_barrier(s, &imm, ev->rail);
	else if (state == SESSION_ACTIVE && imm.kind == IMM_PULL)
		on_pull(s, &imm, ev->len);
	else if (state == SESSION_INITIALISING && imm.kind == IMM_INIT)
		on_init(s, &imm, ev->len);
	else
		violation(s, "immediate 0x%08x: kind %u means nothing while %s", ev->imm, imm.kind,
			  session_state_name(state));
}

/* Ends a session that the control thread may not have got to know yet. */
static void cut_off(struct session *s, struct tp_conn *conn, const char *why)
{
	if (!atomic_exchange(&s->condemned, true))
		log_warn("%s: ended: %s", tp_conn_peer(conn), why);
	tp_conn_close(conn);
}

static void on_message(struct session *s, const struct tp_event *ev)
{
	size_t size = sizeof(struct note) + ev->len;
	struct note *note;

	s->heard += session_ends_data(wire_peek(ev->msg, ev->len));
	if (atomic_fetch_add(&s->inbox_bytes, size) > INBOX_MAX_BYTES) {
		atomic_fetch_add(&s->srv->flooded, 1);
		cut_off(s, ev->conn, "its control messages come faster than they can be handled");
		return;
	}
	note = malloc(size);
	if (!note) {
		cut_off(s, ev->conn, "no memory for its control messages");
		return;
	}
	*note = (struct note){.kind = NOTE_MSG, .session = s, .len = ev->len};
	memcpy(note->data, ev->msg, ev->len);
	/* Before its barrier is looked at. */
	if (saver_counts(&s->srv->saver, wire_peek(ev->msg, ev->len)))
		atomic_fetch_add(&s->srv->saver.coming, 1);
	inbox_post(&s->srv->inbox, note);
}

static void on_event(const struct tp_event *ev)
{
	struct session *s = tp_conn_user(ev->conn);
	bool condemned = atomic_load_explicit(&s->condemned, memory_order_relaxed);

	switch (ev->kind) {
	case TP_EV_IMM:
		if (!condemned)
			on_imm(s, ev);
		break;
	case TP_EV_MSG:
		if (!condemned)
			on_message(s, ev);
		break;
	case TP_EV_DONE: /* only bounce buffers and beats are signalled */
		if (ev->cookie == SESSION_BEAT)
			atomic_store(&s->beating, false);
		else
			session_bounce_done(s, ev->cookie);
		break;
	case TP_EV_ROOM:
		session_unpark(s);
		if (!atomic_exchange(&s->room_noted, true))
			inbox_post(&s->srv->inbox, &s->room_note);
		break;
	case TP_EV_CLOSED:
		session_unpark(s);
		inbox_post(&s->srv->inbox, &s->closed_note);
		break;
	}
}

void *poller_main(void *arg)
{
	struct poller *p = arg;
	struct tp_event ev[BATCH];
	struct turn turn;

	sched_take_turns(&p->srv->sched, &turn);
	while (!atomic_load_explicit(&p->srv->pollers_end, memory_order_relaxed)) {
		int n = tp_cq_poll(p->cq, ev, BATCH);

		for (int i = 0; i < n; i++)
			on_event(&ev[i]);
		sched_turn(&p->srv->sched);
		if (n == 0)
			tp_cq_wait(p->cq, -1);
	}
	sched_end_turns();
	return NULL;
}
