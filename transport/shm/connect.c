/* SPDX-License-Identifier: Apache-2.0
 *
 * The connecting side of the handshake. What the listener says is checked like anything else from
 * outside: a name can be taken by whoever comes first.
 */
#include "base/clock.h"
#include "base/err.h"
#include "transport/shm/segment.h"
#include "transport/shm/shm.h"
#include "transport/shm/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static int timed_out(const struct tp_uri *uri, const struct tp_options *opt, const char *what)
{
	return err_set(ETIMEDOUT, "shm:%s: %s within %u ms", uri->name, what, opt->timeout_ms);
}

/* connect(2) waits for a place in the listener's backlog only on a blocking socket, for as long as
 * SO_SNDTIMEO says. */
static int connect_name(int sock, const struct tp_uri *uri, const struct tp_options *opt)
{
	struct sockaddr_un addr;
	socklen_t len = sock_address(uri->name, &addr);
	struct timeval wait = {.tv_sec = opt->timeout_ms / 1000,
			       .tv_usec = opt->timeout_ms % 1000 * 1000};
	int rc;

	if (setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0 ||
	    fcntl(sock, F_SETFL, 0) < 0)
		return err_set(errno, "shm:%s: %s", uri->name, strerror(errno));
	do {
		rc = connect(sock, (struct sockaddr *)&addr, len) < 0 ? -errno : 0;
	} while (rc == -EINTR);
	if (rc == -ECONNREFUSED)
		return err_set(
		    ECONNREFUSED,
		    "nobody listens on shm:%s on this host (or in this network namespace)",
		    uri->name);
	if (rc == -EAGAIN)
		return timed_out(uri, opt, "the listener took no connection");
	if (rc < 0)
		return err_set(-rc, "shm:%s: connect: %s", uri->name, strerror(-rc));
	if (fcntl(sock, F_SETFL, O_NONBLOCK) < 0)
		return err_set(errno, "shm:%s: %s", uri->name, strerror(errno));
	return 0;
}

/* Whether it could be sent is not asked: a listener that has refused already has left its answer.
 */
static void say_hello(int sock, const struct tp_options *opt, const struct tp_owner *owner)
{
	struct shm_hello h = {
	    .magic = SHM_MAGIC,
	    .version = SHM_VERSION,
	    .size = sizeof(h),
	    .entry_size = sizeof(struct ring_entry),
	    .msg_max = TP_MSG_MAX,
	    .depth = opt->depth,
	    .max_chunk = opt->max_chunk,
	    .bundle = owner->bundle_id,
	    .rail = owner->rail,
	    .rails = owner->rails,
	};

	sock_send(sock, &h, sizeof(h), -1);
}

/* Waits for the answer; *fd is the segment's, or -1. Returns its length. */
static ssize_t hear_welcome(int sock, const struct tp_uri *uri, const struct tp_options *opt,
			    const struct tp_owner *owner, uint64_t until, struct shm_welcome *w,
			    int *fd)
{
	bool reset = false;

	for (;;) {
		ssize_t n = sock_recv(sock, w, sizeof(*w), fd);
		uint64_t now = clock_ns();

		if (n > 0)
			return n;
		/* It hung up without reading the hello. This is told once, before what it sent. */
		if (n == -ECONNRESET && !reset) {
			reset = true;
			continue;
		}
		if (n == -EMFILE)
			return err_set(EMFILE, "shm:%s: no descriptor is left: raise `ulimit -n`",
				       uri->name);
		if (n == -EPROTO)
			return err_set(EPROTO, "shm:%s: the listener's answer is not gradslot's",
				       uri->name);
		if (n != -EAGAIN && n != -EINTR) {
			if (*fd >= 0)
				close(*fd);
			return err_set(ECONNREFUSED,
				       "shm:%s: the listener hung up during the handshake",
				       uri->name);
		}
		if (now >= until || tp_given_up(owner))
			return timed_out(uri, opt, "the listener did not answer");
		struct pollfd pfd = {.fd = sock, .events = POLLIN};
		int ms = (int)((until - now) / NS_PER_MS) + 1;

		poll(&pfd, 1, owner->given_up && ms > TP_GIVE_UP_MS ? TP_GIVE_UP_MS : ms);
	}
}

static int check_welcome(const struct tp_uri *uri, const struct tp_options *opt,
			 struct shm_welcome *w, size_t len, int fd)
{
	if (len < offsetof(struct shm_welcome, status) || w->magic != SHM_MAGIC)
		return err_set(EPROTO, "shm:%s: the listener's answer is not gradslot's",
			       uri->name);
	if (w->version != SHM_VERSION || len != sizeof(*w) || w->size != sizeof(*w))
		return err_set(EPROTONOSUPPORT,
			       "shm:%s: the listener speaks version %u of the shm protocol, this "
			       "side version %u; use one release on both sides",
			       uri->name, w->version, SHM_VERSION);
	w->text[sizeof(w->text) - 1] = 0;
	if (w->status)
		return err_set(w->status > 0 && w->status < 4096 ? w->status : EPROTO,
			       "refused by the listener: %s", w->text);
	if (fd < 0 || w->depth < 1 || w->depth > ring_depth(opt->depth) ||
	    (w->depth & (w->depth - 1)) || w->max_chunk < 1 || w->max_chunk > SHM_CHUNK_MAX ||
	    (opt->max_chunk && w->max_chunk > opt->max_chunk))
		return err_set(
		    EPROTO, "shm:%s: the listener's answer makes no sense: depth %u, chunks of %u",
		    uri->name, w->depth, w->max_chunk);
	return 0;
}

/* Up to the mapped segment. */
static int shake_hands(int sock, const struct tp_uri *uri, const struct tp_options *opt,
		       const struct tp_owner *owner, struct shm_setup *setup)
{
	uint64_t until = clock_ns() + opt->timeout_ms * NS_PER_MS;
	struct shm_welcome w;
	struct ucred peer;
	int fd = -1;
	int rc = connect_name(sock, uri, opt);

	if (rc == 0)
		rc = sock_check_peer(sock, &peer);
	if (rc < 0)
		return rc;
	say_hello(sock, opt, owner);
	ssize_t n = hear_welcome(sock, uri, opt, owner, until, &w, &fd);

	if (n < 0)
		return (int)n;
	rc = check_welcome(uri, opt, &w, (size_t)n, fd);
	if (rc == 0)
		rc = segment_open(fd, w.depth, w.segment_size, &setup->segment);
	if (fd >= 0)
		close(fd);
	setup->depth = w.depth;
	setup->max_chunk = w.max_chunk;
	setup->peer = peer.pid;
	memcpy(setup->binding, w.binding, sizeof(setup->binding));
	return rc;
}

int shm_connect(const struct tp_uri *uri, const struct tp_options *opt, struct tp_subcq *sub,
		const struct tp_owner *owner, struct tp_conn **out)
{
	struct shm_setup setup = {.side = 1};
	struct shm_conn *conn;
	int rc = setup.sock = sock_open();

	if (rc < 0)
		return rc;
	rc = shake_hands(setup.sock, uri, opt, owner, &setup);
	if (rc < 0) {
		close(setup.sock);
		return rc;
	}
	rc = shm_conn_create(&setup, &conn);
	if (rc < 0)
		return rc;
	rc = shm_conn_bind(conn, sub, owner);
	if (rc < 0) {
		shm_conn_destroy(&conn->base);
		return rc;
	}
	*out = &conn->base;
	return 0;
}
