/* SPDX-License-Identifier: Apache-2.0
 *
 * The control thread's inbox: notes of many threads, none lost, each thread's in order, and a
 * sleeper in poll(2) that always wakes.
 */
#include "server/inbox.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "suite.h"

enum { POSTERS = 4, NOTES = 20000 };

static struct inbox inbox;
static uint32_t next[POSTERS]; /* plain: the draining thread's */
static uint64_t handled, out_of_order;

static void take(struct note *note)
{
	uint32_t poster = note->kind;

	out_of_order += note->len != next[poster]++;
	handled++;
	free(note);
}

static void *post_all(void *arg)
{
	enum note_kind poster = (enum note_kind)(uintptr_t)arg;

	for (uint32_t i = 0; i < NOTES; i++) {
		struct note *note = calloc(1, sizeof(*note));

		note->kind = poster;
		note->len = i;
		inbox_post(&inbox, note);
	}
	return NULL;
}

static void wait_readable(int timeout_ms, int want)
{
	struct pollfd fd = {.fd = inbox.fd, .events = POLLIN};

	ck_assert_int_eq(poll(&fd, 1, timeout_ms), want);
}

START_TEST(many_posters)
{
	pthread_t thread[POSTERS];

	ck_assert_int_eq(inbox_init(&inbox), 0);
	for (uintptr_t i = 0; i < POSTERS; i++)
		pthread_create(&thread[i], NULL, post_all, (void *)i);
	while (handled < (uint64_t)POSTERS * NOTES) {
		wait_readable(10000, 1);
		inbox_drain(&inbox, take);
	}
	for (int i = 0; i < POSTERS; i++)
		pthread_join(thread[i], NULL);
	ck_assert_uint_eq(out_of_order, 0);
	inbox_drain(&inbox, take);
	ck_assert_uint_eq(handled, (uint64_t)POSTERS * NOTES);
	wait_readable(0, 0);
	inbox_fini(&inbox);
	ck_assert_int_eq(inbox.fd, -1);
	inbox_fini(&inbox);
}
END_TEST

static struct note second;

static void post_another(struct note *note)
{
	handled++;
	if (note != &second)
		inbox_post(&inbox, &second);
}

START_TEST(a_handler_may_post)
{
	struct note first = {.kind = NOTE_REAP};

	ck_assert_int_eq(inbox_init(&inbox), 0);
	inbox_post(&inbox, &first);
	inbox_drain(&inbox, post_another);
	ck_assert_uint_eq(handled, 2);
	wait_readable(0, 0);
	inbox_fini(&inbox);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("inbox");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, many_posters);
	tcase_add_test(t, a_handler_may_post);
	return run_suite("inbox", t);
}
