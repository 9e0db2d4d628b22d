/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory on a real device: what was not given is not reached; locked memory; fork.
 */
#include "verbs_device.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

struct rogue {
	struct pair p;
	struct side a2, b2;
	struct tp_arena *arena;
	struct tp_region *local;
	struct tp_remote *stolen;
};

/* A good connection, and a second one on which `ref` is attached. */
static void rogue_open(struct rogue *r)
{
	memset(r, 0, sizeof(*r));
	pair_open(&r->p, NULL);
	pair_memory(&r->p, 65536, RW);
	r->a2.cq = new_cq();
	r->b2.cq = new_cq();
	connect_to(r->p.listener, NULL, &r->a2, &r->b2);
	ck_ok(tp_arena_create("rogue", 65536, 0, &r->arena));
	memset(tp_arena_base(r->arena), 0xee, 65536);
	ck_ok(tp_expose(r->b2.conn, r->arena, TP_LOCAL, &r->local));
	memset(side_window(&r->p.a), 0, 65536);
}

/* The rogue op ends badly for the rogue, and for nobody else. */
static void rogue_try(struct rogue *r, struct tp_ref ref, enum tp_op_kind kind, uint64_t offset)
{
	struct pair second = {.a = r->a2, .b = r->b2};
	struct tp_op op = {
	    .kind = kind,
	    .flags = TP_F_SIGNAL,
	    .local = tp_arena_base(r->arena),
	    .region = r->local,
	    .offset = offset,
	    .len = 2048,
	    .cookie = 7,
	};

	ck_ok(tp_attach(r->b2.conn, &ref, RW, ref.len, &op.remote));
	side_post(&second.b, &second.a, &op);
	struct tp_event ev = expect(&second, &second.b, TP_EV_DONE);

	ck_assert_uint_eq(ev.cookie, 7);
	ck_assert_msg(ev.status < 0 || (is_iwarp() && kind == TP_OP_WRITE), "status %d", ev.status);
	ev = expect(&second, &second.b, TP_EV_CLOSED);
	ck_assert_int_lt(ev.status, 0);
	if (!is_iwarp()) {
		ck_assert_int_eq(ev.status, -EACCES);
		ck_assert_ptr_nonnull(strstr(tp_conn_reason(ev.conn), "remote access error"));
	}
	expect(&second, &second.a, TP_EV_CLOSED);
	for (int i = 0; i < 65536; i++)
		ck_assert(side_window(&r->p.a)[i] == 0);
	r->a2 = second.a;
	r->b2 = second.b;
	still_works(&r->p);
	side_free(&r->a2);
	side_free(&r->b2);
	tp_arena_destroy(r->arena);
	pair_close(&r->p);
}

START_TEST(key_of_another_connection)
{
	struct rogue r;

	rogue_open(&r);
	rogue_try(&r, tp_region_ref(r.p.a.window), _i ? TP_OP_READ : TP_OP_WRITE, 0);
}
END_TEST

/* Connections that share all that connections may share: listener, queue, device context. */
START_TEST(key_of_a_sibling)
{
	struct side a1 = {.cq = new_cq()}, a2 = {.cq = a1.cq};
	struct side b1 = {.cq = new_cq()}, b2 = {.cq = new_cq()};
	struct tp_listener *l;
	struct tp_arena *arena;
	struct tp_region *region;
	char word[16] = "rogue";
	struct tp_op op = {.kind = TP_OP_WRITE, .flags = TP_F_SIGNAL, .local = word, .len = 16};

	ck_ok(tp_listen(listen_uri, NULL, &l));
	connect_to(l, NULL, &a1, &b1);
	connect_to(l, NULL, &a2, &b2);
	ck_ok(tp_arena_create("slots", 4096, 0, &arena));
	ck_ok(tp_expose(a1.conn, arena, RW, &region));
	struct tp_ref ref = tp_region_ref(region);

	ck_ok(tp_attach(b2.conn, &ref, RW, ref.len, &op.remote));
	side_post(&b2, NULL, &op);
	struct tp_event ev = expect_alone(&b2, TP_EV_DONE);

	ck_assert(ev.status < 0 || is_iwarp());
	ck_assert_int_lt(expect_alone(&b2, TP_EV_CLOSED).status, 0);
	for (int i = 0; i < 4096; i++)
		ck_assert(((char *)tp_arena_base(arena))[i] == 0);

	ck_ok(tp_attach(b1.conn, &ref, RW, ref.len, &op.remote));
	side_post(&b1, NULL, &op);
	ck_assert_int_eq(expect_alone(&b1, TP_EV_DONE).status, 0);
	tp_conn_destroy(a2.conn);
	side_free(&b2);
	side_free(&b1);
	side_free(&a1);
	tp_arena_destroy(arena);
	tp_listener_destroy(l);
}
END_TEST

/* The peer's own region on this connection, but longer than it is. */
START_TEST(beyond_the_end)
{
	struct rogue r;
	struct tp_region *region;

	rogue_open(&r);
	struct tp_arena *arena;

	ck_ok(tp_arena_create("short", 65536, 0, &arena));
	ck_ok(tp_expose(r.a2.conn, arena, RW, &region));
	struct tp_ref ref = tp_region_ref(region);

	ref.len = 1 << 20;
	rogue_try(&r, ref, TP_OP_WRITE, 65536);
	tp_arena_destroy(arena);
}
END_TEST

static void drop_ipc_lock(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	ck_assert_int_eq((int)syscall(SYS_capget, &head, data), 0);
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	ck_assert_int_eq((int)syscall(SYS_capset, &head, data), 0);
}

START_TEST(memlock_is_explained)
{
	struct rlimit limit = {8 << 20, 8 << 20};
	struct tp_arena *arena;
	struct tp_region *region = NULL;
	struct pair p;

	/* Before the device is opened: it may be used with the credentials of that moment only. */
	drop_ipc_lock();
	pair_open(&p, NULL);
	ck_ok(tp_arena_create("large", 64 << 20, 0, &arena));
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	ck_fails(tp_expose(p.b.conn, arena, TP_PEER_READ, &region), ENOMEM);
	ck_assert_ptr_null(region);
	expect_text("65536 KiB");
	expect_text("8192 KiB");
	expect_text("ulimit -l unlimited");
	expect_text("limits.d");
	expect_text("LimitMEMLOCK");
	/* The connection is none the worse. */
	ck_ok(tp_send(p.b.conn, "x", 1));
	free((void *)expect(&p, &p.a, TP_EV_MSG).msg);
	pair_close(&p);
	tp_arena_destroy(arena);
}
END_TEST

START_TEST(fork_harms_nobody)
{
	struct pair p;
	int status;

	pair_open(&p, NULL);
	pair_memory(&p, 1 << 20, RW);
	still_works(&p);
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		/* As a data loader does: touches what it inherited, and goes. */
		memset(side_local(&p.b) + 8192, 1, 4096);
		_exit(side_window(&p.a)[5] == side_local(&p.b)[5] ? 0 : 1);
	}
	for (int i = 0; i < 20; i++)
		still_works(&p);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(status == 0, "the child ended with 0x%x", status);
	for (int i = 0; i < 20; i++)
		still_works(&p);
	pair_close(&p);
}
END_TEST

void verbs_memory(Suite *s)
{
	TCase *t = verbs_part(s, "memory");

	tcase_add_loop_test(t, key_of_another_connection, 0, 2);
	tcase_add_test(t, key_of_a_sibling);
	tcase_add_test(t, beyond_the_end);
	tcase_add_test(t, memlock_is_explained);
	tcase_add_test(t, fork_harms_nobody);
}
