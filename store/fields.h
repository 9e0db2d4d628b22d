/* SPDX-License-Identifier: Apache-2.0
 *
 * Members of a JSON object, each with its bounds. 64-bit numbers that a double does not hold (2^53
 * and more) are written as strings of digits: many a reader of JSON would round them. Private to
 * store/.
 *
 * Errors: -EBADMSG, with the member's name, what it was and what it may be.
 */
#ifndef GS_STORE_FIELDS_H
#define GS_STORE_FIELDS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* An object of exactly `members` members; with all of them read there is no other. */
int field_object(const json_t *value, const char *what, size_t members);

int field_u64(const json_t *o, const char *name, uint64_t min, uint64_t max, uint64_t *out);
int field_u32(const json_t *o, const char *name, uint32_t min, uint32_t max, uint32_t *out);
int number_u64(const json_t *value, const char *name, uint64_t min, uint64_t max, uint64_t *out);
int field_real(const json_t *o, const char *name, double *out);
int number_real(const json_t *value, const char *name, double *out);
/* Into an array of `cap` bytes. */
int field_text(const json_t *o, const char *name, char *buf, size_t cap);
int text_copy(const json_t *value, const char *name, char *buf, size_t cap);
/* One of names[first..last]. */
int field_choice(const json_t *o, const char *name, const char *const *names, unsigned first,
		 unsigned last, unsigned *out);
/* 64 or 128 bits as 16 or 32 hexadecimal digits; of two words the second is in front. */
int field_hex(const json_t *o, const char *name, unsigned words, uint64_t *out);

#define HEX_TEXT 33u

/* NULL: no memory. */
json_t *json_u64(uint64_t value);
const char *hex_text(const uint64_t *word, unsigned words, char buf[HEX_TEXT]);

#endif
