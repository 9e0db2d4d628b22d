/* SPDX-License-Identifier: Apache-2.0
 *
 * What the contract's tests share: two connected sides in one process, their events in order, and
 * peers in processes of their own.
 */
#ifndef TESTS_TRANSPORT_HARNESS_H
#define TESTS_TRANSPORT_HARNESS_H

#include "base/clock.h"
#include "base/err.h"
#include "transport/transport.h"

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* Of the whole run: the URI to listen on, and a smaller scale for slow machines. */
extern const char *test_uri;
extern bool test_small;

static inline bool test_is_shm(void)
{
	return !strncmp(test_uri, "shm:", 4);
}

/* `big` normally, `small` at small scale. */
static inline long scaled(long big, long small)
{
	return test_small ? small : big;
}

#define ck_ok(expr)                                                                 \
	do {                                                                        \
		long ck_rc = (long)(expr);                                          \
		ck_assert_msg(ck_rc >= 0, "%s: %ld: %s", #expr, ck_rc, err_text()); \
	} while (0)

#define ck_fails(expr, err)                                                                      \
	do {                                                                                     \
		long ck_rc = (long)(expr);                                                       \
		ck_assert_msg(ck_rc == -(err), "%s: %ld instead of -%s: %s", #expr, ck_rc, #err, \
			      err_text());                                                       \
		ck_assert_msg(*err_text(), "%s: no text", #expr);                                \
	} while (0)

/* Fails the test when this much time has passed since `start`. */
#define DEADLINE_NS (30 * NS_PER_S)
#define ck_in_time(start)                                                                       \
	ck_assert_msg(clock_ns() - (start) < DEADLINE_NS, "%s:%d: nothing happened for %llu s", \
		      __FILE__, __LINE__, DEADLINE_NS / NS_PER_S)

/* ---- a side and its events --------------------------------------------------------------------
 */

/* Events that were polled and not yet looked at; messages are copies. */
struct fifo {
	struct tp_event *ev;
	size_t head, tail, room;
};

struct side {
	struct tp_cq *cq;
	struct tp_conn *conn;
	struct fifo fifo;
	/* Set by pair_memory. The window is what the peer reaches. */
	struct tp_arena *window_arena, *local_arena;
	struct tp_region *window, *local;
	struct tp_remote *remote; /* the peer's window */
	bool closed;              /* TP_EV_CLOSED was polled; nothing may follow */
};

static inline char *side_window(struct side *s)
{
	return tp_arena_base(s->window_arena);
}

static inline char *side_local(struct side *s)
{
	return tp_arena_base(s->local_arena);
}

/* Polls once into the fifo; returns how many events came. */
int side_pump(struct side *s);
/* The next event, which is taken out of the fifo; false if there is none now. */
bool side_next(struct side *s, struct tp_event *ev);
/* Posts one op, pumping this side (and `other`, unless NULL) until it is taken. */
void side_post(struct side *s, struct side *other, const struct tp_op *op);
void side_send(struct side *s, struct side *other, const void *msg, size_t len);
void side_free(struct side *s);

/* ---- two sides in this process ----------------------------------------------------------------
 */

struct pair {
	struct tp_listener *listener;
	struct side a; /* accepted */
	struct side b; /* connected */
};

struct pair_options {
	struct tp_options a, b;
	int32_t spin_us;
};

void pair_open(struct pair *p, const struct pair_options *opt);
/* Connects one more side to a listener, in this process; what comes is two connections. */
void connect_to(struct tp_listener *l, const struct tp_options *opt, struct side *a,
		struct side *b);
/* Each side gets a window of `size` bytes exposed with `access` and local memory of `size` bytes.
 */
void pair_memory(struct pair *p, size_t size, unsigned access);
/* Closes both, expects both to say so, and frees everything. */
void pair_close(struct pair *p);
/* Frees everything as it is. */
void pair_free(struct pair *p);

/* Waits for the next event of `s`, pumping both; it must be of that kind. */
struct tp_event expect(struct pair *p, struct side *s, enum tp_event_kind kind);
/* Likewise with no other side to pump. */
struct tp_event expect_alone(struct side *s, enum tp_event_kind kind);
/* The next event of that kind, dropping TP_EV_ROOM on the way. */
struct tp_event expect_past_room(struct pair *p, struct side *s, enum tp_event_kind kind);
/* Pumps both some more and expects no event at `s`. */
void expect_none(struct pair *p, struct side *s);

/* ---- ops and patterns -------------------------------------------------------------------------
 */

struct tp_op op_write(struct side *s, size_t local, size_t offset, size_t len);
struct tp_op op_read(struct side *s, size_t local, size_t offset, size_t len);
struct tp_op with_imm(struct tp_op op, uint32_t imm);
struct tp_op with_signal(struct tp_op op, uint64_t cookie);

void fill(void *to, size_t len, uint32_t seed);
/* Fails the test at the first byte that is not what fill() writes. */
void check_filled(const void *at, size_t len, uint32_t seed);

/* ---- peers in processes of their own ----------------------------------------------------------
 */

struct child {
	pid_t pid;
	int in; /* what it says (child_say) */
};

/* Runs this program again as `--role ROLE URI`. */
void child_start(struct child *c, const char *role, const char *uri);
/* Waits for the next word, a character. */
void child_expect(struct child *c, char word);
/* A line it wrote; up to its '\n'. */
void child_line(struct child *c, char *out, size_t room);
void child_kill(struct child *c);
/* In a child: says a word to its parent. */
void child_say(char word);

/* Accepts what a child connects. */
struct tp_conn *accept_one(struct tp_listener *l, struct tp_cq *cq);
/* Exchanges windows over a connection whose other end does the same. */
void side_memory(struct side *s, size_t size, unsigned access);

/* Runs one, on test_uri; an exit status. */
int run_role(const char *role);

#endif
