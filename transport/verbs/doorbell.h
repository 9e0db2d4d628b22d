/* SPDX-License-Identifier: Apache-2.0
 *
 * How a chain of work requests gets to the device. One call for the whole chain, whichever of the
 * two interfaces of libibverbs the provider has: ibv_wr_*, where each request is written straight
 * into the device's queue, or ibv_post_send.
 */
#ifndef GS_TRANSPORT_VERBS_DOORBELL_H
#define GS_TRANSPORT_VERBS_DOORBELL_H

#include <infiniband/verbs.h>

/* For tests, which run both ways on a device that has both. Looked at when a QP is made. */
enum doorbell_way { DOORBELL_BEST, DOORBELL_OLD };
extern enum doorbell_way doorbell_way;

/* Makes a QP, with ibv_wr_* (*ex is set) where the provider has it. NULL: errno. */
struct ibv_qp *doorbell_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
			       struct ibv_qp_ex **ex);
/* Posts a chain. 0, or an errno with *bad the first one that was not posted: none of those from it
 * on was. (By ibv_wr_* it is all or none.) */
int doorbell_ring(struct ibv_qp *qp, struct ibv_qp_ex *ex, struct ibv_send_wr *chain,
		  struct ibv_send_wr **bad);

#endif
