/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport without a transport.
 */
#include "stub.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "input.h"

enum { MAX_CONNS = 64, MAX_EVENTS = 4096, INLINE_MAX = 16, CHUNK = 1 << 16 };

struct tp_arena {
	uint8_t *base;
	size_t size;
};

struct tp_region {
	struct tp_conn *conn;
	struct tp_arena *arena;
	unsigned access;
	struct tp_region *next;
};

struct tp_cq {
	struct tp_event ev[MAX_EVENTS];
	unsigned first, n;
	void *lent[256]; /* messages that were polled: good until the next poll */
	unsigned n_lent;
	bool woken;
};

struct tp_listener {
	int unused;
};

static struct {
	const struct stub_hooks *hooks;
	bool on, knocked, load_store;
	void *peer;
	uint64_t now;
	struct tp_conn *conn[MAX_CONNS];
	unsigned conns;
	struct tp_region *regions;
} stub;

/* ---- the machine around ------------------------------------------------------------------------ */

int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);
int __real_pthread_join(pthread_t t, void **out);
int __wrap_pthread_join(pthread_t t, void **out);
int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __real_nanosleep(const struct timespec *ts, struct timespec *rem);
int __wrap_nanosleep(const struct timespec *ts, struct timespec *rem);
void __wrap_log_line(enum log_level level, const char *fmt, ...);

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
	if (!stub.on)
		return __real_poll(fds, n, timeout);
	if (stub.hooks->poll)
		stub.hooks->poll();
	for (nfds_t i = 0; i < n; i++)
		fds[i].revents = POLLIN;
	return (int)n;
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg)
{
	if (!stub.on)
		return __real_pthread_create(t, a, f, arg);
	memset(t, 0, sizeof(*t));
	return 0;
}

int __wrap_pthread_join(pthread_t t, void **out)
{
	return stub.on ? 0 : __real_pthread_join(t, out);
}

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	if (!stub.on || id != CLOCK_MONOTONIC)
		return __real_clock_gettime(id, ts);
	*ts = (struct timespec){.tv_sec = (time_t)(stub.now / NS_PER_S),
				.tv_nsec = (long)(stub.now % NS_PER_S)};
	return 0;
}

int __wrap_nanosleep(const struct timespec *ts, struct timespec *rem)
{
	if (!stub.on)
		return __real_nanosleep(ts, rem);
	stub_pass((uint64_t)ts->tv_sec * NS_PER_S + (uint64_t)ts->tv_nsec);
	return 0;
}

/* The text is made, for the sanitizers' sake. An error is what should not have happened. */
void __wrap_log_line(enum log_level level, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (getenv("FUZZ_LOG"))
		fprintf(stderr, "%d: %s\n", (int)level, text);
	FUZZ_MUST(level != LOG_ERROR, "an error was logged: %s", text);
}

void stub_pass(uint64_t ns)
{
	stub.now += ns;
}

/* ---- the fuzzer's side ------------------------------------------------------------------------- */

void stub_begin(const struct stub_hooks *hooks)
{
	memset(&stub, 0, sizeof(stub));
	stub.hooks = hooks;
	stub.now = 1000 * NS_PER_S;
	stub.on = true;
}

void stub_end(void)
{
	for (unsigned i = 0; i < stub.conns; i++) {
		FUZZ_MUST(stub.conn[i]->destroyed, "a connection was not destroyed");
		free(stub.conn[i]);
	}
	stub.on = false;
}

static void put(struct tp_cq *cq, const struct tp_event *ev)
{
	FUZZ_MUST(cq->n < MAX_EVENTS, "the stub's queue is full");
	cq->ev[(cq->first + cq->n++) % MAX_EVENTS] = *ev;
}

static struct tp_conn *make(struct tp_cq *cq, void *user)
{
	struct tp_conn *conn;

	if (stub.conns == MAX_CONNS)
		return NULL;
	conn = calloc(1, sizeof(*conn));
	FUZZ_MUST(conn, "no memory");
	*conn = (struct tp_conn){.cq = cq, .user = user, .peer = stub.peer, .room = STUB_ROOM,
				 .load_store = stub.load_store};
	stub.conn[stub.conns++] = conn;
	return conn;
}

void stub_knock(bool load_store, void *peer)
{
	stub.knocked = true;
	stub_answer(load_store, peer);
}

void stub_answer(bool load_store, void *peer)
{
	stub.load_store = load_store;
	stub.peer = peer;
}

struct tp_conn *stub_last(void)
{
	return stub.conns ? stub.conn[stub.conns - 1] : NULL;
}

void stub_imm(struct tp_conn *conn, uint32_t imm, uint32_t len)
{
	if (!conn->closing)
		put(conn->cq, &(struct tp_event){
				  .kind = TP_EV_IMM, .conn = conn, .imm = imm, .len = len});
}

void stub_msg(struct tp_conn *conn, const void *bytes, size_t len)
{
	void *copy;

	if (conn->closing || len == 0 || len > TP_MSG_MAX)
		return;
	copy = malloc(len);
	FUZZ_MUST(copy, "no memory");
	memcpy(copy, bytes, len);
	put(conn->cq, &(struct tp_event){
			  .kind = TP_EV_MSG, .conn = conn, .msg = copy, .len = (uint32_t)len});
}

void stub_close(struct tp_conn *conn, int status)
{
	if (conn->closing)
		return;
	conn->hold_dones = false;
	stub_dones(conn);
	conn->closing = true;
	put(conn->cq, &(struct tp_event){.kind = TP_EV_CLOSED, .conn = conn, .status = status});
}

void stub_room(struct tp_conn *conn, int room)
{
	conn->room = room;
	if (room > 0 && conn->want_room && !conn->closing) {
		conn->want_room = false;
		put(conn->cq, &(struct tp_event){.kind = TP_EV_ROOM, .conn = conn});
	}
}

void stub_dones(struct tp_conn *conn)
{
	for (unsigned i = 0; i < conn->n_held; i++)
		put(conn->cq, &(struct tp_event){
				  .kind = TP_EV_DONE, .conn = conn, .cookie = conn->held[i]});
	conn->n_held = 0;
}

uint8_t *stub_exposed(struct tp_conn *conn, unsigned i, uint64_t *len)
{
	/* The newest stands first. */
	unsigned n = 0;

	for (struct tp_region *r = stub.regions; r; r = r->next)
		n += r->conn == conn && r->access != TP_LOCAL;
	for (struct tp_region *r = stub.regions; r; r = r->next)
		if (r->conn == conn && r->access != TP_LOCAL && --n == i) {
			*len = r->arena->size;
			return r->arena->base;
		}
	return NULL;
}

/* ---- memory ------------------------------------------------------------------------------------ */

int tp_arena_create(const char *name, size_t size, unsigned flags, struct tp_arena **out)
{
	struct tp_arena *a = malloc(sizeof(*a));
	void *base = NULL;

	/* Not a byte longer than was asked for, so that the sanitizer sees its end. */
	if (!a || size == 0 || size > 64u << 20 || posix_memalign(&base, 4096, size)) {
		free(a);
		return err_set(ENOMEM, "no memory");
	}
	memset(base, 0, size);
	*a = (struct tp_arena){base, size};
	*out = a;
	return 0;
}

void tp_arena_destroy(struct tp_arena *arena)
{
	if (arena)
		free(arena->base);
	free(arena);
}

void *tp_arena_base(const struct tp_arena *arena)
{
	return arena->base;
}

size_t tp_arena_size(const struct tp_arena *arena)
{
	return arena->size;
}

const char *tp_arena_pages(const struct tp_arena *arena)
{
	return "stub pages";
}

int tp_expose(struct tp_conn *conn, struct tp_arena *arena, unsigned access, struct tp_region **out)
{
	struct tp_region *r;

	if (conn->closing)
		return err_set(ENOTCONN, "not connected");
	r = malloc(sizeof(*r));
	FUZZ_MUST(r, "no memory");
	*r = (struct tp_region){conn, arena, access, stub.regions};
	stub.regions = r;
	*out = r;
	return 0;
}

int tp_register(struct tp_conn *conn, const void *at, size_t len, unsigned lend,
		struct tp_region **out)
{
	*out = NULL;
	return 0;
}

void tp_hold(struct tp_region *region)
{
}

void tp_unregister(struct tp_region *region)
{
}

void tp_region_destroy(struct tp_region *region)
{
	for (struct tp_region **at = &stub.regions; region && *at; at = &(*at)->next)
		if (*at == region) {
			*at = region->next;
			break;
		}
	free(region);
}

struct tp_ref tp_region_ref(const struct tp_region *region)
{
	return (struct tp_ref){1, region->arena->size, region->access};
}

int tp_attach(struct tp_conn *conn, const struct tp_ref *ref, unsigned access, uint64_t max_len,
	      struct tp_remote **out)
{
	struct tp_remote *r;

	if (conn->closing)
		return err_set(ENOTCONN, "not connected");
	if (ref->len == 0 || ref->len > max_len || ref->len > 16u << 20 ||
	    conn->remotes == STUB_MAX_REMOTES)
		return err_set(EPROTO, "the ref can't be what it says");
	r = malloc(sizeof(*r));
	FUZZ_MUST(r, "no memory");
	*r = (struct tp_remote){.conn = conn, .len = ref->len, .access = access};
	FUZZ_MUST(!posix_memalign((void **)&r->base, 4096, ref->len), "no memory");
	memset(r->base, 0, ref->len);
	conn->remote[conn->remotes++] = r;
	*out = r;
	return 0;
}

static void free_remote(struct tp_remote *r)
{
	free(r->base);
	free(r);
}

void tp_remote_destroy(struct tp_remote *remote)
{
	for (unsigned i = 0; remote && i < remote->conn->remotes; i++)
		if (remote->conn->remote[i] == remote) {
			remote->conn->remote[i] =
			    remote->conn->remote[--remote->conn->remotes];
			free_remote(remote);
			return;
		}
}

void *tp_remote_map(const struct tp_remote *remote)
{
	return remote->conn->load_store ? remote->base : NULL;
}

/* ---- completion queues ------------------------------------------------------------------------- */

int tp_cq_create(int32_t spin_us, struct tp_cq **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : err_set(ENOMEM, "no memory");
}

static void free_lent(struct tp_cq *cq)
{
	for (unsigned i = 0; i < cq->n_lent; i++)
		free(cq->lent[i]);
	cq->n_lent = 0;
}

void tp_cq_destroy(struct tp_cq *cq)
{
	if (!cq)
		return;
	free_lent(cq);
	for (; cq->n; cq->n--, cq->first = (cq->first + 1) % MAX_EVENTS)
		if (cq->ev[cq->first].kind == TP_EV_MSG)
			free((void *)(uintptr_t)cq->ev[cq->first].msg);
	free(cq);
}

int tp_cq_poll(struct tp_cq *cq, struct tp_event *ev, int max)
{
	int n = 0;

	free_lent(cq);
	while (n < max && cq->n) {
		struct tp_event *e = &cq->ev[cq->first];

		cq->first = (cq->first + 1) % MAX_EVENTS;
		cq->n--;
		if (e->kind == TP_EV_MSG)
			cq->lent[cq->n_lent++] = (void *)(uintptr_t)e->msg;
		if (e->kind == TP_EV_CLOSED)
			e->conn->closed = true;
		ev[n++] = *e;
	}
	return n;
}

int tp_cq_wait(struct tp_cq *cq, int timeout_ms)
{
	if (cq->n)
		return 1;
	if (stub.hooks->idle && stub.hooks->idle(cq))
		return 1;
	/* What waits for more than there is to come waits until its time is up. */
	stub_pass(timeout_ms < 0 ? NS_PER_S : (uint64_t)timeout_ms * NS_PER_MS + 1);
	return cq->n > 0;
}

void tp_cq_look_at(struct tp_cq *cq, const uint64_t *word, uint64_t was)
{
}

void tp_cq_wake(struct tp_cq *cq)
{
	cq->woken = true;
}

/* ---- connections ------------------------------------------------------------------------------- */

int tp_listen(const char *uri, const struct tp_options *opt, struct tp_listener **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : err_set(ENOMEM, "no memory");
}

void tp_listener_destroy(struct tp_listener *listener)
{
	free(listener);
}

int tp_listener_fd(const struct tp_listener *listener)
{
	return -1;
}

const char *tp_listener_uri(const struct tp_listener *listener)
{
	return "shm:fuzz";
}

int tp_accept(struct tp_listener *listener, struct tp_cq *cq, void *user, struct tp_conn **out)
{
	struct tp_conn *conn = stub.knocked ? make(cq, user) : NULL;

	stub.knocked = false;
	if (conn)
		*out = conn;
	return conn != NULL;
}

int tp_connect(const char *uri, const struct tp_options *opt, struct tp_cq *cq, void *user,
	       struct tp_conn **out)
{
	struct tp_conn *conn = make(cq, user);

	if (!conn)
		return err_set(EUSERS, "the stub's connections are used up");
	*out = conn;
	return 0;
}

void *tp_conn_user(const struct tp_conn *conn)
{
	return conn->user;
}

const char *tp_conn_peer(const struct tp_conn *conn)
{
	return "the fuzzer";
}

const char *tp_conn_reason(const struct tp_conn *conn)
{
	return conn->closing ? "the fuzzer closed it" : "";
}

const char *tp_conn_transport(const struct tp_conn *conn)
{
	return "stub";
}

size_t tp_conn_binding(const struct tp_conn *conn, uint8_t out[TP_BINDING_MAX])
{
	memset(out, 7, TP_BINDING_LEN);
	return TP_BINDING_LEN;
}

struct tp_limits tp_conn_limits(const struct tp_conn *conn)
{
	return (struct tp_limits){.max_chunk = CHUNK, .max_inline = INLINE_MAX, .read_depth = 4,
				  .depth = 256, .native_imm = true,
				  .load_store = conn->load_store, .rails = 1};
}

uint32_t tp_imm_len(const struct tp_conn *conn, uint64_t total)
{
	return total == 0 ? 0 : (uint32_t)((total - 1) % CHUNK + 1);
}

static void check_op(const struct tp_conn *conn, const struct tp_op *op)
{
	const struct tp_remote *r = op->remote;
	uint8_t *at = op->local;

	FUZZ_MUST(r && r->conn == conn, "an op to no remote of its connection");
	FUZZ_MUST(op->len > 0 && op->len <= r->len && op->offset <= r->len - op->len,
		  "an op of %llu bytes at %llu of %llu", (unsigned long long)op->len,
		  (unsigned long long)op->offset, (unsigned long long)r->len);
	FUZZ_MUST(op->kind == TP_OP_WRITE || !(op->flags & TP_F_IMM), "a READ with an immediate");
	if (conn->load_store || (op->kind == TP_OP_WRITE && op->len <= INLINE_MAX))
		return;
	FUZZ_MUST(op->region && op->region->conn == conn, "an op from no region");
	FUZZ_MUST(at >= op->region->arena->base &&
		      at + op->len <= op->region->arena->base + op->region->arena->size,
		  "an op from outside of its region");
}

static void done(struct tp_conn *conn, uint64_t cookie)
{
	if (conn->n_held == 64)
		stub_dones(conn);
	conn->held[conn->n_held++] = cookie;
	if (!conn->hold_dones)
		stub_dones(conn);
}

static void carry_out(struct tp_conn *conn, const struct tp_op *op)
{
	uint8_t *there = op->remote->base + op->offset;

	if (op->kind == TP_OP_READ)
		memmove(op->local, there, op->len);
	else if (op->local != there)
		memmove(there, op->local, op->len);
	if ((op->flags & TP_F_IMM) && stub.hooks->imm)
		stub.hooks->imm(conn, op->imm, op->len);
	if (op->flags & TP_F_SIGNAL)
		done(conn, op->cookie);
}

/* True: there is room for one more. */
static bool take_room(struct tp_conn *conn)
{
	if (conn->room > 0) {
		conn->room--;
		return true;
	}
	conn->want_room = true;
	return false;
}

int tp_post(struct tp_conn *conn, const struct tp_op *ops, int n)
{
	int i;

	for (i = 0; i < n && !conn->closing; i++) {
		check_op(conn, &ops[i]);
		if (!take_room(conn))
			return i ? i : -EAGAIN;
		carry_out(conn, &ops[i]);
	}
	return i ? i : err_set(ENOTCONN, "not connected");
}

int tp_send(struct tp_conn *conn, const void *msg, size_t len)
{
	struct wire_msg said;

	if (conn->closing)
		return err_set(ENOTCONN, "not connected");
	FUZZ_MUST(len > 0 && len <= TP_MSG_MAX, "a message of %zu bytes", len);
	FUZZ_MUST(wire_decode(msg, len, &said) == 0, "a message that is none: %s", err_text());
	if (!take_room(conn))
		return -EAGAIN;
	if (stub.hooks->sent)
		stub.hooks->sent(conn, &said);
	return 0;
}

void tp_conn_close(struct tp_conn *conn)
{
	stub_close(conn, 0);
}

void tp_conn_destroy(struct tp_conn *conn)
{
	if (!conn)
		return;
	FUZZ_MUST(!conn->destroyed, "destroyed twice");
	conn->destroyed = conn->closing = true;
	for (unsigned i = 0; i < conn->remotes; i++)
		free_remote(conn->remote[i]);
	conn->remotes = 0;
	for (struct tp_region **at = &stub.regions; *at;) {
		struct tp_region *r = *at;

		if (r->conn != conn) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		free(r);
	}
}

int tp_available(const char *scheme)
{
	return 0;
}

void tp_describe(const char *scheme, void (*line)(void *arg, const char *text), void *arg)
{
}
