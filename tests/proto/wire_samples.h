/* SPDX-License-Identifier: Apache-2.0
 *
 * Valid messages, one and more of each kind, the longest ones among them.
 */
#ifndef GS_TESTS_WIRE_SAMPLES_H
#define GS_TESTS_WIRE_SAMPLES_H

#include <check.h>

#include "proto/wire.h"

enum { SAMPLES = 28 };

/* The i-th sample; the same at each call. */
struct wire_msg sample(int i);

/* A declare in which every field is as long on the wire as it can be. */
struct wire_msg sample_longest_declare(void);

Suite *wire_suite(void);
Suite *wire_hostile_suite(void);

#endif
