/* SPDX-License-Identifier: Apache-2.0
 *
 * The Unix socket under a connection.
 */
#include "transport/shm/sock.h"

#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* More than this in one packet is cut off (and closed) by the kernel, which says so. */
#define FDS_MAX 4

socklen_t sock_address(const char *name, struct sockaddr_un *out)
{
	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	int n = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "gradslot/%s", name);

	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int sock_open(void)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return sock < 0 ? err_set(errno, "socket: %s", strerror(errno)) : sock;
}

int sock_check_peer(int sock, struct ucred *out)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return err_set(EACCES, "who is at the other end can't be told: %s",
			       strerror(errno));
	if (peer.uid != geteuid() && peer.uid != 0)
		return err_set(EACCES,
			       "the process at the other end (pid %d) runs as user %u, this one as "
			       "%u: shm connects processes of one user, or of root",
			       (int)peer.pid, (unsigned)peer.uid, (unsigned)geteuid());
	*out = peer;
	return 0;
}

int sock_send(int sock, const void *packet, size_t len, int passed)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = (void *)packet, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (passed >= 0) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &passed, sizeof(int));
	}
	return sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* Keeps the first descriptor and closes the others; returns how many there were. */
static size_t take_descriptors(struct msghdr *msg, int *first)
{
	size_t total = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (total++ == 0)
				*first = fd;
			else
				close(fd);
		}
	}
	return total;
}

ssize_t sock_recv(int sock, void *packet, size_t len, int *passed)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = packet, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	int fd = -1;
	ssize_t n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*passed = -1;
	if (n < 0)
		return -errno;
	size_t fds = take_descriptors(&msg, &fd);

	/* Cut though it would have fitted: there was no number left for the descriptor. */
	if (fds == 0 && (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == MSG_CTRUNC)
		return -EMFILE;
	if (fds > 1 || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		if (fd >= 0)
			close(fd);
		return -EPROTO;
	}
	*passed = fd;
	return n;
}
