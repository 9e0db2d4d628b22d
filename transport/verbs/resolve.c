/* SPDX-License-Identifier: Apache-2.0
 *
 * Names to addresses, with a deadline. getaddrinfo(3) can't be given one nor be interrupted, so a
 * name goes to a helper thread; whoever lets go of the job last, asker or helper, frees it.
 */
#include "transport/verbs/resolve.h"

#include "base/clock.h"
#include "base/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done, abandoned;
	int rc; /* getaddrinfo's */
	int sys_errno;
	struct addresses found;
	char host[256];
};

static int look_up(const char *host, int flags, struct addresses *out)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *list;
	int rc = getaddrinfo(host, NULL, &hints, &list);

	if (rc != 0)
		return rc;
	out->n = 0;
	for (struct addrinfo *at = list; at && out->n < RESOLVE_MAX; at = at->ai_next) {
		if (at->ai_family != AF_INET && at->ai_family != AF_INET6)
			continue;
		memset(&out->at[out->n], 0, sizeof(out->at[0]));
		memcpy(&out->at[out->n++], at->ai_addr, at->ai_addrlen);
	}
	freeaddrinfo(list);
	return out->n ? 0 : EAI_NONAME;
}

static void free_job(struct job *job)
{
	pthread_cond_destroy(&job->ended);
	pthread_mutex_destroy(&job->lock);
	free(job);
}

static void *work(void *arg)
{
	struct job *job = arg;
	int rc = look_up(job->host, 0, &job->found);
	int sys_errno = errno;

	pthread_mutex_lock(&job->lock);
	bool mine = job->abandoned;

	job->rc = rc;
	job->sys_errno = sys_errno;
	job->done = true;
	pthread_cond_signal(&job->ended);
	pthread_mutex_unlock(&job->lock);
	if (mine)
		free_job(job);
	return NULL;
}

static struct job *start(const char *host)
{
	struct job *job = calloc(1, sizeof(*job));
	pthread_condattr_t clock;
	pthread_attr_t detached;
	pthread_t thread;

	if (!job)
		return NULL;
	snprintf(job->host, sizeof(job->host), "%s", host);
	pthread_mutex_init(&job->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&job->ended, &clock);
	pthread_condattr_destroy(&clock);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	int rc = pthread_create(&thread, &detached, work, job);

	pthread_attr_destroy(&detached);
	if (rc == 0)
		return job;
	free_job(job);
	return NULL;
}

static int fail_text(const char *host, int rc, int sys_errno)
{
	return err_set(ENOENT, "'%s' does not resolve: %s", host,
		       rc == EAI_SYSTEM ? strerror(sys_errno) : gai_strerror(rc));
}

static int resolve_name(const char *host, uint64_t deadline, struct addresses *out)
{
	struct job *job = start(host);
	struct timespec until = {.tv_sec = (time_t)(deadline / NS_PER_S),
				 .tv_nsec = (long)(deadline % NS_PER_S)};
	int rc = 0, waited = 0;

	if (!job)
		return err_set(ENOMEM, "no memory or no thread to resolve '%s'", host);
	pthread_mutex_lock(&job->lock);
	while (!job->done && waited == 0)
		waited = pthread_cond_timedwait(&job->ended, &job->lock, &until);
	bool done = job->done;

	if (done && job->rc == 0)
		*out = job->found;
	else if (done)
		rc = fail_text(host, job->rc, job->sys_errno);
	else
		rc = err_set(ETIMEDOUT, "'%s' was not resolved in time: is the name server up?",
			     host);
	job->abandoned = !done;
	pthread_mutex_unlock(&job->lock);
	if (done)
		free_job(job);
	return rc;
}

int resolve_host(const char *host, uint16_t port, uint64_t deadline, struct addresses *out)
{
	struct addresses found;
	int rc = 0;

	if (look_up(host, AI_NUMERICHOST, &found) != 0)
		rc = resolve_name(host, deadline, &found);
	if (rc < 0)
		return rc;
	for (int i = 0; i < found.n; i++) {
		if (found.at[i].any.sa_family == AF_INET)
			found.at[i].v4.sin_port = htons(port);
		else
			found.at[i].v6.sin6_port = htons(port);
	}
	*out = found;
	return 0;
}

const char *address_text(const union address *at, char *text, size_t size)
{
	char host[INET6_ADDRSTRLEN] = "?", zone[IF_NAMESIZE] = "";

	if (at->any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &at->v4.sin_addr, host, sizeof(host));
		snprintf(text, size, "%s:%u", host, ntohs(at->v4.sin_port));
		return text;
	}
	inet_ntop(AF_INET6, &at->v6.sin6_addr, host, sizeof(host));
	bool zoned = at->v6.sin6_scope_id && if_indextoname(at->v6.sin6_scope_id, zone);

	snprintf(text, size, "[%s%s%s]:%u", host, zoned ? "%" : "", zone, ntohs(at->v6.sin6_port));
	return text;
}
