/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection's making, end and destruction.
 */
#include "base/clock.h"
#include "base/err.h"
#include "transport/shm/order.h"
#include "transport/shm/segment.h"
#include "transport/shm/shm.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLOSE_WAIT_NS (1 * NS_PER_S)

void shm_lock(struct shm_conn *conn)
{
	unsigned tries = 0;

	/* The holder may be off its processor: then it is given ours. */
	while (atomic_flag_test_and_set_explicit(&conn->post_lock, memory_order_acquire)) {
		if (++tries % 64 == 0)
			sched_yield();
		else
			cpu_relax();
	}
}

void shm_unlock(struct shm_conn *conn)
{
	atomic_flag_clear_explicit(&conn->post_lock, memory_order_release);
}

void shm_gate_leave(struct shm_gate *gate)
{
	if (gate && atomic_fetch_sub(&gate->refs, 1) == 1)
		free(gate);
}

static void lay_out(struct shm_conn *conn, char *segment, int side, uint32_t depth)
{
	struct shm_shared *shared = (struct shm_shared *)segment;

	conn->segment = segment;
	conn->mine = &shared->side[side];
	conn->theirs = &shared->side[1 - side];
	conn->out = (struct ring_entry *)(segment + shm_ring_at(depth, side));
	conn->in = (struct ring_entry *)(segment + shm_ring_at(depth, 1 - side));
	conn->out_msgs = segment + shm_msgs_at(depth, side);
	conn->in_msgs = segment + shm_msgs_at(depth, 1 - side);
	conn->tx.depth = conn->rx.depth = depth;
}

int shm_conn_create(const struct shm_setup *setup, struct shm_conn **out)
{
	struct shm_conn *conn = line_alloc(1, sizeof(*conn));
	int rc = err_set(ENOMEM, "no memory for a connection of depth %u", setup->depth);

	if (!conn)
		goto close_setup;
	conn->done = calloc(setup->depth, sizeof(*conn->done));
	conn->msg = malloc(TP_MSG_MAX);
	if (!conn->done || !conn->msg)
		goto free_conn;
	rc = shm_peer_watch(conn, setup->peer);
	if (rc < 0)
		goto free_conn;

	conn->base.limits = (struct tp_limits){
	    .max_chunk = setup->max_chunk,
	    .max_inline = SHM_INLINE,
	    .read_depth = setup->depth,
	    .depth = setup->depth,
	    .native_imm = true,
	    .load_store = true,
	    .rails = 1,
	};
	memcpy(conn->base.binding, setup->binding, sizeof(setup->binding));
	snprintf(conn->base.peer, sizeof(conn->base.peer), "pid %d", (int)setup->peer);
	snprintf(conn->base.transport, sizeof(conn->base.transport), "shm");
	conn->sock = setup->sock;
	conn->watch = (struct tp_watch){.fd = setup->sock, .ready = shm_socket_ready};
	conn->accepted = setup->side == 0;
	conn->gate = setup->gate;
	if (conn->gate) {
		atomic_fetch_add(&conn->gate->refs, 1);
		conn->counted = setup->counts;
		atomic_fetch_add(&conn->gate->conns, conn->counted);
	}
	lay_out(conn, setup->segment, setup->side, setup->depth);
	atomic_flag_clear(&conn->post_lock);
	pthread_mutex_init(&conn->sock_lock, NULL);
	for (int i = 0; i < SHM_REGIONS_MAX; i++)
		conn->regions[i].fd = -1;
	LIST_INIT(&conn->exposed);
	LIST_INIT(&conn->attached);
	*out = conn;
	return 0;

free_conn:
	free(conn->msg);
	free(conn->done);
	free(conn);
close_setup:
	close(setup->sock);
	segment_unmap(setup->segment, setup->depth);
	return rc;
}

int shm_conn_bind(struct shm_conn *conn, struct tp_subcq *sub, const struct tp_owner *owner)
{
	conn->base.backend = sub->backend;
	conn->base.cq = sub->cq;
	tp_conn_own(&conn->base, owner);
	conn->sub = (struct shm_subcq *)sub;
	int rc = shm_subcq_add(conn->sub, conn);

	if (rc == 0)
		tp_cq_nudge(sub->cq);
	return rc;
}

/* Waits for other threads that are in the middle of a post. */
static void wait_published(struct shm_conn *conn)
{
	uint64_t until = clock_ns() + CLOSE_WAIT_NS;

	while (atomic_load_explicit(&conn->unpublished, memory_order_acquire) && clock_ns() < until)
		sched_yield();
}

void shm_conn_end(struct shm_conn *conn, int status, enum shm_bye bye, bool drain, const char *fmt,
		  ...)
{
	bool first;
	va_list ap;

	va_start(ap, fmt);
	shm_lock(conn);
	first = shm_conn_open(conn);
	if (first) {
		vsnprintf(conn->base.reason, sizeof(conn->base.reason), fmt, ap);
		conn->status = status;
		conn->drain = drain;
		atomic_store_explicit(&conn->state, SHM_ENDING, memory_order_release);
	}
	shm_unlock(conn);
	va_end(ap);
	if (!first)
		return;
	if (bye == SHM_BYE_CLOSED)
		wait_published(conn);
	snprintf(conn->mine->why, SHM_WHY, "%s", conn->base.reason);
	atomic_store_explicit(&conn->mine->bye, bye, memory_order_release);
	/* The peer's poller is woken by the end of the socket, and so is ours. */
	shutdown(conn->sock, SHUT_RDWR);
	tp_cq_nudge(conn->base.cq);
}

void shm_conn_discount(struct shm_conn *conn)
{
	if (conn->counted)
		atomic_fetch_sub(&conn->gate->conns, 1);
	conn->counted = false;
}

void shm_conn_close(struct tp_conn *base)
{
	shm_conn_end(to_shm(base), 0, SHM_BYE_CLOSED, true, "closed by this side");
}

void shm_conn_destroy(struct tp_conn *base)
{
	struct shm_conn *conn = to_shm(base);

	if (conn->listed)
		shm_subcq_remove(conn->sub, conn);
	while (!LIST_EMPTY(&conn->attached))
		shm_remote_destroy(&LIST_FIRST(&conn->attached)->base);
	while (!LIST_EMPTY(&conn->exposed))
		shm_region_destroy(&LIST_FIRST(&conn->exposed)->base);
	for (int i = 0; i < SHM_REGIONS_MAX; i++)
		if (conn->regions[i].fd >= 0)
			close(conn->regions[i].fd);
	close(conn->sock);
	if (conn->peer_watch.fd >= 0)
		close(conn->peer_watch.fd);
	segment_unmap(conn->segment, conn->tx.depth);
	shm_conn_discount(conn);
	shm_gate_leave(conn->gate);
	pthread_mutex_destroy(&conn->sock_lock);
	free(conn->msg);
	free(conn->done);
	free(conn);
}
