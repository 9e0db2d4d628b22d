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

static int check_param(const struct wire_param *p, int err)
{
	int rc = check_name("name", p->name, sizeof(p->name), 1, err);

	if (rc < 0)
		return rc;
	rc = check_shape(p, err);
	if (rc == 0)
		rc = check_name("rule", p->rule, sizeof(p->rule), 1, err);
	if (rc == 0)
		rc = check_settings(p, err);
	if (rc == 0)
		rc = check_init(p, err);
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

static int check_error(const struct wire_error *e, int err)
{
	int rc = check_enum("code", (int)e->code, WIRE_E_VERSION, WIRE_E_RANGE, err);

	return rc < 0 ? rc : check_text("text", e->text, sizeof(e->text), err);
}

static int check_body(const struct wire_msg *msg, int err)
{
	switch (msg->kind) {
	case WIRE_HELLO:
		return check_hello(&msg->hello, err);
	case WIRE_WELCOME:
		return check_enum("mode", (int)msg->welcome.mode, WIRE_SYNC, WIRE_ASYNC, err);
	case WIRE_DECLARE:
		return check_declare(&msg->declare, err);
	case WIRE_GRANT:
		return check_count("place", msg->grant.n, WIRE_PARAMS_MAX, msg->grant.last, err);
	case WIRE_ERROR:
		return check_error(&msg->error, err);
	case WIRE_ATTACH:
	case WIRE_READY:
	case WIRE_INIT_DONE:
	case WIRE_START:
	case WIRE_BYE:
		return 0;
	}
	return err_set(err, "kind: %d; known are %d to %d", (int)msg->kind, WIRE_HELLO, WIRE_ERROR);
}

int wire_check(const struct wire_msg *msg, int err)
{
	int rc = check_body(msg, err);

	return rc < 0 ? err_wrap(rc, "%s message", wire_kind_name(msg->kind)) : 0;
}

const char *wire_kind_name(enum wire_kind kind)
{
	static const char *const names[] = {
	    [WIRE_HELLO] = "hello",         [WIRE_WELCOME] = "welcome", [WIRE_DECLARE] = "declare",
	    [WIRE_GRANT] = "grant",         [WIRE_ATTACH] = "attach",   [WIRE_READY] = "ready",
	    [WIRE_INIT_DONE] = "init_done", [WIRE_START] = "start",     [WIRE_BYE] = "bye",
	    [WIRE_ERROR] = "error",
	};

	if ((unsigned)kind < WIRE_HELLO || (unsigned)kind > WIRE_ERROR)
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
	case WIRE_E_SHUTDOWN:
		return -ESHUTDOWN;
	case WIRE_E_INTERNAL:
		return -EIO;
	case WIRE_E_PROTOCOL:
		break;
	}
	return -EPROTO;
}
