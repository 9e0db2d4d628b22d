/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers that lie on the socket: packets, and the files of regions.
 */
#include "shm_stage.h"

#include <fcntl.h>

START_TEST(bad_packet)
{
	struct shm_packet p = {.type = SHM_DOORBELL};
	char big[1000] = {0};
	struct stage st;
	int pipes[8], n = 0;

	for (int i = 0; i < 8; i += 2)
		ck_assert_int_eq(pipe(pipes + i), 0);
	stage_open(&st);
	int fds = count_entries("/proc/self/fd");

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
	ck_assert_int_eq(count_entries("/proc/self/fd"), fds - 2);
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

#define RW (TP_PEER_READ | TP_PEER_WRITE)

START_TEST(bad_region)
{
	char path[64];
	struct stage st;
	int fd = -1, want = -EPROTO, rc = 0;

	stage_open(&st);
	switch (_i) {
	case 0: /* the control: all is well */
		fd = memfd(8192, F_SEAL_SHRINK);
		rc = attach(&st, fd, RW, RW, 8192);
		want = 0;
		break;
	case 1: /* may shrink */
		fd = memfd(8192, 0);
		rc = attach(&st, fd, RW, RW, 8192);
		break;
	case 2: /* smaller than said */
		fd = memfd(4096, F_SEAL_SHRINK);
		rc = attach(&st, fd, RW, RW, 8192);
		break;
	case 3: /* shrunk, then sealed */
		fd = memfd(8192, 0);
		ck_assert_int_eq(ftruncate(fd, 0), 0);
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
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
		fd = memfd(8192, F_SEAL_SHRINK);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		rc = open(path, O_RDONLY | O_CLOEXEC);
		close(fd);
		fd = rc;
		rc = attach(&st, fd, RW, RW, 8192);
		want = -EACCES;
		break;
	case 7: /* sealed against writing, said to be writable */
		fd = memfd(8192, F_SEAL_SHRINK | F_SEAL_WRITE);
		rc = attach(&st, fd, RW, RW, 8192);
		want = -EACCES;
		break;
	case 8: /* less access than asked */
		fd = memfd(8192, F_SEAL_SHRINK);
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

TCase *socket_case(void)
{
	TCase *t = tcase_create("socket");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, bad_packet, 0, 9);
	tcase_add_test(t, doorbells_without_end);
	tcase_add_loop_test(t, bad_region, 0, 9);
	tcase_add_test(t, unknown_region);
	return t;
}
