/* SPDX-License-Identifier: Apache-2.0
 *
 * From protobuf to wire_msg. The bytes are hostile until the last check passed.
 *
 *  1. Unpacking draws on an arena on the stack and on nothing else: a message that unpacks to more
 *     than ARENA_SIZE is refused, whatever it claims to hold.
 *  2. Here lengths and counts are compared with the arrays that they go into; wire_check does all
 *     other bounds.
 *  3. `out` is written once, at the end.
 */
#include "proto/wire.h"

#include <errno.h>
#include <stdalign.h>
#include <string.h>

#include "base/err.h"
#include "proto/wire_check.h"

#include "gradslot.pb-c.h"

/* A declare of WIRE_PARAMS_MAX parameters with all settings, the longest message of ours, takes
 * some 10 KiB; tests decode it. */
#define ARENA_SIZE 32768u

struct arena {
	alignas(max_align_t) uint8_t mem[ARENA_SIZE];
	size_t used;
	bool full;
};

static void *arena_alloc(void *data, size_t size)
{
	struct arena *a = data;
	size_t room = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);

	if (room < size || room > sizeof(a->mem) - a->used) {
		a->full = true;
		return NULL;
	}
	void *p = a->mem + a->used;
	a->used += room;
	return p;
}

static void arena_free(void *data, void *p)
{
	/* All at once, when the decoder returns. */
}

static int get_name(const char *field, ProtobufCBinaryData from, char *out, size_t cap)
{
	if (from.len >= cap)
		return err_set(EPROTO, "%s: %zu bytes; the limit is %zu", field, from.len, cap - 1);
	if (from.len > 0) {
		const uint8_t *zero = memchr(from.data, 0, from.len);

		if (zero)
			return err_set(EPROTO, "%s: byte %zu of %zu is zero", field,
				       (size_t)(zero - from.data), from.len);
		memcpy(out, from.data, from.len);
	}
	out[from.len] = 0;
	return 0;
}

/* Bytes of a fixed length, or none where they may be left out: *there. */
static int get_raw(const char *field, ProtobufCBinaryData from, uint8_t *out, size_t len,
		   bool *there)
{
	if (from.len != len && (from.len > 0 || !there))
		return err_set(EPROTO, "%s: %zu bytes; must be %zu%s", field, from.len, len,
			       there ? ", or none" : "");
	if (there)
		*there = from.len > 0;
	if (from.len > 0)
		memcpy(out, from.data, len);
	return 0;
}

static int get_hello(const Gradslot__Hello *from, struct wire_hello *out)
{
	int rc = get_name("name", from->name, out->name, sizeof(out->name));

	out->version = from->version;
	out->rank = from->rank;
	if (rc == 0)
		rc = get_raw("nonce", from->nonce, out->nonce, sizeof(out->nonce),
			     &out->has_nonce);
	if (rc == 0)
		rc = get_raw("session", from->session, out->session, sizeof(out->session),
			     &out->resumes);
	return rc;
}

static int get_welcome(const Gradslot__Welcome *from, struct wire_welcome *out)
{
	out->version = from->version;
	out->rank = from->rank;
	out->trainers = from->trainers;
	out->mode = (enum wire_mode)from->mode;
	out->staleness = from->staleness;
	out->server = from->server;
	out->resumed = from->resumed;
	int rc = get_raw("session", from->session, out->session, sizeof(out->session), NULL);
	return rc < 0 ? rc : get_raw("mac", from->mac, out->mac, sizeof(out->mac), &out->has_mac);
}

static int get_saved(const Gradslot__Saved *from, struct wire_saved *out)
{
	out->step = from->step;
	out->failed = from->code != 0;
	out->code = (enum wire_error_code)from->code;
	return get_name("text", from->text, out->text, sizeof(out->text));
}

static int get_ref(const char *field, const Gradslot__Ref *from, struct wire_ref *out)
{
	if (!from)
		return err_set(EPROTO, "%s: missing", field);
	if (from->n_more_key > WIRE_RAILS_MAX - 1)
		return err_set(EPROTO, "%s.more_key: %zu keys; the limit is %u", field,
			       from->n_more_key, WIRE_RAILS_MAX - 1);
	*out = (struct wire_ref){.addr = from->addr, .len = from->len, .key = from->key};
	out->more = (uint32_t)from->n_more_key;
	if (out->more)
		memcpy(out->more_key, from->more_key, out->more * sizeof(out->more_key[0]));
	return 0;
}

static int get_param(const Gradslot__Param *from, struct wire_param *out)
{
	int rc = get_name("name", from->name, out->name, sizeof(out->name));

	if (rc == 0)
		rc = get_name("rule", from->rule, out->rule, sizeof(out->rule));
	if (rc < 0)
		return rc;
	if (from->n_dim > WIRE_DIMS_MAX)
		return err_set(EPROTO, "ndim: %zu; the limit is %u", from->n_dim, WIRE_DIMS_MAX);
	out->ndim = (uint32_t)from->n_dim;
	for (uint32_t i = 0; i < out->ndim; i++)
		out->dim[i] = from->dim[i];
	if (from->n_setting > WIRE_SETTINGS_MAX)
		return err_set(EPROTO, "settings: %zu of them; the limit is %u", from->n_setting,
			       WIRE_SETTINGS_MAX);
	out->n_settings = (uint32_t)from->n_setting;
	for (uint32_t i = 0; i < out->n_settings; i++) {
		rc = get_name("name", from->setting[i]->name, out->setting[i].name,
			      sizeof(out->setting[i].name));
		if (rc < 0)
			return err_wrap(rc, "setting[%u]", i);
		out->setting[i].value = from->setting[i]->value;
	}
	out->init = (enum wire_init)from->init;
	out->init_a = from->init_a;
	out->init_b = from->init_b;
	out->init_seed = from->init_seed;
	out->grad_type = (enum wire_dtype)from->grad_type;
	out->weight_type = (enum wire_dtype)from->weight_type;
	out->reduce = (enum wire_reduce)from->reduce;
	out->nonfinite = (enum wire_nonfinite)from->non_finite;
	out->storage = (enum wire_storage)from->storage;
	out->slot_rows = from->slot_rows;
	out->push_rows = from->push_rows;
	out->pull_rows = from->pull_rows;
	out->admit_after = from->admit_after;
	out->evict_after = from->evict_after;
	return get_name("schedule", from->schedule, out->schedule, sizeof(out->schedule));
}

static int get_declare(const Gradslot__Declare *from, struct wire_declare *out)
{
	if (from->n_param > WIRE_PARAMS_MAX)
		return err_set(EPROTO, "param: %zu of them; the limit is %u", from->n_param,
			       WIRE_PARAMS_MAX);
	out->last = from->last;
	out->n = (uint32_t)from->n_param;
	for (uint32_t i = 0; i < out->n; i++) {
		int rc = get_param(from->param[i], &out->param[i]);

		if (rc < 0)
			return err_wrap(rc, "param[%u]", i);
	}
	return 0;
}

static int get_grant(const Gradslot__Grant *from, struct wire_grant *out)
{
	if (from->n_place > WIRE_PARAMS_MAX)
		return err_set(EPROTO, "place: %zu of them; the limit is %u", from->n_place,
			       WIRE_PARAMS_MAX);
	out->last = from->last;
	out->n = (uint32_t)from->n_place;
	for (uint32_t i = 0; i < out->n; i++) {
		const Gradslot__Place *p = from->place[i];

		out->place[i] = (struct wire_place){
		    .elems = p->elems,
		    .block_elems = p->block_elems,
		    .weights_off = p->weights_off,
		    .slots_off = p->slots_off,
		    .slots_stride = p->slots_stride,
		    .first_block = p->first_block,
		    .blocks = p->blocks,
		    .heads_off = p->heads_off,
		    .landing_off = p->landing_off,
		    .request_off = p->request_off,
		    .heads_stride = p->heads_stride,
		    .pack = p->pack,
		};
	}
	if (!from->last)
		return 0;
	out->slots = from->slots;
	out->blocks = from->blocks;
	int rc = get_ref("weights", from->weights, &out->weights);
	return rc < 0 ? rc : get_ref("slot_mem", from->slot_mem, &out->slot_mem);
}

static int get_body(const Gradslot__Message *from, struct wire_msg *out)
{
	switch (out->kind) {
	case WIRE_HELLO:
		return get_hello(from->hello, &out->hello);
	case WIRE_WELCOME:
		return get_welcome(from->welcome, &out->welcome);
	case WIRE_DECLARE:
		return get_declare(from->declare, &out->declare);
	case WIRE_GRANT:
		return get_grant(from->grant, &out->grant);
	case WIRE_ATTACH:
		return get_ref("mailbox", from->attach->mailbox, &out->attach.mailbox);
	case WIRE_READY:
		out->ready.init = from->ready->init;
		return 0;
	case WIRE_START:
		out->start.step = from->start->step;
		return 0;
	case WIRE_ERROR:
		out->error.code = (enum wire_error_code)from->error->code;
		return get_name("text", from->error->text, out->error.text,
				sizeof(out->error.text));
	case WIRE_SET_RATE:
		out->set_rate.param = from->set_rate->param;
		out->set_rate.rate = from->set_rate->rate;
		return 0;
	case WIRE_RATE_SET:
		out->rate_set.param = from->rate_set->param;
		return 0;
	case WIRE_NOTICE:
		out->notice.param = from->notice->param;
		out->notice.code = (enum wire_error_code)from->notice->code;
		out->notice.refused = from->notice->refused;
		return get_name("text", from->notice->text, out->notice.text,
				sizeof(out->notice.text));
	case WIRE_CHALLENGE:
		return get_raw("nonce", from->challenge->nonce, out->challenge.nonce,
			       sizeof(out->challenge.nonce), NULL);
	case WIRE_PROOF:
		return get_raw("mac", from->proof->mac, out->proof.mac, sizeof(out->proof.mac),
			       NULL);
	case WIRE_SAVED:
		return get_saved(from->saved, &out->saved);
	case WIRE_INIT_DONE:
	case WIRE_BYE:
	case WIRE_SAVE:
		return 0;
	}
	return err_set(EPROTO, "kind: %d; known are %d to %d", (int)out->kind, WIRE_HELLO,
		       WIRE_SAVED);
}

enum wire_kind wire_peek(const void *buf, size_t len)
{
	/* A field's key is its number and, in the low three bits, its wire type (2: bytes): a varint,
	 * of two bytes from field 16 on. */
	const uint8_t *at = buf;
	unsigned key = len > 0 ? at[0] : 0;

	if (key & 0x80)
		key = len > 1 && at[1] < 0x80 ? (key & 0x7f) | (unsigned)at[1] << 7 : 0;
	return (key & 7) == 2 && key >> 3 <= WIRE_SAVED ? (enum wire_kind)(key >> 3)
							: (enum wire_kind)0;
}

int wire_decode(const void *buf, size_t len, struct wire_msg *out)
{
	struct arena arena; /* not zeroed: it is handed out before it is read */
	ProtobufCAllocator alloc = {
	    .alloc = arena_alloc, .free = arena_free, .allocator_data = &arena};
	struct wire_msg msg;
	int rc;

	if (len > WIRE_MSG_MAX)
		return err_set(EPROTO, "control message: %zu bytes; the limit is %u", len,
			       WIRE_MSG_MAX);
	arena.used = 0;
	arena.full = false;
	const Gradslot__Message *from = gradslot__message__unpack(&alloc, len, buf);
	if (!from && arena.full)
		return err_set(ENOMEM, "control message: %zu bytes that unpack to more than %u",
			       len, ARENA_SIZE);
	if (!from)
		return err_set(EPROTO, "control message: %zu bytes that are not one", len);
	memset(&msg, 0, sizeof(msg));
	/* The fields of the oneof are numbered as the kinds. 0: none that is known. */
	msg.kind = (enum wire_kind)from->kind_case;
	if (msg.kind != wire_peek(buf, len))
		return err_set(EPROTO, "control message: it begins as kind %d and ends as %d",
			       (int)wire_peek(buf, len), (int)msg.kind);
	rc = get_body(from, &msg);
	if (rc < 0)
		return err_wrap(rc, "%s message", wire_kind_name(msg.kind));
	rc = wire_check(&msg, EPROTO);
	if (rc == 0)
		*out = msg;
	return rc;
}
