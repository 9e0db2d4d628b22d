/* SPDX-License-Identifier: Apache-2.0
 *
 * Two barriers make a round: one before the work, one after it. No work is the end.
 */
#include "perf/crew.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"

struct crew {
	unsigned n, started;
	pthread_t thread[CREW_MAX];
	pthread_barrier_t before, after;
	void (*work)(void *arg, unsigned k);
	void *arg;
};

struct hand {
	struct crew *crew;
	unsigned k;
};

static void *hand_main(void *arg)
{
	struct hand hand = *(struct hand *)arg;

	free(arg);
	for (;;) {
		pthread_barrier_wait(&hand.crew->before);
		if (!hand.crew->work)
			return NULL;
		hand.crew->work(hand.crew->arg, hand.k);
		pthread_barrier_wait(&hand.crew->after);
	}
}

static int start(struct crew *c, unsigned k)
{
	struct hand *hand = malloc(sizeof(*hand));
	int rc;

	if (!hand)
		return err_set(ENOMEM, "no memory for a thread");
	*hand = (struct hand){.crew = c, .k = k};
	rc = pthread_create(&c->thread[k], NULL, hand_main, hand);
	if (rc == 0)
		return 0;
	free(hand);
	return err_set(rc, "thread %u of %u could not be started", k, c->n);
}

int crew_create(unsigned n, struct crew **out)
{
	struct crew *c = calloc(1, sizeof(*c));

	if (!c)
		return err_set(ENOMEM, "no memory for %u threads", n);
	c->n = n;
	pthread_barrier_init(&c->before, NULL, n);
	pthread_barrier_init(&c->after, NULL, n);
	for (unsigned k = 1; k < n; k++) {
		int rc = start(c, k);

		/* Those that run wait for one that never comes: the program ends. */
		if (rc)
			return rc;
	}
	*out = c;
	return 0;
}

static uint64_t own_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t crew_run(struct crew *c, void (*work)(void *arg, unsigned k), void *arg)
{
	uint64_t began;

	if (c->n == 1) {
		began = own_ns();
		work(arg, 0);
		return own_ns() - began;
	}
	c->work = work;
	c->arg = arg;
	pthread_barrier_wait(&c->before);
	began = clock_ns();
	work(arg, 0);
	pthread_barrier_wait(&c->after);
	return clock_ns() - began;
}

void crew_destroy(struct crew *c)
{
	if (!c)
		return;
	c->work = NULL;
	pthread_barrier_wait(&c->before);
	for (unsigned k = 1; k < c->n; k++)
		pthread_join(c->thread[k], NULL);
	pthread_barrier_destroy(&c->before);
	pthread_barrier_destroy(&c->after);
	free(c);
}
