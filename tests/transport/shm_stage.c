/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_stage.h"

#include <dirent.h>
#include <fcntl.h>

char stage_uri[64], stage_name[64];

void choose_name(void)
{
	snprintf(stage_name, sizeof(stage_name), "hostile-%d", (int)getpid());
	snprintf(stage_uri, sizeof(stage_uri), "shm:%s", stage_name);
}

socklen_t address(struct sockaddr_un *addr)
{
	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	int n = snprintf(addr->sun_path + 1, sizeof(addr->sun_path) - 1, "gradslot/%s", stage_name);

	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int raw_connect(void)
{
	struct sockaddr_un addr;
	socklen_t len = address(&addr);
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(connect(sock, (struct sockaddr *)&addr, len), 0);
	return sock;
}

void raw_send(int sock, const void *bytes, size_t len, const int *fds, int nfds)
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

ssize_t raw_recv(int sock, void *bytes, size_t len, int *fd)
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

struct shm_hello good_hello(void)
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

int accept_within(struct stage *st, uint64_t ns)
{
	uint64_t until = clock_ns() + ns;
	int rc;

	while ((rc = tp_accept(st->l, st->cq, NULL, &st->victim)) == 0 && clock_ns() < until) {
		struct pollfd pfd = {.fd = tp_listener_fd(st->l), .events = POLLIN};

		poll(&pfd, 1, 50);
	}
	return rc;
}

void stage_listen(struct stage *st)
{
	memset(st, 0, sizeof(*st));
	st->sock = -1;
	choose_name();
	ck_ok(tp_listen(stage_uri, NULL, &st->l));
	ck_ok(tp_cq_create(0, &st->cq));
}

void stage_open(struct stage *st)
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

struct tp_event next_event(struct stage *st)
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

void expect_refusal(struct stage *st)
{
	struct tp_event ev;

	do {
		ev = next_event(st);
	} while (ev.kind != TP_EV_CLOSED);
	ck_assert_int_eq(ev.status, -EPROTO);
	ck_assert_str_ne(tp_conn_reason(st->victim), "");
}

void check_service(struct stage *st)
{
	struct tp_conn *a = NULL, *b = NULL;
	struct tp_cq *cq;
	pid_t pid = fork();

	if (pid == 0) {
		struct tp_event ev;

		if (tp_cq_create(0, &cq) < 0 || tp_connect(stage_uri, NULL, cq, NULL, &b) < 0 ||
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

void stage_close(struct stage *st)
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

void put_entry(struct stage *st, uint32_t slot, uint32_t seq, uint32_t kind, uint32_t imm,
	       uint32_t len)
{
	atomic_store(&st->ring[slot].kind, kind);
	atomic_store(&st->ring[slot].imm, imm);
	atomic_store(&st->ring[slot].len, len);
	atomic_store(&st->ring[slot].seq, seq);
}

int memfd(size_t size, int seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}
