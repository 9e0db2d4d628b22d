/* SPDX-License-Identifier: Apache-2.0
 *
 * The completion queue: one queue to its user, made of a part for each backend in use.
 *
 * Invariants:
 *  1. Parts are only ever added; a part is seen by the poller after it is complete.
 *  2. A wait polls into the stash; the backends are not polled again before the stash is empty, so
 *     what a stashed event points to stays valid.
 *  3. Going to sleep is a store of `asleep` before a last look; waking is a store of the cause
 * before a look at `asleep`. A full fence on either side makes one of the two see the other.
 *  4. What woke a sleeper stays readable until it was taken: no wake-up is lost by polling first.
 *  5. System calls are made when there is nothing to do, and otherwise every LOOK_NS at most.
 */
#include "base/clock.h"
#include "base/err.h"
#include "base/line.h"
#include "base/spin.h"
#include "transport/backend.h"
#include "transport/bundle.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOOK_NS     (200 * NS_PER_US)
#define LOOK_STRIDE 8 /* the clock is read every so many polls */
#define STASH       16
#define BATCH       32
#define SUBS_MAX    4

struct tp_cq {
	int epfd;
	int evfd;
	pthread_mutex_t add_lock; /* taken to add a part */
	_Atomic(struct tp_subcq *) subs[SUBS_MAX];
	atomic_uint nsubs;

	struct tp_cq_bundles bundles;

	/* Whoever has something for a sleeper. */
	atomic_bool woken LINE_BEGINS; /* tp_cq_wake was called and no wait ended for it yet */
	atomic_uint asleep; /* 1: the poller is in epoll_wait, or about to be */

	/* The polling thread's. */
	struct spin spin LINE_BEGINS;
	unsigned turn; /* the part that is polled first */
	unsigned since_clock;
	uint64_t next_look;
	const uint64_t *word; /* tp_cq_look_at */
	uint64_t word_was;
	struct tp_event stash[STASH];
	int stash_at, stash_end;
	/* What epoll_wait gave and is being worked through; NULL where unwatched meanwhile. */
	struct tp_watch *batch[BATCH];
	uint32_t batch_events[BATCH];
	bool batch_wakes[BATCH]; /* it is the eventfd */
	int batch_len;
};
_Static_assert(offsetof(struct tp_cq, woken) / LINE != offsetof(struct tp_cq, nsubs) / LINE &&
		   offsetof(struct tp_cq, spin) / LINE != offsetof(struct tp_cq, asleep) / LINE,
	       "who nudges waits for no poll, and no poll for who nudges");

/* ---- making and destroying --------------------------------------------------------------------
 */

int tp_cq_create(int32_t spin_us, struct tp_cq **out)
{
	if (spin_us < 0 && spin_us != TP_SPIN_FOREVER)
		return err_set(EINVAL, "spin time %d us: 0 or more, or TP_SPIN_FOREVER", spin_us);
	struct tp_cq *cq = line_alloc(1, sizeof(*cq));
	int rc;

	if (!cq)
		return err_set(ENOMEM, "no memory for a completion queue");
	spin_init(&cq->spin, spin_us);
	pthread_mutex_init(&cq->add_lock, NULL);
	cq->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (cq->epfd < 0) {
		rc = err_set(errno, "epoll_create1: %s", strerror(errno));
		goto free_cq;
	}
	cq->evfd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (cq->evfd < 0) {
		rc = err_set(errno, "eventfd: %s", strerror(errno));
		goto close_epfd;
	}
	/* A NULL watch stands for the eventfd itself. */
	struct epoll_event ev = {.events = EPOLLIN};

	if (epoll_ctl(cq->epfd, EPOLL_CTL_ADD, cq->evfd, &ev) < 0) {
		rc = err_set(errno, "epoll_ctl: %s", strerror(errno));
		goto close_evfd;
	}
	*out = cq;
	return 0;

close_evfd:
	close(cq->evfd);
close_epfd:
	close(cq->epfd);
free_cq:
	pthread_mutex_destroy(&cq->add_lock);
	free(cq);
	return rc;
}

void tp_cq_destroy(struct tp_cq *cq)
{
	if (!cq)
		return;
	for (unsigned i = 0; i < cq->nsubs; i++) {
		struct tp_subcq *sub = cq->subs[i];

		sub->backend->subcq_destroy(sub);
	}
	close(cq->evfd);
	close(cq->epfd);
	pthread_mutex_destroy(&cq->add_lock);
	free(cq);
}

static struct tp_subcq *find_sub(struct tp_cq *cq, const struct tp_backend *backend, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct tp_subcq *sub = atomic_load_explicit(&cq->subs[i], memory_order_relaxed);

		if (sub->backend == backend)
			return sub;
	}
	return NULL;
}

int tp_cq_sub(struct tp_cq *cq, const struct tp_backend *backend, struct tp_subcq **out)
{
	int rc = 0;

	pthread_mutex_lock(&cq->add_lock);
	unsigned n = atomic_load_explicit(&cq->nsubs, memory_order_relaxed);
	struct tp_subcq *sub = find_sub(cq, backend, n);

	if (!sub && n == SUBS_MAX)
		rc = err_set(ENOSPC, "a completion queue takes %d backends", SUBS_MAX);
	else if (!sub)
		rc = backend->subcq_create(cq, &sub);
	if (rc == 0 && n < SUBS_MAX && !find_sub(cq, backend, n)) {
		atomic_store_explicit(&cq->subs[n], sub, memory_order_relaxed);
		atomic_store_explicit(&cq->nsubs, n + 1, memory_order_release);
	}
	pthread_mutex_unlock(&cq->add_lock);
	if (rc < 0)
		return rc;
	*out = sub;
	return 0;
}

/* ---- watched descriptors ----------------------------------------------------------------------
 */

int tp_cq_watch(struct tp_cq *cq, struct tp_watch *watch)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = watch};

	if (epoll_ctl(cq->epfd, EPOLL_CTL_ADD, watch->fd, &ev) < 0)
		return err_set(errno, "epoll_ctl(fd %d): %s", watch->fd, strerror(errno));
	return 0;
}

void tp_cq_unwatch(struct tp_cq *cq, struct tp_watch *watch)
{
	epoll_ctl(cq->epfd, EPOLL_CTL_DEL, watch->fd, NULL);
	for (int i = 0; i < cq->batch_len; i++)
		if (cq->batch[i] == watch)
			cq->batch[i] = NULL;
}

/* Finds out which watched descriptors are readable, waiting up to `timeout_ms` for one. */
static void find_readable(struct tp_cq *cq, int timeout_ms)
{
	struct epoll_event ev[BATCH];
	int n = epoll_wait(cq->epfd, ev, BATCH, timeout_ms);

	cq->batch_len = n > 0 ? n : 0;
	for (int i = 0; i < n; i++) {
		cq->batch[i] = ev[i].data.ptr;
		cq->batch_events[i] = ev[i].events;
		cq->batch_wakes[i] = !ev[i].data.ptr;
	}
}

static void take_readable(struct tp_cq *cq)
{
	for (int i = 0; i < cq->batch_len; i++) {
		uint64_t count;

		if (cq->batch[i])
			cq->batch[i]->ready(cq->batch[i], cq->batch_events[i]);
		else if (cq->batch_wakes[i] && read(cq->evfd, &count, sizeof(count)) < 0)
			continue; /* EAGAIN: drained already */
	}
	cq->batch_len = 0;
}

static void look(struct tp_cq *cq)
{
	find_readable(cq, 0);
	take_readable(cq);
}

static void look_on_the_clock(struct tp_cq *cq)
{
	if (++cq->since_clock < LOOK_STRIDE)
		return;
	cq->since_clock = 0;
	uint64_t now = clock_ns();

	if (now < cq->next_look)
		return;
	look(cq);
	cq->next_look = now + LOOK_NS;
}

/* ---- polling ----------------------------------------------------------------------------------
 */

struct tp_cq_bundles *tp_cq_bundles(struct tp_cq *cq)
{
	return &cq->bundles;
}

/* Where some connections have several rails. */
static int merge_rails(struct tp_cq *cq, struct tp_event *ev, int n)
{
	if (n == 0 && !cq->bundles.ending)
		return 0;
	if (!atomic_load_explicit(&cq->bundles.n, memory_order_relaxed))
		return n;
	if (cq->bundles.ending)
		bundle_overdue(cq->bundles.ending, clock_ns());
	return bundle_translate(ev, n);
}

/* A sleeper is back when bundles have to be seen to. */
static int ms_to_bundles(struct tp_cq *cq, int timeout_ms)
{
	uint64_t now, at;

	if (!cq->bundles.ending)
		return timeout_ms;
	now = clock_ns();
	at = bundle_overdue(cq->bundles.ending, now);
	if (at == UINT64_MAX)
		return timeout_ms;
	int ms = at > now ? (int)((at - now) / NS_PER_MS) + 1 : 0;

	return timeout_ms < 0 || ms < timeout_ms ? ms : timeout_ms;
}

static int poll_subs(struct tp_cq *cq, struct tp_event *ev, int max)
{
	unsigned n = atomic_load_explicit(&cq->nsubs, memory_order_acquire);
	int got = 0;

	look_on_the_clock(cq);
	for (unsigned i = 0; i < n && got < max; i++) {
		struct tp_subcq *sub =
		    atomic_load_explicit(&cq->subs[(cq->turn + i) % n], memory_order_relaxed);

		got += sub->backend->poll(sub, ev + got, max - got);
	}
	cq->turn++;
	return merge_rails(cq, ev, got);
}

/* Hands an event to the user. */
static void give(struct tp_event *to, const struct tp_event *from)
{
	*to = *from;
	if (from->kind == TP_EV_CLOSED)
		from->conn->closed_given = true;
}

int tp_cq_poll(struct tp_cq *cq, struct tp_event *ev, int max)
{
	int n = 0;

	if (cq->stash_at < cq->stash_end) {
		while (n < max && cq->stash_at < cq->stash_end)
			give(&ev[n++], &cq->stash[cq->stash_at++]);
		return n;
	}
	n = max > 0 ? poll_subs(cq, ev, max) : 0;
	for (int i = 0; i < n; i++)
		if (ev[i].kind == TP_EV_CLOSED)
			ev[i].conn->closed_given = true;
	return n;
}

static bool fill_stash(struct tp_cq *cq)
{
	cq->stash_at = 0;
	cq->stash_end = poll_subs(cq, cq->stash, STASH);
	return cq->stash_end > 0;
}

void tp_cq_forget(struct tp_cq *cq, const struct tp_conn *conn)
{
	int to = cq->stash_at;

	for (int i = cq->stash_at; i < cq->stash_end; i++)
		if (cq->stash[i].conn != conn)
			cq->stash[to++] = cq->stash[i];
	cq->stash_end = to;
}

/* ---- waiting and waking -----------------------------------------------------------------------
 */

static bool take_wake(struct tp_cq *cq)
{
	return atomic_load_explicit(&cq->woken, memory_order_relaxed) &&
	       atomic_exchange_explicit(&cq->woken, false, memory_order_acquire);
}

void tp_cq_nudge(struct tp_cq *cq)
{
	uint64_t one = 1;
	int saved = errno;

	if (atomic_fetch_add_explicit(&cq->asleep, 0, memory_order_acq_rel) &&
	    write(cq->evfd, &one, sizeof(one)) < 0)
		errno = saved; /* EAGAIN: the counter is full, so it is readable */
}

void tp_cq_wake(struct tp_cq *cq)
{
	atomic_store_explicit(&cq->woken, true, memory_order_release);
	tp_cq_nudge(cq);
}

void tp_cq_look_at(struct tp_cq *cq, const uint64_t *word, uint64_t was)
{
	cq->word = word;
	cq->word_was = was;
}

static bool word_moved(const struct tp_cq *cq)
{
	return cq->word && __atomic_load_n(cq->word, __ATOMIC_ACQUIRE) != cq->word_was;
}

/* Polls until something is there, the word moved, a wake, or `until`. */
static bool poll_until(struct tp_cq *cq, uint64_t until)
{
	for (;;) {
		if (word_moved(cq) || fill_stash(cq) || take_wake(cq))
			return true;
		uint64_t now = clock_ns();

		if (now >= until)
			return false;
		yields_turn(&cq->spin.yields, now);
		cpu_relax();
	}
}

/* Arms every part and sleeps unless one of them has something already. */
static void sleep_once(struct tp_cq *cq, int timeout_ms)
{
	unsigned n = atomic_load_explicit(&cq->nsubs, memory_order_acquire);
	bool ready = false;
	unsigned armed = 0;

	atomic_exchange_explicit(&cq->asleep, 1, memory_order_acq_rel);
	/* A part added after this count nudges, and is armed the next time round. */
	ready = atomic_load_explicit(&cq->woken, memory_order_relaxed) ||
		atomic_load_explicit(&cq->nsubs, memory_order_relaxed) != n;
	while (armed < n && !ready) {
		struct tp_subcq *sub = cq->subs[armed++];

		ready = sub->backend->arm(sub);
	}
	if (!ready) {
		find_readable(cq, ms_to_bundles(cq, timeout_ms));
		cq->next_look = clock_ns() + LOOK_NS;
	}
	atomic_exchange_explicit(&cq->asleep, 0, memory_order_acq_rel);
	while (armed > 0) {
		struct tp_subcq *sub = cq->subs[--armed];

		sub->backend->disarm(sub);
	}
}

/* What the sleeper was woken for is mostly there to be polled. Then what woke it is left as it is, readable,
 * until somebody looks again: reading it takes longer than to poll, and the other side waits. */
static bool found_after_sleep(struct tp_cq *cq)
{
	bool found = fill_stash(cq);

	if (found)
		cq->batch_len = 0;
	else
		take_readable(cq);
	return found || fill_stash(cq) || take_wake(cq);
}

static int ms_left(uint64_t now, uint64_t until)
{
	uint64_t ms = until > now ? (until - now + NS_PER_MS - 1) / NS_PER_MS : 0;

	return ms > INT32_MAX ? INT32_MAX : (int)ms;
}

int tp_cq_wait(struct tp_cq *cq, int timeout_ms)
{
	bool forever = timeout_ms < 0;

	if (cq->stash_at < cq->stash_end)
		return 1;
	uint64_t now = clock_ns();
	uint64_t until = forever ? UINT64_MAX : now + (uint64_t)timeout_ms * NS_PER_MS;
	uint64_t spin_until = spin_begin(&cq->spin, now);

	if (poll_until(cq, spin_until < until ? spin_until : until)) {
		spin_found(&cq->spin);
		return 1;
	}
	while (forever || (now = clock_ns()) < until) {
		sleep_once(cq, forever ? -1 : ms_left(now, until));
		if (found_after_sleep(cq)) {
			spin_slept(&cq->spin, clock_ns());
			return 1;
		}
	}
	spin_slept(&cq->spin, now);
	return 0;
}
