/* SPDX-License-Identifier: Apache-2.0
 *
 * From wire_msg to protobuf. Everything that protobuf-c points at lies in one `struct parts` on the
 * stack: encoding allocates nothing.
 */
#include "proto/wire.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "proto/wire_check.h"

#include "gradslot.pb-c.h"

struct param_parts {
	Gradslot__Param param;
	Gradslot__Setting setting[WIRE_SETTINGS_MAX];
	Gradslot__Setting *setting_ptr[WIRE_SETTINGS_MAX];
};

/* One message's protobuf structs. */
struct parts {
	Gradslot__Message msg;
	union {
		Gradslot__Hello hello;
		Gradslot__Welcome welcome;
		Gradslot__Declare declare;
		Gradslot__Grant grant;
		Gradslot__Attach attach;
		Gradslot__Ready ready;
		Gradslot__InitDone init_done;
		Gradslot__Start start;
		Gradslot__Bye bye;
		Gradslot__Error error;
		Gradslot__SetRate set_rate;
		Gradslot__RateSet rate_set;
		Gradslot__Notice notice;
		Gradslot__Challenge challenge;
		Gradslot__Proof proof;
		Gradslot__Save save;
		Gradslot__Saved saved;
	} body;
	Gradslot__Ref ref[2];
	struct param_parts param[WIRE_PARAMS_MAX];
	Gradslot__Param *param_ptr[WIRE_PARAMS_MAX];
	Gradslot__Place place[WIRE_PARAMS_MAX];
	Gradslot__Place *place_ptr[WIRE_PARAMS_MAX];
};

/* protobuf-c's bytes are not const; packing only reads them. */
static ProtobufCBinaryData bytes_of(const char *s)
{
	return (ProtobufCBinaryData){.len = strlen(s), .data = (uint8_t *)(uintptr_t)s};
}

static ProtobufCBinaryData raw_of(const uint8_t *bytes, size_t len)
{
	return (ProtobufCBinaryData){.len = len, .data = (uint8_t *)(uintptr_t)bytes};
}

static void put_hello(const struct wire_hello *h, Gradslot__Hello *pb)
{
	gradslot__hello__init(pb);
	pb->version = h->version;
	pb->rank = h->rank;
	pb->name = bytes_of(h->name);
	pb->nonce = raw_of(h->nonce, h->has_nonce ? sizeof(h->nonce) : 0);
	pb->session = raw_of(h->session, h->resumes ? sizeof(h->session) : 0);
}

static void put_welcome(const struct wire_welcome *w, Gradslot__Welcome *pb)
{
	gradslot__welcome__init(pb);
	pb->version = w->version;
	pb->rank = w->rank;
	pb->trainers = w->trainers;
	pb->mode = (Gradslot__Mode)w->mode;
	pb->staleness = w->staleness;
	pb->server = w->server;
	pb->session = raw_of(w->session, sizeof(w->session));
	pb->resumed = w->resumed;
	pb->mac = raw_of(w->mac, w->has_mac ? sizeof(w->mac) : 0);
}

static Gradslot__Ref *put_ref(const struct wire_ref *ref, Gradslot__Ref *out)
{
	gradslot__ref__init(out);
	out->addr = ref->addr;
	out->len = ref->len;
	out->key = ref->key;
	out->n_more_key = ref->more;
	out->more_key = (uint64_t *)(uintptr_t)ref->more_key;
	return out;
}

static void put_param(const struct wire_param *p, struct param_parts *out)
{
	Gradslot__Param *pb = &out->param;

	gradslot__param__init(pb);
	pb->name = bytes_of(p->name);
	pb->n_dim = p->ndim;
	pb->dim = (uint64_t *)(uintptr_t)p->dim;
	pb->rule = bytes_of(p->rule);
	for (uint32_t i = 0; i < p->n_settings; i++) {
		gradslot__setting__init(&out->setting[i]);
		out->setting[i].name = bytes_of(p->setting[i].name);
		out->setting[i].value = p->setting[i].value;
		out->setting_ptr[i] = &out->setting[i];
	}
	pb->n_setting = p->n_settings;
	pb->setting = out->setting_ptr;
	pb->init = (Gradslot__Init)p->init;
	pb->init_a = p->init_a;
	pb->init_b = p->init_b;
	pb->init_seed = p->init_seed;
	pb->schedule = bytes_of(p->schedule);
	pb->grad_type = (Gradslot__DType)p->grad_type;
	pb->weight_type = (Gradslot__DType)p->weight_type;
	pb->reduce = (Gradslot__Reduce)p->reduce;
	pb->non_finite = (Gradslot__NonFinite)p->nonfinite;
	pb->storage = (Gradslot__Storage)p->storage;
	pb->slot_rows = p->slot_rows;
	pb->push_rows = p->push_rows;
	pb->pull_rows = p->pull_rows;
	pb->admit_after = p->admit_after;
	pb->evict_after = p->evict_after;
}

static void put_declare(const struct wire_declare *d, struct parts *parts)
{
	Gradslot__Declare *pb = &parts->body.declare;

	gradslot__declare__init(pb);
	pb->last = d->last;
	for (uint32_t i = 0; i < d->n; i++) {
		put_param(&d->param[i], &parts->param[i]);
		parts->param_ptr[i] = &parts->param[i].param;
	}
	pb->n_param = d->n;
	pb->param = parts->param_ptr;
}

static void put_grant(const struct wire_grant *g, struct parts *parts)
{
	Gradslot__Grant *pb = &parts->body.grant;

	gradslot__grant__init(pb);
	pb->last = g->last;
	for (uint32_t i = 0; i < g->n; i++) {
		Gradslot__Place *place = &parts->place[i];

		gradslot__place__init(place);
		place->elems = g->place[i].elems;
		place->block_elems = g->place[i].block_elems;
		place->weights_off = g->place[i].weights_off;
		place->slots_off = g->place[i].slots_off;
		place->slots_stride = g->place[i].slots_stride;
		place->first_block = g->place[i].first_block;
		place->blocks = g->place[i].blocks;
		place->heads_off = g->place[i].heads_off;
		place->landing_off = g->place[i].landing_off;
		place->request_off = g->place[i].request_off;
		place->heads_stride = g->place[i].heads_stride;
		place->pack = g->place[i].pack;
		parts->place_ptr[i] = place;
	}
	pb->n_place = g->n;
	pb->place = parts->place_ptr;
	if (!g->last)
		return;
	pb->slots = g->slots;
	pb->blocks = g->blocks;
	pb->weights = put_ref(&g->weights, &parts->ref[0]);
	pb->slot_mem = put_ref(&g->slot_mem, &parts->ref[1]);
}

static void put_body(const struct wire_msg *msg, struct parts *parts)
{
	switch (msg->kind) {
	case WIRE_HELLO:
		put_hello(&msg->hello, &parts->body.hello);
		break;
	case WIRE_WELCOME:
		put_welcome(&msg->welcome, &parts->body.welcome);
		break;
	case WIRE_DECLARE:
		put_declare(&msg->declare, parts);
		break;
	case WIRE_GRANT:
		put_grant(&msg->grant, parts);
		break;
	case WIRE_ATTACH:
		gradslot__attach__init(&parts->body.attach);
		parts->body.attach.mailbox = put_ref(&msg->attach.mailbox, &parts->ref[0]);
		break;
	case WIRE_READY:
		gradslot__ready__init(&parts->body.ready);
		parts->body.ready.init = msg->ready.init;
		break;
	case WIRE_INIT_DONE:
		gradslot__init_done__init(&parts->body.init_done);
		break;
	case WIRE_START:
		gradslot__start__init(&parts->body.start);
		parts->body.start.step = msg->start.step;
		break;
	case WIRE_BYE:
		gradslot__bye__init(&parts->body.bye);
		break;
	case WIRE_ERROR:
		gradslot__error__init(&parts->body.error);
		parts->body.error.code = (Gradslot__ErrorCode)msg->error.code;
		parts->body.error.text = bytes_of(msg->error.text);
		break;
	case WIRE_SET_RATE:
		gradslot__set_rate__init(&parts->body.set_rate);
		parts->body.set_rate.param = msg->set_rate.param;
		parts->body.set_rate.rate = msg->set_rate.rate;
		break;
	case WIRE_RATE_SET:
		gradslot__rate_set__init(&parts->body.rate_set);
		parts->body.rate_set.param = msg->rate_set.param;
		break;
	case WIRE_NOTICE:
		gradslot__notice__init(&parts->body.notice);
		parts->body.notice.param = msg->notice.param;
		parts->body.notice.code = (Gradslot__ErrorCode)msg->notice.code;
		parts->body.notice.text = bytes_of(msg->notice.text);
		parts->body.notice.refused = msg->notice.refused;
		break;
	case WIRE_CHALLENGE:
		gradslot__challenge__init(&parts->body.challenge);
		parts->body.challenge.nonce =
		    raw_of(msg->challenge.nonce, sizeof(msg->challenge.nonce));
		break;
	case WIRE_PROOF:
		gradslot__proof__init(&parts->body.proof);
		parts->body.proof.mac = raw_of(msg->proof.mac, sizeof(msg->proof.mac));
		break;
	case WIRE_SAVE:
		gradslot__save__init(&parts->body.save);
		break;
	case WIRE_SAVED:
		gradslot__saved__init(&parts->body.saved);
		parts->body.saved.step = msg->saved.step;
		parts->body.saved.code =
		    msg->saved.failed ? (Gradslot__ErrorCode)msg->saved.code : 0;
		parts->body.saved.text = bytes_of(msg->saved.text);
		break;
	}
}

int wire_encode(const struct wire_msg *msg, void *buf, size_t cap)
{
	struct parts parts;
	int rc = wire_check(msg, EINVAL);

	if (rc < 0)
		return rc;
	gradslot__message__init(&parts.msg);
	put_body(msg, &parts);
	/* The kinds are numbered as the fields of the oneof, and all of its members are pointers.
	 */
	parts.msg.kind_case = (Gradslot__Message__KindCase)msg->kind;
	parts.msg.hello = &parts.body.hello;
	size_t len = gradslot__message__get_packed_size(&parts.msg);
	if (len > cap)
		return err_set(EMSGSIZE, "%s message: %zu bytes; the buffer has %zu",
			       wire_kind_name(msg->kind), len, cap);
	return (int)gradslot__message__pack(&parts.msg, buf);
}
