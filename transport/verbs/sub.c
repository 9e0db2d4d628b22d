/* SPDX-License-Identifier: Apache-2.0
 *
 * A tp_cq's part for verbs: CQs, going to sleep, and the timer for connections that are ending.
 *
 * Invariants:
 *  1. A CQ has room for every work request, signalled or not, of every connection on it (in the
 *     error state each gives a completion), so it never overflows. A bank that is full is followed
 *     by another CQ, so that no device needs to be able to resize one.
 *  2. Before a sleep every CQ is armed and then polled: what arrived between the last poll and
 *     arming is in wc[], and what arrives later makes the completion channel readable.
 *  3. A CQ whose event was not taken yet stays armed, and is not armed again: it costs a system
 *     call on some providers.
 */
#include "base/clock.h"
#include "base/err.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define BANK_MIN 1024

/* libibverbs' siw takes a mapping at offset 0x90000 for none at all, and fails to make what is
 * mapped there. Offsets are given out from 0 on, and the first CQ is there first and stays, so it
 * is made large enough to cover that one. */
#define BANK_MIN_SIW (0x91000 / 32)

static void timer_ready(struct tp_watch *watch, uint32_t events)
{
	uint64_t expirations;

	if (read(watch->fd, &expirations, sizeof(expirations)) < 0)
		return; /* EAGAIN: it was set anew meanwhile */
}

int verbs_subcq_create(struct tp_cq *cq, struct tp_subcq **out)
{
	struct sub *sub = calloc(1, sizeof(*sub));
	int rc;

	if (!sub)
		return err_set(ENOMEM, "no memory for a completion queue");
	sub->base = (struct tp_subcq){.backend = &tp_verbs_backend, .cq = cq};
	pthread_mutex_init(&sub->lock, NULL);
	pthread_cond_init(&sub->freed, NULL);
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);

	if (fd < 0) {
		rc = err_set(errno, "timerfd_create: %s", strerror(errno));
		goto free_sub;
	}
	sub->timer = (struct tp_watch){.fd = fd, .ready = timer_ready};
	rc = tp_cq_watch(cq, &sub->timer);
	if (rc < 0)
		goto close_timer;
	*out = &sub->base;
	return 0;

close_timer:
	close(fd);
free_sub:
	pthread_cond_destroy(&sub->freed);
	pthread_mutex_destroy(&sub->lock);
	free(sub);
	return rc;
}

void verbs_subcq_destroy(struct tp_subcq *base)
{
	struct sub *sub = sub_of(base);

	pthread_mutex_lock(&sub->lock);
	while (sub->freeing)
		pthread_cond_wait(&sub->freed, &sub->lock);
	pthread_mutex_unlock(&sub->lock);
	while (sub->devices) {
		struct device *dev = sub->devices;

		sub->devices = dev->next;
		tp_cq_unwatch(base->cq, &dev->comp_watch);
		tp_cq_unwatch(base->cq, &dev->async_watch);
		device_close(dev);
	}
	tp_cq_unwatch(base->cq, &sub->timer);
	close(sub->timer.fd);
	pthread_cond_destroy(&sub->freed);
	pthread_mutex_destroy(&sub->lock);
	free(sub);
}

void sub_kick(struct sub *sub)
{
	atomic_store(&sub->todo, true);
	tp_cq_nudge(sub->base.cq);
}

/* ---- CQs --------------------------------------------------------------------------------------
 */

static int bank_new(struct device *dev, uint32_t size, struct cq_bank **out)
{
	struct cq_bank *bank = calloc(1, sizeof(*bank));

	if (!bank)
		return err_set(ENOMEM, "no memory for a completion queue");
	bank->cq = ibv_create_cq(dev->ctx, (int)size, bank, dev->channel, 0);
	if (!bank->cq) {
		int rc = mem_error(errno, "a completion queue", (size_t)size * 64);

		free(bank);
		return rc;
	}
	bank->size = size;
	bank->next = dev->banks;
	dev->banks = bank;
	*out = bank;
	return 0;
}

int bank_claim(struct device *dev, uint32_t cqes, struct cq_bank **out)
{
	uint32_t most = (uint32_t)dev->attr.max_cqe, size = BANK_MIN;
	struct cq_bank *bank = dev->banks;
	int rc = 0;

	while (bank && bank->size - bank->used < cqes)
		bank = bank->next;
	if (!bank) {
		if (dev->siw)
			size = BANK_MIN_SIW;
		/* The first is for a few connections, later ones are for more and more. */
		if (dev->banks)
			size = dev->banks->size < most / 4 ? dev->banks->size * 4 : most;
		if (size < cqes)
			size = cqes;
		if (size > most)
			size = most;
		rc = bank_new(dev, size, &bank);
	}
	if (rc < 0)
		return rc;
	bank->used += cqes;
	*out = bank;
	return 0;
}

/* ---- going to sleep ---------------------------------------------------------------------------
 */

bool sub_stash(struct sub *sub, struct device *dev)
{
	/* Behind what is there. */
	int at = sub->wc_at < sub->wc_end ? sub->wc_end : 0;

	if (at && (sub->wc_device != dev || at == WC_BATCH))
		return false;
	for (struct cq_bank *bank = dev->banks; bank; bank = bank->next) {
		int n = ibv_poll_cq(bank->cq, WC_BATCH - at, sub->wc + at);

		if (n <= 0)
			continue;
		sub->wc_device = dev;
		if (!at)
			sub->wc_at = 0;
		sub->wc_end = at + n;
		return true;
	}
	return false;
}

static void set_timer(struct sub *sub)
{
	uint64_t at = sub->ending ? sub->next_deadline : 0;

	if (at == sub->timer_set)
		return;
	struct itimerspec spec = {
	    .it_value = {.tv_sec = (time_t)(at / NS_PER_S), .tv_nsec = (long)(at % NS_PER_S)}};

	timerfd_settime(sub->timer.fd, TFD_TIMER_ABSTIME, &spec, NULL);
	sub->timer_set = at;
}

bool verbs_arm(struct tp_subcq *base)
{
	struct sub *sub = sub_of(base);
	bool something;

	pthread_mutex_lock(&sub->lock);
	something = sub->wc_at < sub->wc_end; /* another thread may have polled: complete_peek_hi */
	for (struct device *dev = sub->devices; dev && !something; dev = dev->next) {
		for (struct cq_bank *bank = dev->banks; bank; bank = bank->next) {
			if (bank->armed)
				continue;
			bank->armed = ibv_req_notify_cq(bank->cq, 0) == 0;
			something = something || !bank->armed; /* then it must be polled */
		}
		something = sub_stash(sub, dev) || something;
	}
	something = something || sub->ready || atomic_load(&sub->todo) ||
		    (sub->ending && clock_ns() >= sub->next_deadline);
	if (!something)
		set_timer(sub);
	pthread_mutex_unlock(&sub->lock);
	return something;
}

void verbs_disarm(struct tp_subcq *base)
{
	/* Nothing: an armed CQ's event is taken whenever the channel is looked at. */
}

/* ---- deadlines --------------------------------------------------------------------------------
 */

void sub_deadline(struct conn *conn, uint64_t deadline)
{
	struct sub *sub = conn->sub;

	if (!conn->deadline && deadline)
		sub->ending++;
	if (conn->deadline && !deadline)
		sub->ending--;
	conn->deadline = deadline;
	if (deadline && (sub->ending == 1 || deadline < sub->next_deadline))
		sub->next_deadline = deadline;
}
