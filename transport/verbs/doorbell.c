/* SPDX-License-Identifier: Apache-2.0
 *
 * Posting, by either interface.
 */
#include "transport/verbs/doorbell.h"

#include <errno.h>

#define SEND_OPS                                                                                   \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |    \
	 IBV_QP_EX_WITH_RDMA_READ)

enum doorbell_way doorbell_way = DOORBELL_BEST;

static struct ibv_qp *create_ex(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
				struct ibv_qp_ex **ex)
{
	struct ibv_qp_init_attr_ex wanted = {
	    .qp_context = attr->qp_context,
	    .send_cq = attr->send_cq,
	    .recv_cq = attr->recv_cq,
	    .cap = attr->cap,
	    .qp_type = attr->qp_type,
	    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	    .pd = pd,
	    .send_ops_flags = SEND_OPS,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(pd->context, &wanted);

	if (!qp)
		return NULL;
	attr->cap = wanted.cap;
	*ex = ibv_qp_to_qp_ex(qp);
	return qp;
}

struct ibv_qp *doorbell_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
			       struct ibv_qp_ex **ex)
{
	struct ibv_qp *qp = NULL;

	*ex = NULL;
	if (doorbell_way == DOORBELL_BEST)
		qp = create_ex(pd, attr, ex);
	/* Whatever it failed for: providers without it say so in many ways. */
	return qp ? qp : ibv_create_qp(pd, attr);
}

static int put(struct ibv_qp_ex *ex, const struct ibv_send_wr *wr)
{
	const struct ibv_sge *sge = wr->sg_list;

	ex->wr_id = wr->wr_id;
	ex->wr_flags = wr->send_flags;
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_SEND:
		ibv_wr_send(ex);
		break;
	default:
		return EINVAL;
	}
	if (wr->send_flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data(ex, (void *)(uintptr_t)sge->addr, sge->length);
	else
		ibv_wr_set_sge(ex, sge->lkey, sge->addr, sge->length);
	return 0;
}

static int ring_ex(struct ibv_qp_ex *ex, const struct ibv_send_wr *chain)
{
	ibv_wr_start(ex);
	for (const struct ibv_send_wr *wr = chain; wr; wr = wr->next) {
		int rc = put(ex, wr);

		if (rc != 0) {
			ibv_wr_abort(ex);
			return rc;
		}
	}
	return ibv_wr_complete(ex);
}

int doorbell_ring(struct ibv_qp *qp, struct ibv_qp_ex *ex, struct ibv_send_wr *chain,
		  struct ibv_send_wr **bad)
{
	*bad = chain;
	return ex ? ring_ex(ex, chain) : ibv_post_send(qp, chain, bad);
}
