/* SPDX-License-Identifier: Apache-2.0
 *
 * What siw, the kernel's software iWARP, needs beyond other devices. It stands in for iWARP
 * hardware in tests and where there is none, and has four traits that a program must live with:
 *
 *  - It sends from within the caller's system call, and not with MSG_NOSIGNAL: to a peer that has
 *    gone that raises SIGPIPE, which ends a process that never heard of sockets. siw_enter and
 *    siw_leave go around each such call.
 *  - A listening side takes its socket over just after it answered. Bytes that come in between stay
 *    unread until more come. So the connecting side, whose first message it may be, repeats a READ
 *    until one was answered: in tp_connect, and if that was not long enough, when it polls.
 *  - It answers a READ of up to 24 bytes that lie in two pages with other bytes (6.1's siw_try_1seg
 *    takes what is in the second page for what is in the first, and the reverse). So a short READ
 *    is cut at a page's edge.
 *  - Its library takes a mapping at offset 0x90000 for none (sub.c).
 */
#include "base/clock.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

static void only_pipe(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGPIPE);
}

void siw_enter(const struct device *dev, struct siw_guard *guard)
{
	sigset_t pipe, pending;

	if (!dev->siw)
		return;
	only_pipe(&pipe);
	sigpending(&pending);
	guard->was_pending = sigismember(&pending, SIGPIPE) == 1;
	pthread_sigmask(SIG_BLOCK, &pipe, &guard->before);
}

void siw_leave(const struct device *dev, struct siw_guard *guard)
{
	static const struct timespec now;
	int saved = errno;
	sigset_t pipe;

	if (!dev->siw)
		return;
	only_pipe(&pipe);
	if (!guard->was_pending)
		while (sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
	errno = saved;
}

uint32_t siw_cut(const struct device *dev, uint64_t remote_addr, uint32_t len)
{
	enum { SHORT = 64, PAGE = 4096 }; /* larger pages have their edges there as well */
	uint32_t left = PAGE - (uint32_t)(remote_addr % PAGE);

	return dev->siw && len <= SHORT && left < len ? left : 0;
}

void siw_knock(struct conn *conn)
{
	uint64_t now = clock_ns(), end = now + 5 * KNOCK_MS * NS_PER_MS, next = now;

	for (; now < end && !complete_peek_knock(conn); now = clock_ns()) {
		if (now >= next) {
			pthread_spin_lock(&conn->lock);
			post_knock(conn);
			pthread_spin_unlock(&conn->lock);
			next = now + KNOCK_MS * NS_PER_MS;
		}
		sched_yield();
	}
}
