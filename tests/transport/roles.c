/* SPDX-License-Identifier: Apache-2.0
 *
 * What peers do in processes of their own, until they are killed. They say '!' when they are where
 * the test wants them.
 */
#include "harness.h"

#include <errno.h>
#include <unistd.h>

#define WINDOW 65536

/* A failure here shows at the parent as a child that is gone; the text says why. */
static void must(int rc, const char *what)
{
	ck_assert_msg(rc >= 0, "child: %s: %d: %s", what, rc, err_text());
}

static void join(struct side *s, const char *uri, int32_t spin_us)
{
	memset(s, 0, sizeof(*s));
	must(tp_cq_create(spin_us, &s->cq), "cq");
	must(tp_connect(uri, NULL, s->cq, s, &s->conn), "connect");
}

static void share(struct side *s)
{
	side_memory(s, WINDOW, TP_PEER_READ | TP_PEER_WRITE);
}

static void stay(void)
{
	child_say('!');
	for (;;)
		pause();
}

/* Connected, and nothing more. */
static void role_idle(const char *uri)
{
	struct side s;

	join(&s, uri, 0);
	stay();
}

/* Shares memory and never polls again. */
static void role_deaf(const char *uri)
{
	struct side s;

	join(&s, uri, 0);
	share(&s);
	stay();
}

/* Writes, numbered, until its queue is full. */
static void role_writer(const char *uri)
{
	struct side s;
	uint32_t n = 0;
	int rc;

	join(&s, uri, 0);
	share(&s);
	do {
		struct tp_op op = with_imm(op_write(&s, 0, 0, 64), n);

		rc = tp_post(s.conn, &op, 1);
		n += rc == 1;
	} while (rc == 1);
	must(rc == -EAGAIN ? 0 : rc, "post");
	stay();
}

/* Reads from the parent without end. */
static void role_reader(const char *uri)
{
	struct side s;
	bool said = false;

	join(&s, uri, 0);
	share(&s);
	for (;;) {
		struct tp_op op = with_signal(op_read(&s, 0, 0, WINDOW), 1);
		int rc = tp_post(s.conn, &op, 1);

		if (rc != -EAGAIN)
			must(rc, "post");
		side_pump(&s);
		for (struct tp_event ev; side_next(&s, &ev);)
			if (ev.kind == TP_EV_DONE && !said) {
				said = true;
				child_say('!');
			}
	}
}

/* Asleep in tp_cq_wait. */
static void role_sleeper(const char *uri)
{
	struct side s;
	struct tp_event ev;

	join(&s, uri, 0);
	share(&s);
	child_say('!');
	for (;;) {
		tp_cq_wait(s.cq, -1);
		side_pump(&s);
		while (side_next(&s, &ev))
			;
	}
}

/* In the middle of connecting: nobody accepts. */
static void role_knocker(const char *uri)
{
	struct tp_options opt = {.timeout_ms = 60000};
	struct tp_conn *conn;
	struct tp_cq *cq;

	must(tp_cq_create(0, &cq), "cq");
	child_say('!');
	must(tp_connect(uri, &opt, cq, NULL, &conn), "connect");
	stay();
}

/* Posts a write, a message and a close, and is gone as soon as that is delivered. */
static void role_leaver(const char *uri)
{
	struct side s;

	join(&s, uri, 0);
	share(&s);
	fill(side_local(&s), WINDOW, 7);
	struct tp_op op = with_imm(op_write(&s, 0, 0, WINDOW), 77);

	must(tp_post(s.conn, &op, 1), "post");
	must(tp_send(s.conn, "bye", 3), "send");
	tp_conn_close(s.conn);
	expect_past_room(NULL, &s, TP_EV_CLOSED);
	side_free(&s);
}

/* A listener that takes one connection and says its URI first. */
static void role_listener(const char *uri)
{
	struct tp_listener *l;
	struct tp_cq *cq;

	must(tp_cq_create(0, &cq), "cq");
	must(tp_listen(uri, NULL, &l), "listen");
	for (const char *c = tp_listener_uri(l); *c; c++)
		child_say(*c);
	child_say('\n');
	accept_one(l, cq);
	stay();
}

static const struct {
	const char *name;
	void (*run)(const char *uri);
} roles[] = {
    {"idle", role_idle},     {"deaf", role_deaf},         {"writer", role_writer},
    {"reader", role_reader}, {"sleeper", role_sleeper},   {"knocker", role_knocker},
    {"leaver", role_leaver}, {"listener", role_listener},
};

static const char *role_name;

START_TEST(play_role)
{
	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
		if (!strcmp(role_name, roles[i].name)) {
			roles[i].run(test_uri);
			return;
		}
	ck_abort_msg("no role %s", role_name);
}
END_TEST

/* As a test of its own, in this process, because the helpers check with Check. */
int run_role(const char *role)
{
	static const char *const parents[] = {
	    "CK_RUN_SUITE",     "CK_RUN_CASE",          "CK_INCLUDE_TAGS",      "CK_EXCLUDE_TAGS",
	    "CK_LOG_FILE_NAME", "CK_XML_LOG_FILE_NAME", "CK_TAP_LOG_FILE_NAME",
	};
	Suite *s = suite_create(role);
	TCase *t = tcase_create(role);
	SRunner *runner = srunner_create(s);

	role_name = role;
	tcase_add_test(t, play_role);
	suite_add_tcase(s, t);
	srunner_set_fork_status(runner, CK_NOFORK);
	/* Which tests the parent runs, and where it logs, is not meant for this one. */
	for (size_t i = 0; i < sizeof(parents) / sizeof(*parents); i++)
		unsetenv(parents[i]);
	srunner_run_all(runner, CK_SILENT);
	int failed = srunner_ntests_failed(runner);

	if (failed)
		srunner_print(runner, CK_NORMAL);
	srunner_free(runner);
	return failed ? 1 : 0;
}
