/* SPDX-License-Identifier: Apache-2.0
 *
 * --cpus: lists, CPUs that may not be used, and threads that are where they should be.
 */
#include "server/place.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "suite.h"

#define REFUSED(call, ...)                                                  \
	do {                                                                \
		ck_assert_int_eq(call, -EINVAL);                            \
		expect_text((const char *const[]){"CPUs", __VA_ARGS__, NULL}); \
	} while (0)

START_TEST(lists)
{
	static const struct {
		const char *list;
		uint32_t n;
		uint16_t cpu[6];
	} good[] = {
		{"0", 1, {0}},
		{"1023", 1, {1023}},
		{"0-3,8", 5, {0, 1, 2, 3, 8}},
		{"8,0-1", 3, {8, 0, 1}},
		{"2-2,7-9", 4, {2, 7, 8, 9}},
		{"007", 1, {7}},
	};

	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct place p;

		ck_assert_int_eq(place_parse(good[i].list, &p), 0);
		ck_assert_uint_eq(p.n, good[i].n);
		for (uint32_t k = 0; k < p.n; k++)
			ck_assert_uint_eq(p.cpu[k], good[i].cpu[k]);
	}
	struct place all;
	ck_assert_int_eq(place_parse("0-1023", &all), 0);
	ck_assert_uint_eq(all.n, PLACE_CPUS);
}
END_TEST

START_TEST(no_lists)
{
	static const char *const bad[] = {
		"", ",", "0,", ",0", "0,,1", "a", "-1", "0-", "-", "0--1", "0-1-2", " 0", "0 ", "0, 1",
		"+1", "0x1", "1024", "0-1024", "4294967296", "99999999999999999999", "3-1", "1,1",
		"0-3,2", "0;1", "0-a", "1e3", "\xff", "18446744073709551616-1",
	};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct place p = {.n = 77};

		ck_assert_msg(place_parse(bad[i], &p) == -EINVAL, "\"%s\" is taken", bad[i]);
		expect_text((const char *const[]){"CPUs", NULL});
		ck_assert_uint_eq(p.n, 77);
	}
	struct place p;
	REFUSED(place_parse("3-1", &p), "3-1", "down");
	REFUSED(place_parse("0-3,2", &p), "2", "twice");
	REFUSED(place_parse("0-1024", &p), "1024");
	REFUSED(place_parse("0;1", &p), ";1", "comma");
}
END_TEST

START_TEST(not_allowed)
{
	struct place none = {.n = 0}, far = {.n = 1, .cpu = {1023}}, second = {.n = 0};
	cpu_set_t set, one;
	int cpu = 0, other = 0;

	ck_assert_int_eq(place_check(&none), 0);
	REFUSED(place_check(&far), "1023", "may use");
	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	while (!CPU_ISSET(cpu, &set))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	for (other = 0; other < CPU_SETSIZE && (other == cpu || !CPU_ISSET(other, &set)); other++)
		;
	second.cpu[second.n++] = (uint16_t)cpu;
	ck_assert_int_eq(place_check(&second), 0);
	if (other == CPU_SETSIZE)
		return; /* there is but one */
	second.cpu[second.n++] = (uint16_t)other;
	ck_assert_int_eq(place_check(&second), 0);
	/* It exists, and this process may not use it. */
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	REFUSED(place_check(&second), "may use");
}
END_TEST

static void *wait_a_while(void *arg)
{
	char byte;

	ck_assert_int_eq(read(*(int *)arg, &byte, 1), 0);
	return NULL;
}

START_TEST(threads_take_turns)
{
	struct place p = {.n = 0};
	pthread_t thread[5];
	cpu_set_t set, is;
	int fd[2];

	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	for (int cpu = 0; cpu < CPU_SETSIZE && p.n < 4; cpu++)
		if (CPU_ISSET(cpu, &set))
			p.cpu[p.n++] = (uint16_t)cpu;
	ck_assert_int_eq(pipe(fd), 0);
	place_memory(&p);
	for (uint32_t i = 0; i < 5; i++) {
		ck_assert_int_eq(pthread_create(&thread[i], NULL, wait_a_while, &fd[0]), 0);
		ck_assert_int_eq(place_thread(&p, i, thread[i]), 0);
		ck_assert_int_eq(pthread_getaffinity_np(thread[i], sizeof(is), &is), 0);
		ck_assert_int_eq(CPU_COUNT(&is), 1);
		ck_assert(CPU_ISSET(p.cpu[i % p.n], &is));
	}
	place_memory_end(&p);
	close(fd[1]);
	for (uint32_t i = 0; i < 5; i++)
		pthread_join(thread[i], NULL);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("place");

	tcase_add_test(t, lists);
	tcase_add_test(t, no_lists);
	tcase_add_test(t, not_allowed);
	tcase_add_test(t, threads_take_turns);
	return run_suite("place", t);
}
