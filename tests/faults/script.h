/* SPDX-License-Identifier: Apache-2.0
 *
 * What is to go wrong, as text and as rules. Pure: nothing here touches a transport.
 *
 *   script := item [; item]…
 *   item   := seed=N                          what is drawn at random follows from it (default 1)
 *           | cap chunk=BYTES                 the longest work request (tp_options.max_chunk)
 *           | noimm                           no immediate data: a WRITE, then a message, stand in
 *           | ACTION WHAT [KEY=VALUE]…        a rule
 *           | freeze peer at=POINT [KEY=VALUE]…
 *           | kill at=POINT [KEY=VALUE]…
 *
 * A rule is looked at each time its point is reached, and acts: the N-th time (n=N), or with
 * probability P (p=P), or, with neither, each time.
 *
 *   delay     what was polled comes `us` later; a call takes `us` longer
 *   reorder   done, room, conns: a correct transport could do so. imm, msg: a broken one
 *   drop      what was polled never comes; what was posted or sent is taken and never leaves
 *   dup       what was polled comes twice
 *   truncate  an immediate's length, a message
 *   fail      the call gives `err` (a name, such as ENOMEM); -EAGAIN is followed by TP_EV_ROOM
 *   freeze    nothing comes from that connection's peer any more and nothing reaches it, unsaid
 *   kill      SIGKILL for this process
 */
#ifndef GS_TESTS_FAULTS_SCRIPT_H
#define GS_TESTS_FAULTS_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fault_action {
	FAULT_DELAY,
	FAULT_REORDER,
	FAULT_DROP,
	FAULT_DUP,
	FAULT_TRUNCATE,
	FAULT_FAIL,
	FAULT_FREEZE,
	FAULT_KILL,
	FAULT_ACTIONS,
};

enum fault_point {
	/* An event has been polled and is about to be given. */
	AT_DONE,
	AT_IMM,
	AT_MSG,
	AT_ROOM,
	AT_CLOSED,
	AT_CONNS, /* any of them; what follows on other connections may come first */
	/* Each op of a tp_post: any; with immediate data; a READ. */
	AT_POST,
	AT_POST_IMM,
	AT_POST_READ,
	AT_SEND,
	AT_LISTEN,
	AT_CONNECT, /* kill: once it is there */
	AT_ACCEPT,  /* likewise */
	AT_EXPOSE,
	AT_ATTACH,
	AT_CLOSE,
	FAULT_POINTS,
};

enum { FAULT_RULES = 32 };

struct fault_rule {
	enum fault_action action;
	enum fault_point at;
	uint64_t n; /* 0: by p */
	double p;
	uint32_t us;
	int err;
};

struct fault_script {
	uint64_t seed;
	uint32_t chunk; /* 0: no cap */
	bool noimm;
	unsigned n;
	struct fault_rule rule[FAULT_RULES];
};

/* Returns 0, or -EINVAL with the text in err_text(), which names the item; `out` is untouched then.
 */
int fault_script_parse(const char *text, struct fault_script *out);

const char *fault_action_name(enum fault_action action);
const char *fault_point_name(enum fault_point at);

#endif
