/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers over shared memory that break the protocol. They speak it by hand (transport/shm/wire.h)
 * and can write anything anywhere that they were given. The victim must close that connection with
 * a reason, and go on serving others.
 */
#include "base/clock.h"
#include "base/err.h"
#include "transport/shm/wire.h"
#include "transport/transport.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "run.h"

#define WAIT_NS (20 * NS_PER_S)

#define ck_ok(expr)                                                                 \
	do {                                                                        \
		long ck_rc = (long)(expr);                                          \
		ck_assert_msg(ck_rc >= 0, "%s: %ld: %s", #expr, ck_rc, err_text()); \
	} while (0)

static char uri[64], name[64];

static void choose_name(void)
{
	snprintf(name, sizeof(name), "hostile-%d", (int)getpid());
	snprintf(uri, sizeof(uri), "shm:%s", name);
}

/* ---- the protocol by hand ---------------------------------------------------------------------
 */

static socklen_t address(struct sockaddr_un *addr)
{
	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	int n = snprintf(addr->sun_path + 1, sizeof(addr->sun_path) - 1, "gradslot/%s", name);

	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int raw_connect(void)
{
	struct sockaddr_un addr;
	socklen_t len = address(&addr);
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(connect(sock, (struct sockaddr *)&addr, len), 0);
	return sock;
}

static void raw_send(int sock, const void *bytes, size_t len, const int *fds, int nfds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(16 * sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = (void *)bytes, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
	}
	/* The victim may have hung up by now. */
	if (sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		ck_assert(errno == EPIPE || errno == ECONNRESET || errno == EAGAIN);
}

static ssize_t raw_recv(int sock, void *bytes, size_t len, int *fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = bytes, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	struct pollfd pfd = {.fd = sock, .events = POLLIN};

	*fd = -1;
	ck_assert_int_eq(poll(&pfd, 1, (int)(WAIT_NS / NS_PER_MS)), 1);
	ssize_t n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;

	if (c)
		memcpy(fd, CMSG_DATA(c), sizeof(int));
	return n;
}

static struct shm_hello good_hello(void)
{
	return (struct shm_hello){
	    .magic = SHM_MAGIC,
	    .version = SHM_VERSION,
	    .size = sizeof(struct shm_hello),
	    .entry_size = sizeof(struct ring_entry),
	    .msg_max = TP_MSG_MAX,
	    .depth = 16,
	};
}

/* ---- the stage --------------------------------------------------------------------------------
 */

struct stage {
	struct tp_listener *l;
	struct tp_cq *cq;
	struct tp_conn *victim;
	/* The attacker's. */
	int sock;
	char *segment;
	size_t size;
	struct shm_shared *shared;
	struct ring_entry *ring; /* that it sends */
	char *msgs;
};

static int accept_within(struct stage *st, uint64_t ns)
{
	uint64_t until = clock_ns() + ns;
	int rc;

	while ((rc = tp_accept(st->l, st->cq, NULL, &st->victim)) == 0 && clock_ns() < until) {
		struct pollfd pfd = {.fd = tp_listener_fd(st->l), .events = POLLIN};

		poll(&pfd, 1, 50);
	}
	return rc;
}

static void stage_listen(struct stage *st)
{
	memset(st, 0, sizeof(*st));
	st->sock = -1;
	choose_name();
	ck_ok(tp_listen(uri, NULL, &st->l));
	ck_ok(tp_cq_create(0, &st->cq));
}

static void stage_open(struct stage *st)
{
	struct shm_hello h = good_hello();
	struct shm_welcome w;
	int fd;

	stage_listen(st);
	st->sock = raw_connect();
	raw_send(st->sock, &h, sizeof(h), NULL, 0);
	ck_assert_int_eq(accept_within(st, WAIT_NS), 1);
	ck_assert_int_eq(raw_recv(st->sock, &w, sizeof(w), &fd), sizeof(w));
	ck_assert_int_eq(w.status, 0);
	ck_assert_int_ge(fd, 0);
	st->size = w.segment_size;
	st->segment = mmap(NULL, st->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(st->segment, MAP_FAILED);
	st->shared = (struct shm_shared *)st->segment;
	st->ring = (struct ring_entry *)(st->segment + shm_ring_at(16, 1));
	st->msgs = st->segment + shm_msgs_at(16, 1);
	close(fd);
}

/* Polls until an event other than ROOM. */
static struct tp_event next_event(struct stage *st)
{
	uint64_t until = clock_ns() + WAIT_NS;
	struct tp_event ev;

	for (;;) {
		if (tp_cq_poll(st->cq, &ev, 1) == 1) {
			if (ev.kind != TP_EV_ROOM)
				return ev;
		} else {
			ck_assert_msg(clock_ns() < until, "no event");
			sched_yield();
		}
	}
}

/* The victim closes, and says why. */
static void expect_refusal(struct stage *st)
{
	struct tp_event ev;

	do {
		ev = next_event(st);
	} while (ev.kind != TP_EV_CLOSED);
	ck_assert_int_eq(ev.status, -EPROTO);
	ck_assert_str_ne(tp_conn_reason(st->victim), "");
}

/* An honest client is served. */
static void check_service(struct stage *st)
{
	struct tp_conn *a = NULL, *b = NULL;
	struct tp_cq *cq;
	pid_t pid = fork();

	if (pid == 0) {
		struct tp_event ev;

		if (tp_cq_create(0, &cq) < 0 || tp_connect(uri, NULL, cq, NULL, &b) < 0 ||
		    tp_send(b, "honest", 6) < 0)
			_exit(1);
		while (tp_cq_poll(cq, &ev, 1) == 0 || ev.kind != TP_EV_CLOSED)
			sched_yield();
		_exit(0);
	}
	struct tp_conn *before = st->victim;

	ck_assert_int_eq(accept_within(st, WAIT_NS), 1);
	a = st->victim;
	st->victim = before;
	struct tp_event ev;

	do {
		ev = next_event(st);
	} while (ev.conn != a);
	ck_assert_int_eq(ev.kind, TP_EV_MSG);
	ck_assert(ev.len == 6 && !memcmp(ev.msg, "honest", 6));
	tp_conn_destroy(a);
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

static void stage_close(struct stage *st)
{
	check_service(st);
	tp_conn_destroy(st->victim);
	tp_listener_destroy(st->l);
	tp_cq_destroy(st->cq);
	if (st->segment)
		munmap(st->segment, st->size);
	if (st->sock >= 0)
		close(st->sock);
}

static void put_entry(struct stage *st, uint32_t slot, uint32_t seq, uint32_t kind, uint32_t imm,
		      uint32_t len)
{
	atomic_store(&st->ring[slot].kind, kind);
	atomic_store(&st->ring[slot].imm, imm);
	atomic_store(&st->ring[slot].len, len);
	atomic_store(&st->ring[slot].seq, seq);
}

/* ---- the ring ---------------------------------------------------------------------------------
 */

/* The hand-made peer is right about the protocol: an honest entry is taken. */
START_TEST(honest_entries)
{
	struct stage st;

	stage_open(&st);
	put_entry(&st, 0, 1, RING_IMM, 0xffffffff, 1u << 30);
	memcpy(st.msgs + TP_MSG_MAX, "hello", 5);
	put_entry(&st, 1, 2, RING_MSG, 0, 5);
	struct tp_event ev = next_event(&st);

	ck_assert_int_eq(ev.kind, TP_EV_IMM);
	ck_assert_uint_eq(ev.imm, 0xffffffff);
	ck_assert_uint_eq(ev.len, 1u << 30);
	ev = next_event(&st);
	ck_assert_int_eq(ev.kind, TP_EV_MSG);
	ck_assert(!memcmp(ev.msg, "hello", 5));
	/* What was handed out is no longer the peer's to change. */
	memset(st.msgs, 'X', 16 * TP_MSG_MAX);
	ck_assert(!memcmp(ev.msg, "hello", 5));
	stage_close(&st);
}
END_TEST

static const struct {
	uint32_t seq, kind, len;
} bad_entries[] = {
    {2, RING_IMM, 8},
    {17, RING_IMM, 8},
    {UINT32_MAX, RING_IMM, 8},
    {1, 0, 8},
    {1, 3, 8},
    {1, UINT32_MAX, 8},
    {1, RING_IMM, 0},
    {1, RING_IMM, (1u << 30) + 1},
    {1, RING_IMM, UINT32_MAX},
    {1, RING_MSG, 0},
    {1, RING_MSG, TP_MSG_MAX + 1},
    {1, RING_MSG, UINT32_MAX},
};

START_TEST(bad_entry)
{
	struct stage st;

	stage_open(&st);
	put_entry(&st, 0, bad_entries[_i].seq, bad_entries[_i].kind, 7, bad_entries[_i].len);
	expect_refusal(&st);
	/* And it is told why. */
	ck_assert_uint_eq(atomic_load(&st.shared->side[0].bye), SHM_BYE_BROKEN);
	ck_assert_str_eq(st.shared->side[0].why, tp_conn_reason(st.victim));
	stage_close(&st);
}
END_TEST

/* The first is good, and is given; the slot after it lies. */
START_TEST(bad_after_good)
{
	struct stage st;

	stage_open(&st);
	put_entry(&st, 1, 99, RING_IMM, 1, 8);
	put_entry(&st, 0, 1, RING_IMM, 42, 8);
	struct tp_event ev = next_event(&st);

	ck_assert_int_eq(ev.kind, TP_EV_IMM);
	ck_assert_uint_eq(ev.imm, 42);
	expect_refusal(&st);
	stage_close(&st);
}
END_TEST

static const uint32_t bad_counts[] = {17, 1000, UINT32_MAX, 0x80000000u};

/* It says it took what was never sent. */
START_TEST(bad_count)
{
	struct stage st;
	int rc;

	stage_open(&st);
	atomic_store(&st.shared->side[1].taken, bad_counts[_i]);
	do {
		rc = tp_send(st.victim, "x", 1);
	} while (rc == 0);
	ck_assert_msg(rc == -ENOTCONN, "%d: %s", rc, err_text());
	expect_refusal(&st);
	stage_close(&st);
}
END_TEST

/* It keeps adding credits after the fact: found by the poller that waits for room. */
START_TEST(bad_count_while_starved)
{
	struct stage st;
	int rc;

	stage_open(&st);
	do {
		rc = tp_send(st.victim, "x", 1);
	} while (rc == 0);
	ck_assert_int_eq(rc, -EAGAIN);
	atomic_store(&st.shared->side[1].taken, 0xfffffff0u);
	expect_refusal(&st);
	stage_close(&st);
}
END_TEST

START_TEST(bad_farewell)
{
	struct stage st;

	stage_open(&st);
	memset(st.shared->side[1].why, '\x1b', SHM_WHY);
	atomic_store(&st.shared->side[1].bye, 4711);
	shutdown(st.sock, SHUT_RDWR);
	struct tp_event ev = next_event(&st);

	ck_assert_int_eq(ev.kind, TP_EV_CLOSED);
	ck_assert_int_eq(ev.status, -EPROTO);
	for (const char *c = tp_conn_reason(st.victim); *c; c++)
		ck_assert(*c >= ' ' && *c < 127);
	stage_close(&st);
}
END_TEST

/* After hanging up it goes on filling the ring: what is given is bounded. */
START_TEST(entries_after_hang_up)
{
	uint64_t until = clock_ns() + WAIT_NS;
	uint32_t pos = 0;
	struct stage st;
	struct tp_event ev;

	stage_open(&st);
	do {
		/* The ring is full at every poll. */
		while (pos - atomic_load(&st.shared->side[0].taken) < 16) {
			put_entry(&st, ring_slot(16, pos), ring_seq(pos), RING_IMM, 1, 8);
			pos++;
		}
		if (pos == 100)
			shutdown(st.sock, SHUT_RDWR);
		ev = next_event(&st);
		ck_assert_msg(clock_ns() < until, "%u entries, and no end", pos);
	} while (ev.kind != TP_EV_CLOSED);
	ck_assert_uint_ge(pos, 100);
	stage_close(&st);
}
END_TEST

/* Everything it was given is written over at random while the victim works. */
struct scribbler {
	struct stage *st;
	unsigned seed;
	_Atomic bool stop;
};

static void *scribble(void *arg)
{
	struct scribbler *sc = arg;
	struct stage *st = sc->st;
	unsigned n = sc->seed;
	size_t front = shm_msgs_at(16, 0);

	while (!atomic_load(&sc->stop)) {
		n = n * 1103515245 + 12345;
		size_t at = (n >> 4) % (front / 4);
		uint32_t value = n & 7 ? n >> 24 : n;

		atomic_store((_Atomic uint32_t *)st->segment + at, value);
		/* Mostly entries that are all but right. */
		uint32_t taken = atomic_load(&st->shared->side[0].taken);

		atomic_store(&st->ring[taken & 15].len, n >> 18);
		atomic_store(&st->ring[taken & 15].kind, 1 + (n >> 13 & 1));
		atomic_store(&st->ring[taken & 15].seq, taken + 1);
	}
	return NULL;
}

START_TEST(scribbled)
{
	for (unsigned round = 0; round < 60; round++) {
		struct stage st;
		pthread_t thread;
		struct tp_event ev;
		bool closed = false;

		stage_open(&st);
		struct scribbler sc = {.st = &st, .seed = round * 7919 + 1};

		pthread_create(&thread, NULL, scribble, &sc);
		for (uint64_t until = clock_ns() + NS_PER_S; !closed && clock_ns() < until;) {
			tp_send(st.victim, "some words", 10);
			closed = tp_cq_poll(st.cq, &ev, 1) == 1 && ev.kind == TP_EV_CLOSED;
		}
		atomic_store(&sc.stop, true);
		pthread_join(thread, NULL);
		ck_assert_msg(closed, "round %u: it believes everything", round);
		tp_conn_destroy(st.victim);
		st.victim = NULL;
		if (round % 20 == 0) {
			stage_close(&st);
			continue;
		}
		tp_listener_destroy(st.l);
		tp_cq_destroy(st.cq);
		munmap(st.segment, st.size);
		close(st.sock);
	}
}
END_TEST

/* ---- the socket -------------------------------------------------------------------------------
 */

static int memfd(size_t size, int seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

START_TEST(bad_packet)
{
	struct shm_packet p = {.type = SHM_DOORBELL};
	char big[1000] = {0};
	struct stage st;
	int pipes[8], n = 0;

	for (int i = 0; i < 8; i += 2)
		ck_assert_int_eq(pipe(pipes + i), 0);
	stage_open(&st);
	int fds = count_fds();

	switch (_i) {
	case 0:
		raw_send(st.sock, big, 1, NULL, 0);
		break;
	case 1:
		raw_send(st.sock, big, sizeof(big), NULL, 0);
		break;
	case 2:
		p.type = 99;
		raw_send(st.sock, &p, sizeof(p), NULL, 0);
		break;
	case 3: /* a doorbell with a descriptor */
		raw_send(st.sock, &p, sizeof(p), pipes, 1);
		break;
	case 4: /* two */
		p.type = SHM_REGION;
		raw_send(st.sock, &p, sizeof(p), pipes, 2);
		break;
	case 5: /* more than there is place for */
		p.type = SHM_REGION;
		raw_send(st.sock, &p, sizeof(p), pipes, 8);
		break;
	case 6: /* none */
		p.type = SHM_REGION;
		raw_send(st.sock, &p, sizeof(p), NULL, 0);
		break;
	case 7: /* the same key twice */
		p.type = SHM_REGION;
		raw_send(st.sock, &p, sizeof(p), pipes, 1);
		raw_send(st.sock, &p, sizeof(p), pipes, 1);
		break;
	case 8: /* without end */
		p.type = SHM_REGION;
		for (p.key = 1; p.key < 100; p.key++) {
			struct tp_event ev;

			raw_send(st.sock, &p, sizeof(p), pipes, 1);
			n += tp_cq_wait(st.cq, 1) && tp_cq_poll(st.cq, &ev, 1) == 1;
			if (n) {
				ck_assert_int_eq(ev.kind, TP_EV_CLOSED);
				ck_assert_int_eq(ev.status, -EPROTO);
				break;
			}
		}
		break;
	}
	if (!n)
		expect_refusal(&st);
	tp_conn_destroy(st.victim);
	st.victim = NULL;
	/* What it passed is closed, with the connection's own socket and its hold on the peer. */
	ck_assert_int_eq(count_fds(), fds - 2);
	stage_close(&st);
}
END_TEST

START_TEST(doorbells_without_end)
{
	struct shm_packet p = {.type = SHM_DOORBELL};
	struct tp_event ev;
	struct stage st;

	stage_open(&st);
	for (int i = 0; i < 20000; i++) {
		raw_send(st.sock, &p, sizeof(p), NULL, 0);
		if (i % 100 == 0)
			tp_cq_wait(st.cq, 0);
		ck_assert_int_eq(tp_cq_poll(st.cq, &ev, 1), 0);
	}
	put_entry(&st, 0, 1, RING_IMM, 5, 8);
	ck_assert_uint_eq(next_event(&st).imm, 5);
	stage_close(&st);
}
END_TEST

/* ---- regions ----------------------------------------------------------------------------------
 */

static int attach(struct stage *st, int fd, unsigned claimed, unsigned wanted, uint64_t len)
{
	struct shm_packet p = {.type = SHM_REGION, .key = 7, .access = claimed};
	struct tp_ref ref = {.len = len, .key = 7};
	struct tp_remote *remote = NULL;

	raw_send(st->sock, &p, sizeof(p), &fd, 1);
	int rc = tp_attach(st->victim, &ref, wanted, 1 << 20, &remote);

	if (rc == 0) {
		*(volatile char *)tp_remote_map(remote);
		((volatile char *)tp_remote_map(remote))[len - 1];
	} else {
		ck_assert_ptr_null(remote);
		ck_assert_str_ne(err_text(), "");
	}
	return rc;
}

#define RW        (TP_PEER_READ | TP_PEER_WRITE)
#define NO_SHRINK F_SEAL_SHRINK

START_TEST(bad_region)
{
	char path[64];
	struct stage st;
	int fd = -1, want = -EPROTO, rc = 0;

	stage_open(&st);
	switch (_i) {
	case 0: /* the control: all is well */
		fd = memfd(8192, NO_SHRINK);
		rc = attach(&st, fd, RW, RW, 8192);
		want = 0;
		break;
	case 1: /* may shrink */
		fd = memfd(8192, 0);
		rc = attach(&st, fd, RW, RW, 8192);
		break;
	case 2: /* smaller than said */
		fd = memfd(4096, NO_SHRINK);
		rc = attach(&st, fd, RW, RW, 8192);
		break;
	case 3: /* shrunk, then sealed */
		fd = memfd(8192, 0);
		ck_assert_int_eq(ftruncate(fd, 0), 0);
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, NO_SHRINK), 0);
		rc = attach(&st, fd, RW, RW, 8192);
		break;
	case 4: /* no memory */
		fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
		rc = attach(&st, fd, RW, RW, 8192);
		break;
	case 5: /* a file that anyone can cut */
		fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		ck_assert_int_eq(ftruncate(fd, 8192), 0);
		rc = attach(&st, fd, RW, RW, 8192);
		break;
	case 6: /* read-only, said to be writable */
		fd = memfd(8192, NO_SHRINK);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		rc = open(path, O_RDONLY | O_CLOEXEC);
		close(fd);
		fd = rc;
		rc = attach(&st, fd, RW, RW, 8192);
		want = -EACCES;
		break;
	case 7: /* sealed against writing, said to be writable */
		fd = memfd(8192, NO_SHRINK | F_SEAL_WRITE);
		rc = attach(&st, fd, RW, RW, 8192);
		want = -EACCES;
		break;
	case 8: /* less access than asked */
		fd = memfd(8192, NO_SHRINK);
		rc = attach(&st, fd, TP_PEER_READ, RW, 8192);
		want = -EACCES;
		break;
	}
	ck_assert_msg(rc == want, "%d instead of %d: %s", rc, want, err_text());
	/* It harms the attach alone. */
	ck_ok(tp_send(st.victim, "x", 1));
	close(fd);
	stage_close(&st);
}
END_TEST

/* A key that was never passed is found out at once: nothing is waited for. */
START_TEST(unknown_region)
{
	struct tp_ref ref = {.len = 4096, .key = 12345};
	struct tp_remote *remote = NULL;
	struct stage st;

	stage_open(&st);
	uint64_t start = clock_ns();

	ck_assert_int_eq(tp_attach(st.victim, &ref, RW, 8192, &remote), -EPROTO);
	ref.addr = 4096;
	ck_assert_int_eq(tp_attach(st.victim, &ref, RW, 8192, &remote), -EPROTO);
	ck_assert_uint_lt(clock_ns() - start, NS_PER_S);
	stage_close(&st);
}
END_TEST

/* ---- the handshake ----------------------------------------------------------------------------
 */

START_TEST(bad_hello)
{
	struct shm_hello h = good_hello();
	size_t len = sizeof(h);
	const char *word = NULL;
	int status = EPROTO;
	struct shm_welcome w;
	struct stage st;
	char big[400];
	int fd;

	memset(big, 0xff, sizeof(big));
	switch (_i) {
	case 0:
		h.magic ^= 1;
		word = "not gradslot";
		break;
	case 1:
		h.version = SHM_VERSION - 1;
		status = EPROTONOSUPPORT;
		word = "version 2";
		break;
	case 2: /* a later version's is longer, up to what is read of it */
		h.version = 7;
		h.size = 31;
		len = 31;
		status = EPROTONOSUPPORT;
		word = "version 7";
		break;
	case 3:
		h.entry_size = 32;
		status = EPROTONOSUPPORT;
		word = "32";
		break;
	case 4:
		h.msg_max = 1 << 20;
		status = EPROTONOSUPPORT;
		word = "1048576";
		break;
	case 5:
		h.depth = 0;
		word = "depth 0";
		break;
	case 6:
		h.depth = UINT32_MAX;
		word = "16384";
		break;
	case 7:
		len = 3;
		word = "not gradslot";
		break;
	}
	stage_listen(&st);
	st.sock = raw_connect();
	if (_i == 8)
		raw_send(st.sock, big, sizeof(big), NULL, 0);
	else
		raw_send(st.sock, &h, len, NULL, 0);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(tp_accept(st.l, st.cq, NULL, &st.victim), 0);
	ck_assert_ptr_null(st.victim);
	ck_assert_int_eq(raw_recv(st.sock, &w, sizeof(w), &fd), sizeof(w));
	ck_assert_int_eq(w.status, status);
	ck_assert_int_eq(fd, -1);
	if (word)
		ck_assert_msg(strstr(w.text, word), "'%s' does not say '%s'", w.text, word);
	ck_assert_int_eq(raw_recv(st.sock, &w, sizeof(w), &fd), 0);
	stage_close(&st);
}
END_TEST

/* Silent clients give up their places to those who wait, long before their own time is over: without
 * that, two rounds of them would take two seconds. */
START_TEST(half_open)
{
	enum { N = 40 };
	int socks[N];
	struct stage st;

	stage_listen(&st);
	for (int i = 0; i < N; i++)
		socks[i] = raw_connect();
	uint64_t start = clock_ns();

	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(tp_accept(st.l, st.cq, NULL, &st.victim), 0);
	/* Accepting did not wait for them, and there is nothing to spin on. */
	ck_assert_uint_lt(clock_ns() - start, NS_PER_S / 2);
	struct pollfd pfd = {.fd = tp_listener_fd(st.l), .events = POLLIN};

	ck_assert_int_eq(poll(&pfd, 1, 0), 0);
	check_service(&st);
	ck_assert_uint_lt(clock_ns() - start, 2 * NS_PER_S);
	for (int i = 0; i < N; i++)
		close(socks[i]);
	stage_close(&st);
}
END_TEST

static int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

/* ---- rails ------------------------------------------------------------------------------------
 */

static int knock(uint64_t bundle, uint32_t rails, uint32_t rail)
{
	struct shm_hello h = good_hello();
	int sock = raw_connect();

	h.bundle = bundle;
	h.rails = rails;
	h.rail = rail;
	raw_send(sock, &h, sizeof(h), NULL, 0);
	return sock;
}

static void accept_none(struct stage *st)
{
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(tp_accept(st->l, st->cq, NULL, &st->victim), 0);
}

static void expect_status(int sock, int status)
{
	struct shm_welcome w;
	int fd;

	ck_assert_int_eq(raw_recv(sock, &w, sizeof(w), &fd), sizeof(w));
	ck_assert_int_eq(w.status, status);
	ck_assert_int_eq(fd, -1);
	close(sock);
}

/* Refused at once, and those that it would have joined are not disturbed. */
START_TEST(bad_rail)
{
	static const struct {
		uint32_t rails, rail;
	} bad[] = {{1, 0}, {9, 0}, {UINT32_MAX, 0}, {2, 2}, {2, UINT32_MAX}, {2, 0}, {3, 1}};
	struct stage st;

	stage_listen(&st);
	int first = knock(77, 2, 0);

	accept_none(&st);
	int wrong = knock(77, bad[_i].rails, bad[_i].rail);

	accept_none(&st);
	expect_status(wrong, EPROTO);
	int second = knock(77, 2, 1);
	struct shm_welcome w;
	int fd[2];

	ck_assert_int_eq(accept_within(&st, WAIT_NS), 1);
	ck_assert_int_eq(raw_recv(first, &w, sizeof(w), &fd[0]), sizeof(w));
	ck_assert_int_eq(w.status, 0);
	ck_assert_int_eq(raw_recv(second, &w, sizeof(w), &fd[1]), sizeof(w));
	ck_assert_int_eq(w.status, 0);
	ck_assert_uint_eq(tp_conn_limits(st.victim).rails, 2);
	close(fd[0]);
	close(fd[1]);
	close(first);
	close(second);
	stage_close(&st);
}
END_TEST

/* Bundles that are never completed: they have few places, and those who come later get theirs. */
START_TEST(half_bundles)
{
	enum { N = 60 };
	int socks[N], before, held;
	struct stage st;

	stage_listen(&st);
	before = count_entries("/proc/self/fd");
	for (int i = 0; i < N; i++) {
		socks[i] = knock(1000 + (uint64_t)i, 2, (uint32_t)i % 2);
		accept_none(&st);
	}
	/* The listener keeps 16 at most (and has told the rest). */
	held = count_entries("/proc/self/fd") - before - N;
	ck_assert_int_le(held, 16);
	expect_status(socks[N - 1], ECONNREFUSED);
	usleep(150000); /* they are no longer young: the next one takes a place */
	socks[N - 1] = knock(5000, 2, 0);
	accept_none(&st);
	ck_assert_int_le(count_entries("/proc/self/fd") - before - N, 16);
	int other = knock(5000, 2, 1);

	ck_assert_int_eq(accept_within(&st, WAIT_NS), 1);
	ck_assert_uint_eq(tp_conn_limits(st.victim).rails, 2);
	close(other);
	for (int i = 0; i < N; i++)
		close(socks[i]);
	stage_close(&st);
}
END_TEST

/* It is told when its time is over, though nobody else comes. */
START_TEST(half_bundle_expires)
{
	struct stage st;

	stage_listen(&st);
	int sock = knock(9, 8, 3);
	uint64_t until = clock_ns() + (TP_RAILS_WAIT_MS + 2000) * NS_PER_MS;
	struct pollfd told = {.fd = sock, .events = POLLIN};

	while (poll(&told, 1, 0) == 0 && clock_ns() < until)
		ck_assert_int_eq(accept_within(&st, 100 * NS_PER_MS), 0);
	expect_status(sock, ECONNREFUSED);
	stage_close(&st);
}
END_TEST

/* One rail of two, whose segment is at hand; the other's socket is in *other. */
static void open_rails(struct stage *st, int *other)
{
	struct shm_welcome w;
	int fd;

	stage_listen(st);
	*other = knock(4, 2, 0);
	st->sock = knock(4, 2, 1);
	ck_assert_int_eq(accept_within(st, WAIT_NS), 1);
	ck_assert_int_eq(raw_recv(*other, &w, sizeof(w), &fd), sizeof(w));
	close(fd);
	ck_assert_int_eq(raw_recv(st->sock, &w, sizeof(w), &fd), sizeof(w));
	ck_assert_int_eq(w.status, 0);
	st->size = w.segment_size;
	st->segment = mmap(NULL, st->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(st->segment, MAP_FAILED);
	st->shared = (struct shm_shared *)st->segment;
	st->ring = (struct ring_entry *)(st->segment + shm_ring_at(16, 1));
	st->msgs = st->segment + shm_msgs_at(16, 1);
	close(fd);
}

/* Messages go by rail 0: one that comes by another ends the connection, and is not handed out. */
START_TEST(message_by_another_rail)
{
	struct stage st;
	int other;

	open_rails(&st, &other);
	put_entry(&st, 0, 1, RING_IMM, 5, 8);
	struct tp_event ev = next_event(&st);

	ck_assert_int_eq(ev.kind, TP_EV_IMM);
	ck_assert_int_eq(ev.rail, 1);
	ck_assert_ptr_eq(ev.conn, st.victim);
	memcpy(st.msgs + TP_MSG_MAX, "hello", 5);
	put_entry(&st, 1, 2, RING_MSG, 0, 5);
	ev = next_event(&st);
	ck_assert_int_eq(ev.kind, TP_EV_CLOSED);
	ck_assert_int_eq(ev.status, -EPROTO);
	ck_assert_ptr_nonnull(strstr(tp_conn_reason(st.victim), "rail 1"));
	close(other);
	stage_close(&st);
}
END_TEST

/* A rail that hangs up, or lies, takes the others along, also when the peer keeps those open. */
START_TEST(one_rail_ends)
{
	struct stage st;
	int other;

	open_rails(&st, &other);
	if (_i == 0) {
		shutdown(other, SHUT_RDWR);
	} else {
		put_entry(&st, 0, 1, 99, 0, 8);
	}
	struct tp_event ev = next_event(&st);

	ck_assert_int_eq(ev.kind, TP_EV_CLOSED);
	ck_assert_int_eq(ev.status, _i == 0 ? -ECONNRESET : -EPROTO);
	ck_assert_ptr_eq(ev.conn, st.victim);
	close(other);
	stage_close(&st);
}
END_TEST

/* A listener by hand, for one connection. */
struct fake {
	int sock, how;
	pthread_t thread;
};

static void *answer_falsely(void *arg)
{
	struct fake *f = arg;
	struct shm_hello h;
	struct shm_welcome w = {
	    .magic = SHM_MAGIC,
	    .version = SHM_VERSION,
	    .size = sizeof(w),
	    .depth = 16,
	    .max_chunk = 1 << 20,
	    .segment_size = shm_segment_bytes(16),
	};
	int sock = accept(f->sock, NULL, NULL), fd = memfd(w.segment_size, NO_SHRINK), unused;

	raw_recv(sock, &h, sizeof(h), &unused);
	switch (f->how) {
	case 0:
		w.magic = 0;
		break;
	case 1:
		w.version = 9;
		break;
	case 2:
		w.depth = 17;
		break;
	case 3:
		w.depth = 1 << 14;
		break;
	case 4:
		w.max_chunk = 0;
		break;
	case 5:
		w.segment_size += 4096;
		break;
	case 6: /* may shrink */
		close(fd);
		fd = memfd(w.segment_size, 0);
		break;
	case 7: /* too small */
		close(fd);
		fd = memfd(4096, NO_SHRINK);
		break;
	case 8: /* a refusal whose text has no end */
		w.status = EUSERS;
		memset(w.text, 'x', sizeof(w.text));
		break;
	case 9: /* no text, and a status that is none */
		w.status = INT32_MIN;
		break;
	case 10: /* no descriptor */
		raw_send(sock, &w, sizeof(w), NULL, 0);
		break;
	case 11: /* nothing at all */
		raw_recv(sock, &h, sizeof(h), &unused);
		break;
	case 12: /* hangs up */
		break;
	}
	if (f->how < 10)
		raw_send(sock, &w, sizeof(w), &fd, 1);
	close(fd);
	close(sock);
	return NULL;
}

START_TEST(fake_listener)
{
	static const int want[] = {EPROTO, EPROTONOSUPPORT, EPROTO,      EPROTO, EPROTO,
				   EPROTO, EPROTO,          EPROTO,      EUSERS, EPROTO,
				   EPROTO, ETIMEDOUT,       ECONNREFUSED};
	struct tp_options opt = {.timeout_ms = 300, .depth = 16};
	struct fake f = {.how = _i};
	struct sockaddr_un addr;
	struct tp_conn *conn = NULL;
	struct tp_cq *cq;

	choose_name();
	socklen_t len = address(&addr);

	f.sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(f.sock, (struct sockaddr *)&addr, len), 0);
	ck_assert_int_eq(listen(f.sock, 4), 0);
	ck_ok(tp_cq_create(0, &cq));
	int fds = count_fds();

	pthread_create(&f.thread, NULL, answer_falsely, &f);
	int rc = tp_connect(uri, &opt, cq, NULL, &conn);

	ck_assert_msg(rc == -want[_i], "%d instead of %d: %s", rc, -want[_i], err_text());
	ck_assert_str_ne(err_text(), "");
	ck_assert_ptr_null(conn);
	pthread_join(f.thread, NULL);
	ck_assert_int_eq(count_fds(), fds);
	tp_cq_destroy(cq);
	close(f.sock);
}
END_TEST

/* Another user's process is refused, as a client and as a listener. */
START_TEST(other_user)
{
	struct tp_options opt = {.timeout_ms = 5000};
	struct stage st;
	int status;

	if (geteuid() != 0)
		return;
	stage_listen(&st);
	pid_t pid = fork();

	if (pid == 0) {
		struct tp_conn *conn;
		struct tp_cq *cq;

		if (setuid(65534) < 0 || tp_cq_create(0, &cq) < 0)
			_exit(1);
		_exit(tp_connect(uri, &opt, cq, NULL, &conn) == -EACCES &&
			      strstr(err_text(), "65534")
			  ? 0
			  : 2);
	}
	while (waitpid(pid, &status, WNOHANG) == 0)
		ck_assert_int_eq(tp_accept(st.l, st.cq, NULL, &st.victim), 0);
	ck_assert_int_eq(status, 0);
	tp_listener_destroy(st.l);

	int ready[2];
	char word;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		if (setuid(65534) < 0 || tp_listen(uri, NULL, &st.l) < 0)
			_exit(1);
		if (write(ready[1], "!", 1) != 1)
			_exit(1);
		pause();
	}
	ck_assert_int_eq(read(ready[0], &word, 1), 1);
	struct tp_conn *conn = NULL;

	ck_assert_int_eq(tp_connect(uri, &opt, st.cq, NULL, &conn), -EACCES);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	tp_cq_destroy(st.cq);
}
END_TEST

/* ---- what a kill leaves -----------------------------------------------------------------------
 */

static bool socket_listed(void)
{
	FILE *f = fopen("/proc/net/unix", "r");
	char line[512], want[128];
	bool found = false;

	snprintf(want, sizeof(want), "@gradslot/%s", name);
	while (f && fgets(line, sizeof(line), f))
		found |= strstr(line, want) != NULL;
	if (f)
		fclose(f);
	return found;
}

START_TEST(kill_leaves_nothing)
{
	int ready[2], before = count_entries("/dev/shm");
	char word;

	choose_name();
	ck_assert_int_eq(pipe(ready), 0);
	pid_t pid = fork();

	if (pid == 0) {
		struct stage st;
		struct tp_arena *arena;

		memset(&st, 0, sizeof(st));
		if (tp_listen(uri, NULL, &st.l) < 0 || tp_cq_create(0, &st.cq) < 0 ||
		    tp_arena_create("left", 1 << 20, TP_ARENA_PREFAULT, &arena) < 0)
			_exit(1);
		if (write(ready[1], "!", 1) != 1)
			_exit(1);
		accept_within(&st, WAIT_NS);
		pause();
	}
	ck_assert_int_eq(read(ready[0], &word, 1), 1);
	struct tp_conn *conn;
	struct tp_cq *cq;

	ck_ok(tp_cq_create(0, &cq));
	ck_ok(tp_connect(uri, NULL, cq, NULL, &conn));
	ck_assert(socket_listed());
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	tp_conn_destroy(conn);
	tp_cq_destroy(cq);
	ck_assert(!socket_listed());
	ck_assert_int_eq(count_entries("/dev/shm"), before);
	/* The name is free. */
	struct tp_listener *l;

	ck_ok(tp_listen(uri, NULL, &l));
	tp_listener_destroy(l);
}
END_TEST

static Suite *hostile(void)
{
	Suite *s = suite_create("shm, hostile peers");
	TCase *t = tcase_create("ring");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, honest_entries);
	tcase_add_loop_test(t, bad_entry, 0, (int)(sizeof(bad_entries) / sizeof(*bad_entries)));
	tcase_add_test(t, bad_after_good);
	tcase_add_loop_test(t, bad_count, 0, (int)(sizeof(bad_counts) / sizeof(*bad_counts)));
	tcase_add_test(t, bad_count_while_starved);
	tcase_add_test(t, bad_farewell);
	tcase_add_test(t, entries_after_hang_up);
	tcase_add_test(t, scribbled);
	suite_add_tcase(s, t);
	t = tcase_create("socket");
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, bad_packet, 0, 9);
	tcase_add_test(t, doorbells_without_end);
	tcase_add_loop_test(t, bad_region, 0, 9);
	tcase_add_test(t, unknown_region);
	suite_add_tcase(s, t);
	t = tcase_create("handshake");
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, bad_hello, 0, 9);
	tcase_add_test(t, half_open);
	tcase_add_loop_test(t, bad_rail, 0, 7);
	tcase_add_test(t, half_bundles);
	tcase_add_test(t, half_bundle_expires);
	tcase_add_test(t, message_by_another_rail);
	tcase_add_loop_test(t, one_rail_ends, 0, 2);
	tcase_add_loop_test(t, fake_listener, 0, 13);
	tcase_add_test(t, other_user);
	tcase_add_test(t, kill_leaves_nothing);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(hostile());
	return run_all(runner);
}
