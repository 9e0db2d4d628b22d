/* SPDX-License-Identifier: Apache-2.0
 *
 * Which schedules there are by name, and the keys, defaults and limits of each. schedule_parse.c
 * reads texts by it; nobody else needs it.
 */
#ifndef GS_KERNELS_SCHEDULE_KEYS_H
#define GS_KERNELS_SCHEDULE_KEYS_H

#include <stddef.h>

#include "kernels/schedule.h"

/* Keys are the numbers of enum schedule_value, and behind them the two lists. Rules are the kinds,
 * and behind them the warm-up, which is read like a schedule. */
enum {
	SCHEDULE_AT = SCHEDULE_VALUES,
	SCHEDULE_RATES,
	SCHEDULE_KEYS,
	SCHEDULE_RULE_WARMUP = SCHEDULE_KINDS,
	SCHEDULE_RULES,
	SCHEDULE_RULE_KEYS = 5, /* of one rule at most */
};

struct schedule_rule {
	const char *name;
	unsigned n;
	struct {
		unsigned key;
		double fallback; /* NAN: must be given */
	} has[SCHEDULE_RULE_KEYS];
};

extern const struct schedule_rule schedule_rules[SCHEDULE_RULES];

/* Bytes of a text. The text has a NUL at its end, a span of it need not. */
struct schedule_span {
	const char *p;
	size_t len;
};

/* "%.*s" of a span, cut to what an error text has room for. */
#define SCHEDULE_SHOW(s) (int)((s).len < 32 ? (s).len : 32), (s).p

const char *schedule_key_name(unsigned key);
/* -EINVAL: "schedule NAME: KEY must be given; ..." */
int schedule_key_missing(const struct schedule_rule *rule, unsigned key);

/* Errors of the rest: -EINVAL. */
int schedule_rule_find(struct schedule_span name, const struct schedule_rule **out);
int schedule_key_find(const struct schedule_rule *rule, struct schedule_span name, unsigned *out);
/* A number within the limits of `key`. */
int schedule_key_number(const struct schedule_rule *rule, unsigned key, struct schedule_span text,
			double *out);

#endif
