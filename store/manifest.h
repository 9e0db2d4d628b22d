/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest's parts. Private to store/ and its tests.
 *
 * Its text is a JSON object whose last member is "checksum": XXH3, 128 bits, of all the text in
 * front of it. So a changed byte is found wherever it is, before anything is believed.
 */
#ifndef GS_STORE_MANIFEST_H
#define GS_STORE_MANIFEST_H

#include <jansson.h>

#include "store/checkpoint.h"

#define MANIFEST_MAX (64u << 20) /* bytes of the text */

/* One parameter. Parsing leaves its bounds to manifest_check_param. */
json_t *manifest_print_param(const struct checkpoint_param *p);
int manifest_parse_param(const json_t *value, struct checkpoint_param *out);
/* 0, or -err with what is out of its bounds. */
int manifest_check_param(const struct checkpoint_param *p, int err);

/* Puts the checksum at the end of an object's text (it ends in "\n}"); the result is malloc'ed.
 * NULL: no memory, or not such a text. For tests that must get past it, too. */
char *manifest_seal(const char *text, size_t len);

#endif
