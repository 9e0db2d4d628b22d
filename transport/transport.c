/* SPDX-License-Identifier: Apache-2.0
 *
 * The public functions: what holds for every backend is checked here, then the backend is called.
 */
#include "transport/transport.h"

#include "base/err.h"
#include "transport/backend.h"
#include "transport/bundle.h"

#include <errno.h>
#include <string.h>

#define DEPTH_DEFAULT      256
#define TIMEOUT_DEFAULT_MS 10000
#define CONNS_DEFAULT      64
#define CHUNK_MIN          64

static const struct tp_backend *const backends[] = {&tp_shm_backend, &tp_verbs_backend};

static const struct tp_backend *backend_of(const char *scheme)
{
	for (size_t i = 0; i < sizeof(backends) / sizeof(*backends); i++)
		if (scheme && !strcmp(backends[i]->scheme, scheme))
			return backends[i];
	err_set(EINVAL, "'%s': there are the transports shm and rdma", scheme ? scheme : "");
	return NULL;
}

/* ---- listening and connecting -----------------------------------------------------------------
 */

static int fill_options(const struct tp_options *given, struct tp_options *opt)
{
	*opt = given ? *given : (struct tp_options){0};
	if (!opt->depth)
		opt->depth = DEPTH_DEFAULT;
	if (!opt->timeout_ms)
		opt->timeout_ms = TIMEOUT_DEFAULT_MS;
	if (!opt->max_conns)
		opt->max_conns = CONNS_DEFAULT;
	if (!opt->lend_bytes)
		opt->lend_bytes = UINT64_MAX;
	if (!opt->rails)
		opt->rails = 1;
	if (opt->rails > TP_RAILS_MAX)
		return err_set(EINVAL, "%u rails: the limit is %d", opt->rails, TP_RAILS_MAX);
	if (opt->depth > TP_DEPTH_MAX)
		return err_set(EINVAL, "depth %u: the limit is %d", opt->depth, TP_DEPTH_MAX);
	if (opt->timeout_ms > INT32_MAX)
		return err_set(EINVAL, "timeout %u ms: the limit is %d", opt->timeout_ms,
			       INT32_MAX);
	if (opt->max_chunk && opt->max_chunk < CHUNK_MIN)
		return err_set(EINVAL, "chunks of %u bytes: %d at least", opt->max_chunk,
			       CHUNK_MIN);
	return 0;
}

static bool names_one_peer(const struct tp_uri *uri)
{
	return strcmp(uri->scheme, "rdma") || (strcmp(uri->host, "*") && uri->port);
}

/* A listener takes what comes, of as many rails as its peers want. */
static int check_place(const char *text, const struct tp_uri *uri, bool connecting)
{
	if (connecting && !names_one_peer(uri))
		return err_set(EINVAL, "'%s': to connect, a host and a port are needed", text);
	if (!connecting && uri->qps)
		return err_set(EINVAL,
			       "'%s': qps=, several hosts and several devices are for those who "
			       "connect; to listen at several addresses give '*' as host",
			       text);
	return 0;
}

/* The URI's backend, when it can be used here. */
static int resolve(const char *text, const struct tp_options *given, bool connecting,
		   struct tp_uri *uri, struct tp_options *opt, const struct tp_backend **backend)
{
	int rc = tp_uri_parse(text, uri);

	if (rc == 0)
		rc = check_place(text, uri, connecting);
	if (rc == 0)
		rc = fill_options(given, opt);
	if (rc == 0 && uri->tuning.depth > 0)
		opt->depth = (uint32_t)uri->tuning.depth;
	if (rc < 0)
		return rc;
	*backend = backend_of(uri->scheme);
	return *backend ? (*backend)->available() : -EINVAL;
}

int tp_listen(const char *text, const struct tp_options *given, struct tp_listener **out)
{
	const struct tp_backend *backend;
	struct tp_options opt;
	struct tp_uri uri;
	int rc = resolve(text, given, false, &uri, &opt, &backend);

	return rc < 0 ? rc : backend->listen(&uri, &opt, out);
}

void tp_listener_destroy(struct tp_listener *listener)
{
	if (listener)
		listener->backend->listener_destroy(listener);
}

int tp_listener_fd(const struct tp_listener *listener)
{
	return listener->backend->listener_fd(listener);
}

const char *tp_listener_uri(const struct tp_listener *listener)
{
	return listener->uri;
}

int tp_accept(struct tp_listener *listener, struct tp_cq *cq, void *user, struct tp_conn **out)
{
	struct tp_subcq *sub;

	if (!cq)
		return err_set(EINVAL, "accept: a completion queue is needed");
	int rc = tp_cq_sub(cq, listener->backend, &sub);

	return rc < 0 ? rc : listener->backend->accept(listener, sub, user, out);
}

int tp_connect(const char *text, const struct tp_options *given, struct tp_cq *cq, void *user,
	       struct tp_conn **out)
{
	const struct tp_backend *backend;
	struct tp_options opt;
	struct tp_subcq *sub;
	struct tp_uri uri;

	if (!cq)
		return err_set(EINVAL, "connect: a completion queue is needed");
	int rc = resolve(text, given, true, &uri, &opt, &backend);

	if (rc < 0)
		return rc;
	rc = tp_cq_sub(cq, backend, &sub);
	if (rc < 0)
		return rc;
	unsigned rails = uri.qps ? uri.qps : opt.rails;
	struct tp_owner owner = {.user = user};

	return rails > 1 ? bundle_connect(backend, &uri, &opt, rails, sub, user, out)
			 : backend->connect(&uri, &opt, sub, &owner, out);
}

/* ---- memory of a connection -------------------------------------------------------------------
 */

static bool access_valid(unsigned access)
{
	return !(access & ~(unsigned)(TP_PEER_READ | TP_PEER_WRITE));
}

int tp_expose(struct tp_conn *conn, struct tp_arena *arena, unsigned access, struct tp_region **out)
{
	if (!arena || !access_valid(access & ~(unsigned)TP_COMPLETION_ORDERED))
		return err_set(EINVAL, "expose: an arena and an access are needed (access 0x%x)",
			       access);
	if ((access & TP_PEER_WRITE) && tp_arena_read_only_to_peers(arena))
		return err_set(
		    EINVAL, "expose: the arena is read-only to peers, write access can't be given");
	return conn->backend->expose(conn, arena, access, out);
}

void tp_region_destroy(struct tp_region *region)
{
	if (region)
		region->conn->backend->region_destroy(region);
}

struct tp_ref tp_region_ref(const struct tp_region *region)
{
	return region->ref;
}

int tp_register(struct tp_conn *conn, const void *at, size_t len, unsigned lend,
		struct tp_region **out)
{
	if (!at || len < 1 || (uintptr_t)at > UINTPTR_MAX - len - 65536 ||
	    lend & ~(unsigned)(TP_LEND_TARGET | TP_LEND_KNOWN))
		return err_set(EINVAL, "register: %zu bytes at %p, as 0x%x", len, at, lend);
	if (conn->backend->reg && !conn->limits.load_store)
		return conn->backend->reg(conn, at, len, lend, out);
	*out = NULL;
	return 0;
}

void tp_hold(struct tp_region *region)
{
	if (region)
		region->conn->backend->hold(region);
}

void tp_unregister(struct tp_region *region)
{
	if (region)
		region->conn->backend->unreg(region);
}

int tp_attach(struct tp_conn *conn, const struct tp_ref *ref, unsigned access, uint64_t max_len,
	      struct tp_remote **out)
{
	if (!ref || !access || !access_valid(access) || !max_len)
		return err_set(
		    EINVAL,
		    "attach: a ref, an access to read or write (0x%x) and a limit (%llu) "
		    "are needed",
		    access, (unsigned long long)max_len);
	if (ref->len < 1 || ref->len > max_len || ref->addr + ref->len < ref->addr)
		return err_set(EPROTO,
			       "attach: the peer's region has %llu bytes, 1 to %llu expected",
			       (unsigned long long)ref->len, (unsigned long long)max_len);
	if (ref->more + 1 != conn->limits.rails)
		return err_set(EPROTO,
			       "attach: the peer's region has %u keys, the connection %u rails",
			       ref->more + 1, conn->limits.rails);
	return conn->backend->attach(conn, ref, access, out);
}

void tp_remote_destroy(struct tp_remote *remote)
{
	if (remote)
		remote->conn->backend->remote_destroy(remote);
}

void *tp_remote_map(const struct tp_remote *remote)
{
	return remote->map;
}

/* ---- posting ----------------------------------------------------------------------------------
 */

static int check_flags(const struct tp_conn *conn, const struct tp_op *op)
{
	if (op->kind != TP_OP_WRITE && op->kind != TP_OP_READ)
		return err_set(EINVAL, "op: unknown kind %d", (int)op->kind);
	if (op->flags & ~(unsigned)(TP_F_IMM | TP_F_SIGNAL | TP_F_FENCE))
		return err_set(EINVAL, "op: unknown flags 0x%x", op->flags);
	if ((op->flags & TP_F_IMM) && op->kind != TP_OP_WRITE)
		return err_set(EINVAL, "op: only a WRITE carries immediate data");
	if (op->rail >= conn->limits.rails)
		return err_set(EINVAL, "op: rail %u of a connection of %u", op->rail,
			       conn->limits.rails);
	return 0;
}

static int check_remote(const struct tp_conn *conn, const struct tp_op *op)
{
	const struct tp_remote *to = op->remote;
	unsigned need = op->kind == TP_OP_WRITE ? TP_PEER_WRITE : TP_PEER_READ;

	if (!to || to->conn != conn)
		return err_set(EINVAL, "op: its remote is not one of this connection");
	if (!(to->access & need))
		return err_set(EACCES, "op: the remote was not attached to %s it",
			       op->kind == TP_OP_WRITE ? "write" : "read");
	if (op->len < 1 || op->len > to->ref.len || op->offset > to->ref.len - op->len)
		return err_set(EINVAL, "op: %llu bytes at offset %llu of a remote of %llu bytes",
			       (unsigned long long)op->len, (unsigned long long)op->offset,
			       (unsigned long long)to->ref.len);
	return 0;
}

static int check_local(const struct tp_conn *conn, const struct tp_op *op)
{
	const struct tp_region *from = op->region;

	if (!op->local)
		return err_set(EINVAL, "op: its local address is NULL");
	if (conn->limits.load_store)
		return 0;
	if (op->kind == TP_OP_WRITE && op->len <= conn->limits.max_inline)
		return 0;
	if (!from || from->conn != conn)
		return err_set(EINVAL, "op: %llu bytes need a region of this connection%s",
			       (unsigned long long)op->len,
			       op->kind == TP_OP_WRITE ? " (short WRITEs alone do without)" : "");
	/* Of memory that is lent, what was registered. */
	uintptr_t base =
	    from->arena ? (uintptr_t)tp_arena_base(from->arena) : (uintptr_t)from->ref.addr;
	uintptr_t at = (uintptr_t)op->local;
	size_t size = from->arena ? tp_arena_size(from->arena) : (size_t)from->ref.len;

	if (at < base || op->len > size || at - base > size - op->len)
		return err_set(EINVAL, "op: %llu bytes at %p are not within the region's %zu at %p",
			       (unsigned long long)op->len, op->local, size, (void *)base);
	return 0;
}

int tp_post(struct tp_conn *conn, const struct tp_op *ops, int n)
{
	int good = 0, rc = 0;

	if (!ops || n < 1)
		return err_set(EINVAL, "post: %d ops: 1 at least", n);
	while (good < n) {
		rc = check_flags(conn, &ops[good]);
		if (rc == 0)
			rc = check_remote(conn, &ops[good]);
		if (rc == 0)
			rc = check_local(conn, &ops[good]);
		if (rc < 0)
			break;
		good++;
	}
	return good ? conn->backend->post(conn, ops, good) : rc;
}

int tp_send(struct tp_conn *conn, const void *msg, size_t len)
{
	if (!msg || len < 1 || len > TP_MSG_MAX)
		return err_set(EMSGSIZE, "a message has 1 to %d bytes, not %zu", TP_MSG_MAX,
			       msg ? len : 0);
	return conn->backend->send(conn, msg, len);
}

uint32_t tp_imm_len(const struct tp_conn *conn, uint64_t total)
{
	uint64_t rest = total % conn->limits.max_chunk;

	return (uint32_t)(rest ? rest : conn->limits.max_chunk);
}

/* ---- connections ------------------------------------------------------------------------------
 */

void tp_conn_close(struct tp_conn *conn)
{
	if (conn)
		conn->backend->close(conn);
}

void tp_conn_destroy(struct tp_conn *conn)
{
	if (!conn)
		return;
	if (!conn->closed_given)
		tp_cq_forget(conn->cq, conn);
	conn->backend->conn_destroy(conn);
}

void *tp_conn_user(const struct tp_conn *conn)
{
	return conn->user;
}

const char *tp_conn_peer(const struct tp_conn *conn)
{
	return conn->peer;
}

const char *tp_conn_reason(const struct tp_conn *conn)
{
	return conn->reason;
}

const char *tp_conn_transport(const struct tp_conn *conn)
{
	return conn->transport;
}

size_t tp_conn_binding(const struct tp_conn *conn, uint8_t out[TP_BINDING_MAX])
{
	if (conn->limits.rails > 1)
		return bundle_binding((const struct bundle *)conn, out);
	memcpy(out, conn->binding, TP_BINDING_LEN);
	return TP_BINDING_LEN;
}

struct tp_limits tp_conn_limits(const struct tp_conn *conn)
{
	return conn->limits;
}

/* ---- what this machine can do -----------------------------------------------------------------
 */

int tp_available(const char *scheme)
{
	const struct tp_backend *backend = backend_of(scheme);

	return backend ? backend->available() : -EINVAL;
}

void tp_describe(const char *scheme, void (*line)(void *arg, const char *text), void *arg)
{
	const struct tp_backend *backend = backend_of(scheme);

	if (backend && backend->describe)
		backend->describe(line, arg);
	else
		line(arg, backend ? "nothing is known of this transport" : err_text());
}
