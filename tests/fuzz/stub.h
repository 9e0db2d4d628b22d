/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport without a transport: tp_* over plain memory, in one thread, for the fuzzers of the
 * server and of the trainer. What happens on a connection is what the fuzzer puts into its queue.
 * What this side posts is checked here: an op out of its bounds, or a message that can't be decoded,
 * is a bug of ours.
 *
 * Linked in place of gs_transport; and with --wrap for poll, clock_gettime, nanosleep,
 * pthread_create, pthread_join and log_line: between stub_begin and stub_end no thread is started,
 * time stands still but for stub_pass, and an error that is logged is a bug.
 */
#ifndef GS_TESTS_FUZZ_STUB_H
#define GS_TESTS_FUZZ_STUB_H

#include "proto/wire.h"
#include "transport/transport.h"

enum { STUB_MAX_REMOTES = 3, STUB_ROOM = 1 << 30 };

struct tp_remote {
	struct tp_conn *conn;
	uint8_t *base;
	uint64_t len;
	unsigned access;
};

struct tp_conn {
	struct tp_cq *cq;
	void *user;
	void *peer; /* the fuzzer's */
	bool closing, closed, destroyed;
	bool load_store;
	bool hold_dones; /* signalled ops end when stub_dones says so */
	bool want_room;
	int room; /* ops and messages that may be posted */
	struct tp_remote *remote[STUB_MAX_REMOTES]; /* in the order in which they were attached */
	unsigned remotes;
	uint64_t held[64];
	unsigned n_held;
};

/* What the fuzzer does. Each may be NULL. */
struct stub_hooks {
	/* The queue is empty and this side waits. False: nothing will come any more. */
	bool (*idle)(struct tp_cq *cq);
	/* This side's poll(2). */
	void (*poll)(void);
	/* This side sent a message. */
	void (*sent)(struct tp_conn *conn, const struct wire_msg *msg);
	/* This side's immediate arrived. */
	void (*imm)(struct tp_conn *conn, uint32_t imm, uint64_t len);
};

void stub_begin(const struct stub_hooks *hooks);
/* Frees what the fuzzer's side holds. */
void stub_end(void);
/* Time passes. */
void stub_pass(uint64_t ns);

/* The next tp_accept gives a new connection. */
void stub_knock(bool load_store, void *peer);
/* The one that was made last, accepted or not. */
struct tp_conn *stub_last(void);
/* tp_connect gives a connection like this. */
void stub_answer(bool load_store, void *peer);

void stub_imm(struct tp_conn *conn, uint32_t imm, uint32_t len);
void stub_msg(struct tp_conn *conn, const void *bytes, size_t len);
void stub_close(struct tp_conn *conn, int status);
void stub_room(struct tp_conn *conn, int room);
void stub_dones(struct tp_conn *conn);
/* The memory of the i-th region that was exposed on the connection, TP_LOCAL ones left out. */
uint8_t *stub_exposed(struct tp_conn *conn, unsigned i, uint64_t *len);

#endif
