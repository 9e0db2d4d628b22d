/* SPDX-License-Identifier: Apache-2.0
 *
 * Bounds of control messages. Texts are built inside out: the innermost check names the field, its
 * callers put the path in front.
 */
#include "proto/wire_check.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/err.h"

#define ELEMS_LIMIT (UINT64_C(1) << 40)

/* A string that ends inside its array of `cap` bytes, has at least `min` bytes and prints. Names
 * end up in logs, in file headers and on terminals: they are ASCII without control characters. */
static int check_name(const char *field, const char *s, size_t cap, size_t min, int err)
{
	size_t len = strnlen(s, cap);

	if (len == cap)
		return err_set(err, "%s: %zu bytes or more; the limit is %zu", field, cap, cap - 1);
	if (len < min)
		return err_set(err, "%s: %zu bytes; at least %zu wanted", field, len, min);
	for (size_t i = 0; i < len; i++) {
		if (s[i] < 0x20 || s[i] > 0x7e)
			return err_set(err, "%s: byte %zu is 0x%02x; printable ASCII only", field,
				       i, (unsigned char)s[i]);
	}
	return 0;
}

/* Texts are for people: any bytes but control characters; line ends and tabs are allowed. */
static int check_text(const char *field, const char *s, size_t cap, int err)
{
	size_t len = strnlen(s, cap);

	if (len == cap)
		return err_set(err, "%s: %zu bytes or more; the limit is %zu", field, cap, cap - 1);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];

		if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
			return err_set(err, "%s: byte %zu is the control character 0x%02x", field,
				       i, c);
	}
	return 0;
}

static int check_enum(const char *field, int value, int first, int last, int err)
{
	if (value < first || value > last)
		return err_set(err, "%s: %d; known are %d to %d", field, value, first, last);
	return 0;
}

static int check_finite(const char *field, double value, int err)
{
	if (!isfinite(value))
		return err_set(err, "%s: %g; must be a finite number", field, value);
	return 0;
}

static int check_count(const char *field, uint32_t n, uint32_t max, bool last, int err)
{
	if (n > max)
		return err_set(err, "%s: %u of them; the limit is %u", field, n, max);
	if (n == 0 && !last)
		return err_set(err, "%s: none, in a message that is not the last", field);
	return 0;
}

static int check_shape(const struct wire_param *p, int err)
{
	uint64_t elems = 1;

	if (p->ndim < 1 || p->ndim > WIRE_DIMS_MAX)
		return err_set(err, "ndim: %u; must be 1 to %u", p->ndim, WIRE_DIMS_MAX);
	for (uint32_t i = 0; i < p->ndim; i++) {
		if (p->dim[i] == 0)
			return err_set(err, "dim[%u]: 0; must be 1 at least", i);
		if (elems > (ELEMS_LIMIT - 1) / p->dim[i])
			return err_set(err,
				       "dim[%u]: %" PRIu64 "; the elements in all must be fewer "
				       "than 2^40",
				       i, p->dim[i]);
		elems *= p->dim[i];
	}
	return 0;
}

static int check_init(const struct wire_param *p, int err)
{
	int rc = check_enum("init", (int)p->init, WIRE_INIT_TRAINER, WIRE_INIT_NORMAL, err);

	if (rc == 0)
		rc = check_finite("init_a", p->init_a, err);
	if (rc == 0)
		rc = check_finite("init_b", p->init_b, err);
	if (rc < 0)
		return rc;
	if (p->init == WIRE_INIT_UNIFORM && p->init_b < p->init_a)
		return err_set(err, "init_b: %g; uniform needs at least init_a = %g", p->init_b,
			       p->init_a);
	if (p->init == WIRE_INIT_NORMAL && p->init_b < 0)
		return err_set(err, "init_b: %g; a standard deviation is 0 at least", p->init_b);
	return 0;
}

static int check_settings(const struct wire_param *p, int err)
{
	if (p->n_settings > WIRE_SETTINGS_MAX)
		return err_set(err, "settings: %u of them; the limit is %u", p->n_settings,
			       WIRE_SETTINGS_MAX);
	for (uint32_t i = 0; i < p->n_settings; i++) {
		const struct wire_setting *s = &p->setting[i];
		int rc = check_name("name", s->name, sizeof(s->name), 1, err);

		if (rc == 0)
			rc = check_finite(s->name, s->value, err);
		if (rc < 0)
			return err_wrap(rc, "setting[%u]", i);
	}
	return 0;
}

static int check_formats(const struct wire_param *p, int err)
{
	int rc = check_enum("grad_type", (int)p->grad_type, WIRE_F32, WIRE_F16, err);

	if (rc == 0)
		rc = check_enum("weight_type", (int)p->weight_type, WIRE_F32, WIRE_F16, err);
	if (rc == 0)
		rc = check_enum("reduce", (int)p->reduce, WIRE_MEAN, WIRE_WEIGHTED, err);
	if (rc == 0)
		rc = check_enum("nonfinite", (int)p->nonfinite, WIRE_NONFINITE_APPLY,
				WIRE_NONFINITE_SKIP, err);
	if (rc == 0)
		rc = check_enum("storage", (int)p->storage, WIRE_DENSE, WIRE_HASHED, err);
	return rc;
}

/* Rows are counted in 32 bits on the wire, and a slot's bytes in 64. */
#define ROWS_LIMIT (1u << 26)

static int check_rows(const char *field, uint32_t n, uint32_t min, uint64_t dim, int err)
{
	if (n < min || n > ROWS_LIMIT)
		return err_set(err, "%s: %u; must be %u to %u", field, n, min, ROWS_LIMIT);
	if (n > (ELEMS_LIMIT - 1) / dim)
		return err_set(err, "%s: %u rows of %llu elements; the limit is %llu elements",
			       field, n, (unsigned long long)dim,
			       (unsigned long long)ELEMS_LIMIT - 1);
	return 0;
}

static int check_table(const struct wire_param *p, int err)
{
	bool hashed = p->storage == WIRE_HASHED;
	int rc;

	if (p->storage == WIRE_DENSE) {
		if (p->slot_rows || p->push_rows || p->pull_rows || p->admit_after ||
		    p->evict_after)
			return err_set(err, "slot_rows, push_rows, pull_rows, admit_after, "
					    "evict_after: only tables have them");
		return 0;
	}
	if (p->ndim != 2)
		return err_set(err, "ndim: %u; a table has 2, rows and their length", p->ndim);
	if (p->init == WIRE_INIT_TRAINER)
		return err_set(err, "init: a table's first values are constant, uniform or normal");
	rc = check_rows("slot_rows", p->slot_rows, 1, p->dim[1], err);
	if (rc == 0)
		rc = check_rows("push_rows", p->push_rows, p->slot_rows, p->dim[1], err);
	if (rc == 0)
		rc = check_rows("pull_rows", p->pull_rows, 1, p->dim[1], err);
	if (rc == 0 && !hashed && (p->admit_after || p->evict_after))
		rc = err_set(err, "admit_after, evict_after: only hashed tables have them");
	return rc;
}

static int check_param(const struct wire_param *p, int err)
{
	int rc = check_name("name", p->name, sizeof(p->name), 1, err);

	if (rc == 0 && strcmp(p->name, "__metadata__") == 0)
		rc = err_set(err, "name: __metadata__ can't be one: safetensors files keep it for themselves");
	if (rc < 0)
		return rc;
	rc = check_shape(p, err);
	if (rc == 0)
		rc = check_name("rule", p->rule, sizeof(p->rule), 1, err);
	if (rc == 0)
		rc = check_settings(p, err);
	if (rc == 0)
		rc = check_init(p, err);
	if (rc == 0)
		rc = check_text("schedule", p->schedule, sizeof(p->schedule), err);
	if (rc == 0)
		rc = check_formats(p, err);
	if (rc == 0)
		rc = check_table(p, err);
	return rc < 0 ? err_wrap(rc, "\"%s\"", p->name) : 0;
}

static int check_declare(const struct wire_declare *d, int err)
{
	int rc = check_count("param", d->n, WIRE_PARAMS_MAX, d->last, err);

	for (uint32_t i = 0; rc == 0 && i < d->n; i++) {
		rc = check_param(&d->param[i], err);
		if (rc < 0)
			return err_wrap(rc, "param[%u]", i);
	}
	return rc;
}

static int check_hello(const struct wire_hello *h, int err)
{
	if (h->rank < -1)
		return err_set(err, "rank: %d; must be -1 at least", h->rank);
	return check_name("name", h->name, sizeof(h->name), 0, err);
}

static int check_welcome(const struct wire_welcome *w, int err)
{
	int rc = check_enum("mode", (int)w->mode, WIRE_SYNC, WIRE_SSP, err);

	if (rc == 0 && (w->mode == WIRE_SSP) != (w->staleness > 0))
		rc = err_set(err, "staleness: %u; it is 1 at least in ssp mode, and 0 elsewhere",
			     w->staleness);
	return rc;
}

static int check_set_rate(const struct wire_set_rate *s, int err)
{
	int rc = check_finite("rate", s->rate, err);

	if (rc == 0 && s->rate < 0)
		rc = err_set(err, "rate: %g; must be 0 at least", s->rate);
	return rc;
}

static int check_notice(const struct wire_notice *n, int err)
{
	int rc = check_enum("code", (int)n->code, WIRE_E_VERSION, WIRE_E_STORE, err);

	return rc < 0 ? rc : check_text("text", n->text, sizeof(n->text), err);
}

static int check_saved(const struct wire_saved *s, int err)
{
	int rc = s->failed ? check_enum("code", (int)s->code, WIRE_E_VERSION, WIRE_E_STORE, err) : 0;

	return rc < 0 ? rc : check_text("text", s->text, sizeof(s->text), err);
}

static int check_error(const struct wire_error *e, int err)
{
	int rc = check_enum("code", (int)e->code, WIRE_E_VERSION, WIRE_E_STORE, err);

	return rc < 0 ? rc : check_text("text", e->text, sizeof(e->text), err);
}

static int check_ref(const char *field, const struct wire_ref *ref, int err)
{
	if (ref->more > WIRE_RAILS_MAX - 1)
		return err_set(err, "%s.more_key: %u keys; the limit is %u", field, ref->more,
			       WIRE_RAILS_MAX - 1);
	return 0;
}

/* What the last one has, others don't. */
static int check_grant(const struct wire_grant *g, int err)
{
	int rc = check_count("place", g->n, WIRE_PARAMS_MAX, g->last, err);

	if (rc == 0 && g->last)
		rc = check_ref("weights", &g->weights, err);
	if (rc == 0 && g->last)
		rc = check_ref("slot_mem", &g->slot_mem, err);
	return rc;
}

static int check_body(const struct wire_msg *msg, int err)
{
	switch (msg->kind) {
	case WIRE_HELLO:
		return check_hello(&msg->hello, err);
	case WIRE_WELCOME:
		return check_welcome(&msg->welcome, err);
	case WIRE_DECLARE:
		return check_declare(&msg->declare, err);
	case WIRE_GRANT:
		return check_grant(&msg->grant, err);
	case WIRE_ATTACH:
		return check_ref("mailbox", &msg->attach.mailbox, err);
	case WIRE_ERROR:
		return check_error(&msg->error, err);
	case WIRE_SET_RATE:
		return check_set_rate(&msg->set_rate, err);
	case WIRE_NOTICE:
		return check_notice(&msg->notice, err);
	case WIRE_SAVED:
		return check_saved(&msg->saved, err);
	case WIRE_CHALLENGE:
	case WIRE_PROOF:
	case WIRE_SAVE:
	case WIRE_RATE_SET:
	case WIRE_READY:
	case WIRE_INIT_DONE:
	case WIRE_START:
	case WIRE_BYE:
		return 0;
	}
	return err_set(err, "kind: %d; known are %d to %d", (int)msg->kind, WIRE_HELLO,
		       WIRE_SAVED);
}

int wire_check(const struct wire_msg *msg, int err)
{
	int rc = check_body(msg, err);

	return rc < 0 ? err_wrap(rc, "%s message", wire_kind_name(msg->kind)) : 0;
}

const char *wire_kind_name(enum wire_kind kind)
{
	static const char *const names[] = {
	    [WIRE_HELLO] = "hello",
	    [WIRE_WELCOME] = "welcome",
	    [WIRE_DECLARE] = "declare",
	    [WIRE_GRANT] = "grant",
	    [WIRE_ATTACH] = "attach",
	    [WIRE_READY] = "ready",
	    [WIRE_INIT_DONE] = "init_done",
	    [WIRE_START] = "start",
	    [WIRE_BYE] = "bye",
	    [WIRE_ERROR] = "error",
	    [WIRE_SET_RATE] = "set_rate",
	    [WIRE_RATE_SET] = "rate_set",
	    [WIRE_NOTICE] = "notice",
	    [WIRE_CHALLENGE] = "challenge",
	    [WIRE_PROOF] = "proof",
	    [WIRE_SAVE] = "save",
	    [WIRE_SAVED] = "saved",
	};

	if ((unsigned)kind < WIRE_HELLO || (unsigned)kind > WIRE_SAVED)
		return "unknown";
	return names[kind];
}

int wire_error_errno(enum wire_error_code code)
{
	switch (code) {
	case WIRE_E_VERSION:
		return -EPROTONOSUPPORT;
	case WIRE_E_RANK:
		return -EEXIST;
	case WIRE_E_RANGE:
		return -ERANGE;
	case WIRE_E_FULL:
		return -EUSERS;
	case WIRE_E_MISMATCH:
		return -EINVAL;
	case WIRE_E_MEMORY:
		return -ENOMEM;
	case WIRE_E_CAPACITY:
		return -ENOSPC;
	case WIRE_E_SHUTDOWN:
		return -ESHUTDOWN;
	case WIRE_E_ACCESS:
		return -EACCES;
	case WIRE_E_INTERNAL:
	case WIRE_E_STORE:
		return -EIO;
	case WIRE_E_PROTOCOL:
		break;
	}
	return -EPROTO;
}
