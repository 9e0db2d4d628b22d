/* SPDX-License-Identifier: Apache-2.0
 *
 * gs_start: from declarations to the first step. Its parts are those of the conversation (wire.h).
 * A failure in any of them is final: half a conversation can't be taken back.
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"

/* ---- declare and grant ----------------------------------------------------------------------- */

static int send_declares(gs_trainer *t)
{
	struct wire_msg msg;

	for (uint32_t i = 0; i < t->n_params; i += WIRE_PARAMS_MAX) {
		uint32_t left = t->n_params - i;

		memset(&msg, 0, sizeof(msg));
		msg.kind = WIRE_DECLARE;
		msg.declare.last = left <= WIRE_PARAMS_MAX;
		msg.declare.n = left < WIRE_PARAMS_MAX ? left : WIRE_PARAMS_MAX;
		for (uint32_t k = 0; k < msg.declare.n; k++)
			msg.declare.param[k] = t->param[i + k]->wire;
		int rc = talk_send(t, &msg);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static struct grant_need need_of(const gs_param *p)
{
	uint64_t tensor = p->elems * p->weight_size;

	if (param_is_table(p))
		return rows_need(p);
	return (struct grant_need){
	    .row = 1,
	    .elems = p->elems,
	    .weights = tensor,
	    .slot = p->elems * p->grad_size,
	    .landing = tensor,
	};
}

static int check_grant(gs_trainer *t)
{
	struct grant_need *need = malloc(t->n_params * sizeof(*need));

	if (!need)
		return err_set(ENOMEM, "no memory for %u parameters", t->n_params);
	for (uint32_t i = 0; i < t->n_params; i++)
		need[i] = need_of(t->param[i]);
	int rc = grant_check(&t->link.grant, need, t->n_params);
	t->link.mailbox_len = rc < 0 ? 0 : grant_mailbox_len(&t->link.grant, need, t->n_params);
	free(need);
	return rc == -EPROTO ? trainer_breach(t) : rc;
}

static int agree(gs_trainer *t)
{
	t->link.grant.place = calloc(t->n_params, sizeof(*t->link.grant.place));
	if (!t->link.grant.place)
		return err_set(ENOMEM, "no memory for %u parameters", t->n_params);
	t->expect = WIRE_GRANT;
	int rc = send_declares(t);
	if (rc == 0)
		rc = talk_wait(t, t->timeout_ms);
	return rc < 0 ? rc : check_grant(t);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t slot_bytes(const gs_param *p)
{
	return param_is_table(p) ? rows_need(p).slot : p->elems * p->grad_size;
}

static int adopt_packs(gs_trainer *t)
{
	const struct grant *g = &t->link.grant;

	for (uint32_t i = 0; i < g->n; i++)
		if (g->place[i].pack > t->link.packs)
			t->link.packs = g->place[i].pack;
	t->link.pack = calloc(t->link.packs + 1, sizeof(t->link.pack[0]));
	if (!t->link.pack)
		return err_set(ENOMEM, "no memory for %u packs", t->link.packs);
	for (uint32_t i = 0; i < g->n; i++) {
		if (!g->place[i].pack)
			continue;
		struct pack *k = &t->link.pack[g->place[i].pack - 1];
		if (k->n++ == 0)
			k->first = i;
		k->sums |= t->param[i]->accumulate > 1;
		k->bytes = g->place[i].slots_off - g->place[k->first].slots_off +
			   slot_bytes(t->param[i]);
	}
	return 0;
}

static int adopt_grant(gs_trainer *t)
{
	t->link.slots = t->link.grant.slots;
	t->link.owner = calloc(t->link.grant.blocks, sizeof(t->link.owner[0]));
	t->link.pull_asked = calloc(t->link.grant.blocks, sizeof(t->link.pull_asked[0]));
	t->link.kept = calloc(t->link.grant.blocks, sizeof(t->link.kept[0]));
	t->link.base = calloc(t->link.grant.blocks, sizeof(t->link.base[0]));
	t->link.skip = calloc(t->link.grant.blocks, sizeof(t->link.skip[0]));
	if (!t->link.owner || !t->link.pull_asked || !t->link.kept || !t->link.base ||
	    !t->link.skip)
		return err_set(ENOMEM, "no memory for %u blocks", t->link.grant.blocks);
	for (uint32_t i = 0; i < t->n_params; i++) {
		const struct wire_place *place = &t->link.grant.place[i];
		gs_param *p = t->param[i];

		p->block_elems = place->block_elems;
		p->first_block = place->first_block;
		p->blocks = place->blocks;
		p->weights_off = place->weights_off;
		p->slots_off = place->slots_off;
		p->slots_stride = place->slots_stride;
		p->heads_off = place->heads_off;
		p->heads_stride = place->heads_stride;
		p->pack = place->pack;
		p->landing_off = place->landing_off;
		p->request_off = place->request_off;
		for (uint32_t b = 0; b < p->blocks; b++)
			t->link.owner[p->first_block + b] = p;
	}
	t->link.blocks = t->link.grant.blocks;
	return adopt_packs(t);
}

static struct tp_ref as_meant(const struct wire_ref *told)
{
	struct tp_ref ref = {told->addr, told->len, told->key, .more = told->more};

	_Static_assert(sizeof(ref.more_key) == sizeof(told->more_key), "as many rails");
	memcpy(ref.more_key, told->more_key, sizeof(ref.more_key));
	return ref;
}

static int attach_remotes(gs_trainer *t)
{
	struct tp_ref weights = as_meant(&t->link.grant.weights);
	struct tp_ref slots = as_meant(&t->link.grant.slot_mem);
	int rc = tp_attach(t->link.conn, &weights, TP_PEER_READ, weights.len, &t->link.weights);

	if (rc < 0)
		return err_wrap(rc, "the server's weights");
	t->link.weights_map = tp_remote_map(t->link.weights);
	rc = tp_attach(t->link.conn, &slots, TP_PEER_WRITE, slots.len, &t->link.slot_mem);
	return rc < 0 ? err_wrap(rc, "the server's gradient slots") : 0;
}

/* Credits are written at any time: their pages are touched now. The landing area is as long as the
 * weights, and over shm only ordered pulls need it: page by page, as they land. (A server that maps it
 * takes no reserved huge pages from a trainer, which could run out under it.) */
static int make_mailbox(gs_trainer *t)
{
	uint64_t len = t->link.mailbox_len;
	unsigned pages = t->load_store ? TP_ARENA_SMALL_PAGES : 0;
	int rc = tp_arena_create("gradslot mailbox", len, pages, &t->link.mailbox);

	if (rc == 0) {
		t->link.mail = tp_arena_base(t->link.mailbox);
		memset(tp_arena_base(t->link.mailbox), 0, layout_landing_start(t->link.blocks));
		rc = tp_expose(t->link.conn, t->link.mailbox, TP_PEER_WRITE,
			       &t->link.mailbox_region);
	}
	return rc < 0 ? err_wrap(rc, "%llu bytes for credits and weights", (unsigned long long)len)
		      : 0;
}

/* READs land with a key of their own: the server's WRITEs into the mailbox are polled, READs are waited
 * for. The mailbox is locked twice by that; where so much may not be locked, its strict key does. */
static int expose_landing(gs_trainer *t)
{
	int rc = tp_expose(t->link.conn, t->link.mailbox, TP_LOCAL | TP_COMPLETION_ORDERED,
			   &t->link.landing_region);

	if (rc != -ENOMEM)
		return rc;
	log_info("pulls do without relaxed ordering: %s", err_text());
	t->link.landing_region = t->link.mailbox_region;
	return 0;
}

static void place_mapped_rings(gs_trainer *t, uint8_t *slots)
{
	for (uint32_t i = 0; i < t->n_params; i++) {
		gs_param *p = t->param[i];

		p->out.ring = slots + p->slots_off;
		p->out.stride = p->slots_stride;
		p->out.heads = slots + p->heads_off;
		p->out.heads_stride = p->heads_stride;
		if (param_is_table(p))
			p->request = (struct layout_request_head *)(void *)(slots + p->request_off);
	}
}

/* Two version words for each block. */
static uint64_t scratch_bytes(const gs_trainer *t)
{
	return layout_align(16 * (uint64_t)t->link.blocks, LAYOUT_PAGE);
}

/* From the first of a pack on; or of one by itself: its heads and slots, and where those of p lie. */
static uint64_t ring_bytes(const gs_trainer *t, const gs_param *p)
{
	if (param_head_leads(p))
		return t->link.slots * p->out.stride;
	return t->link.slots * (p->out.heads_stride + p->out.stride) + rows_local_bytes(p);
}

static bool begins_ring(const gs_trainer *t, const gs_param *p)
{
	return !p->pack || t->link.pack[p->pack - 1].first == p->index;
}

/* As in the server's region: a pack's slots lie together. */
static void place_local_ring(gs_trainer *t, gs_param *p, uint8_t *at)
{
	const gs_param *first = p->pack ? t->param[t->link.pack[p->pack - 1].first] : p;

	p->out.heads = at + (p->heads_off - first->heads_off);
	if (param_head_leads(p))
		p->out.ring = at + sizeof(struct layout_push_head);
	else
		p->out.ring = at + t->link.slots * p->out.heads_stride +
			      (p->slots_off - first->slots_off);
	if (param_is_table(p))
		rows_place_local(p, p->out.ring + t->link.slots * p->out.stride);
}

/* Over a network gradients leave from memory that mirrors the slots. It is in use from the first
 * step to the last, so its pages are touched now. */
static int make_local_rings(gs_trainer *t)
{
	uint64_t len = scratch_bytes(t);

	for (uint32_t i = 0; i < t->n_params; i++) {
		gs_param *p = t->param[i];

		p->out.heads_stride = p->heads_stride;
		p->out.stride = p->pack ? p->slots_stride : layout_align(slot_bytes(p), LAYOUT_ALIGN);
		if (param_head_leads(p)) {
			p->out.stride += sizeof(struct layout_push_head);
			p->out.heads_stride = p->out.stride;
		}
		len += begins_ring(t, p) ? ring_bytes(t, p) : 0;
	}
	int rc = tp_arena_create("gradslot gradients", len, TP_ARENA_PREFAULT, &t->link.local);
	if (rc == 0)
		rc = tp_expose(t->link.conn, t->link.local, TP_LOCAL | TP_COMPLETION_ORDERED,
			       &t->link.local_region);
	if (rc < 0)
		return err_wrap(rc, "%llu bytes for gradients", (unsigned long long)len);
	rc = expose_landing(t);
	if (rc < 0)
		return rc;
	uint8_t *next = tp_arena_base(t->link.local), *at = next;
	next += scratch_bytes(t);
	for (uint32_t i = 0; i < t->n_params; i++) {
		if (begins_ring(t, t->param[i])) {
			at = next;
			next += ring_bytes(t, t->param[i]);
		}
		place_local_ring(t, t->param[i], at);
	}
	return 0;
}

static int make_sums(gs_trainer *t)
{
	for (uint32_t i = 0; i < t->n_params; i++) {
		gs_param *p = t->param[i];

		if (p->accumulate == 1 || p->sum)
			continue;
		p->sum = aligned_alloc(LAYOUT_ALIGN, layout_align(4 * p->elems, LAYOUT_ALIGN));
		p->addend = aligned_alloc(LAYOUT_ALIGN,
					  layout_align(p->grad_size * p->elems, LAYOUT_ALIGN));
		if (!p->sum || !p->addend)
			return err_set(ENOMEM, "no memory to accumulate %llu gradients in",
				       (unsigned long long)p->elems);
	}
	return 0;
}

static int make_memory(gs_trainer *t)
{
	int rc = adopt_grant(t);

	if (rc == 0)
		rc = attach_remotes(t);
	if (rc == 0)
		rc = make_mailbox(t);
	if (rc == 0)
		rc = make_sums(t);
	if (rc < 0)
		return rc;
	uint8_t *slots = tp_remote_map(t->link.slot_mem);
	if (!slots)
		return make_local_rings(t);
	place_mapped_rings(t, slots);
	return 0;
}

static int get_ready(gs_trainer *t)
{
	struct tp_ref ref = tp_region_ref(t->link.mailbox_region);
	struct wire_msg msg = {
	    .kind = WIRE_ATTACH,
	    .attach = {.mailbox = {ref.addr, ref.len, ref.key, .more = ref.more}}};

	memcpy(msg.attach.mailbox.more_key, ref.more_key, sizeof(ref.more_key));
	t->expect = WIRE_READY;
	int rc = talk_send(t, &msg);
	if (rc < 0)
		return rc;
	/* It, and START behind it, may have come while the message waited for room. */
	rc = t->expect == WIRE_READY ? talk_wait(t, t->timeout_ms) : 0;
	if (rc == 0 && kept_read(t) < 0)
		rc = trainer_breach(t);
	return rc;
}

/* ---- initial weights ------------------------------------------------------------------------- */

static int send_initial(gs_trainer *t)
{
	struct wire_msg done = {.kind = WIRE_INIT_DONE};
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < t->n_params; i++) {
		gs_param *p = t->param[i];

		if (p->wire.init != WIRE_INIT_TRAINER)
			continue;
		if (!p->init_data)
			return err_set(
			    EINVAL,
			    "the server has lost all weights and asks for those that \"%s\" "
			    "began with, which are no longer here: begin anew, or start it "
			    "from a checkpoint",
			    p->wire.name);
		pthread_mutex_unlock(&t->lock);
		rc = push_initial(p);
		pthread_mutex_lock(&t->lock);
	}
	if (rc == 0)
		rc = trainer_wait(t, push_all_credited, NULL, t->timeout_ms,
				  "the server to take the initial weights");
	return rc < 0 ? rc : talk_send(t, &done);
}

static int wait_for_start(gs_trainer *t)
{
	int rc = talk_wait(t, t->start_timeout_ms);

	if (rc != -ETIMEDOUT)
		return rc;
	if (t->welcome.mode != WIRE_ASYNC)
		return err_set(ETIMEDOUT,
			       "waited %u ms for the start: for all %u trainers to come, and for "
			       "initial weights",
			       t->start_timeout_ms, t->welcome.trainers);
	return err_set(ETIMEDOUT, "waited %u ms for the start: for initial weights",
		       t->start_timeout_ms);
}

int start_talk(gs_trainer *t)
{
	t->patience_ms = t->timeout_ms;
	int rc = agree(t);

	if (rc == 0)
		rc = make_memory(t);
	if (rc == 0)
		rc = get_ready(t);
	if (rc == 0 && t->init_asked)
		rc = send_initial(t);
	if (rc == 0)
		rc = wait_for_start(t);
	t->patience_ms = 0;
	if (rc == 0 && kept_place(t) < 0)
		rc = trainer_breach(t);
	return rc < 0 ? trainer_lost(t, rc) : 0;
}

void start_working(gs_trainer *t)
{
	t->phase = PHASE_WORK;
	t->worked = true;
	t->server = t->welcome.server;
}

int gs_start(gs_trainer *t)
{
	int rc = trainer_enter(t);

	if (rc < 0)
		return rc;
	if (t->phase != PHASE_OPEN)
		rc = err_set(EBUSY, "gs_start was called already");
	else if (t->n_params == 0)
		rc = err_set(EINVAL, "no parameters: call gs_declare first");
	if (rc == 0) {
		t->phase = PHASE_STARTING;
		rc = start_talk(t);
	}
	if (rc == 0) {
		kept_adopt(t);
		start_working(t);
	}
	for (uint32_t i = 0; i < t->n_params && t->phase != PHASE_OPEN; i++)
		t->param[i]->init_data = NULL;
	trainer_exit(t);
	return rc;
}
