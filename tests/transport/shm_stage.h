/* SPDX-License-Identifier: Apache-2.0
 *
 * A victim, and a peer that speaks the protocol by hand (transport/shm/wire.h) and can write
 * anything anywhere that it was given.
 */
#ifndef TESTS_TRANSPORT_SHM_STAGE_H
#define TESTS_TRANSPORT_SHM_STAGE_H

#include "base/clock.h"
#include "base/err.h"
#include "transport/shm/wire.h"
#include "transport/transport.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_NS (20 * NS_PER_S)

#define ck_ok(expr)                                                                 \
	do {                                                                        \
		long ck_rc = (long)(expr);                                          \
		ck_assert_msg(ck_rc >= 0, "%s: %ld: %s", #expr, ck_rc, err_text()); \
	} while (0)

/* Of the victim's listener. */
extern char stage_uri[64], stage_name[64];
void choose_name(void);

/* ---- the protocol by hand -----------------------------------------------------------------------
 */

socklen_t address(struct sockaddr_un *addr);
int raw_connect(void);
void raw_send(int sock, const void *bytes, size_t len, const int *fds, int nfds);
ssize_t raw_recv(int sock, void *bytes, size_t len, int *fd);
struct shm_hello good_hello(void);

/* ---- the stage ----------------------------------------------------------------------------------
 */

struct stage {
	struct tp_listener *l;
	struct tp_cq *cq;
	struct tp_conn *victim;
	/* The attacker's. */
	int sock;
	char *segment;
	size_t size;
	struct shm_shared *shared;
	struct ring_entry *ring; /* that it sends */
	char *msgs;
};

int accept_within(struct stage *st, uint64_t ns);
void stage_listen(struct stage *st);
/* Connected, too. */
void stage_open(struct stage *st);
/* Polls until an event other than ROOM. */
struct tp_event next_event(struct stage *st);
/* The victim closes, and says why. */
void expect_refusal(struct stage *st);
/* An honest client is served. */
void check_service(struct stage *st);
/* Served to the end. */
void stage_close(struct stage *st);
void put_entry(struct stage *st, uint32_t slot, uint32_t seq, uint32_t kind, uint32_t imm,
	       uint32_t len);

int memfd(size_t size, int seals);
/* In a folder; 0: there is none. */
int count_entries(const char *path);

/* ---- what it does, a case a file; shm_hostile.c has the suite -----------------------------------
 */

TCase *ring_case(void);
TCase *socket_case(void);
TCase *handshake_case(void);
TCase *rails_case(void);

#endif
