/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests on a real device share: a peer that speaks verbs by hand, and a listener that is
 * served by a thread.
 */
#ifndef TESTS_TRANSPORT_VERBS_DEVICE_H
#define TESTS_TRANSPORT_VERBS_DEVICE_H

#include "harness.h"

#include "transport/verbs/hello.h"
#include "transport/verbs/verbs.h"
#include "transport/verbs/wire.h"

#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#define RW (TP_PEER_READ | TP_PEER_WRITE)

/* rdma://RDMA_ADDR:0 */
extern char listen_uri[128];

/* "" when it is not set. */
const char *env(const char *name);
bool is_iwarp(void);
struct tp_cq *new_cq(void);
void expect_text(const char *part);
/* Both ways, with an immediate. */
void still_works(struct pair *p);

/* ---- peers that speak verbs by hand
 * -------------------------------------------------------------- */

#define RAW_RECVS 16
#define RAW_BYTES 4352

struct raw {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	uint8_t mem[(RAW_RECVS + 1) * RAW_BYTES];
};

struct hello raw_hello(void);
/* Connects to where `uri` is listened on with this hello; returns how that went. */
enum rdma_cm_event_type raw_connect(struct raw *raw, const char *uri, const struct hello *hello,
				    void *answer, size_t size);
void raw_send(struct raw *raw, const void *bytes, size_t len);
void raw_free(struct raw *raw);

/* The same as a thread. */
struct knocker {
	struct raw *raw;
	const char *uri;
	struct hello hello;
};
void *knock(void *knocker);

/* ---- a listener that is served by a thread
 * ------------------------------------------------------- */

struct served {
	struct tp_listener *listener;
	struct tp_cq *cq;
	pthread_t thread;
	atomic_bool stop;
	atomic_int accepted, closed, msgs;
	struct tp_conn *last; /* accepted */
	int status;
	char reason[256];
};

void served_start(struct served *s, const struct tp_options *opt);
void served_stop(struct served *s);
/* The thread, for who has a listener of its own. */
void *serve(void *served);
void await(atomic_int *count, int value);

/* ---- the cases, added to the suite; verbs_guest.c has it
 * ----------------------------------------- */

TCase *verbs_part(Suite *s, const char *name);
void verbs_memory(Suite *s);
void verbs_peers(Suite *s);
void verbs_flow(Suite *s);
void verbs_death(Suite *s);
void verbs_options(Suite *s);

/* A role of the program's: many connections, which die with it. */
int role_crowd(const char *uri);

#endif
