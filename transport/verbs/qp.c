/* SPDX-License-Identifier: Apache-2.0
 *
 * Queue pairs: their sizes, making one, and bringing it up with what both sides agreed on.
 *
 * The QP is not made through rdma_cm, because then rdma_cm would bring it up with its own MTU,
 * timeouts and retries. So rdma_cm's events say when, and the attributes that it works out
 * (rdma_init_qp_attr) are completed here.
 *
 * A dead machine is noticed by retries: by default (tuning.h) an ACK is waited for for
 * 4.096 us * 2^18 = 1.07 s, and 6 more tries follow the first, so a post to it fails after 7.5 s where
 * the device takes the timeout as it is (the standard lets it take up to four times as long). A
 * machine that is merely busy gets that long too: software devices answer when they get a CPU. It is
 * not 7 tries, which Soft-RoCE takes for no limit. RNR can't happen in a correct run; a peer that
 * posts no receives is given up after its retries.
 */
#include "base/err.h"
#include "base/log.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READS_MAX   128
#define CHUNK_LIMIT (1u << 30)
#define SQ_MIN      256

int qp_sizes(const struct device *dev, uint32_t depth, struct qp_sizes *out)
{
	uint32_t wrs = (uint32_t)dev->attr.max_qp_wr, cqes = (uint32_t)dev->attr.max_cqe;

	for (; depth > 0; depth = depth * 3 / 4) {
		uint32_t rx_need = depth + CREDIT_RESERVE;
		uint32_t cap = 2 * depth > SQ_MIN ? 2 * depth : SQ_MIN;
		/* One receive more: the drain's marker. */
		uint32_t all = cap + SQ_RESERVE + rx_need + 1;

		if (cap + SQ_RESERVE > wrs || rx_need + 1 > wrs || all > cqes)
			continue;
		*out = (struct qp_sizes){depth, rx_need, cap, all};
		return 0;
	}
	return err_set(ENODEV, "%s is too small: QPs of %u work requests, CQs of %u entries",
		       ibv_get_device_name(dev->ctx->device), wrs, cqes);
}

/* ---- what this side offers --------------------------------------------------------------------
 */

static int check_options(const struct device *dev, const struct tp_uri *uri, uint32_t active_mtu)
{
	const char *name = ibv_get_device_name(dev->ctx->device);

	if (dev->iwarp && (uri->mtu || uri->sl >= 0 || uri->gid >= 0))
		return err_set(EINVAL,
			       "%s is an iWARP device, where connections have no %s: leave it out",
			       name,
			       uri->mtu       ? "mtu"
			       : uri->sl >= 0 ? "sl"
					      : "gid");
	if (uri->mtu && (uint32_t)uri->mtu > active_mtu)
		return err_set(EINVAL,
			       "mtu=%d: the port of %s has %u (raise its network device's MTU, or "
			       "ask for less)",
			       uri->mtu, name, active_mtu);
	return 0;
}

int qp_offer(const struct device *dev, uint8_t port, const struct tp_uri *uri,
	     const struct tp_options *opt, uint32_t depth, struct hello *out)
{
	struct ibv_port_attr attr;

	if (ibv_query_port(dev->ctx, port, &attr) != 0)
		return err_set(EIO, "port %u of %s can't be queried", port,
			       ibv_get_device_name(dev->ctx->device));
	uint32_t mtu = 128u << attr.active_mtu;
	int rc = check_options(dev, uri, mtu);

	if (rc < 0)
		return rc;
	if (uri->mtu)
		mtu = (uint32_t)uri->mtu;
	uint32_t chunk = least(attr.max_msg_sz, CHUNK_LIMIT);

	*out = (struct hello){
	    .version = HELLO_VERSION,
	    .kind = HELLO_OFFER,
	    .flags = dev->iwarp ? 0 : HELLO_NATIVE_IMM,
	    .depth = depth,
	    .max_chunk = opt->max_chunk ? least(opt->max_chunk, chunk) : chunk,
	    .mtu = dev->iwarp ? 0 : mtu,
	    .reads_out = (uint8_t)least((uint32_t)dev->attr.max_qp_init_rd_atom, READS_MAX),
	    .reads_in = (uint8_t)least((uint32_t)dev->attr.max_qp_rd_atom, READS_MAX),
	};
	return 0;
}

/* ---- making one -------------------------------------------------------------------------------
 */

int qp_tune(const struct device *dev, const struct tp_uri *uri, struct tuning *out)
{
	struct tuning_device what = {
	    .name = ibv_get_device_name(dev->ctx->device),
	    .iwarp = dev->iwarp,
	    .rxe = !dev->iwarp && dev->attr.vendor_id == RXE_VENDOR,
	};

	return tuning_settle(&uri->tuning, &what, out);
}

/* The CQ is the sub's: what the last connection on it asked for holds. */
static int moderate(struct conn *conn)
{
	const struct tuning *tuning = &conn->tuning;
	struct ibv_modify_cq_attr attr = {
	    .attr_mask = IBV_CQ_ATTR_MODERATE,
	    .moderate = {.cq_count = tuning->cq_count, .cq_period = tuning->cq_usec},
	};

	if (!tuning->cq_count)
		return 0;
	int rc = ibv_modify_cq(conn->bank->cq, &attr);

	if (rc == 0)
		return 0;
	return err_set(EOPNOTSUPP,
		       "cq_mod=%u/%u: %s does not moderate its completions so (%s): leave it out "
		       "(`gradslot doctor` shows what the device takes)",
		       tuning->cq_count, tuning->cq_usec,
		       ibv_get_device_name(conn->dev->ctx->device), strerror(rc < 0 ? errno : rc));
}

static struct ibv_qp *try_qp(struct conn *conn, const struct qp_sizes *sizes, uint32_t max_inline)
{
	struct ibv_qp_init_attr attr = {
	    .qp_context = conn,
	    .send_cq = conn->bank->cq,
	    .recv_cq = conn->bank->cq,
	    .cap =
		{
		    .max_send_wr = sizes->sq_cap + SQ_RESERVE,
		    .max_recv_wr = sizes->rx_need + 1,
		    .max_send_sge = 1,
		    .max_recv_sge = 1,
		    .max_inline_data = max_inline,
		},
	    .qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = doorbell_create(conn->pd, &attr, &conn->qp_ex);

	/* Some providers grant less without a word; all may grant more, which nobody asked for. */
	if (qp)
		conn->base.limits.max_inline =
		    least(attr.cap.max_inline_data,
			  conn->tuning.inline_asked ? max_inline : URI_INLINE_MAX);
	return qp;
}

static int check_inline(const struct conn *conn)
{
	const struct tuning *tuning = &conn->tuning;

	if (!tuning->inline_asked || conn->base.limits.max_inline == tuning->max_inline)
		return 0;
	return err_set(EINVAL, "inline=%u: %s grants %u: ask for less", tuning->max_inline,
		       ibv_get_device_name(conn->dev->ctx->device), conn->base.limits.max_inline);
}

/* By default as much as the device grants of it, by halves. */
static int make_qp(struct conn *conn, const struct qp_sizes *sizes)
{
	uint32_t ask = conn->tuning.max_inline;
	int err;

	for (;;) {
		conn->qp = try_qp(conn, sizes, ask);
		err = errno;
		if (conn->qp || ask == 0)
			break;
		ask = ask > 64 ? ask / 2 : 0;
	}
	if (!conn->qp)
		return mem_error(err, "a queue pair",
				 (size_t)(sizes->sq_cap + sizes->rx_need) * 128);
	conn->qp_num = conn->qp->qp_num;
	return check_inline(conn);
}

static int make_buffers(struct conn *conn)
{
	size_t headers = ((size_t)conn->sq.mask + 1) * sizeof(struct wire_header);
	size_t size = headers + (size_t)TX_BUFFERS * RX_SLOT_BYTES;

	conn->mem = mem_map(size);
	if (!conn->mem)
		return err_set(ENOMEM, "no memory for message buffers (%zu bytes)", size);
	conn->mem_size = size;
	conn->headers = conn->mem;
	conn->tx_buffers = (uint8_t *)conn->mem + headers;
	for (uint32_t i = 0; i < TX_BUFFERS; i++)
		conn->tx_free[conn->tx_nfree++] = i;
	return mem_register(conn->pd, conn->mem, size, IBV_ACCESS_LOCAL_WRITE, "message buffers",
			    &conn->mem_mr);
}

/* The one memory of the connection's that the peer may write as well as read, as iWARP wants it of
 * a READ's target. Nothing is ever looked up in it. */
static int make_probe(struct conn *conn)
{
	conn->probe = mem_map(sizeof(*conn->probe));
	if (!conn->probe)
		return err_set(ENOMEM, "no memory for the probe");
	return mem_register(conn->pd, conn->probe, sizeof(*conn->probe),
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_WRITE,
			    "the probe", &conn->probe_mr);
}

void qp_probe(const struct conn *conn, struct hello *hello)
{
	if (!conn->dev->iwarp)
		return;
	hello->probe_addr = (uintptr_t)&conn->probe->word;
	hello->probe_key = conn->probe_mr->rkey;
}

static int to_init(struct conn *conn)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	int mask;

	if (rdma_init_qp_attr(conn->id, &attr, &mask) != 0)
		return err_set(errno, "rdma_init_qp_attr (INIT): %s", strerror(errno));
	attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	int rc = ibv_modify_qp(conn->qp, &attr, mask | IBV_QP_ACCESS_FLAGS);

	return rc ? err_set(rc, "the queue pair does not go to INIT: %s", strerror(rc)) : 0;
}

static int claim_cqes(struct conn *conn, uint32_t cqes)
{
	pthread_mutex_lock(&conn->sub->lock);
	int rc = bank_claim(conn->dev, cqes, &conn->bank);

	if (rc == 0)
		conn->cqes = cqes;
	pthread_mutex_unlock(&conn->sub->lock);
	return rc;
}

int qp_create(struct conn *conn, const struct qp_sizes *sizes)
{
	int rc = claim_cqes(conn, sizes->cqes);

	if (rc == 0)
		rc = moderate(conn);
	if (rc < 0)
		return rc;
	conn->credit_rx.depth = sizes->depth;
	conn->credit_tx.depth = sizes->depth;
	conn->pd = ibv_alloc_pd(conn->dev->ctx);
	if (!conn->pd)
		return mem_error(errno, "a protection domain", 0);
	if (sendq_init(&conn->sq, sizes->sq_cap, SQ_RESERVE) < 0)
		return err_set(ENOMEM, "no memory for a send queue");
	rc = make_buffers(conn);
	if (rc == 0 && conn->dev->iwarp)
		rc = make_probe(conn);
	if (rc == 0)
		rc = make_qp(conn, sizes);
	if (rc == 0)
		rc = to_init(conn);
	if (rc == 0)
		rc = rx_fill(conn, sizes->rx_need);
	return rc;
}

/* ---- bringing it up ---------------------------------------------------------------------------
 */

static enum ibv_mtu mtu_enum(uint32_t bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && (256u << (mtu - IBV_MTU_256)) < bytes)
		mtu++;
	return mtu;
}

static void note_gid(struct conn *conn, const struct ibv_qp_attr *attr)
{
	struct ibv_gid_entry gid;

	conn->gid_type = IBV_GID_TYPE_IB;
	if (attr->ah_attr.is_global && ibv_query_gid_ex(conn->dev->ctx, attr->ah_attr.port_num,
							attr->ah_attr.grh.sgid_index, &gid, 0) == 0)
		conn->gid_type = gid.gid_type;
}

static int to_rtr(struct conn *conn, const struct tp_uri *uri, const struct hello *agreed)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int mask;

	if (rdma_init_qp_attr(conn->id, &attr, &mask) != 0)
		return err_set(errno, "rdma_init_qp_attr (RTR): %s", strerror(errno));
	if (uri->gid >= 0 && attr.ah_attr.grh.sgid_index != uri->gid)
		return err_set(EINVAL,
			       "gid=%d: connections from this address use GID %u; give the "
			       "address that belongs to GID %d (`gradslot doctor` shows the table)",
			       uri->gid, attr.ah_attr.grh.sgid_index, uri->gid);
	note_gid(conn, &attr);
	attr.path_mtu = mtu_enum(agreed->mtu);
	attr.max_dest_rd_atomic = agreed->reads_in;
	attr.min_rnr_timer = conn->tuning.rnr_timer;
	if (uri->sl >= 0)
		attr.ah_attr.sl = (uint8_t)uri->sl;
	int rc = ibv_modify_qp(conn->qp, &attr, mask);

	return rc ? err_set(rc, "the queue pair does not go to RTR: %s", strerror(rc)) : 0;
}

static int to_rts(struct conn *conn, const struct hello *agreed)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	int mask;

	if (rdma_init_qp_attr(conn->id, &attr, &mask) != 0)
		return err_set(errno, "rdma_init_qp_attr (RTS): %s", strerror(errno));
	attr.timeout = conn->tuning.timeout;
	attr.retry_cnt = conn->tuning.retry;
	attr.rnr_retry = conn->tuning.rnr;
	attr.max_rd_atomic = agreed->reads_out;
	int rc = ibv_modify_qp(conn->qp, &attr, mask);

	return rc ? err_set(rc, "the queue pair does not go to RTS: %s", strerror(rc)) : 0;
}

int qp_connect(struct conn *conn, const struct tp_uri *uri, const struct hello *agreed)
{
	if (conn->dev->iwarp)
		return 0;
	int rc = to_rtr(conn, uri, agreed);

	return rc < 0 ? rc : to_rts(conn, agreed);
}

uint32_t qp_path_mtu(struct conn *conn)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int mask;

	if (conn->dev->iwarp)
		return 0;
	if (rdma_init_qp_attr(conn->id, &attr, &mask) != 0 || !(mask & IBV_QP_PATH_MTU))
		return 4096;
	return 128u << attr.path_mtu;
}

void qp_set_limits(struct conn *conn, const struct hello *agreed)
{
	struct tp_limits *limits = &conn->base.limits;
	const char *name = ibv_get_device_name(conn->dev->ctx->device);

	limits->max_chunk = agreed->max_chunk;
	limits->read_depth = agreed->reads_out;
	limits->depth = agreed->depth;
	limits->native_imm = (agreed->flags & HELLO_NATIVE_IMM) != 0;
	limits->load_store = false;
	char mtu[32] = "", asked[128];

	tuning_text(&conn->tuning, asked, sizeof(asked));
	if (!conn->dev->iwarp)
		snprintf(mtu, sizeof(mtu), ", MTU %u", agreed->mtu);
	snprintf(conn->base.transport, sizeof(conn->base.transport), "rdma (%s, %s%s%s)", name,
		 conn->dev->iwarp                      ? "iWARP"
		 : conn->gid_type == IBV_GID_TYPE_IB ? "InfiniBand"
						       : gid_type_text(conn->gid_type),
		 mtu, asked);
	log_debug("rdma: %s: %s, depth %u, inline %u, posting by %s", conn->base.peer,
		  conn->base.transport, limits->depth, limits->max_inline,
		  conn->qp_ex ? "ibv_wr_*" : "ibv_post_send");
}

void qp_set_error(struct conn *conn)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	struct siw_guard guard;

	siw_enter(conn->dev, &guard);
	ibv_modify_qp(conn->qp, &attr, IBV_QP_STATE);
	siw_leave(conn->dev, &guard);
}
