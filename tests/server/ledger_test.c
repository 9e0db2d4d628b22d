/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger (server/ledger.h): words of ranks, and tokens of their sessions.
 */
#include "server/ledger.h"

#include "suite.h"

enum { RANKS = 3, BLOCKS = 5 };

#define TOKEN(c) ((const uint8_t[WIRE_SESSION_LEN]){[0 ... WIRE_SESSION_LEN - 1] = (c)})

static struct ledger ledger_of(uint32_t ranks)
{
	struct ledger l;

	ck_assert_int_eq(ledger_init(&l, ranks), 0);
	ledger_forget(&l, 0); /* no blocks yet: nothing happens */
	ck_assert_int_eq(ledger_reserve(&l, BLOCKS), 0);
	return l;
}

START_TEST(words_belong_to_rank_and_block)
{
	struct ledger l = ledger_of(RANKS);

	ledger_count(&l, 1, 2);
	ledger_count(&l, 1, 2);
	ledger_set(&l, 2, 4, 7);
	ledger_count(&l, 2, 4);
	for (uint32_t r = 0; r < RANKS; r++)
		for (uint32_t b = 0; b < BLOCKS; b++)
			ck_assert_uint_eq(ledger_look(&l, r, b), r == 1 && b == 2   ? 2
								    : r == 2 && b == 4 ? 8
										       : 0);
	ledger_forget(&l, 1);
	ck_assert_uint_eq(ledger_look(&l, 1, 2), 0);
	ck_assert_uint_eq(ledger_look(&l, 2, 4), 8);
	ledger_fini(&l);
}
END_TEST

/* A later session that did not get as far hides nothing of an earlier one. */
START_TEST(steps_never_fall)
{
	struct ledger l = ledger_of(RANKS);

	ledger_has(&l, 0, 1, 12);
	ledger_has(&l, 0, 1, 0);
	ledger_has(&l, 0, 1, 11);
	ck_assert_uint_eq(ledger_look(&l, 0, 1), 12);
	ledger_has(&l, 0, 1, 13);
	ck_assert_uint_eq(ledger_look(&l, 0, 1), 13);
	ledger_fini(&l);
}
END_TEST

START_TEST(the_last_session_is_known)
{
	struct ledger l = ledger_of(RANKS);

	ck_assert(!ledger_knows(&l, 0, TOKEN(0))); /* zeros are no token */
	ledger_issue(&l, 0, TOKEN('a'));
	ck_assert(ledger_knows(&l, 0, TOKEN('a')));
	ck_assert(!ledger_knows(&l, 1, TOKEN('a')));
	ck_assert(!ledger_settle(&l, 0));
	ledger_lose(&l, 0);
	/* Another process, which gets no further: the trainer that was lost may still come. */
	ledger_issue(&l, 0, TOKEN('b'));
	ck_assert(ledger_knows(&l, 0, TOKEN('a')) && ledger_knows(&l, 0, TOKEN('b')));
	/* One that takes part: it may not. */
	ledger_issue(&l, 0, TOKEN('c'));
	ck_assert(ledger_settle(&l, 0));
	ck_assert(!ledger_settle(&l, 0)); /* told once */
	ck_assert(ledger_knows(&l, 0, TOKEN('c')));
	ck_assert(!ledger_knows(&l, 0, TOKEN('a')) && !ledger_knows(&l, 0, TOKEN('b')));
	ledger_revoke(&l, 0);
	ck_assert(!ledger_knows(&l, 0, TOKEN('c')));
	ledger_fini(&l);
}
END_TEST

START_TEST(a_rank_trains_once_until_a_bye)
{
	struct ledger l = ledger_of(RANKS);

	ledger_issue(&l, 0, TOKEN('a'));
	ck_assert(ledger_train(&l, 0));
	ledger_lose(&l, 0);
	ledger_settle(&l, 0);
	ck_assert(!ledger_train(&l, 0));
	ck_assert(ledger_train(&l, 1));
	ledger_revoke(&l, 0);
	ck_assert(ledger_train(&l, 0));
	ledger_fini(&l);
}
END_TEST

/* Welcome after welcome gets lost: what its trainer shows stays good. */
START_TEST(what_was_shown_is_known)
{
	struct ledger l = ledger_of(RANKS);

	ledger_issue(&l, 0, TOKEN('a'));
	ledger_settle(&l, 0);
	ledger_lose(&l, 0);
	ledger_resume(&l, 0, TOKEN('a'));
	ledger_issue(&l, 0, TOKEN('b')); /* came */
	for (uint8_t lost = 'c'; lost < 'g'; lost++) {
		ck_assert(ledger_knows(&l, 0, TOKEN('b')));
		ledger_resume(&l, 0, TOKEN('b'));
		ledger_issue(&l, 0, TOKEN(lost));
	}
	ck_assert(ledger_knows(&l, 0, TOKEN('b')) && ledger_knows(&l, 0, TOKEN('f')));
	ck_assert(!ledger_knows(&l, 0, TOKEN('e')));
	ledger_fini(&l);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("ledger");

	tcase_add_test(t, words_belong_to_rank_and_block);
	tcase_add_test(t, steps_never_fall);
	tcase_add_test(t, the_last_session_is_known);
	tcase_add_test(t, a_rank_trains_once_until_a_bye);
	tcase_add_test(t, what_was_shown_is_known);
	return run_suite("ledger", t);
}
