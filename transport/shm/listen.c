/* SPDX-License-Identifier: Apache-2.0
 *
 * The listener. Sockets that were accepted and have not yet said hello wait in a bounded table,
 * each until a deadline, or until its place is needed by another: hello is said at once, so who has
 * not said it for a while can go. A silent client holds up nobody for long. Those that are rails of
 * one bundle then wait for one another (gather.h), out of that table.
 *
 * What listener_fd gives is an epoll descriptor: of the listening socket (only while the table has
 * a place), of the waiting sockets, and of a timer for the earliest deadline, gatherings' included.
 */
#include "base/clock.h"
#include "base/err.h"
#include "transport/bundle.h"
#include "transport/gather.h"
#include "transport/shm/segment.h"
#include "transport/shm/shm.h"
#include "transport/shm/sock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define WAITING_MAX   16
#define HELLO_WAIT_NS (1 * NS_PER_S)
#define PLACE_NS      (50 * NS_PER_MS) /* how long a place is one's own */
#define BACKLOG       64

struct waiting {
	int sock; /* -1: free */
	struct ucred peer;
	uint64_t deadline;
};

/* One that said a good hello. */
struct guest {
	int sock;
	pid_t peer;
	struct shm_hello hello;
};

struct shm_listener {
	struct tp_listener base;
	struct tp_options opt;
	int sock, epfd, timer;
	bool listening; /* the socket is in epfd */
	struct shm_gate *gate;
	struct waiting waiting[WAITING_MAX];
	struct gather gather; /* of struct guest */
};

/* ---- making and destroying --------------------------------------------------------------------
 */

static int bind_name(int sock, const char *name)
{
	struct sockaddr_un addr;
	socklen_t len = sock_address(name, &addr);

	if (bind(sock, (struct sockaddr *)&addr, len) < 0) {
		if (errno == EADDRINUSE)
			return err_set(EADDRINUSE,
				       "shm:%s is in use by another listener; choose another name",
				       name);
		return err_set(errno, "shm:%s: bind: %s", name, strerror(errno));
	}
	if (listen(sock, BACKLOG) < 0)
		return err_set(errno, "shm:%s: listen: %s", name, strerror(errno));
	return 0;
}

static int watch(struct shm_listener *l, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP};

	return epoll_ctl(l->epfd, EPOLL_CTL_ADD, fd, &ev) < 0
		   ? err_set(errno, "epoll_ctl: %s", strerror(errno))
		   : 0;
}

static int open_all(struct shm_listener *l, const char *name)
{
	int rc = l->sock = sock_open();

	if (rc < 0)
		return rc;
	rc = bind_name(l->sock, name);
	if (rc < 0)
		return rc;
	l->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epfd < 0)
		return err_set(errno, "epoll_create1: %s", strerror(errno));
	l->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (l->timer < 0)
		return err_set(errno, "timerfd_create: %s", strerror(errno));
	rc = watch(l, l->timer);
	if (rc == 0)
		rc = watch(l, l->sock);
	l->listening = rc == 0;
	return rc;
}

int shm_listen(const struct tp_uri *uri, const struct tp_options *opt, struct tp_listener **out)
{
	struct shm_listener *l = calloc(1, sizeof(*l));
	struct shm_gate *gate = calloc(1, sizeof(*gate));

	if (!l || !gate) {
		free(l);
		free(gate);
		return err_set(ENOMEM, "no memory for a listener");
	}
	l->base.backend = &tp_shm_backend;
	snprintf(l->base.uri, sizeof(l->base.uri), "shm:%s", uri->name);
	l->opt = *opt;
	l->gate = gate;
	atomic_store(&gate->refs, 1);
	l->sock = l->epfd = l->timer = -1;
	for (int i = 0; i < WAITING_MAX; i++)
		l->waiting[i].sock = -1;

	int rc = open_all(l, uri->name);

	if (rc < 0) {
		shm_listener_destroy(&l->base);
		return rc;
	}
	*out = &l->base;
	return 0;
}

static void close_if_open(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void refuse(int sock, int err, const char *text);

static void turn_away(struct guest *g, int err, const char *text)
{
	refuse(g->sock, err, text);
	close(g->sock);
	free(g);
}

/* All that came of a bundle. */
static void turn_away_all(const struct gathering *all, int err, const char *text)
{
	for (unsigned r = 0; r < all->rails; r++)
		if (all->request[r])
			turn_away(all->request[r], err, text);
}

static void drop_gatherings(struct shm_listener *l, uint64_t now)
{
	struct gathering all;

	while (gather_expired(&l->gather, now, &all))
		turn_away_all(&all, ECONNREFUSED, "not all rails of the connection came in time");
}

void shm_listener_destroy(struct tp_listener *base)
{
	struct shm_listener *l = (struct shm_listener *)base;

	drop_gatherings(l, UINT64_MAX);
	for (int i = 0; i < WAITING_MAX; i++)
		close_if_open(l->waiting[i].sock);
	close_if_open(l->timer);
	close_if_open(l->epfd);
	close_if_open(l->sock);
	shm_gate_leave(l->gate);
	free(l);
}

int shm_listener_fd(const struct tp_listener *base)
{
	return ((const struct shm_listener *)base)->epfd;
}

/* ---- those who have not said hello yet --------------------------------------------------------
 */

static void drop(struct waiting *w)
{
	close(w->sock);
	w->sock = -1;
}

static void drop_expired(struct shm_listener *l, uint64_t now)
{
	for (int i = 0; i < WAITING_MAX; i++)
		if (l->waiting[i].sock >= 0 && now >= l->waiting[i].deadline)
			drop(&l->waiting[i]);
}

/* A free place, or that of who has waited longest. */
static struct waiting *best_place(struct shm_listener *l)
{
	struct waiting *oldest = &l->waiting[0];

	for (int i = 0; i < WAITING_MAX; i++) {
		if (l->waiting[i].sock < 0)
			return &l->waiting[i];
		if (l->waiting[i].deadline < oldest->deadline)
			oldest = &l->waiting[i];
	}
	return oldest;
}

/* When somebody can be let in: 0 is now. */
static uint64_t place_at(struct shm_listener *l, uint64_t now)
{
	const struct waiting *w = best_place(l);
	uint64_t at = w->deadline - HELLO_WAIT_NS + PLACE_NS;

	return w->sock < 0 || now >= at ? 0 : at;
}

/* Watches the listening socket while there is a place, and the clock for who waits. */
static void rearm(struct shm_listener *l, uint64_t now)
{
	struct itimerspec when = {0};
	uint64_t first = place_at(l, now);
	bool place = first == 0;

	if (place != l->listening) {
		struct epoll_event ev = {.events = place ? EPOLLIN : 0};

		epoll_ctl(l->epfd, EPOLL_CTL_MOD, l->sock, &ev);
		l->listening = place;
	}
	for (int i = 0; i < WAITING_MAX; i++)
		if (l->waiting[i].sock >= 0 && (!first || l->waiting[i].deadline < first))
			first = l->waiting[i].deadline;
	uint64_t gathered = gather_deadline(&l->gather);

	if (gathered != UINT64_MAX && (!first || gathered < first))
		first = gathered;
	when.it_value.tv_sec = (time_t)(first / NS_PER_S);
	when.it_value.tv_nsec = (long)(first % NS_PER_S);
	timerfd_settime(l->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static void refuse(int sock, int err, const char *text)
{
	struct shm_welcome w = {
	    .magic = SHM_MAGIC,
	    .version = SHM_VERSION,
	    .size = sizeof(w),
	    .status = err,
	};

	snprintf(w.text, sizeof(w.text), "%s", text);
	/* Best effort: it may be gone. */
	sock_send(sock, &w, sizeof(w), -1);
}

/* Moves whoever connected into the table. */
static int let_in(struct shm_listener *l, uint64_t now)
{
	while (place_at(l, now) == 0) {
		int sock = accept4(l->sock, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (sock < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
			return 0;
		if (sock < 0)
			return err_set(errno, "%s: accept: %s", l->base.uri, strerror(errno));
		struct ucred peer;

		if (sock_check_peer(sock, &peer) < 0) {
			refuse(sock, EACCES, err_text());
			close(sock);
			continue;
		}
		int rc = watch(l, sock);

		if (rc < 0) {
			close(sock);
			return rc;
		}
		struct waiting *w = best_place(l);

		if (w->sock >= 0)
			drop(w);
		*w = (struct waiting){.sock = sock, .peer = peer, .deadline = now + HELLO_WAIT_NS};
	}
	return 0;
}

/* ---- hello ------------------------------------------------------------------------------------
 */

static int check_hello(const struct shm_listener *l, const struct shm_hello *h, size_t len)
{
	if (len < offsetof(struct shm_hello, entry_size) || h->magic != SHM_MAGIC)
		return err_set(EPROTO, "%s: the hello is not gradslot's", l->base.uri);
	if (h->version != SHM_VERSION || len != sizeof(*h) || h->size != sizeof(*h))
		return err_set(EPROTONOSUPPORT,
			       "%s: the connector speaks version %u of the shm protocol, the "
			       "listener version %u; use one release on both sides",
			       l->base.uri, h->version, SHM_VERSION);
	if (h->entry_size != sizeof(struct ring_entry) || h->msg_max != TP_MSG_MAX)
		return err_set(EPROTONOSUPPORT,
			       "%s: the connector has ring entries of %u bytes and messages of %u, "
			       "the listener of %zu and %d; use one release on both sides",
			       l->base.uri, h->entry_size, h->msg_max, sizeof(struct ring_entry),
			       TP_MSG_MAX);
	if (h->depth < 1 || h->depth > TP_DEPTH_MAX)
		return err_set(EPROTO, "%s: depth %u: it is 1 to %d", l->base.uri, h->depth,
			       TP_DEPTH_MAX);
	if (atomic_load(&l->gate->conns) >= l->opt.max_conns)
		return err_set(EUSERS, "%s is full: it takes %u connections", l->base.uri,
			       l->opt.max_conns);
	return 0;
}

static uint32_t smaller_chunk(uint32_t a, uint32_t b)
{
	uint32_t chunk = SHM_CHUNK_MAX;

	if (a && a < chunk)
		chunk = a;
	if (b && b < chunk)
		chunk = b;
	return chunk;
}

/* Getrandom gives so few bytes whole, or an error while the machine has just begun to boot. */
static int draw_binding(uint8_t out[SHM_BINDING])
{
	if (getrandom(out, SHM_BINDING, 0) == SHM_BINDING)
		return 0;
	return err_set(errno, "no random bytes for a connection: %s", strerror(errno));
}

/* Makes the connection of one whose hello was good. Its socket is used up either way. 0: it has gone.
 */
static int welcome(struct shm_listener *l, const struct guest *g, struct tp_subcq *sub,
		   const struct tp_owner *owner, struct tp_conn **out)
{
	const struct shm_hello *h = &g->hello;
	uint32_t depth = ring_depth(h->depth < l->opt.depth ? h->depth : l->opt.depth);
	struct shm_welcome msg = {
	    .magic = SHM_MAGIC,
	    .version = SHM_VERSION,
	    .size = sizeof(msg),
	    .depth = depth,
	    .max_chunk = smaller_chunk(h->max_chunk, l->opt.max_chunk),
	    .segment_size = shm_segment_bytes(depth),
	};
	struct shm_setup setup = {
	    .sock = g->sock,
	    .side = 0,
	    .depth = depth,
	    .max_chunk = msg.max_chunk,
	    .gate = l->gate,
	    .counts = owner->rail == 0,
	    .peer = g->peer,
	};
	struct shm_conn *conn;
	int fd;
	int rc = draw_binding(msg.binding);

	if (rc == 0)
		rc = segment_create(depth, &fd, &setup.segment);
	if (rc < 0) {
		refuse(g->sock, -rc, err_text());
		close(g->sock);
		return rc;
	}
	memcpy(setup.binding, msg.binding, sizeof(setup.binding));
	rc = shm_conn_create(&setup, &conn);
	if (rc < 0)
		goto close_fd;
	rc = sock_send(conn->sock, &msg, sizeof(msg), fd);
	if (rc < 0) {
		/* It did not wait for the answer. */
		shm_conn_destroy(&conn->base);
		rc = 0;
		goto close_fd;
	}
	rc = shm_conn_bind(conn, sub, owner);
	if (rc < 0) {
		shm_conn_destroy(&conn->base);
		goto close_fd;
	}
	*out = &conn->base;
	rc = 1;

close_fd:
	close(fd);
	return rc;
}

/* ---- rails ------------------------------------------------------------------------------------
 */

static int take_rail(void *listener, void *request, struct tp_subcq *sub,
		     const struct tp_owner *owner, struct tp_conn **out)
{
	struct guest *g = request;
	int rc = welcome(listener, g, sub, owner, out);

	free(g);
	return rc ? rc : err_set(ECONNABORTED, "the peer gave up connecting");
}

static int take_bundle(struct shm_listener *l, const struct gathering *all, struct tp_subcq *sub,
		       void *user, struct tp_conn **out)
{
	const struct guest *first = all->request[0];
	unsigned used;

	for (unsigned r = 1; r < all->rails; r++) {
		if (((const struct guest *)all->request[r])->peer == first->peer)
			continue;
		turn_away_all(all, EPROTO, "rails of one connection come from several processes");
		return 0;
	}
	int rc = bundle_accept(l, take_rail, all->request, all->rails, sub, user, &used, out);

	for (unsigned r = used; r < all->rails; r++)
		turn_away(all->request[r], ECONNREFUSED, "another rail of it could not be made");
	return rc;
}

/* One of several. */
static int gather(struct shm_listener *l, const struct guest *one, struct tp_subcq *sub, void *user,
		  struct tp_conn **out)
{
	const struct shm_hello *h = &one->hello;
	struct guest *g = malloc(sizeof(*g));
	struct gathering all;

	if (!g) {
		refuse(one->sock, ENOMEM, "the listener has no memory for it");
		close(one->sock);
		return err_set(ENOMEM, "no memory for a rail");
	}
	*g = *one;
	switch (gather_add(&l->gather, h->bundle, h->rails, h->rail, g, clock_ns(), &all)) {
	case GATHER_COMPLETE:
		return take_bundle(l, &all, sub, user, out);
	case GATHER_WRONG:
		turn_away(g, EPROTO, "the rail is not one of 2 to 8, or came already");
		break;
	case GATHER_CROWDED:
		turn_away(g, ECONNREFUSED, "too many connections lack some of their rails");
		break;
	case GATHER_WAITS:
		turn_away_all(&all, ECONNREFUSED, "its rails took long, and others need the place");
		break;
	}
	return 0;
}

/* Nobody waits for the rest of what it belongs to. */
static void drop_bundle(struct shm_listener *l, const struct shm_hello *h, int err)
{
	struct gathering all;

	if (h->rails && gather_drop(&l->gather, h->bundle, &all))
		turn_away_all(&all, err, err_text());
}

/* 1 with *out, 0 when this one is not ready or was turned away, or a negative errno. */
static int hear(struct shm_listener *l, struct waiting *w, struct tp_subcq *sub, void *user,
		struct tp_conn **out)
{
	struct shm_hello h = {0};
	int fd;
	ssize_t n = sock_recv(w->sock, &h, sizeof(h), &fd);

	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (fd >= 0)
		close(fd);
	if (n <= 0) {
		if (n == -EPROTO)
			refuse(w->sock, EPROTO, "the hello is not gradslot's");
		drop(w);
		return 0;
	}
	int rc = check_hello(l, &h, (size_t)n);

	if (rc < 0) {
		refuse(w->sock, -rc, err_text());
		drop(w);
		if (rc == -EUSERS)
			drop_bundle(l, &h, EUSERS);
		return 0;
	}
	struct guest guest = {.sock = w->sock, .peer = w->peer.pid, .hello = h};
	struct tp_owner owner = {.user = user};

	epoll_ctl(l->epfd, EPOLL_CTL_DEL, w->sock, NULL);
	w->sock = -1;
	return h.rails ? gather(l, &guest, sub, user, out) : welcome(l, &guest, sub, &owner, out);
}

static int hear_all(struct shm_listener *l, struct tp_subcq *sub, void *user, struct tp_conn **out)
{
	int rc = 0;

	for (int i = 0; i < WAITING_MAX && rc == 0; i++)
		if (l->waiting[i].sock >= 0)
			rc = hear(l, &l->waiting[i], sub, user, out);
	return rc;
}

int shm_accept(struct tp_listener *base, struct tp_subcq *sub, void *user, struct tp_conn **out)
{
	struct shm_listener *l = (struct shm_listener *)base;
	uint64_t now = clock_ns();
	int rc;

	/* First those who are there: who has spoken is not sent away for being silent. */
	rc = hear_all(l, sub, user, out);
	if (rc == 0) {
		drop_expired(l, now);
		drop_gatherings(l, now);
		rc = let_in(l, now);
	}
	if (rc == 0)
		rc = hear_all(l, sub, user, out);
	rearm(l, now);
	return rc;
}
