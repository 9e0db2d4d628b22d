/* SPDX-License-Identifier: Apache-2.0
 *
 * Receives: where messages and immediates arrive.
 *
 * Each QP has a receive queue of its own, with buffers in the connection's protection domain. One
 * that is shared (SRQ) would save nothing, as receives must cover the credits of every connection
 * anyway, and would cost: a peer that ignores its credits could use up the others' receives, a QP
 * that dies can take receives with it, and rxe looks up an SRQ's buffers in the QP's protection
 * domain, so that it can't be shared by connections that are protected from one another.
 *
 * Invariants:
 *  1. A connection's receives (one for each credit, and CREDIT_RESERVE) are posted before its QP
 *     can be reached, and each is posted again before the peer is told so. So there is no RNR.
 *  2. Buffers are never moved or freed while the QP exists.
 */
#include "base/err.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void *rx_slot(const struct conn *conn, uint32_t slot)
{
	return (uint8_t *)conn->rx.slabs[slot / RX_CHUNK].mem +
	       (size_t)(slot % RX_CHUNK) * RX_SLOT_BYTES;
}

static int add_slab(struct conn *conn)
{
	struct rx_pool *pool = &conn->rx;
	struct rx_slab *slabs = realloc(pool->slabs, (pool->nslabs + 1) * sizeof(*slabs));
	size_t size = (size_t)RX_CHUNK * RX_SLOT_BYTES;

	if (!slabs)
		return err_set(ENOMEM, "no memory for receives");
	pool->slabs = slabs;
	struct rx_slab slab = {.mem = mem_map(size)};

	if (!slab.mem)
		return err_set(ENOMEM, "no memory for receives (%zu bytes)", size);
	int rc = mem_register(conn->pd, slab.mem, size, IBV_ACCESS_LOCAL_WRITE, "receive buffers",
			      &slab.mr);

	if (rc < 0) {
		mem_unmap(slab.mem, size);
		return rc;
	}
	pool->slabs[pool->nslabs++] = slab;
	return 0;
}

void rx_free(struct conn *conn)
{
	struct rx_pool *pool = &conn->rx;

	for (uint32_t i = 0; i < pool->nslabs; i++) {
		ibv_dereg_mr(pool->slabs[i].mr);
		mem_unmap(pool->slabs[i].mem, (size_t)RX_CHUNK * RX_SLOT_BYTES);
	}
	free(pool->slabs);
	*pool = (struct rx_pool){0};
}

int rx_repost(struct conn *conn, uint32_t slot)
{
	struct rx_pool *pool = &conn->rx;
	struct ibv_sge sge = {.addr = (uintptr_t)rx_slot(conn, slot),
			      .length = RX_SLOT_BYTES,
			      .lkey = pool->slabs[slot / RX_CHUNK].mr->lkey};
	struct ibv_recv_wr *bad,
	    wr = {.wr_id = wr_id(WR_RECV, conn->serial, slot), .sg_list = &sge, .num_sge = 1};

	return -ibv_post_recv(conn->qp, &wr, &bad);
}

int rx_fill(struct conn *conn, uint32_t need)
{
	struct rx_pool *pool = &conn->rx;

	for (uint32_t slot = 0; slot < need; slot++) {
		int rc = slot == pool->nslabs * RX_CHUNK ? add_slab(conn) : 0;

		if (rc < 0)
			return rc;
		rc = rx_repost(conn, slot);
		if (rc < 0)
			return err_set(-rc, "receive %u of %u can't be posted: %s", slot + 1, need,
				       strerror(-rc));
	}
	return 0;
}
