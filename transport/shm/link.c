/* SPDX-License-Identifier: Apache-2.0
 *
 * The socket after the handshake: doorbells for sleepers, the files of regions, and the peer's
 * hang-up.
 *
 * A doorbell is a packet and not an eventfd because a descriptor that is shared has its flags and
 * its count shared too: a peer could make our reads and writes of it block, or take our wake-ups.
 * A packet sent with MSG_DONTWAIT can do neither.
 */
#include "base/clock.h"
#include "base/err.h"
#include "transport/shm/order.h"
#include "transport/shm/shm.h"
#include "transport/shm/sock.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Packets taken at a time, so that a chattering peer can't hold the poller. */
#define PACKETS_MAX  16
#define SEND_WAIT_MS 10000

void shm_wake_peer(struct shm_conn *conn, uint32_t what)
{
	struct shm_packet bell = {.type = SHM_DOORBELL};

	if (!take_sleeper(conn->theirs, what))
		return;
	/* EAGAIN: there is so much unread that the peer can't be asleep for long; EPIPE: it is
	 * gone, which the poller finds out by itself. */
	if (sock_send(conn->sock, &bell, sizeof(bell), -1) == -ENOBUFS)
		announce_sleep(conn->theirs, what);
}

/* ---- packets ----------------------------------------------------------------------------------
 */

struct shm_passed *shm_find_region(struct shm_conn *conn, uint64_t key)
{
	for (int i = 0; i < SHM_REGIONS_MAX; i++)
		if (conn->regions[i].fd >= 0 && conn->regions[i].key == key)
			return &conn->regions[i];
	return NULL;
}

/* The descriptor is the connection's from here on. */
static void take_region(struct shm_conn *conn, const struct shm_packet *p, int fd)
{
	if (fd < 0 || shm_find_region(conn, p->key)) {
		if (fd >= 0)
			close(fd);
		shm_conn_lie(conn, "the peer passed region %llu %s", (unsigned long long)p->key,
			     fd < 0 ? "without a descriptor" : "twice");
		return;
	}
	for (int i = 0; i < SHM_REGIONS_MAX; i++) {
		struct shm_passed *r = &conn->regions[i];

		if (r->fd < 0) {
			*r = (struct shm_passed){.key = p->key, .fd = fd, .access = p->access};
			return;
		}
	}
	close(fd);
	shm_conn_lie(conn, "the peer passed more than %d regions", SHM_REGIONS_MAX);
}

static void drop_region(struct shm_conn *conn, uint64_t key)
{
	struct shm_passed *r = shm_find_region(conn, key);

	if (r) {
		close(r->fd);
		r->fd = -1;
	}
}

static void take_packet(struct shm_conn *conn, const struct shm_packet *p, ssize_t len, int fd,
			bool *bell)
{
	bool whole = len == sizeof(*p);

	if (whole && p->type == SHM_REGION) {
		take_region(conn, p, fd);
		return;
	}
	if (fd >= 0)
		close(fd);
	if (whole && fd < 0 && p->type == SHM_DOORBELL)
		*bell = true;
	else if (whole && fd < 0 && p->type == SHM_REGION_GONE)
		drop_region(conn, p->key);
	else
		shm_conn_lie(conn, "the peer sent %zd bytes of type %u on the socket%s", len,
			     len >= 4 ? p->type : 0, fd >= 0 ? ", with a descriptor" : "");
}

/* The peer's words are shown to people: printable and bounded. */
static void copy_words(const char *shared, char *out, size_t room)
{
	size_t i;

	for (i = 0; i + 1 < room; i++) {
		char c = ((const volatile char *)shared)[i];

		if (!c)
			break;
		out[i] = isprint((unsigned char)c) ? c : '?';
	}
	out[i] = 0;
}

static void hang_up(struct shm_conn *conn)
{
	char why[SHM_WHY];

	switch (atomic_load_explicit(&conn->theirs->bye, memory_order_acquire)) {
	case SHM_BYE_CLOSED:
		shm_conn_end(conn, 0, SHM_BYE_NONE, true, "closed by the peer");
		break;
	case SHM_BYE_NONE:
		shm_conn_end(conn, -ECONNRESET, SHM_BYE_NONE, true, "%s is gone without closing",
			     conn->base.peer);
		break;
	default:
		copy_words(conn->theirs->why, why, sizeof(why));
		shm_conn_end(conn, -EPROTO, SHM_BYE_NONE, true, "ended by the peer: %.200s", why);
	}
}

static void peer_ended(struct tp_watch *watch, uint32_t events)
{
	struct shm_conn *conn =
	    (struct shm_conn *)((char *)watch - offsetof(struct shm_conn, peer_watch));

	hang_up(conn);
	shm_subcq_rung(conn);
}

int shm_peer_watch(struct shm_conn *conn, pid_t peer)
{
	int fd = (int)syscall(SYS_pidfd_open, peer, 0);

	conn->peer_watch = (struct tp_watch){.fd = fd, .ready = peer_ended};
	if (fd >= 0)
		return 0;
	if (errno == ESRCH)
		return err_set(ECONNRESET, "pid %d ended before it was connected", (int)peer);
	if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
		return err_set(errno, "pid %d can't be watched: %s: raise `ulimit -n`", (int)peer,
			       strerror(errno));
	/* A kernel without pidfds, or a peer in another PID namespace: its socket has to do. */
	return 0;
}

int shm_read_socket(struct shm_conn *conn, bool *bell)
{
	bool rang = false;
	int taken = 0;

	/* Behind a doorbell there is rarely anything: then who is to look for more finds it readable. */
	while (taken < PACKETS_MAX && !rang) {
		struct shm_packet p = {0};
		int fd;
		ssize_t n = sock_recv(conn->sock, &p, sizeof(p), &fd);

		if (n == -EAGAIN || n == -EINTR)
			break;
		if (n == -EPROTO) {
			shm_conn_lie(conn,
				     "the peer sent a packet that is too long, or descriptors");
			break;
		}
		if (n == -EMFILE) {
			shm_conn_end(conn, -EMFILE, SHM_BYE_BROKEN, false,
				     "no descriptor is left for what the peer passed: raise "
				     "`ulimit -n`");
			break;
		}
		if (n <= 0) {
			if (fd >= 0)
				close(fd);
			hang_up(conn);
			break;
		}
		take_packet(conn, &p, n, fd, &rang);
		taken++;
	}
	*bell |= rang;
	return taken;
}

void shm_socket_ready(struct tp_watch *watch, uint32_t events)
{
	struct shm_conn *conn =
	    (struct shm_conn *)((char *)watch - offsetof(struct shm_conn, watch));
	bool bell = false;

	/* Of a doorbell nothing need be kept: what it is for is found by the poll that follows. */
	pthread_mutex_lock(&conn->sock_lock);
	shm_read_socket(conn, &bell);
	pthread_mutex_unlock(&conn->sock_lock);
	shm_subcq_rung(conn);
}

/* ---- regions, to the peer ---------------------------------------------------------------------
 */

int shm_send_region(struct shm_conn *conn, uint64_t key, unsigned access, int fd)
{
	struct shm_packet p = {.type = SHM_REGION, .access = access, .key = key};
	uint64_t until = clock_ns() + SEND_WAIT_MS * NS_PER_MS;

	for (;;) {
		int rc = sock_send(conn->sock, &p, sizeof(p), fd);
		uint64_t now = clock_ns();

		if (rc == 0)
			return 0;
		if (rc == -EPIPE || rc == -ECONNRESET || rc == -ENOTCONN)
			return err_set(ENOTCONN, "expose: the connection is over");
		if (rc != -EAGAIN)
			return err_set(-rc, "expose: passing a descriptor: %s", strerror(-rc));
		if (now >= until)
			return err_set(ETIMEDOUT, "expose: the peer took nothing for %d ms",
				       SEND_WAIT_MS);
		struct pollfd pfd = {.fd = conn->sock, .events = POLLOUT};

		poll(&pfd, 1, (int)((until - now) / NS_PER_MS) + 1);
	}
}

void shm_send_region_gone(struct shm_conn *conn, uint64_t key)
{
	struct shm_packet p = {.type = SHM_REGION_GONE, .key = key};

	/* Best effort: the peer keeps a descriptor longer if it is not told. */
	sock_send(conn->sock, &p, sizeof(p), -1);
}
