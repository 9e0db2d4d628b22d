/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers that lie in the handshake, as connectors and as listeners; strangers, and those who are
 * silent.
 */
#include "shm_stage.h"

#include <fcntl.h>

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

/* Silent clients give up their places to those who wait, long before their own time is over:
 * without that, two rounds of them would take two seconds. */
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
	int sock = accept(f->sock, NULL, NULL), fd = memfd(w.segment_size, F_SEAL_SHRINK), unused;

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
		fd = memfd(4096, F_SEAL_SHRINK);
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
	int fds = count_entries("/proc/self/fd");

	pthread_create(&f.thread, NULL, answer_falsely, &f);
	int rc = tp_connect(stage_uri, &opt, cq, NULL, &conn);

	ck_assert_msg(rc == -want[_i], "%d instead of %d: %s", rc, -want[_i], err_text());
	ck_assert_str_ne(err_text(), "");
	ck_assert_ptr_null(conn);
	pthread_join(f.thread, NULL);
	ck_assert_int_eq(count_entries("/proc/self/fd"), fds);
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
		_exit(tp_connect(stage_uri, &opt, cq, NULL, &conn) == -EACCES &&
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
		if (setuid(65534) < 0 || tp_listen(stage_uri, NULL, &st.l) < 0)
			_exit(1);
		if (write(ready[1], "!", 1) != 1)
			_exit(1);
		pause();
	}
	ck_assert_int_eq(read(ready[0], &word, 1), 1);
	struct tp_conn *conn = NULL;

	ck_assert_int_eq(tp_connect(stage_uri, &opt, st.cq, NULL, &conn), -EACCES);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	tp_cq_destroy(st.cq);
}
END_TEST

TCase *handshake_case(void)
{
	TCase *t = tcase_create("handshake");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, bad_hello, 0, 9);
	tcase_add_test(t, half_open);
	tcase_add_loop_test(t, fake_listener, 0, 13);
	tcase_add_test(t, other_user);
	return t;
}
