/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer's session: its memory, its references, its end.
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
#include "proto/layout.h"
#include "server/access.h"
#include "server/internal.h"
#include "server/dialog.h"
#include "server/options.h"
#include "server/rows.h"

static void init_note(struct session *s, struct note *note, enum note_kind kind)
{
	note->kind = kind;
	note->session = s;
}

struct session *session_create(struct srv *srv, struct poller *poller)
{
	struct actor *home = srv->opt.mode == SRV_SSP ? &srv->pace.actor : &srv->round.actor;
	struct session *s = line_alloc(1, sizeof(*s));

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
	init_note(s, &s->lost_note, NOTE_LOST);
	atomic_init(&s->unsettled, 1);
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
	dialog_drop(s);
	access_forget(s);
	free(s->declared);
	free(s->slot);
	free(s->pull);
	free(s->pushes);
	free(s->last_step);
	free(s->pack_done);
	free(s->delivery);
	free(s->lane);
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
		[SESSION_PROVING] = "proving its key",
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

void session_reap(struct session *s)
{
	inbox_post(&s->srv->inbox, &s->reap_note);
}

/* ---- memory ------------------------------------------------------------------------------------ */

/* Where a block's gradient lies in a slot; of a table, only the first block has slots. */
static uint64_t slot_offset(const struct block *b)
{
	return is_table(b->param) ? 0 : b->first * kern_size(param_grad_type(b->param));
}

static void make_deliveries(struct session *s, const struct table *t)
{
	const uint8_t *base = tp_arena_base(s->slot_mem);

	for (uint32_t k = 0; k < t->packs; k++) {
		const struct wire_place *place = &t->pack[k].first->place;

		for (uint32_t i = 0; i < t->slots; i++)
			s->delivery[(size_t)k * t->slots + i] = (struct delivery){
				.item = {.home = &t->pack[k].actor, .kind = ITEM_PACK},
				.session = s,
				.data = base + place->slots_off + i * place->slots_stride,
				.head = (const struct layout_push_head *)(const void *)(
					base + place->heads_off + i * place->heads_stride),
				.pack = k,
			};
	}
}

static int make_lanes(struct session *s, const struct table *t)
{
	size_t slots = (size_t)t->blocks * t->slots;
	uint8_t *base = tp_arena_base(s->slot_mem);

	s->slot = aligned_alloc(_Alignof(struct slot), slots * sizeof(*s->slot));
	s->last_step = line_alloc(t->blocks, sizeof(*s->last_step));
	s->pack_done = line_alloc(t->packs, sizeof(*s->pack_done));
	s->delivery = line_alloc((size_t)t->packs * t->slots, sizeof(*s->delivery));
	s->lane = line_alloc(t->packs, sizeof(*s->lane));
	s->pull = line_alloc(t->blocks, sizeof(*s->pull));
	s->credit = line_alloc(t->blocks, sizeof(*s->credit));
	s->pushes = line_alloc(t->blocks, sizeof(*s->pushes));
	if (t->backups_len)
		s->backup = aligned_alloc(LAYOUT_ALIGN, t->backups_len);
	if (!s->slot || !s->pull || !s->credit || !s->pushes || !s->last_step || !s->pack_done ||
	    !s->delivery || !s->lane || (t->backups_len && !s->backup))
		return err_set(ENOMEM, "no memory to keep %u slots of %u blocks", t->slots,
			       t->blocks);
	if (s->backup)
		memset(s->backup, 0, t->backups_len); /* whoever never pulls learns nothing */
	make_deliveries(s, t);
	for (uint32_t b = 0; b < t->blocks; b++) {
		const struct pack *joint = t->block[b].param->joint;
		const struct block *block = &t->block[b];
		const struct wire_place *place = &block->param->place;
		struct actor *home = block->param->home;

		for (uint32_t i = 0; i < t->slots; i++)
			s->slot[(size_t)b * t->slots + i] = (struct slot){
				.item = {.home = home},
				.session = s,
				.block = b,
				.data = base + place->slots_off + i * place->slots_stride +
					slot_offset(block),
				.head = (const struct layout_push_head *)(const void *)(
					base + place->heads_off + i * place->heads_stride),
				.singles = joint ? &s->lane[joint->id].singles : NULL,
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

	s->table = t;
	s->max_chunk = tp_conn_limits(s->conn).max_chunk;
	rc = tp_arena_create("gradslot-slots", t->slots_len,
			     options_arena_flags(&s->srv->opt), &s->slot_mem);
	if (!rc)
		rc = tp_arena_create("gradslot-words",
				     layout_kept_off(t->blocks, t->blocks),
				     TP_ARENA_PREFAULT, &s->words_mem);
	if (!rc)
		rc = make_lanes(s, t);
	if (!rc)
		rc = rows_create_parts(s);
	if (!rc)
		rc = tp_expose(s->conn, t->weights, TP_PEER_READ, &s->weights_region);
	if (!rc)
		rc = tp_expose(s->conn, s->slot_mem, TP_PEER_WRITE | TP_COMPLETION_ORDERED,
			       &s->slot_region);
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
	struct tp_ref ref = {.addr = mailbox->addr, .len = mailbox->len, .key = mailbox->key,
			     .more = mailbox->more};

	_Static_assert(sizeof(ref.more_key) == sizeof(mailbox->more_key), "as many rails");
	memcpy(ref.more_key, mailbox->more_key, sizeof(ref.more_key));
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

/* ---- slots and items --------------------------------------------------------------------------- */

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
		[ITEM_LOSE] = offsetof(struct session, leave),
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
