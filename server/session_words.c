/* SPDX-License-Identifier: Apache-2.0
 *
 * What the server writes to a trainer: counts, credits, releases, answers to pulls. What finds no
 * room on the connection is parked, and goes back to its actor when there is some.
 */
#include "server/session.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "proto/imm.h"
#include "server/internal.h"

/* ---- room ------------------------------------------------------------------------------------ */

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

/* ---- counts and words ------------------------------------------------------------------------ */

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
		uint64_t off =
		    offsetof(struct layout_mailbox_head, nonfinite) + i * sizeof(uint64_t);
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
	uint64_t counted;
	bool told = true;

	if (atomic_load(&s->told) == atomic_load(&s->counted))
		return true;
	pthread_spin_lock(&s->told_lock);
	counted = atomic_load(&s->counted);
	if (atomic_load(&s->told) != counted) {
		told = write_counts(s);
		if (told)
			atomic_store(&s->told, counted);
	}
	pthread_spin_unlock(&s->told_lock);
	return told;
}

/* Writes n 8-byte words from `off` of the mailbox on. -EAGAIN when there is no room; any other failure
 * means that the connection is over, and needs no answer. */
static int write_words(struct session *s, uint64_t off, uint32_t n, bool notify, uint32_t imm)
{
	struct tp_op op = {
	    .kind = TP_OP_WRITE,
	    .flags = notify ? TP_F_IMM : 0,
	    .imm = imm,
	    .local = s->words + off,
	    .region = s->words_region,
	    .remote = s->mailbox,
	    .offset = off,
	    .len = n * sizeof(uint64_t),
	};

	if (!tell_counts(s))
		return -EAGAIN;
	return tp_post(s->conn, &op, 1) == -EAGAIN ? -EAGAIN : 0;
}

static void park_credit(struct credit *c, uint32_t gen)
{
	/* Credits of one push may be written in another order now, so the last block's may no longer
	 * be the last that the trainer waits for: this one wakes it as well. */
	c->notify = true;
	c->parked = true;
	park(c->session, &c->item, gen);
}

/* The blocks whose credits go along: those of its pack, or it alone. */
static void credit_span(const struct credit *c, uint32_t *first, uint32_t *n)
{
	const struct table *t = c->session->table;
	uint32_t pack = c->wide ? t->block[c->block].param->place.pack : 0;

	*first = pack ? t->pack[pack - 1].block : c->block;
	*n = pack ? t->pack[pack - 1].n : 1;
}

static void write_credit(struct credit *c)
{
	struct session *s = c->session;
	uint32_t gen = room_generation(s), first, n;

	credit_span(c, &first, &n);
	if (write_words(s, layout_credit_off(first), n, c->notify,
			imm_block(IMM_APPLIED, c->block, 0, false)) == -EAGAIN)
		park_credit(c, gen);
	else
		c->notify = c->wide = false;
}

/* `notify` is the last one's. */
static void write_credits(struct session *s, uint32_t first, uint32_t n, bool notify)
{
	uint32_t gen = room_generation(s), last = first + n - 1;

	if (write_words(s, layout_credit_off(first), n, notify,
			imm_block(IMM_APPLIED, last, 0, false)) != -EAGAIN)
		return;
	for (uint32_t i = 0; i < n; i++)
		park_credit(&s->credit[first + i], gen);
}

void session_end_credits(struct credit_run *run)
{
	struct session *s = run->session;

	if (!s)
		return;
	run->session = NULL;
	write_credits(s, run->first, run->n, false);
	session_put(s);
}

void session_credit(struct session *s, uint32_t block, bool notify, struct credit_run *run,
		    uint32_t longest)
{
	struct credit *c = &s->credit[block];

	atomic_store_explicit(word(s, layout_credit_off(block)),
			      atomic_load_explicit(word(s, layout_credit_off(block)),
						   memory_order_relaxed) + 1,
			      memory_order_relaxed);
	if (run->session && (run->session != s || block != run->first + run->n))
		session_end_credits(run);
	/* Since before, or by the end of that run, which this block may have been in. */
	if (c->parked) {
		c->notify |= notify;
		return;
	}
	if (!run->session) {
		session_get(s);
		*run = (struct credit_run){.session = s, .first = block};
	}
	run->n++;
	if (notify) {
		/* It is waited for. */
		run->session = NULL;
		write_credits(s, run->first, run->n, true);
		session_put(s);
	} else if (run->n >= longest) {
		session_end_credits(run);
	}
}

/* Over shm a word is its actor's alone to write, and costs a store: so each is written, before it is
 * counted. Whoever completes the pack's count tells of all; that some of another push may be among them
 * matters not, since the last one of all that is under way completes it again. */
void session_credit_packed(struct session *s, uint32_t block)
{
	const struct table *t = s->table;
	uint32_t pack = t->block[block].param->place.pack - 1;
	struct credit *c = &s->credit[block];
	bool mapped = tp_remote_map(s->mailbox);

	atomic_fetch_add_explicit(word(s, layout_credit_off(block)), 1, memory_order_relaxed);
	if (mapped && !c->parked)
		write_credit(c);
	/* Release: the words before the count; acquire: and the one who completes it sees them. */
	if ((atomic_fetch_add_explicit(&s->pack_done[pack], 1, memory_order_acq_rel) + 1) %
	    t->pack[pack].n)
		return;
	c->notify = true;
	c->wide = !mapped;
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

	if (write_words(s, 0, 1, true, imm_step(IMM_RELEASE, step)) == -EAGAIN) {
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

/* ---- what was kept, and keepalive -------------------------------------------------------------- */

/* Pushes are numbered alike for all blocks of a parameter, from the least that any has. */
static void seed_param(struct session *s, const struct param *p, bool counted)
{
	const struct table *t = srv_table(s->srv);
	const struct ledger *l = &s->srv->ledger;
	uint32_t first = p->place.first_block, end = first + p->place.blocks;
	uint64_t least = UINT64_MAX;

	for (uint32_t b = first; b < end; b++) {
		uint64_t kept = ledger_look(l, s->rank, b);

		least = kept < least ? kept : least;
		s->last_step[b] = kept; /* elsewhere than in sync mode nobody looks */
		if (p->joint && kept > s->lane[p->joint->id].singles_step)
			s->lane[p->joint->id].singles_step = kept;
		atomic_store_explicit(word(s, layout_kept_off(t->blocks, b)), kept,
				      memory_order_relaxed);
	}
	for (uint32_t b = first; counted && b < end; b++) {
		s->pushes[b] = session_kept(s, b) - least;
		atomic_store_explicit(word(s, layout_credit_off(b)), s->pushes[b],
				      memory_order_relaxed);
	}
}

void session_seed_words(struct session *s)
{
	const struct table *t = srv_table(s->srv);
	bool counted = s->srv->opt.mode != SRV_SYNC;

	for (uint32_t i = 0; i < t->params; i++)
		seed_param(s, &t->param[i], counted && t->param[i].decl.storage == WIRE_DENSE);
}

uint64_t session_kept(const struct session *s, uint32_t block)
{
	const uint8_t *at = s->words + layout_kept_off(srv_table(s->srv)->blocks, block);

	return atomic_load_explicit((const _Atomic uint64_t *)(const void *)at,
				    memory_order_relaxed);
}

bool session_post_beat(struct session *s)
{
	const uint64_t off = offsetof(struct layout_mailbox_head, beat);
	struct tp_op op = {
	    .kind = TP_OP_WRITE,
	    .flags = TP_F_SIGNAL,
	    .cookie = SESSION_BEAT,
	    .local = s->words + off,
	    .region = s->words_region,
	    .remote = s->mailbox,
	    .offset = off,
	    .len = sizeof(uint64_t),
	};

	atomic_store(&s->beating, true);
	if (tp_post(s->conn, &op, 1) == 1)
		return true;
	atomic_store(&s->beating, false);
	return false;
}

bool session_beat_ended(const struct session *s)
{
	return !atomic_load(&s->beating);
}

/* ---- pulls through the queue ----------------------------------------------------------------- */

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
