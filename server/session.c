/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer's session: memory, references, and the words that the server writes to the trainer.
 */
#include "server/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "proto/imm.h"
#include "proto/layout.h"
#include "server/internal.h"
#include "server/rows.h"

static void init_note(struct session *s, struct note *note, enum note_kind kind)
{
	note->kind = kind;
	note->session = s;
}

struct session *session_create(struct srv *srv, struct poller *poller)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->srv = srv;
	s->poller = poller;
	atomic_init(&s->state, SESSION_HELLO);
	atomic_init(&s->refs, 1);
	pthread_spin_init(&s->park_lock, PTHREAD_PROCESS_PRIVATE);
	pthread_spin_init(&s->told_lock, PTHREAD_PROCESS_PRIVATE);
	init_note(s, &s->early_note, NOTE_EARLY);
	init_note(s, &s->closed_note, NOTE_CLOSED);
	init_note(s, &s->reap_note, NOTE_REAP);
	init_note(s, &s->started_note, NOTE_STARTED);
	init_note(s, &s->left_note, NOTE_LEFT);
	init_note(s, &s->room_note, NOTE_ROOM);
	init_note(s, &s->rate_note, NOTE_RATE);
	init_note(s, &s->refused_note, NOTE_REFUSED);
	atomic_init(&s->unsettled, 1);
	struct actor *home = srv->opt.mode == SRV_SSP ? &srv->pace.actor : &srv->round.actor;
	s->join = (struct item){.kind = ITEM_JOIN, .home = home};
	s->pass = (struct item){.kind = ITEM_PASS, .home = home};
	s->leave = (struct item){.kind = ITEM_LEAVE, .home = home};
	s->release = (struct item){.kind = ITEM_RELEASE, .home = home};
	return s;
}

void session_destroy(struct session *s)
{
	if (!s)
		return;
	tp_conn_destroy(s->conn); /* with its regions and remotes */
	tp_arena_destroy(s->slot_mem);
	tp_arena_destroy(s->words_mem);
	tp_arena_destroy(s->bounce_mem);
	if (s->slot)
		atomic_fetch_sub(&s->srv->session_memory, srv_table(s->srv)->slots_len);
	handshake_drop_outgoing(s);
	free(s->declared);
	free(s->slot);
	free(s->pull);
	free(s->pushes);
	rows_destroy_parts(s);
	free(s->backup);
	free(s->credit);
	pthread_spin_destroy(&s->park_lock);
	pthread_spin_destroy(&s->told_lock);
	free(s);
}

enum session_state session_state(const struct session *s)
{
	return (enum session_state)atomic_load_explicit(&s->state, memory_order_acquire);
}

void session_set_state(struct session *s, enum session_state state)
{
	log_debug("%s: %s -> %s", s->who, session_state_name(session_state(s)),
		  session_state_name(state));
	/* Release: a poller that sees the state sees what was set up for it. */
	atomic_store_explicit(&s->state, state, memory_order_release);
}

const char *session_state_name(enum session_state state)
{
	static const char *const names[] = {
		[SESSION_HELLO] = "connected",
		[SESSION_DECLARING] = "declaring",
		[SESSION_ATTACHING] = "attaching",
		[SESSION_HELD] = "waiting for initial weights",
		[SESSION_INITIALISING] = "writing initial weights",
		[SESSION_JOINING] = "waiting to start",
		[SESSION_ACTIVE] = "training",
		[SESSION_LEAVING] = "leaving",
		[SESSION_CLOSED] = "closed",
	};

	return names[state];
}

void session_get(struct session *s)
{
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void session_put(struct session *s)
{
	if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1)
		inbox_post(&s->srv->inbox, &s->reap_note);
}

/* ---- memory ------------------------------------------------------------------------------------ */

/* Where a block's gradient lies in a slot; of a table, only the first block has slots. */
static uint64_t slot_offset(const struct block *b)
{
	return is_table(b->param) ? 0 : b->first * kern_size(param_grad_type(b->param));
}

static int make_lanes(struct session *s, const struct table *t)
{
	uint8_t *base = tp_arena_base(s->slot_mem);

	s->slot = calloc((size_t)t->blocks * t->slots, sizeof(*s->slot));
	s->pull = calloc(t->blocks, sizeof(*s->pull));
	s->credit = calloc(t->blocks, sizeof(*s->credit));
	s->pushes = calloc(t->params, sizeof(*s->pushes));
	if (t->backups_len)
		s->backup = aligned_alloc(LAYOUT_ALIGN, t->backups_len);
	if (!s->slot || !s->pull || !s->credit || !s->pushes || (t->backups_len && !s->backup))
		return err_set(ENOMEM, "no memory to keep %u slots of %u blocks", t->slots,
			       t->blocks);
	if (s->backup)
		memset(s->backup, 0, t->backups_len); /* whoever never pulls learns nothing */
	for (uint32_t b = 0; b < t->blocks; b++) {
		const struct block *block = &t->block[b];
		const struct wire_place *place = &block->param->place;
		struct actor *home = &block->param->actor;

		for (uint32_t i = 0; i < t->slots; i++)
			s->slot[(size_t)b * t->slots + i] = (struct slot){
				.item = {.home = home},
				.session = s,
				.block = b,
				.data = base + place->slots_off + i * place->slots_stride +
					slot_offset(block),
				.head = (const struct layout_push_head *)(const void *)(
					base + place->heads_off + i * sizeof(*s->slot->head)),
			};
		s->pull[b] = (struct pull){
			.item = {.kind = ITEM_PULL, .home = home}, .session = s, .block = b};
		s->credit[b] = (struct credit){
			.item = {.kind = ITEM_CREDIT, .home = home}, .session = s, .block = b};
	}
	return 0;
}

int session_allocate(struct session *s)
{
	struct table *t = srv_table(s->srv);
	int rc;

	rc = tp_arena_create("gradslot-slots", t->slots_len, TP_ARENA_PREFAULT, &s->slot_mem);
	if (!rc)
		rc = tp_arena_create("gradslot-words", layout_credit_off(t->blocks),
				     TP_ARENA_PREFAULT, &s->words_mem);
	if (!rc)
		rc = make_lanes(s, t);
	if (!rc)
		rc = rows_create_parts(s);
	if (!rc)
		rc = tp_expose(s->conn, t->weights, TP_PEER_READ, &s->weights_region);
	if (!rc)
		rc = tp_expose(s->conn, s->slot_mem, TP_PEER_WRITE, &s->slot_region);
	if (!rc)
		rc = tp_expose(s->conn, s->words_mem, TP_LOCAL, &s->words_region);
	if (!rc && !tp_conn_limits(s->conn).load_store) {
		rc = tp_arena_create("gradslot-bounce", SESSION_BOUNCES * t->max_block_bytes, 0,
				     &s->bounce_mem);
		if (!rc)
			rc = tp_expose(s->conn, s->bounce_mem, TP_LOCAL, &s->bounce_region);
	}
	if (s->slot)
		atomic_fetch_add(&s->srv->session_memory, t->slots_len);
	if (rc)
		return rc;
	s->words = tp_arena_base(s->words_mem);
	return 0;
}

int session_attach(struct session *s, const struct wire_ref *mailbox)
{
	const struct table *t = srv_table(s->srv);
	uint64_t need = t->mailbox_len;
	struct tp_ref ref = {.addr = mailbox->addr, .len = mailbox->len, .key = mailbox->key};

	if (ref.len < need)
		return err_set(EPROTO, "the mailbox has %" PRIu64 " bytes, %" PRIu64 " are needed",
			       ref.len, need);
	ref.len = need;
	return tp_attach(s->conn, &ref, TP_PEER_WRITE, need, &s->mailbox);
}

/* ---- the end of a session ---------------------------------------------------------------------- */

void session_condemn(struct session *s, enum wire_error_code code, const char *fmt, ...)
{
	struct wire_msg msg = {.kind = WIRE_ERROR, .error = {.code = code}};
	uint8_t buf[WIRE_MSG_MAX];
	va_list ap;
	int len;

	if (atomic_exchange(&s->condemned, true))
		return;
	va_start(ap, fmt);
	vsnprintf(msg.error.text, sizeof(msg.error.text), fmt, ap);
	va_end(ap);
	if (code == WIRE_E_PROTOCOL)
		atomic_fetch_add(&s->srv->violations, 1);
	if (code == WIRE_E_SHUTDOWN)
		log_debug("%s: %s", s->who, msg.error.text);
	else
		log_warn("%s (%s): ended: %s", s->who, session_state_name(session_state(s)),
			 msg.error.text);
	len = wire_encode(&msg, buf, sizeof(buf));
	/* A trainer that leaves no room for it learns of the end from its connection. */
	if (len > 0)
		tp_send(s->conn, buf, (size_t)len);
	tp_conn_close(s->conn);
}

/* ---- slots and words --------------------------------------------------------------------------- */

void slot_set_state(struct slot *slot, enum slot_state state)
{
	/* Release: whoever fills or queues it next does so after what its user did before. */
	atomic_store_explicit(&slot->state, (uint8_t)state, memory_order_release);
}

void session_free_slot(struct slot *slot)
{
	struct session *s = slot->session;

	slot_set_state(slot, SLOT_FREE);
	session_put(s);
}

void session_queue(struct session *s, struct item *item)
{
	session_get(s);
	srv_post(s->srv, item->home, item);
}

struct session *session_of(struct item *item)
{
	static const size_t at[] = {
		[ITEM_JOIN] = offsetof(struct session, join),
		[ITEM_PASS] = offsetof(struct session, pass),
		[ITEM_LEAVE] = offsetof(struct session, leave),
		[ITEM_RELEASE] = offsetof(struct session, release),
	};

	return (struct session *)(void *)((char *)item - at[item->kind]);
}

void session_note(struct session *s, struct note *note)
{
	session_get(s);
	inbox_post(&s->srv->inbox, note);
}

void session_settled_one(struct session *s)
{
	/* Its next gradients come after the release, which comes after the pass. */
	if (atomic_fetch_sub_explicit(&s->unsettled, 1, memory_order_acq_rel) == 1) {
		atomic_store_explicit(&s->unsettled, 1, memory_order_relaxed);
		session_queue(s, &s->pass);
	}
}

static uint32_t room_generation(struct session *s)
{
	uint32_t gen;

	pthread_spin_lock(&s->park_lock);
	gen = s->room_gen;
	pthread_spin_unlock(&s->park_lock);
	return gen;
}

/* Keeps the item until there is room. If room came since `gen` was read, its news may be over:
 * then the item goes back to its actor at once. */
static void park(struct session *s, struct item *item, uint32_t gen)
{
	bool stale;

	session_get(s);
	pthread_spin_lock(&s->park_lock);
	stale = s->room_gen != gen;
	if (!stale) {
		item->next = s->parked;
		s->parked = item;
	}
	pthread_spin_unlock(&s->park_lock);
	if (stale)
		srv_post(s->srv, item->home, item);
}

void session_unpark(struct session *s)
{
	struct item *item, *next;

	pthread_spin_lock(&s->park_lock);
	s->room_gen++;
	item = s->parked;
	s->parked = NULL;
	pthread_spin_unlock(&s->park_lock);
	for (; item; item = next) {
		next = item->next;
		srv_post(s->srv, item->home, item);
	}
}

static _Atomic uint64_t *word(struct session *s, uint64_t off)
{
	return (_Atomic uint64_t *)(s->words + off);
}

void session_count(struct session *s, enum session_count which)
{
	atomic_fetch_add_explicit(&s->count[which], 1, memory_order_relaxed);
	atomic_fetch_add(&s->counted, 1);
}

void session_refuse(struct session *s, uint32_t param, int64_t key)
{
	/* First: a notice tells of all that were counted when it was made. */
	session_count(s, SESSION_REFUSED);
	if (atomic_exchange(&s->refusal_noted, true))
		return;
	s->refusal = (struct refusal){param, key};
	session_note(s, &s->refused_note);
}

uint64_t session_refused(struct session *s)
{
	return atomic_load(&s->count[SESSION_REFUSED]);
}

/* False when there is no room. */
static bool write_counts(struct session *s)
{
	for (unsigned i = 0; i < SESSION_COUNTS; i++) {
		uint64_t off = offsetof(struct layout_mailbox_head, nonfinite) + i * sizeof(uint64_t);
		struct tp_op op = {
			.kind = TP_OP_WRITE,
			.local = s->words + off,
			.region = s->words_region,
			.remote = s->mailbox,
			.offset = off,
			.len = sizeof(uint64_t),
		};

		atomic_store_explicit(word(s, off), atomic_load(&s->count[i]),
				      memory_order_relaxed);
		if (tp_post(s->conn, &op, 1) == -EAGAIN)
			return false;
	}
	return true;
}

/* What was counted is on its way before any word that tells to look. One thread at a time, so that
 * no older count is written behind a newer one; nobody goes on while another is at it. False when
 * there is no room. */
static bool tell_counts(struct session *s)
{
	bool told = true;

	if (atomic_load(&s->told) == atomic_load(&s->counted))
		return true;
	pthread_spin_lock(&s->told_lock);
	uint64_t counted = atomic_load(&s->counted);
	if (atomic_load(&s->told) != counted) {
		told = write_counts(s);
		if (told)
			atomic_store(&s->told, counted);
	}
	pthread_spin_unlock(&s->told_lock);
	return told;
}

/* Writes the 8-byte word at `off` of the mailbox. -EAGAIN when there is no room; any other failure
 * means that the connection is over, and needs no answer. */
static int write_word(struct session *s, uint64_t off, bool notify, uint32_t imm)
{
	struct tp_op op = {
		.kind = TP_OP_WRITE,
		.flags = notify ? TP_F_IMM : 0,
		.imm = imm,
		.local = s->words + off,
		.region = s->words_region,
		.remote = s->mailbox,
		.offset = off,
		.len = sizeof(uint64_t),
	};

	if (!tell_counts(s))
		return -EAGAIN;
	return tp_post(s->conn, &op, 1) == -EAGAIN ? -EAGAIN : 0;
}

static void write_credit(struct credit *c)
{
	struct session *s = c->session;
	uint32_t gen = room_generation(s);

	if (write_word(s, layout_credit_off(c->block), c->notify,
		       imm_block(IMM_APPLIED, c->block, 0, false)) == -EAGAIN) {
		/* Credits of one push may be written in another order now, so the last block's may
		 * no longer be the last that the trainer waits for: this one wakes it as well. */
		c->notify = true;
		c->parked = true;
		park(s, &c->item, gen);
	} else {
		c->notify = false;
	}
}

void session_credit(struct session *s, uint32_t block, bool notify)
{
	struct credit *c = &s->credit[block];

	atomic_fetch_add_explicit(word(s, layout_credit_off(block)), 1, memory_order_relaxed);
	c->notify |= notify;
	if (!c->parked)
		write_credit(c);
}

void session_retry_credit(struct credit *c)
{
	struct session *s = c->session;

	c->parked = false;
	write_credit(c);
	session_put(s);
}

static void write_release(struct session *s)
{
	uint32_t gen = room_generation(s);
	uint64_t step = atomic_load_explicit(word(s, 0), memory_order_relaxed);

	if (write_word(s, 0, true, imm_step(IMM_RELEASE, step)) == -EAGAIN) {
		s->release_parked = true;
		park(s, &s->release, gen);
	}
}

void session_release(struct session *s, uint64_t step)
{
	atomic_store_explicit(word(s, 0), step, memory_order_relaxed);
	if (!s->release_parked)
		write_release(s);
}

void session_retry_release(struct session *s)
{
	s->release_parked = false;
	write_release(s);
	session_put(s);
}

/* ---- pulls through the queue ------------------------------------------------------------------- */

static int take_bounce(struct session *s)
{
	uint32_t busy = atomic_load(&s->bounce_busy);

	while (busy != (1u << SESSION_BOUNCES) - 1) {
		int i = __builtin_ctz(~busy);

		if (atomic_compare_exchange_weak(&s->bounce_busy, &busy, busy | 1u << i))
			return i;
	}
	return -1;
}

void session_bounce_done(struct session *s, uint64_t bounce)
{
	atomic_fetch_and(&s->bounce_busy, ~(1u << bounce));
	session_unpark(s);
}

/* Over a network the NIC reads the source after the actor went on to the next update, so what it
 * sends is made aside first; where the mailbox is mapped, it is made in place. -EAGAIN: no room, or
 * every buffer is still being read. */
static int write_answer(struct session *s, const struct answer *a)
{
	struct tp_op op = {
		.kind = TP_OP_WRITE,
		.flags = TP_F_IMM,
		.imm = a->imm,
		.region = s->bounce_mem ? s->bounce_region : s->weights_region,
		.remote = s->mailbox,
		.offset = a->offset,
		.len = a->len,
	};
	int bounce = -1, rc;

	if (s->bounce_mem) {
		bounce = take_bounce(s);
		if (bounce < 0)
			return -EAGAIN;
		op.local = (uint8_t *)tp_arena_base(s->bounce_mem) +
			   (uint64_t)bounce * srv_table(s->srv)->max_block_bytes;
		op.flags |= TP_F_SIGNAL;
		op.cookie = (uint64_t)bounce;
	} else {
		op.local = a->source ? (void *)(uintptr_t)a->source
				     : (uint8_t *)tp_remote_map(s->mailbox) + a->offset;
	}
	if (!a->source)
		a->fill(a->arg, op.local);
	else if (bounce >= 0)
		memcpy(op.local, a->source, a->len);
	rc = tp_post(s->conn, &op, 1);
	if (rc == -EAGAIN && bounce >= 0)
		atomic_fetch_and(&s->bounce_busy, ~(1u << bounce));
	else if (rc < 0 && bounce >= 0)
		session_bounce_done(s, (uint64_t)bounce); /* no completion comes: unpark here */
	return rc == -EAGAIN ? -EAGAIN : 0;
}

void session_answer_pull(struct pull *pull, const struct answer *answer)
{
	struct session *s = pull->session;
	uint32_t gen = room_generation(s);

	if (write_answer(s, answer) == -EAGAIN)
		park(s, &pull->item, gen);
	else if (atomic_fetch_sub(&pull->wanted, 1) > 1)
		session_queue(s, &pull->item); /* asked again meanwhile */
	session_put(s);
}
