/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer without the trainer's library: it speaks tp_* and wire_* itself, so that it can say
 * what the library never would.
 */
#ifndef GS_TESTS_E2E_RAW_H
#define GS_TESTS_E2E_RAW_H

#include "harness.h"
#include "proto/imm.h"
#include "proto/layout.h"
#include "proto/wire.h"
#include "transport/transport.h"

enum { RAW_PARAMS = 8 };

struct raw {
	struct tp_cq *cq;
	struct tp_conn *conn;
	bool closed;
	bool deaf; /* raw_write gives up when there is no room, instead of polling */
	uint8_t rail; /* which it writes by */

	struct wire_msg inbox[16]; /* messages not looked at yet */
	uint32_t first, last;
	uint32_t imms; /* immediates so far */
	uint32_t last_imm;

	struct wire_place place[RAW_PARAMS];
	uint32_t n_places, slots, blocks;
	struct wire_grant grant; /* the last */
	struct tp_remote *weights, *slot_mem;
	struct tp_arena *mailbox, *source;
	struct tp_region *mailbox_region, *source_region;
	struct wire_welcome welcome;
	uint64_t step; /* of START */
};

/* The two lines that most tests declare: "a" of 256 × 3 + 7 floats (4 blocks of 1 KiB), "b" of 10;
 * sgd, lr 1, zero. */
extern const struct wire_param raw_lines[2];
enum { RAW_A_ELEMS = 256 * 3 + 7, RAW_B_ELEMS = 10 };

/* Rails of the connections to come: 1 unless a test says otherwise. */
extern uint32_t raw_rails;
/* depth: 0 or what the connection asks for. */
void raw_connect(struct raw *r, const char *uri, uint32_t depth);
/* Without waiting for its end. */
void raw_free(struct raw *r);
/* Closes, waits for the end, frees. */
void raw_close(struct raw *r);

void raw_send(struct raw *r, const struct wire_msg *msg);
void raw_send_bytes(struct raw *r, const void *bytes, size_t len);
/* Waits until the server has hung up. */
void raw_wait_end(struct raw *r);
/* Waits for the next message, which must be of that kind. */
struct wire_msg raw_expect(struct raw *r, enum wire_kind kind);
/* The server ends it: an error with this code and all the words, then the connection's end. */
void raw_expect_error(struct raw *r, enum wire_error_code code, const char *const *words);
#define RAW_ENDS(r, code, ...) raw_expect_error(r, code, (const char *const[]){__VA_ARGS__, NULL})

/* The talk, part by part. */
void raw_hello(struct raw *r, int32_t rank);
/* With the session that it goes on with; NULL: none. */
void raw_hello_again(struct raw *r, int32_t rank, const uint8_t *session);
void raw_declare(struct raw *r, const struct wire_param *param, uint32_t n);
void raw_take_grant(struct raw *r);
/* Exposes a mailbox of the wanted length and tells the server; or says that it has `len` bytes. */
void raw_attach(struct raw *r, uint64_t len);
/* All of it with these parameters; READY is to come. */
void raw_enter(struct raw *r, const char *uri, int32_t rank, const struct wire_param *param,
	       uint32_t n);
/* All of it with raw_lines, up to READY, which must not ask for initial weights; START follows
 * when the others have come. */
void raw_join(struct raw *r, const char *uri, int32_t rank);
void raw_wait_start(struct raw *r);
/* The same with other parameters. */
void raw_join_with(struct raw *r, const char *uri, int32_t rank, const struct wire_param *param,
		   uint32_t n);

/* A WRITE of `len` bytes to the slots at `off` with immediate data. False: no room (deaf). */
bool raw_write(struct raw *r, uint64_t off, uint64_t len, uint32_t imm);
/* The same from `at` of the source, with or without immediate data. */
bool raw_write_from(struct raw *r, uint64_t at, uint64_t off, uint64_t len, unsigned flags, uint32_t imm);
/* The gradient of block b (numbered in its parameter) of parameter p into slot s, all `value`. */
bool raw_gradient(struct raw *r, uint32_t p, uint32_t b, uint32_t slot, float value, bool notify);
/* What is said about pushes of parameter p into slot s. */
void raw_head(struct raw *r, uint32_t p, uint32_t slot, const struct layout_push_head *head);
/* Of its first block, in one WRITE with the head. */
void raw_led_gradient(struct raw *r, uint32_t p, uint32_t slot,
		      const struct layout_push_head *head, float value);
void raw_barrier(struct raw *r, uint64_t step);
/* The last step that is released. */
uint64_t raw_released(struct raw *r);
/* Waits until step is released. */
void raw_wait_release(struct raw *r, uint64_t step);
/* Waits until the credit counter of a block is n. */
void raw_wait_credit(struct raw *r, uint32_t block, uint64_t n);
/* The same for one of which nobody tells: does not sleep at first. */
void raw_look_for_credit(struct raw *r, uint32_t block, uint64_t n);
/* What the server had of the block before. */
uint64_t raw_kept(struct raw *r, uint32_t block);
uint64_t raw_credit(struct raw *r, uint32_t block);
/* Says bye, and waits for the server's. */
void raw_bye(struct raw *r);
void raw_poll(struct raw *r);

#endif
