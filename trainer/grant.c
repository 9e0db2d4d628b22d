/* SPDX-License-Identifier: Apache-2.0
 *
 * The check of a grant. Every number is bounded by REGION_MAX or 2^40 before it is added to or
 * multiplied with another, so that nothing here can wrap.
 */
#include "trainer/grant.h"

#include <errno.h>
#include <inttypes.h>

#include "base/err.h"
#include "proto/imm.h"
#include "proto/layout.h"

/* Far more than any machine has, and 8 slots of it still fit in 64 bits. */
#define REGION_MAX (UINT64_C(1) << 56)

/* Where the next parameter may begin: in block numbers, in the weights, in the slots, in the
 * mailbox; packs so far, and the one that is being gone through: how many of its members are to come,
 * and where the slots of the next one begin. */
struct cursor {
	uint64_t block, weights, slots, landing;
	uint32_t packs, pack_left;
	uint64_t pack_heads, pack_slots;
};

static int check_region(const char *name, const struct wire_ref *ref)
{
	if (ref->len < 1 || ref->len > REGION_MAX)
		return err_set(EPROTO, "%s: a region of %" PRIu64 " bytes; must be 1 to 2^56", name,
			       ref->len);
	if (ref->addr > UINT64_MAX - ref->len)
		return err_set(EPROTO, "%s: address 0x%" PRIx64 " + %" PRIu64 " bytes wraps around",
			       name, ref->addr, ref->len);
	return 0;
}

static int check_blocks(const struct wire_place *p, uint64_t row, const struct grant *g,
			struct cursor *at)
{
	if (p->block_elems < 1 || p->block_elems > p->elems)
		return err_set(EPROTO, "block_elems: %" PRIu64 "; must be 1 to %" PRIu64,
			       p->block_elems, p->elems);
	if (p->block_elems % row)
		return err_set(EPROTO, "block_elems: %" PRIu64 "; must be whole rows of %" PRIu64,
			       p->block_elems, row);
	uint64_t blocks = (p->elems - 1) / p->block_elems + 1;
	if (p->blocks != blocks)
		return err_set(EPROTO,
			       "blocks: %u; %" PRIu64 " elements in blocks of %" PRIu64
			       " make %" PRIu64,
			       p->blocks, p->elems, p->block_elems, blocks);
	if (p->first_block != at->block)
		return err_set(EPROTO, "first_block: %u; must be %" PRIu64, p->first_block,
			       at->block);
	at->block += blocks;
	if (at->block > g->blocks)
		return err_set(EPROTO, "blocks: up to %" PRIu64 "; the grant has %u in all",
			       at->block, g->blocks);
	return 0;
}

/* A span behind what is before it. */
static int check_span(const char *name, uint64_t off, uint64_t bytes, uint64_t region,
		      uint64_t *end)
{
	if (off % LAYOUT_ALIGN)
		return err_set(EPROTO, "%s: %" PRIu64 "; must be a multiple of %u", name, off,
			       LAYOUT_ALIGN);
	if (off < *end)
		return err_set(EPROTO, "%s: %" PRIu64 "; what is before it ends at %" PRIu64, name,
			       off, *end);
	if (off > region || bytes > region - off)
		return err_set(EPROTO,
			       "%s: %" PRIu64 " + %" PRIu64 " bytes; the region has %" PRIu64, name,
			       off, bytes, region);
	*end = off + bytes;
	return 0;
}

/* Each behind its head. */
static int check_led_slots(const struct wire_place *p, const struct grant_need *need,
			   const struct grant *g, struct cursor *at)
{
	const uint64_t head = sizeof(struct layout_push_head);

	if (p->slots_stride < head + need->slot || p->slots_stride > REGION_MAX)
		return err_set(EPROTO,
			       "slots_stride: %" PRIu64 "; must be %" PRIu64
			       " at least, with the heads, and 2^56 at most",
			       p->slots_stride, head + need->slot);
	return check_span("heads_off", p->heads_off,
			  (g->slots - 1) * p->slots_stride + head + need->slot, g->slot_mem.len,
			  &at->slots);
}

/* By itself. */
static int check_slots(const struct wire_place *p, const struct grant_need *need,
		       const struct grant *g, struct cursor *at)
{
	uint64_t region = g->slot_mem.len;

	if (!need->request && p->slots_stride % LAYOUT_ALIGN == 0 &&
	    layout_heads_lead(p->heads_off, p->heads_stride, p->slots_off, p->slots_stride))
		return check_led_slots(p, need, g, at);
	if (p->heads_stride != sizeof(struct layout_push_head))
		return err_set(EPROTO, "heads_stride: %" PRIu64 "; must be %zu", p->heads_stride,
			       sizeof(struct layout_push_head));
	if (p->slots_stride % LAYOUT_ALIGN)
		return err_set(EPROTO, "slots_stride: %" PRIu64 "; must be a multiple of %u",
			       p->slots_stride, LAYOUT_ALIGN);
	if (p->slots_stride < need->slot || p->slots_stride > REGION_MAX)
		return err_set(EPROTO,
			       "slots_stride: %" PRIu64 "; must be %" PRIu64
			       " at least, and 2^56 at most",
			       p->slots_stride, need->slot);
	int rc = check_span("heads_off", p->heads_off, g->slots * sizeof(struct layout_push_head),
			    region, &at->slots);
	if (rc == 0 && need->request)
		rc = check_span("request_off", p->request_off, need->request, region, &at->slots);
	if (rc == 0)
		rc = check_span("slots_off", p->slots_off,
				(g->slots - 1) * p->slots_stride + need->slot, region, &at->slots);
	return rc;
}

static int check_number(const char *name, uint64_t is, uint64_t must)
{
	if (is == must)
		return 0;
	return err_set(EPROTO, "%s: %" PRIu64 "; must be %" PRIu64 " in its pack", name, is, must);
}

/* The first of a pack, with those that follow: together they are what its strides say. */
static int begin_pack(const struct grant *g, uint32_t i, const struct grant_need *need, uint32_t n,
		      struct cursor *at)
{
	const struct wire_place *p = &g->place[i];
	uint64_t stride = 0, last = 0;
	uint32_t members = 0;

	if (p->pack != at->packs + 1)
		return err_set(EPROTO, "pack: %u; the next is %u", p->pack, at->packs + 1);
	for (; i + members < n && g->place[i + members].pack == p->pack; members++) {
		last = stride;
		stride += layout_align(need[i + members].slot, LAYOUT_ALIGN);
		if (stride > g->slot_mem.len)
			return err_set(EPROTO, "pack: %u; a slot of it is %" PRIu64
				       " bytes and more; the region has %" PRIu64, p->pack, stride,
				       g->slot_mem.len);
	}
	if (members < 2)
		return err_set(EPROTO, "pack: %u; it has one parameter", p->pack);
	uint64_t heads = members * sizeof(struct layout_push_head);
	int rc = check_number("slots_stride", p->slots_stride, stride);
	if (rc == 0)
		rc = check_number("heads_stride", p->heads_stride, heads);
	if (rc == 0)
		rc = check_span("heads_off", p->heads_off, g->slots * heads, g->slot_mem.len,
				&at->slots);
	if (rc == 0)
		rc = check_span("slots_off", p->slots_off,
				(g->slots - 1) * stride + last + need[i + members - 1].slot,
				g->slot_mem.len, &at->slots);
	at->packs++;
	at->pack_left = members;
	at->pack_heads = p->heads_off;
	at->pack_slots = p->slots_off;
	return rc;
}

/* Each lies behind the one before it. */
static int check_member(const struct wire_place *p, const struct wire_place *before,
			const struct grant_need *need, struct cursor *at)
{
	int rc;

	if (p->blocks != 1 || need->request)
		return err_set(EPROTO, "pack: %u, of %s; it takes tensors of one block", p->pack,
			       need->request ? "a table" : "several blocks");
	rc = check_number("heads_off", p->heads_off, at->pack_heads);
	if (rc == 0)
		rc = check_number("slots_off", p->slots_off, at->pack_slots);
	if (rc == 0 && before)
		rc = check_number("heads_stride", p->heads_stride, before->heads_stride);
	if (rc == 0 && before)
		rc = check_number("slots_stride", p->slots_stride, before->slots_stride);
	at->pack_heads += sizeof(struct layout_push_head);
	at->pack_slots += layout_align(need->slot, LAYOUT_ALIGN);
	at->pack_left--;
	return rc;
}

static int check_packed(const struct grant *g, uint32_t i, const struct grant_need *need, uint32_t n,
			struct cursor *at)
{
	bool first = at->pack_left == 0;
	int rc = first ? begin_pack(g, i, need, n, at) : 0;

	return rc < 0 ? rc
		      : check_member(&g->place[i], first ? NULL : &g->place[i - 1], &need[i], at);
}

static int check_place(const struct grant *g, uint32_t i, const struct grant_need *needs, uint32_t n,
		       struct cursor *at)
{
	const struct wire_place *p = &g->place[i];
	const struct grant_need *need = &needs[i];

	if (p->elems != need->elems)
		return err_set(EPROTO, "elems: %" PRIu64 "; %" PRIu64 " were declared", p->elems,
			       need->elems);
	int rc = check_blocks(p, need->row, g, at);
	if (rc == 0)
		rc = check_span("weights_off", p->weights_off, need->weights, g->weights.len,
				&at->weights);
	if (rc == 0)
		rc = p->pack ? check_packed(g, i, needs, n, at) : check_slots(p, need, g, at);
	if (rc == 0)
		rc = check_span("landing_off", p->landing_off, need->landing, REGION_MAX,
				&at->landing);
	return rc;
}

int grant_check(const struct grant *g, const struct grant_need *need, uint32_t n)
{
	int rc;

	if (g->n != n)
		return err_set(EPROTO, "grant: %u places; %u parameters were declared", g->n, n);
	if (g->slots < 1 || g->slots > IMM_MAX_SLOTS)
		return err_set(EPROTO, "grant: slots: %u; must be 1 to %u", g->slots,
			       IMM_MAX_SLOTS);
	if (g->blocks < 1 || g->blocks > IMM_MAX_BLOCKS)
		return err_set(EPROTO, "grant: blocks: %u; must be 1 to %u", g->blocks,
			       IMM_MAX_BLOCKS);
	rc = check_region("weights", &g->weights);
	if (rc == 0)
		rc = check_region("slot_mem", &g->slot_mem);
	if (rc < 0)
		return err_wrap(rc, "grant");
	struct cursor at = {
	    .weights = layout_weights_start(g->blocks),
	    .slots = sizeof(struct layout_slots_head),
	    .landing = layout_landing_start(g->blocks),
	};
	for (uint32_t i = 0; i < n; i++) {
		rc = check_place(g, i, need, n, &at);
		if (rc < 0)
			return err_wrap(rc, "grant: place of parameter %u", i);
	}
	if (at.packs > IMM_MAX_BLOCKS - g->blocks)
		return err_set(EPROTO, "grant: %u packs behind %u blocks; the limit is %u in all",
			       at.packs, g->blocks, IMM_MAX_BLOCKS);
	if (at.block != g->blocks)
		return err_set(EPROTO, "grant: blocks: %u; the parameters have %" PRIu64, g->blocks,
			       at.block);
	return 0;
}

uint64_t grant_mailbox_len(const struct grant *g, const struct grant_need *need, uint32_t n)
{
	/* Landing areas lie in the order of the parameters. */
	return n ? g->place[n - 1].landing_off + layout_align(need[n - 1].landing, LAYOUT_ALIGN)
		 : layout_landing_start(g->blocks);
}
