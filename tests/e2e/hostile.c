/* SPDX-License-Identifier: Apache-2.0
 *
 * Chance against the server: parameters of all kinds in every mode, trainers of the library that
 * must never fail, and beside them processes that push, pull, end steps and set rates, break the
 * protocol now and then, write what the server reads while it reads it, and are killed anywhere.
 * Afterwards the server has what it had before.
 *
 * HOSTILE_SEED and HOSTILE_ROUNDS take the place of the suite's few rounds.
 */
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "cases.h"
#include "child.h"
#include "hostile.h"

enum { GOOD = 2 };

static uint32_t open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint32_t n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

struct base {
	struct bed *bed;
	uint64_t memory;
	uint32_t files;
};

static bool is_flat(void *arg)
{
	struct base *b = arg;

	return bed_stats(b->bed).memory <= b->memory && open_files() <= b->files;
}

struct makes {
	struct hostile_good *good;
	uint64_t n;
};

static bool has_made(void *arg)
{
	struct makes *m = arg;

	return m->good->made >= m->n;
}

static void go_on(struct hostile_good *good)
{
	for (int i = 0; i < GOOD; i++)
		wait_until(has_made, &(struct makes){&good[i], good[i].made + 2},
			   "the good ones' steps");
}

struct attacker {
	char uri[64];
	uint64_t seed, rng;
	uint32_t n;
	_Atomic bool *ending; /* the server is: whoever comes now finds nobody */
	pthread_t thread;
};

static void attack(struct attacker *a)
{
	char text[32], deeds[16];
	struct child child;

	snprintf(text, sizeof(text), "%llu",
		 (unsigned long long)(a->seed << 16 | rnd(&a->rng, 65536)));
	snprintf(deeds, sizeof(deeds), "%u", 1 + rnd(&a->rng, 60));
	child_start(&child, "hostile", a->uri, text, deeds, NULL);
	if (!chance(&a->rng, 3)) {
		nap_us(20000 + rnd(&a->rng, 150000));
		child_signal(&child, SIGKILL);
	}
	int status = child_end(&child);
	must(status == 0 || status == 128 + SIGKILL || (status == 3 && *a->ending),
	     "seed %llu: the bad one ended with %d", (unsigned long long)a->seed, status);
}

static void *attack_main(void *arg)
{
	struct attacker *a = arg;

	for (uint32_t i = 0; i < a->n && !*a->ending; i++)
		attack(a);
	return NULL;
}

static void end_good(struct hostile_good *good, _Atomic bool *end)
{
	*end = true;
	for (uint32_t i = 0; i < GOOD; i++)
		pthread_join(good[i].thread, NULL);
}

/* Every third seed's server stops while it is attacked. */
static void play(uint64_t seed)
{
	struct hostile_good good[HOSTILE_TRAINERS];
	struct attacker attacker[2];
	_Atomic bool end = false, ending = false;
	bool early = seed % 3 == 2;
	struct base base;
	struct hostile_model m;
	struct bed bed;

	hostile_pick(&m, seed);
	bed_start(&bed, &m.opt);
	for (uint32_t i = 0; i < HOSTILE_TRAINERS; i++) {
		good[i] = (struct hostile_good){.model = &m,
						.uri = bed.uri,
						.rank = i,
						.end = &end,
						.leave_at = i < GOOD ? 0 : 3,
						.rng = seed + i};
		pthread_create(&good[i].thread, NULL, hostile_good_main, &good[i]);
	}
	for (uint32_t i = GOOD; i < HOSTILE_TRAINERS; i++)
		pthread_join(good[i].thread, NULL);
	bed_wait_connected(&bed, GOOD);
	go_on(good);
	base = (struct base){&bed, bed_stats(&bed).memory, open_files()};
	for (uint32_t i = 0; i < 2; i++) {
		attacker[i] = (struct attacker){
		    .seed = seed, .rng = mix64(seed + 10 * i), .n = 6, .ending = &ending};
		snprintf(attacker[i].uri, sizeof(attacker[i].uri), "%s", bed.uri);
		pthread_create(&attacker[i].thread, NULL, attack_main, &attacker[i]);
	}
	if (early) {
		uint64_t rng = seed;

		nap_us(rnd(&rng, 500000));
		end_good(good, &end);
		ending = true;
		bed_stop(&bed);
	}
	for (uint32_t i = 0; i < 2; i++)
		pthread_join(attacker[i].thread, NULL);
	if (early)
		return;
	bed_wait_connected(&bed, GOOD);
	go_on(good);
	wait_until(is_flat, &base, "what the bad ones held");
	end_good(good, &end);
	bed_stop(&bed);
}

START_TEST(plays)
{
	const char *seed = getenv("HOSTILE_SEED"), *rounds = getenv("HOSTILE_ROUNDS");
	uint64_t from = seed ? strtoull(seed, NULL, 10) : 100 * (uint64_t)_i;

	/* Where the slots can't be written behind the server's back there is little of chance in
	 * it. */
	if (!over_shm())
		return;
	for (uint64_t i = 0; i < (rounds ? strtoull(rounds, NULL, 10) : scaled(2, 1)); i++) {
		if (rounds)
			fprintf(stderr, "seed %llu\n", (unsigned long long)(from + i));
		play(from + i);
	}
}
END_TEST

TCase *hostile_case(void)
{
	TCase *t = e2e_case("hostile");

	tcase_add_loop_test(t, plays, 0,
			    getenv("HOSTILE_SEED")   ? 1
			    : getenv("EXTREME_SEED") ? 0
						     : 3);
	return t;
}
