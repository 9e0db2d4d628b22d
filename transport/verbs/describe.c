/* SPDX-License-Identifier: Apache-2.0
 *
 * What `gradslot doctor` shows of RDMA devices: ports, link layers, limits, and the GID table with
 * the GID that a connection from an address of this port would use.
 */
#include "base/err.h"
#include "transport/verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct printer {
	void (*line)(void *arg, const char *text);
	void *arg;
};

static void say(const struct printer *to, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void say(const struct printer *to, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	to->line(to->arg, text);
}

static const char *link_text(const struct ibv_context *ctx, uint8_t link_layer)
{
	if (ctx->device->transport_type == IBV_TRANSPORT_IWARP)
		return "iWARP";
	return link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet (RoCE)" : "InfiniBand";
}

/* rdma_cm takes the GID that is the bound address; of its two types, v2 unless the system's
 * default_roce_mode says otherwise. So each v2 GID with an address is the choice for it. */
static void describe_gid(const struct printer *to, const struct ibv_gid_entry *gid)
{
	char text[INET6_ADDRSTRLEN] = "?", netdev[IF_NAMESIZE] = "?";
	const struct in6_addr *raw = (const struct in6_addr *)gid->gid.raw;
	bool v4 = IN6_IS_ADDR_V4MAPPED(raw);

	if (!gid->ndev_ifindex || !if_indextoname(gid->ndev_ifindex, netdev))
		snprintf(netdev, sizeof(netdev), "no netdev");
	inet_ntop(AF_INET6, raw, text, sizeof(text));
	say(to, "  gid %u: %s, %s, %s%s%s", gid->gid_index, text, gid_type_text(gid->gid_type),
	    netdev, gid->gid_type == IBV_GID_TYPE_ROCE_V2 ? " <- used for connections of " : "",
	    gid->gid_type == IBV_GID_TYPE_ROCE_V2 ? (v4 ? text + strlen("::ffff:") : text) : "");
}

static void describe_port(const struct printer *to, struct ibv_context *ctx, uint8_t port)
{
	const char *name = ibv_get_device_name(ctx->device);
	struct ibv_port_attr attr;

	if (ibv_query_port(ctx, port, &attr) != 0) {
		say(to, "%s port %u: can't be queried", name, port);
		return;
	}
	say(to, "%s port %u: %s, %s, active MTU %d, longest message %u", name, port,
	    ibv_port_state_str(attr.state), link_text(ctx, attr.link_layer), 128 << attr.active_mtu,
	    attr.max_msg_sz);
	for (int i = 0; i < attr.gid_tbl_len; i++) {
		struct ibv_gid_entry gid;

		if (ibv_query_gid_ex(ctx, port, (uint32_t)i, &gid, 0) == 0)
			describe_gid(to, &gid);
	}
}

struct trial {
	uint32_t max_inline;
	bool wr;
};

/* What a QP gets can't be asked; one is made. */
static bool try_qp(struct ibv_context *ctx, struct trial *out)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_qp_ex *ex = NULL;
	struct ibv_qp *qp = NULL;

	for (uint32_t ask = TUNING_INLINE; pd && cq && !qp; ask /= 2) {
		struct ibv_qp_init_attr attr = {
		    .send_cq = cq,
		    .recv_cq = cq,
		    .cap = {4, 4, 1, 1, ask},
		    .qp_type = IBV_QPT_RC,
		};

		qp = doorbell_create(pd, &attr, &ex);
		*out = (struct trial){attr.cap.max_inline_data, ex != NULL};
		if (ask == 0)
			break;
	}
	if (qp)
		ibv_destroy_qp(qp);
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
	return qp != NULL;
}

/* The defaults of what a URI may ask for, as far as this device has them. */
static void describe_tuning(const struct printer *to, struct ibv_context *ctx)
{
	bool iwarp = ctx->device->transport_type == IBV_TRANSPORT_IWARP;
	struct ibv_device_attr_ex attr;
	struct trial trial;
	char moderation[64] = "not on this device", retries[64] = "retransmission is TCP's";

	if (ibv_query_device_ex(ctx, NULL, &attr) == 0 && attr.cq_mod_caps.max_cq_count)
		snprintf(moderation, sizeof(moderation), "none, up to %u/%u",
			 attr.cq_mod_caps.max_cq_count, attr.cq_mod_caps.max_cq_period);
	if (!iwarp)
		snprintf(retries, sizeof(retries), "timeout %d, retry %d, rnr %d, rnr_timer %d",
			 TUNING_TIMEOUT, TUNING_RETRY, TUNING_RNR, TUNING_RNR_TIMER);
	if (!try_qp(ctx, &trial)) {
		say(to, "  a queue pair can't be made: %s", strerror(errno));
		return;
	}
	say(to, "  by default: %s, inline %u, ro 1, cq_mod %s; posting by %s", retries,
	    trial.max_inline, moderation, trial.wr ? "ibv_wr_*" : "ibv_post_send");
}

static void describe_device(const struct printer *to, struct ibv_device *device)
{
	struct ibv_context *ctx = ibv_open_device(device);
	struct ibv_device_attr attr;

	if (!ctx) {
		say(to, "%s: can't be opened: %s (is /dev/infiniband/uverbs* readable?)",
		    ibv_get_device_name(device), strerror(errno));
		return;
	}
	if (ibv_query_device(ctx, &attr) == 0) {
		say(to,
		    "%s: firmware %s, QPs of %d work requests, CQs of %d entries, SRQs of %d, "
		    "READs at once: %d out, %d in",
		    ibv_get_device_name(device), attr.fw_ver[0] ? attr.fw_ver : "-", attr.max_qp_wr,
		    attr.max_cqe, attr.max_srq_wr, attr.max_qp_init_rd_atom, attr.max_qp_rd_atom);
		describe_tuning(to, ctx);
		for (uint8_t port = 1; port <= attr.phys_port_cnt; port++)
			describe_port(to, ctx, port);
	}
	ibv_close_device(ctx);
}

void verbs_describe(void (*line)(void *arg, const char *text), void *arg)
{
	struct printer to = {line, arg};

	if (verbs_available() < 0)
		line(arg, err_text());
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		describe_device(&to, list[i]);
	if (list)
		ibv_free_device_list(list);
}
