/* SPDX-License-Identifier: Apache-2.0
 *
 * Members of a JSON object.
 */
#include "store/fields.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

#define EXACT_MAX ((UINT64_C(1) << 53) - 1)

int field_object(const json_t *value, const char *what, size_t members)
{
	if (!json_is_object(value))
		return err_set(EBADMSG, "%s: must be an object", what);
	if (json_object_size(value) != members)
		return err_set(EBADMSG, "%s: has %zu members; must be %zu", what,
			       json_object_size(value), members);
	return 0;
}

/* A number that would fit into JSON's is not written as a string, nor with zeros in front: there is
 * one way to write each. */
static bool digits(const char *text, uint64_t *out)
{
	uint64_t value = 0;

	if (text[0] < '1' || text[0] > '9')
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return false;
	}
	*out = value;
	return value > EXACT_MAX;
}

int number_u64(const json_t *value, const char *name, uint64_t min, uint64_t max, uint64_t *out)
{
	uint64_t got = 0;
	bool known;

	if (json_is_integer(value)) {
		known = json_integer_value(value) >= 0 &&
			json_integer_value(value) <= (json_int_t)EXACT_MAX;
		got = (uint64_t)json_integer_value(value);
	} else {
		known = json_is_string(value) && digits(json_string_value(value), &got);
	}
	if (!known)
		return err_set(EBADMSG,
			       "%s: must be a whole number (from 2^53 on, a string of "
			       "digits)",
			       name);
	if (got < min || got > max)
		return err_set(EBADMSG, "%s: %" PRIu64 "; must be %" PRIu64 " to %" PRIu64, name,
			       got, min, max);
	*out = got;
	return 0;
}

int field_u64(const json_t *o, const char *name, uint64_t min, uint64_t max, uint64_t *out)
{
	return number_u64(json_object_get(o, name), name, min, max, out);
}

int field_u32(const json_t *o, const char *name, uint32_t min, uint32_t max, uint32_t *out)
{
	uint64_t wide = 0;
	int rc = field_u64(o, name, min, max, &wide);

	if (rc == 0)
		*out = (uint32_t)wide;
	return rc;
}

int number_real(const json_t *value, const char *name, double *out)
{
	double got = json_number_value(value);

	if (!json_is_number(value) || !isfinite(got))
		return err_set(EBADMSG, "%s: must be a number", name);
	*out = got;
	return 0;
}

int field_real(const json_t *o, const char *name, double *out)
{
	return number_real(json_object_get(o, name), name, out);
}

int text_copy(const json_t *value, const char *name, char *buf, size_t cap)
{
	const char *text = json_string_value(value);

	if (!text)
		return err_set(EBADMSG, "%s: must be a string", name);
	size_t len = strlen(text);
	if (len >= cap)
		return err_set(EBADMSG, "%s: %zu bytes; the limit is %zu", name, len, cap - 1);
	memcpy(buf, text, len + 1);
	return 0;
}

int field_text(const json_t *o, const char *name, char *buf, size_t cap)
{
	return text_copy(json_object_get(o, name), name, buf, cap);
}

int field_choice(const json_t *o, const char *name, const char *const *names, unsigned first,
		 unsigned last, unsigned *out)
{
	const char *text = json_string_value(json_object_get(o, name));

	for (unsigned i = first; text && i <= last; i++) {
		if (!strcmp(text, names[i])) {
			*out = i;
			return 0;
		}
	}
	return err_set(EBADMSG, "%s: '%.32s' is none of those that are known (%s ... %s)", name,
		       text ? text : "(no string)", names[first], names[last]);
}

int field_hex(const json_t *o, const char *name, unsigned words, uint64_t *out)
{
	const char *text = json_string_value(json_object_get(o, name));
	uint64_t got[2] = {0, 0};
	unsigned i = 0;

	for (; text && text[i] && i < 16 * words; i++) {
		const char *digit = strchr("0123456789abcdef", text[i]);

		if (!digit)
			break;
		uint64_t *word = &got[words - 1 - i / 16];
		*word = *word << 4 | (uint64_t)(*digit <= '9' ? *digit - '0' : *digit - 'a' + 10);
	}
	if (!text || i != 16 * words || text[i])
		return err_set(EBADMSG, "%s: must be a string of %u digits 0-9a-f", name,
			       16 * words);
	memcpy(out, got, words * sizeof(*out));
	return 0;
}

json_t *json_u64(uint64_t value)
{
	char text[24];

	if (value <= EXACT_MAX)
		return json_integer((json_int_t)value);
	snprintf(text, sizeof(text), "%" PRIu64, value);
	return json_string(text);
}

const char *hex_text(const uint64_t *word, unsigned words, char buf[HEX_TEXT])
{
	if (words == 2)
		snprintf(buf, HEX_TEXT, "%016" PRIx64 "%016" PRIx64, word[1], word[0]);
	else
		snprintf(buf, HEX_TEXT, "%016" PRIx64, word[0]);
	return buf;
}
