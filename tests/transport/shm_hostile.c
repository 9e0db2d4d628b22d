/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers over shared memory that break the protocol. The victim must close that connection with a
 * reason, and go on serving others. Here: what one leaves that is killed, and the suite; the rest
 * is in shm_bad_*.c.
 */
#include "run.h"
#include "shm_stage.h"

static bool socket_listed(void)
{
	FILE *f = fopen("/proc/net/unix", "r");
	char line[512], want[128];
	bool found = false;

	snprintf(want, sizeof(want), "@gradslot/%s", stage_name);
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
		if (tp_listen(stage_uri, NULL, &st.l) < 0 || tp_cq_create(0, &st.cq) < 0 ||
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
	ck_ok(tp_connect(stage_uri, NULL, cq, NULL, &conn));
	ck_assert(socket_listed());
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	tp_conn_destroy(conn);
	tp_cq_destroy(cq);
	ck_assert(!socket_listed());
	ck_assert_int_eq(count_entries("/dev/shm"), before);
	/* The name is free. */
	struct tp_listener *l;

	ck_ok(tp_listen(stage_uri, NULL, &l));
	tp_listener_destroy(l);
}
END_TEST

static Suite *hostile(void)
{
	Suite *s = suite_create("shm, hostile peers");
	TCase *t = tcase_create("kill");

	suite_add_tcase(s, ring_case());
	suite_add_tcase(s, socket_case());
	suite_add_tcase(s, handshake_case());
	suite_add_tcase(s, rails_case());
	tcase_set_timeout(t, 60);
	tcase_add_test(t, kill_leaves_nothing);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(hostile());
	return run_all(runner);
}
