/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of the layer's objects belongs to which of the transport's. An event of a connection may be
 * polled before the call that makes it has returned, so whoever asks first makes the entry.
 */
#include "layer.h"

#include <stdlib.h>

enum { BUCKETS = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fconn *conns[BUCKETS];
static struct fqueue *queues[BUCKETS];

static unsigned bucket(const void *p)
{
	return (unsigned)(((uintptr_t)p >> 4) * 0x9e3779b1u >> 8) % BUCKETS;
}

static void *must_have(void *p)
{
	if (!p)
		abort();
	return p;
}

static struct fqueue *find_queue(struct tp_cq *cq)
{
	struct fqueue **at = &queues[bucket(cq)], *q = *at;

	while (q && q->cq != cq)
		q = q->next;
	if (q)
		return q;
	q = must_have(calloc(1, sizeof(*q)));
	q->cq = cq;
	q->end = &q->first;
	pthread_mutex_init(&q->lock, NULL);
	q->next = *at;
	*at = q;
	return q;
}

struct fqueue *fqueue_of(struct tp_cq *cq)
{
	pthread_mutex_lock(&lock);
	struct fqueue *q = find_queue(cq);

	pthread_mutex_unlock(&lock);
	return q;
}

static void free_all(struct held *h)
{
	while (h) {
		struct held *next = h->next;

		free(h->msg);
		free(h);
		h = next;
	}
}

void fqueue_forget(struct tp_cq *cq)
{
	struct fqueue *q, **at = &queues[bucket(cq)];

	pthread_mutex_lock(&lock);
	while (*at && (*at)->cq != cq)
		at = &(*at)->next;
	q = *at;
	if (q)
		*at = q->next;
	pthread_mutex_unlock(&lock);
	if (!q)
		return;
	free_all(q->first);
	free_all(q->given);
	pthread_mutex_destroy(&q->lock);
	free(q);
}

struct fconn *fconn_of(const struct tp_conn *conn, struct tp_cq *cq)
{
	struct fconn **at = &conns[bucket(conn)], *c;

	pthread_mutex_lock(&lock);
	for (c = *at; c && c->conn != conn;)
		c = c->next;
	if (!c && cq) {
		c = must_have(calloc(1, sizeof(*c)));
		c->conn = (struct tp_conn *)(uintptr_t)conn;
		c->queue = find_queue(cq);
		c->noimm = rules_noimm();
		c->unclaimed = true;
		pthread_mutex_init(&c->lock, NULL);
		c->next = *at;
		*at = c;
	}
	pthread_mutex_unlock(&lock);
	return must_have(c);
}

void fconn_each(void (*visit)(struct fconn *c))
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct fconn *c = conns[i]; c; c = c->next)
			visit(c);
	pthread_mutex_unlock(&lock);
}

void fconn_forget(struct fconn *c)
{
	struct fconn **at = &conns[bucket(c->conn)];

	pthread_mutex_lock(&lock);
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	pthread_mutex_unlock(&lock);
	queue_drop(c);
	pthread_mutex_destroy(&c->lock);
	free(c->cookies);
	free(c);
}
