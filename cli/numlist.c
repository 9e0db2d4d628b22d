/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists and ranges of numbers.
 */
#include "cli/numlist.h"

#include "base/err.h"
#include "cli/opt.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const struct numlist *l, int64_t value, char buf[32])
{
	if (l->sizes)
		return opt_size_text(value, buf);
	snprintf(buf, 32, "%" PRId64, value);
	return buf;
}

static int refuse(const struct numlist *l)
{
	char lo[32], hi[32], multiple[64] = "", each[32];

	if (l->multiple)
		snprintf(multiple, sizeof(multiple), ", multiples of %s",
			 text_of(l, l->multiple, each));
	return err_set(
	    EINVAL,
	    "it may be one or up to %d %s from %s to %s%s, as A,B,C, or A:B for A, 2A, 4A up "
	    "to B",
	    NUMLIST_MAX, l->sizes ? "sizes" : "numbers", text_of(l, l->min, lo),
	    text_of(l, l->max, hi), multiple);
}

/* One number; *end is what follows it. */
static bool take(const struct numlist *l, const char *text, const char **end, int64_t *out)
{
	static const char letters[] = "KMGT";
	char *behind;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	int64_t value = strtoll(text, &behind, 10);
	const char *unit =
	    l->sizes && *behind ? strchr(letters, toupper((unsigned char)*behind)) : NULL;
	if (errno || (unit && __builtin_mul_overflow(value, INT64_C(1) << 10 * (unit - letters + 1),
						     &value)))
		return false;
	*end = behind + (unit != NULL);
	*out = value;
	return value >= l->min && value <= l->max && !(l->multiple && value % l->multiple);
}

static bool add(struct numlist *l, int64_t value)
{
	if (l->n == NUMLIST_MAX)
		return false;
	l->value[l->n++] = value;
	return true;
}

static bool add_range(struct numlist *l, const char *text)
{
	int64_t from = l->value[0], to;
	const char *end;

	if (from < 1 || !take(l, text, &end, &to) || *end || to < from)
		return false;
	while (from <= to / 2) {
		from *= 2;
		if (!add(l, from))
			return false;
	}
	return true;
}

int numlist_parse(const char *text, void *list)
{
	struct numlist l = *(struct numlist *)list;
	int64_t value;

	for (l.n = 0;; text++) {
		if (!take(&l, text, &text, &value) || !add(&l, value))
			return refuse(&l);
		if (*text == ':' && l.n == 1 && add_range(&l, text + 1))
			break;
		if (!*text)
			break;
		if (*text != ',')
			return refuse(&l);
	}
	*(struct numlist *)list = l;
	return 0;
}
