/* SPDX-License-Identifier: Apache-2.0
 *
 * A server on a script: a thread that speaks the protocol through tp_* and wire_*, does what a test
 * tells it, and nothing of what a real server would check. It serves one trainer over shm.
 */
#ifndef GS_TESTS_TRAINER_FAKE_H
#define GS_TESTS_TRAINER_FAKE_H

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "gradslot/gradslot.h"
#include "proto/imm.h"
#include "proto/layout.h"
#include "proto/wire.h"
#include "transport/transport.h"
#include "wrap.h"

enum {
	FAKE_PARAMS = 16,
	FAKE_BLOCKS = 512,
	FAKE_EVENTS = 4096, /* polled and not looked at yet */
	FAKE_BATCH = 64,
	FAKE_WAIT_MS = 10000,
};

struct fake {
	char uri[64];
	void (*script)(struct fake *f);
	void *arg;
	enum wire_mode mode;
	uint32_t slots;       /* ring; 2 unless the test says otherwise */
	uint64_t block_elems; /* 28 */
	bool packed;          /* all parameters are one pack; each must have one block */

	pthread_t thread;
	struct tp_listener *listener;
	struct tp_cq *cq;
	struct tp_conn *conn;
	bool closed;
	struct wire_msg msg; /* the last one that came */
	struct tp_event ev[FAKE_EVENTS];
	int ev_next, ev_n;

	uint32_t n;
	struct wire_param param[FAKE_PARAMS];
	struct wire_place place[FAKE_PARAMS];
	uint32_t blocks;
	uint64_t applied[FAKE_BLOCKS];
	struct tp_arena *weights_mem, *slot_mem, *words_mem;
	struct tp_region *weights_region, *slot_region, *words_region;
	struct tp_remote *mailbox;
	uint8_t *weights, *slot, *words;

	/* What it tells a trainer that comes; fake_drop makes another one come. */
	uint64_t server;            /* its run; 1 unless the test says otherwise */
	bool resumes;               /* it goes on with who names the session before */
	uint64_t start_step;        /* 1 */
	uint64_t kept[FAKE_BLOCKS]; /* the kept words */
	bool unseeded;              /* credits begin with 0 all the same */
	uint8_t sessions;           /* so far; the session's token is this, 16 times */
	void *saved;                /* the weights, while there is no connection */
	uint64_t saved_len;

	/* For the test's thread. */
	atomic_int seen;  /* gradients that came */
	atomic_int allow; /* fake_gate waits until it is this many */
	atomic_bool done; /* the test's trainer does not come back */
	bool may_end;     /* the connection may end while it is posted on */
	uint64_t barriers;
	int stage_done;
};

/* Listens, and runs the script in a thread. */
void fake_start(struct fake *f, void (*script)(struct fake *f));
/* Waits for the script's end and frees all. */
void fake_join(struct fake *f);

/* ---- for scripts ----------------------------------------------------------------------------- */

void fake_accept(struct fake *f);
/* False: nobody comes any more, f->done. */
bool fake_try_accept(struct fake *f);
/* The next immediate, message (in f->msg) or end; false after `ms` without one. */
bool fake_next(struct fake *f, struct tp_event *ev, int ms);
void fake_expect(struct fake *f, enum wire_kind kind);
struct imm fake_expect_imm(struct fake *f, enum imm_kind kind);
void fake_expect_closed(struct fake *f);
void fake_send(struct fake *f, const struct wire_msg *msg);
void fake_send_error(struct fake *f, enum wire_error_code code, const char *text);
void fake_imm(struct fake *f, uint32_t imm, uint64_t off, uint64_t word);
/* A word into the mailbox with no immediate. */
void fake_word(struct fake *f, uint64_t off, uint64_t word);
void fake_credit(struct fake *f, uint32_t block, uint64_t count, bool notify);
void fake_release(struct fake *f, uint64_t step);
/* What a barrier carries, eight bytes of 0, lies at the head of the slots, and then this again. */
#define FAKE_NO_BARRIER UINT64_MAX
void fake_take_barrier(struct fake *f);
void fake_pulled(struct fake *f, uint32_t block);
/* Any bytes at `off` of the mailbox. */
void fake_land(struct fake *f, uint32_t imm, uint64_t off, const void *bytes, uint64_t len);
void fake_close(struct fake *f);
/* The end of the connection, by whomever, and of what belongs to it. The weights stay. */
void fake_drop(struct fake *f);
/* They don't: another run of the server. */
void fake_restart(struct fake *f);

/* The conversation, up to and including a stage. */
enum stage {
	STAGE_ACCEPTED,
	STAGE_HELLO,    /* hello came */
	STAGE_WELCOMED, /* welcome was sent */
	STAGE_DECLARED, /* all declares came */
	STAGE_GRANTED,
	STAGE_ATTACHED, /* attach came */
	STAGE_READY,    /* ready was sent, without init */
	STAGE_STARTED,
};
void fake_up_to(struct fake *f, enum stage stage);
/* The grant that fake_up_to sends, before it is cut into messages; memory is made with it. */
struct wire_grant fake_lay_out(struct fake *f);

uint32_t fake_owner(const struct fake *f, uint32_t block); /* which parameter */
uint64_t fake_block_elems(const struct fake *f, uint32_t block);
float *fake_weights(struct fake *f, uint32_t block);
float *fake_slot(struct fake *f, uint32_t block, uint32_t slot);
uint64_t *fake_version(struct fake *f, uint32_t block);

/* Handles what comes as a good server would (w -= g, one trainer) until the connection's end. */
void fake_serve(struct fake *f);
/* One event of it; false when the connection is over. */
bool fake_serve_one(struct fake *f, const struct tp_event *ev);

/* A script: it starts, is gone, and nobody is there after it. */
void fake_end_for_good(struct fake *f);

/* Waits until the test has allowed n. */
void fake_gate(struct fake *f, int n);

/* ---- for the test's thread ------------------------------------------------------------------- */

#define ck_ok(call)                                                                     \
	do {                                                                            \
		int ck_rc = (call);                                                     \
		ck_assert_msg(ck_rc == 0, "%s: %d: %s", #call, ck_rc, gs_last_error()); \
	} while (0)

/* It fails with this errno, and says `text`. */
#define ck_fails(call, err, text)                                                                  \
	do {                                                                                       \
		int ck_rc = (call);                                                                \
		ck_assert_msg(ck_rc == -(err), "%s: %d instead of -%s: %s", #call, ck_rc, #err,    \
			      ck_rc < 0 ? gs_last_error() : "-");                                  \
		ck_assert_msg(strstr(gs_last_error(), text), "%s: \"%s\" is not in \"%s\"", #call, \
			      text, gs_last_error());                                              \
	} while (0)

struct rig {
	struct fake f;
	gs_trainer *t;
	gs_param *w, *b; /* [10, 7] in blocks of 28 elements (28, 28, 14), and [3] */
};
enum { W_ELEMS = 70, B_ELEMS = 3, W_BLOCKS = 3, B_BLOCK = 3, BLOCKS = 4 };

/* Default options for the fake. */
struct gs_options rig_options(struct rig *r);
int rig_connect(struct rig *r);
/* Declares w and b (w's init: init_data unless NULL). */
int rig_try_declare(struct rig *r, const float *init_data);
void rig_declare(struct rig *r, const float *init_data);
/* A fake with this script, connected and started. */
void rig_up(struct rig *r, enum wire_mode mode, void (*script)(struct fake *f));
/* The same, with this limit on gs_reconnect. */
void rig_up_for(struct rig *r, enum wire_mode mode, void (*script)(struct fake *f),
		uint32_t reconnect_ms);
/* Until the loss is seen. */
void rig_be_lost(struct rig *r);
/* gs_close, and the fake's end. */
void rig_down(struct rig *r);
/* Waits until the fake saw n gradients. */
void rig_seen(struct rig *r, int n);

Suite *grant_suite(void);
Suite *connect_suite(void);
Suite *access_suite(void);
Suite *start_suite(void);
Suite *push_suite(void);
Suite *push_many_suite(void);
Suite *pull_suite(void);
Suite *step_pull_suite(void);
Suite *rows_suite(void);
Suite *hostile_suite(void);
Suite *threads_suite(void);
Suite *kept_suite(void);
Suite *reconnect_suite(void);
TCase *reconnect_talk_case(void);
TCase *reconnect_rewound_case(void);
TCase *reconnect_states_case(void);
Suite *silence_suite(void);
Suite *checkpoint_suite(void);

#endif
