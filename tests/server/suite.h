/* SPDX-License-Identifier: Apache-2.0
 *
 * Running one suite as a program, and small things that several tests want.
 */
#ifndef GS_TESTS_SERVER_SUITE_H
#define GS_TESTS_SERVER_SUITE_H

#include <check.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "run.h"

static inline int run_suite(const char *name, TCase *tcase)
{
	Suite *suite = suite_create(name);
	SRunner *runner;

	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	return run_all(runner);
}

/* The error text has all of these words, up to a NULL. */
static inline void expect_text(const char *const *words)
{
	for (; *words; words++)
		ck_assert_msg(strstr(err_text(), *words), "no \"%s\" in \"%s\"", *words,
			      err_text());
}
#define EXPECT_TEXT(...) expect_text((const char *const[]){__VA_ARGS__, NULL})

/* xorshift64*: small, seeded, the same everywhere. */
static inline uint32_t rnd(uint64_t *state, uint32_t below)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (uint32_t)((*state * 2685821657736338717ULL) >> 33) % below;
}

#endif
