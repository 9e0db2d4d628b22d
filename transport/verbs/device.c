/* SPDX-License-Identifier: Apache-2.0
 *
 * RDMA devices: which there are, and opening one for a sub.
 *
 * rdma_cm has device contexts of its own. A sub opens another one for each device that it uses,
 * because a context has one stream of asynchronous events: with its own, a sub gets those of its
 * own QPs, on its own polling thread, and no other user of rdma_cm in the process misses any.
 *
 * fork(2). Kernels with copy-on-fork for pinned pages (5.12 and later) need nothing. On older ones
 * libibverbs is told to keep the device's pages out of children (ibv_fork_init), but that would
 * also take the arenas from a child that reads them. They are shared mappings, which a fork never
 * copies, so mem.c gives them back to children after registering them.
 */
#include "base/err.h"
#include "base/log.h"
#include "transport/verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define GIDS_MAX   64
#define SIW_VENDOR 0x626d74

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

static void init_fork(void)
{
	if (ibv_is_fork_initialized() == IBV_FORK_UNNEEDED)
		return;
	int rc = ibv_fork_init();

	if (rc != 0)
		log_warn("rdma: this kernel copies the device's pages on fork, and libibverbs "
			 "can't be told to keep them (%s): do not fork while connected",
			 strerror(rc));
}

void verbs_once(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, init_fork);
}

static int none_found(void)
{
	struct stat st;
	const char *kernel = stat("/sys/class/infiniband", &st) == 0
				 ? "/sys/class/infiniband is empty"
				 : "the kernel has no InfiniBand support loaded "
				   "(no /sys/class/infiniband)";

	return err_set(
	    ENODEV,
	    "no RDMA device: ibv_get_device_list found none, %s. A software one: "
	    "`rdma link add rxe0 type rxe netdev NETDEV` (module rdma_rxe). On one host, "
	    "shm:NAME needs no device",
	    kernel);
}

int verbs_available(void)
{
	int n = 0;

	verbs_once();
	struct ibv_device **list = ibv_get_device_list(&n);

	if (list)
		ibv_free_device_list(list);
	if (!list || n == 0)
		return none_found();
	struct stat st;

	if (stat("/dev/infiniband/rdma_cm", &st) < 0)
		return err_set(ENODEV, "an RDMA device is there but /dev/infiniband/rdma_cm is "
				       "not: load the module rdma_ucm");
	return 0;
}

static int open_by_name(const char *name, struct ibv_context **out)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device *found = NULL;
	int rc = 0;

	for (int i = 0; list && list[i] && !found; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			found = list[i];
	if (!found) {
		rc = err_set(ENODEV, "there is no RDMA device '%s'", name);
	} else {
		*out = ibv_open_device(found);
		if (!*out)
			rc = err_set(errno ? errno : ENODEV, "%s can't be opened: %s", name,
				     strerror(errno));
	}
	if (list)
		ibv_free_device_list(list);
	return rc;
}

/* ---- asynchronous events ----------------------------------------------------------------------
 */

static void fail_all(struct device *dev, const struct ibv_cq *cq, int status, const char *why)
{
	pthread_mutex_lock(&dev->sub->lock);
	for (struct conn *c = dev->sub->conns; c; c = c->next)
		if (c->dev == dev && (!cq || (c->bank && c->bank->cq == cq)))
			conn_fail(c, UNLOCKED, status, "%s: %s",
				  ibv_get_device_name(dev->ctx->device), why);
	pthread_mutex_unlock(&dev->sub->lock);
}

static void fail_qp(const struct ibv_async_event *event)
{
	struct conn *conn = event->element.qp->qp_context;

	conn_fail(conn, UNLOCKED, -EIO, "the queue pair failed: %s",
		  ibv_event_type_str(event->event_type));
}

static void on_async(struct device *dev, const struct ibv_async_event *event)
{
	const char *name = ibv_get_device_name(dev->ctx->device);

	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		fail_qp(event);
		break;
	case IBV_EVENT_COMM_EST: {
		/* Data came before the peer's confirmation, which may be lost. */
		struct conn *conn = event->element.qp->qp_context;

		rdma_notify(conn->id, IBV_EVENT_COMM_EST);
		break;
	}
	case IBV_EVENT_CQ_ERR:
		fail_all(dev, event->element.cq, -EIO, "the completion queue overflowed");
		break;
	case IBV_EVENT_DEVICE_FATAL:
		fail_all(dev, NULL, -ENODEV, "the device failed");
		break;
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_PORT_ACTIVE:
		log_warn("rdma: %s port %d: %s", name, event->element.port_num,
			 ibv_event_type_str(event->event_type));
		break;
	default: /* SQ_DRAINED among them, on which nothing depends */
		log_debug("rdma: %s: %s", name, ibv_event_type_str(event->event_type));
	}
}

static void async_ready(struct tp_watch *watch, uint32_t events)
{
	struct device *dev =
	    (struct device *)((char *)watch - offsetof(struct device, async_watch));
	struct ibv_async_event event;

	while (ibv_get_async_event(dev->ctx, &event) == 0) {
		on_async(dev, &event);
		ibv_ack_async_event(&event);
	}
}

/* ---- opening and closing ----------------------------------------------------------------------
 */

static void comp_ready(struct tp_watch *watch, uint32_t events)
{
	struct device *dev = (struct device *)((char *)watch - offsetof(struct device, comp_watch));
	struct ibv_cq *cq;
	void *context;

	while (ibv_get_cq_event(dev->channel, &cq, &context) == 0) {
		struct cq_bank *bank = context;

		bank->armed = false;
		if (++bank->unacked < 64)
			continue;
		ibv_ack_cq_events(bank->cq, bank->unacked);
		bank->unacked = 0;
	}
}

static int set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

/* Everything but the list. The watches come last: they can't be undone from this thread. */
static int device_open(struct sub *sub, const char *name, struct device **out)
{
	struct device *dev = calloc(1, sizeof(*dev));
	int rc;

	if (!dev)
		return err_set(ENOMEM, "no memory for a device");
	dev->sub = sub;
	rc = open_by_name(name, &dev->ctx);
	if (rc < 0)
		goto free_dev;
	dev->iwarp = dev->ctx->device->transport_type == IBV_TRANSPORT_IWARP;
	if (ibv_query_device(dev->ctx, &dev->attr) != 0) {
		rc = err_set(EIO, "%s: ibv_query_device failed", name);
		goto close_ctx;
	}
	dev->siw = dev->iwarp && dev->attr.vendor_id == SIW_VENDOR;
	dev->channel = ibv_create_comp_channel(dev->ctx);
	if (!dev->channel) {
		rc = mem_error(errno, "a completion channel", 0);
		goto close_ctx;
	}
	rc = set_nonblocking(dev->channel->fd);
	if (rc == 0)
		rc = set_nonblocking(dev->ctx->async_fd);
	if (rc < 0) {
		err_set(-rc, "%s: O_NONBLOCK: %s", name, strerror(-rc));
		goto destroy_channel;
	}
	dev->comp_watch = (struct tp_watch){.fd = dev->channel->fd, .ready = comp_ready};
	dev->async_watch = (struct tp_watch){.fd = dev->ctx->async_fd, .ready = async_ready};
	*out = dev;
	return 0;

destroy_channel:
	ibv_destroy_comp_channel(dev->channel);
close_ctx:
	ibv_close_device(dev->ctx);
free_dev:
	free(dev);
	return rc;
}

static struct device *find(struct sub *sub, const char *name)
{
	pthread_mutex_lock(&sub->lock);
	struct device *dev = sub->devices;

	while (dev && strcmp(ibv_get_device_name(dev->ctx->device), name) != 0)
		dev = dev->next;
	pthread_mutex_unlock(&sub->lock);
	return dev;
}

int device_get(struct sub *sub, struct rdma_cm_id *id, struct device **out)
{
	const char *name = ibv_get_device_name(id->verbs->device);
	int rc = 0;

	pthread_mutex_lock(&open_lock);
	struct device *dev = find(sub, name);

	if (!dev) {
		rc = device_open(sub, name, &dev);
		if (rc < 0)
			goto unlock;
		/* From here the device stays with the sub, so that a watch that was made is never
		 * left without it; one that can't be watched is of no use, but does no harm. */
		pthread_mutex_lock(&sub->lock);
		dev->next = sub->devices;
		sub->devices = dev;
		pthread_mutex_unlock(&sub->lock);
		rc = tp_cq_watch(sub->base.cq, &dev->comp_watch);
		if (rc == 0)
			rc = tp_cq_watch(sub->base.cq, &dev->async_watch);
		dev->broken = rc < 0;
	} else if (dev->broken) {
		rc = err_set(EIO, "%s could not be watched", name);
	}
	if (rc == 0)
		*out = dev;
unlock:
	pthread_mutex_unlock(&open_lock);
	return rc;
}

static void close_banks(struct device *dev)
{
	while (dev->banks) {
		struct cq_bank *bank = dev->banks;

		dev->banks = bank->next;
		/* Exactly what was got: destroying waits for the rest for ever. */
		if (bank->unacked)
			ibv_ack_cq_events(bank->cq, bank->unacked);
		ibv_destroy_cq(bank->cq);
		free(bank);
	}
}

void device_close(struct device *dev)
{
	close_banks(dev);
	ibv_destroy_comp_channel(dev->channel);
	ibv_close_device(dev->ctx);
	free(dev);
}

/* ---- addresses of a device --------------------------------------------------------------------
 */

const char *gid_type_text(uint32_t type)
{
	static const char *const names[] = {"IB", "RoCE v1", "RoCE v2"};

	return type < 3 ? names[type] : "?";
}

/* A RoCE v2 GID is an IP address: IPv4 ones are mapped (::ffff:a.b.c.d). */
static void gid_address(const struct ibv_gid_entry *gid, union address *out)
{
	memset(out, 0, sizeof(*out));
	if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)gid->gid.raw)) {
		out->v4.sin_family = AF_INET;
		memcpy(&out->v4.sin_addr, gid->gid.raw + 12, 4);
		return;
	}
	out->v6.sin6_family = AF_INET6;
	memcpy(&out->v6.sin6_addr, gid->gid.raw, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&out->v6.sin6_addr))
		out->v6.sin6_scope_id = gid->ndev_ifindex;
}

/* How many leading bytes two addresses share, in bits; -1 of different kinds. */
static int nearness(const union address *a, const union address *like)
{
	const uint8_t *x = (const uint8_t *)&a->v6.sin6_addr;
	const uint8_t *y = (const uint8_t *)&like->v6.sin6_addr;
	int len = 16, bits = 0;

	if (a->any.sa_family != like->any.sa_family)
		return -1;
	if (a->any.sa_family == AF_INET) {
		x = (const uint8_t *)&a->v4.sin_addr;
		y = (const uint8_t *)&like->v4.sin_addr;
		len = 4;
	}
	for (int i = 0; i < len && x[i] == y[i]; i++)
		bits += 8;
	return bits;
}

/* iWARP has no IP addresses in its GIDs: GID 0 is the network device's hardware address. */
static bool iwarp_address(struct ibv_context *ctx, const union address *like, union address *out)
{
	struct ifaddrs *list, *at;
	union ibv_gid gid;
	bool found = false;

	if (ibv_query_gid(ctx, 1, 0, &gid) != 0 || getifaddrs(&list) != 0)
		return false;
	for (at = list; at && !found; at = at->ifa_next) {
		char path[sizeof("/sys/class/net//address") + IF_NAMESIZE], line[32] = "";
		unsigned mac[6];
		int family = at->ifa_addr ? at->ifa_addr->sa_family : AF_UNSPEC;

		if ((family != AF_INET && family != AF_INET6) ||
		    (like->any.sa_family != AF_UNSPEC && like->any.sa_family != family))
			continue;
		snprintf(path, sizeof(path), "/sys/class/net/%.15s/address", at->ifa_name);
		FILE *file = fopen(path, "re");

		if (!file)
			continue;
		if (fgets(line, sizeof(line), file) &&
		    sscanf(line, "%x:%x:%x:%x:%x:%x", mac, mac + 1, mac + 2, mac + 3, mac + 4,
			   mac + 5) == 6) {
			found = true;
			for (int i = 0; i < 6; i++)
				found = found && gid.raw[i] == mac[i];
		}
		fclose(file);
		if (found) {
			memset(out, 0, sizeof(*out));
			memcpy(out, at->ifa_addr,
			       family == AF_INET ? sizeof(out->v4) : sizeof(out->v6));
		}
	}
	freeifaddrs(list);
	return found;
}

static bool roce_address(struct ibv_context *ctx, int gid, const union address *like,
			 union address *out)
{
	struct ibv_gid_entry entries[GIDS_MAX];
	ssize_t n = ibv_query_gid_table(ctx, entries, GIDS_MAX, 0);
	int best = -2;

	for (ssize_t i = 0; i < n; i++) {
		union address at;

		if (entries[i].gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    (gid >= 0 && entries[i].gid_index != (uint32_t)gid))
			continue;
		gid_address(&entries[i], &at);
		int near = like->any.sa_family == AF_UNSPEC ? (at.any.sa_family == AF_INET ? 1 : -1)
							    : nearness(&at, like);

		if (near <= best || (near < 0 && like->any.sa_family != AF_UNSPEC))
			continue;
		best = near;
		*out = at;
	}
	return best > -2;
}

int device_address(const char *name, int gid, const union address *like, union address *out)
{
	struct ibv_context *ctx;
	int rc = open_by_name(name, &ctx);

	if (rc < 0)
		return rc;
	bool iwarp = ctx->device->transport_type == IBV_TRANSPORT_IWARP;
	bool found = iwarp ? iwarp_address(ctx, like, out) : roce_address(ctx, gid, like, out);

	ibv_close_device(ctx);
	if (found)
		return 0;
	if (gid >= 0)
		return err_set(EADDRNOTAVAIL,
			       "%s: GID %d is not a RoCE v2 GID with an IP address of the "
			       "peer's family; `gradslot doctor` shows the table",
			       name, gid);
	return err_set(EADDRNOTAVAIL, "%s has no IP address of the peer's family", name);
}
