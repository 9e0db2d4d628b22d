/* SPDX-License-Identifier: Apache-2.0
 *
 * What the contract's tests share.
 */
#include "harness.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

const char *test_uri;
bool test_small;

/* ---- a side and its events --------------------------------------------------------------------
 */

static void fifo_put(struct fifo *f, const struct tp_event *ev)
{
	if (f->tail == f->room) {
		f->room = f->room ? 2 * f->room : 64;
		f->ev = realloc(f->ev, f->room * sizeof(*f->ev));
		ck_assert_ptr_nonnull(f->ev);
	}
	struct tp_event *to = &f->ev[f->tail++];

	*to = *ev;
	if (ev->kind == TP_EV_MSG) {
		void *copy = malloc(ev->len);

		memcpy(copy, ev->msg, ev->len);
		to->msg = copy;
	}
}

int side_pump(struct side *s)
{
	struct tp_event ev[32];
	int n = tp_cq_poll(s->cq, ev, 32);

	ck_assert_int_ge(n, 0);
	ck_assert_int_le(n, 32);
	for (int i = 0; i < n; i++) {
		if (ev[i].conn != s->conn)
			ck_abort_msg("an event of another connection");
		ck_assert_msg(!s->closed, "event %d after TP_EV_CLOSED", ev[i].kind);
		s->closed = ev[i].kind == TP_EV_CLOSED;
		fifo_put(&s->fifo, &ev[i]);
	}
	return n;
}

bool side_next(struct side *s, struct tp_event *ev)
{
	struct fifo *f = &s->fifo;

	if (f->head == f->tail)
		return false;
	*ev = f->ev[f->head++];
	if (f->head == f->tail)
		f->head = f->tail = 0;
	return true;
}

void side_post(struct side *s, struct side *other, const struct tp_op *op)
{
	uint64_t start = clock_ns();
	int rc;

	while ((rc = tp_post(s->conn, op, 1)) == -EAGAIN) {
		side_pump(s);
		if (other)
			side_pump(other);
		ck_in_time(start);
	}
	ck_ok(rc);
	ck_assert_int_eq(rc, 1);
}

void side_send(struct side *s, struct side *other, const void *msg, size_t len)
{
	uint64_t start = clock_ns();
	int rc;

	while ((rc = tp_send(s->conn, msg, len)) == -EAGAIN) {
		side_pump(s);
		if (other)
			side_pump(other);
		ck_in_time(start);
	}
	ck_ok(rc);
}

void side_free(struct side *s)
{
	struct tp_event ev;

	tp_conn_destroy(s->conn);
	tp_arena_destroy(s->window_arena);
	tp_arena_destroy(s->local_arena);
	tp_cq_destroy(s->cq);
	while (side_next(s, &ev))
		if (ev.kind == TP_EV_MSG)
			free((void *)ev.msg);
	free(s->fifo.ev);
	memset(s, 0, sizeof(*s));
}

/* ---- two sides in this process ----------------------------------------------------------------
 */

struct accepting {
	struct tp_listener *listener;
	struct side *side;
	int rc;
	char text[512];
};

static void *accept_thread(void *arg)
{
	struct accepting *acc = arg;
	uint64_t start = clock_ns();
	int rc;

	do {
		struct pollfd pfd = {.fd = tp_listener_fd(acc->listener), .events = POLLIN};

		poll(&pfd, 1, 100);
		rc = tp_accept(acc->listener, acc->side->cq, acc->side, &acc->side->conn);
	} while (rc == 0 && clock_ns() - start < DEADLINE_NS);
	acc->rc = rc;
	snprintf(acc->text, sizeof(acc->text), "%s", err_text());
	return NULL;
}

void connect_to(struct tp_listener *l, const struct tp_options *opt, struct side *a, struct side *b)
{
	struct accepting acc = {.listener = l, .side = a};
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, accept_thread, &acc), 0);
	int rc = tp_connect(tp_listener_uri(l), opt, b->cq, b, &b->conn);
	char text[512];

	snprintf(text, sizeof(text), "%s", err_text());
	ck_assert_msg(rc == 0, "tp_connect: %d: %s", rc, text);
	pthread_join(thread, NULL);
	ck_assert_msg(acc.rc == 1, "tp_accept: %d: %s", acc.rc, acc.text);
}

void pair_open(struct pair *p, const struct pair_options *opt)
{
	static const struct pair_options defaults;

	if (!opt)
		opt = &defaults;
	memset(p, 0, sizeof(*p));
	ck_ok(tp_listen(test_uri, &opt->a, &p->listener));
	ck_ok(tp_cq_create(opt->spin_us, &p->a.cq));
	ck_ok(tp_cq_create(opt->spin_us, &p->b.cq));
	connect_to(p->listener, &opt->b, &p->a, &p->b);
}

static void make_memory(struct side *s, size_t size, unsigned access)
{
	ck_ok(tp_arena_create("test-window", size, 0, &s->window_arena));
	ck_ok(tp_arena_create("test-local", size, 0, &s->local_arena));
	ck_ok(tp_expose(s->conn, s->window_arena, access, &s->window));
	ck_ok(tp_expose(s->conn, s->local_arena, TP_LOCAL, &s->local));
	struct tp_ref ref = tp_region_ref(s->window);

	ck_assert_uint_ge(ref.len, size);
	ck_ok(tp_send(s->conn, &ref, sizeof(ref)));
}

static void attach_sent(struct side *s, const struct tp_event *ev, unsigned access)
{
	struct tp_ref ref;

	ck_assert_uint_eq(ev->len, sizeof(ref));
	memcpy(&ref, ev->msg, sizeof(ref));
	free((void *)ev->msg);
	ck_ok(tp_attach(s->conn, &ref, access, ref.len, &s->remote));
}

void pair_memory(struct pair *p, size_t size, unsigned access)
{
	make_memory(&p->a, size, access);
	make_memory(&p->b, size, access);
	struct tp_event ev = expect(p, &p->a, TP_EV_MSG);

	attach_sent(&p->a, &ev, access);
	ev = expect(p, &p->b, TP_EV_MSG);
	attach_sent(&p->b, &ev, access);
}

void side_memory(struct side *s, size_t size, unsigned access)
{
	make_memory(s, size, access);
	struct tp_event ev = expect_alone(s, TP_EV_MSG);

	attach_sent(s, &ev, access);
}

void pair_free(struct pair *p)
{
	side_free(&p->a);
	side_free(&p->b);
	tp_listener_destroy(p->listener);
	p->listener = NULL;
}

void pair_close(struct pair *p)
{
	tp_conn_close(p->b.conn);
	ck_assert_int_eq(expect_past_room(p, &p->b, TP_EV_CLOSED).status, 0);
	ck_assert_int_eq(expect_past_room(p, &p->a, TP_EV_CLOSED).status, 0);
	pair_free(p);
}

/* Any event; `kind` is what is said to be missing when none comes. */
static struct tp_event wait_next(struct side *s, struct side *other, enum tp_event_kind kind)
{
	uint64_t start = clock_ns();
	struct tp_event ev;

	while (!side_next(s, &ev)) {
		int n = side_pump(s);

		if (other)
			n += side_pump(other);
		if (n == 0)
			sched_yield();
		ck_assert_msg(clock_ns() - start < DEADLINE_NS, "no event for %llu s; awaited: %d",
			      DEADLINE_NS / NS_PER_S, kind);
	}
	return ev;
}

static struct side *other_side(struct pair *p, struct side *s)
{
	return s == &p->a ? &p->b : &p->a;
}

static struct tp_event want_kind(struct tp_event ev, enum tp_event_kind kind)
{
	ck_assert_msg(ev.kind == kind, "event %d (status %d, reason '%s') instead of %d", ev.kind,
		      ev.status, tp_conn_reason(ev.conn), kind);
	return ev;
}

struct tp_event expect(struct pair *p, struct side *s, enum tp_event_kind kind)
{
	return want_kind(wait_next(s, other_side(p, s), kind), kind);
}

struct tp_event expect_alone(struct side *s, enum tp_event_kind kind)
{
	return want_kind(wait_next(s, NULL, kind), kind);
}

struct tp_event expect_past_room(struct pair *p, struct side *s, enum tp_event_kind kind)
{
	struct tp_event ev;

	do {
		ev = wait_next(s, p ? other_side(p, s) : NULL, kind);
	} while (ev.kind == TP_EV_ROOM && kind != TP_EV_ROOM);
	return want_kind(ev, kind);
}

void expect_none(struct pair *p, struct side *s)
{
	struct tp_event ev;

	for (int i = 0; i < 1000; i++) {
		side_pump(&p->a);
		side_pump(&p->b);
		if (side_next(s, &ev))
			ck_abort_msg("event %d where none was expected", ev.kind);
	}
}

/* ---- ops and patterns -------------------------------------------------------------------------
 */

struct tp_op op_write(struct side *s, size_t local, size_t offset, size_t len)
{
	return (struct tp_op){
	    .kind = TP_OP_WRITE,
	    .local = side_local(s) + local,
	    .region = s->local,
	    .remote = s->remote,
	    .offset = offset,
	    .len = len,
	};
}

struct tp_op op_read(struct side *s, size_t local, size_t offset, size_t len)
{
	struct tp_op op = op_write(s, local, offset, len);

	op.kind = TP_OP_READ;
	return op;
}

struct tp_op with_imm(struct tp_op op, uint32_t imm)
{
	op.flags |= TP_F_IMM;
	op.imm = imm;
	return op;
}

struct tp_op with_signal(struct tp_op op, uint64_t cookie)
{
	op.flags |= TP_F_SIGNAL;
	op.cookie = cookie;
	return op;
}

static inline unsigned char pattern(size_t i, uint32_t seed)
{
	return (unsigned char)((i * 2654435761u + seed * 40503u) >> 8);
}

void fill(void *to, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		((unsigned char *)to)[i] = pattern(i, seed);
}

void check_filled(const void *at, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		if (((const unsigned char *)at)[i] != pattern(i, seed))
			ck_abort_msg("byte %zu of %zu is %u, not %u (pattern %u)", i, len,
				     ((const unsigned char *)at)[i], pattern(i, seed), seed);
}

/* ---- peers in processes of their own ----------------------------------------------------------
 */

#define SAY_FD 3

void child_start(struct child *c, const char *role, const char *uri)
{
	int pipefd[2];

	ck_assert_int_eq(pipe(pipefd), 0);
	c->in = pipefd[0];
	c->pid = fork();
	ck_assert_int_ge(c->pid, 0);
	if (c->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (pipefd[1] != SAY_FD)
			dup2(pipefd[1], SAY_FD);
		execl("/proc/self/exe", "transport_contract", "--role", role, uri, (char *)NULL);
		_exit(127);
	}
	close(pipefd[1]);
}

static char child_read(struct child *c)
{
	struct pollfd pfd = {.fd = c->in, .events = POLLIN};
	char word = 0;

	ck_assert_msg(poll(&pfd, 1, (int)(DEADLINE_NS / NS_PER_MS)) == 1, "the child says nothing");
	ck_assert_msg(read(c->in, &word, 1) == 1, "the child is gone");
	return word;
}

void child_expect(struct child *c, char word)
{
	char got = child_read(c);

	ck_assert_msg(got == word, "the child says '%c' instead of '%c'", got, word);
}

void child_line(struct child *c, char *out, size_t room)
{
	size_t n = 0;
	char word;

	while ((word = child_read(c)) != '\n') {
		ck_assert_uint_lt(n + 1, room);
		out[n++] = word;
	}
	out[n] = 0;
}

void child_kill(struct child *c)
{
	kill(c->pid, SIGKILL);
	ck_assert_int_eq(waitpid(c->pid, NULL, 0), c->pid);
	close(c->in);
}

void child_say(char word)
{
	if (write(SAY_FD, &word, 1) != 1)
		_exit(1);
}

struct tp_conn *accept_one(struct tp_listener *l, struct tp_cq *cq)
{
	uint64_t start = clock_ns();
	struct tp_conn *conn = NULL;
	int rc;

	while ((rc = tp_accept(l, cq, NULL, &conn)) == 0) {
		struct pollfd pfd = {.fd = tp_listener_fd(l), .events = POLLIN};

		poll(&pfd, 1, 100);
		ck_in_time(start);
	}
	ck_ok(rc);
	return conn;
}
