/* SPDX-License-Identifier: Apache-2.0
 *
 * What the end-to-end tests share: checks that may be made on any thread, waiting for conditions,
 * and a server on a thread of the test's own process.
 *
 * Each test is a process of its own (Check forks), so each has its own devices, servers and names.
 */
#ifndef GS_TESTS_E2E_HARNESS_H
#define GS_TESTS_E2E_HARNESS_H

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "gradslot/gradslot.h"
#include "server/server.h"

/* ---- the run -----------------------------------------------------------------------------------
 */

/* What the run was given to listen on. */
extern const char *e2e_uri;
/* GRADSLOT_TEST_SCALE=small: a slow machine. */
extern bool e2e_small;

bool over_shm(void);
static inline uint32_t scaled(uint32_t normal, uint32_t small)
{
	return e2e_small ? small : normal;
}

/* The cases of a loop test that a slow machine leaves out. */
static inline bool left_out(int i, int keep_every)
{
	return e2e_small && i % keep_every != keep_every - 1;
}

/* A case whose tests each have the suite's deadline. */
TCase *e2e_case(const char *name);
/* A case about the way between the two, which is another on each transport: CK_INCLUDE_TAGS=wire runs
 * these alone. */
TCase *e2e_wire_case(const char *name);
/* A case about files, whatever the transport: CK_EXCLUDE_TAGS=disk leaves it out. */
TCase *e2e_disk_case(const char *name);

/* ---- checks (unlike Check's own they cost nothing while they hold) ------------------------------
 */

#define must(cond, ...)                                                      \
	do {                                                                 \
		if (!(cond)) {                                               \
			if (e2e_in_role)                                     \
				role_fails(__FILE__, __LINE__, __VA_ARGS__); \
			ck_abort_msg(__VA_ARGS__);                           \
		}                                                            \
	} while (0)

#define ok(call)                                                          \
	do {                                                              \
		int ok_rc = (call);                                       \
		must(ok_rc == 0, "%s: %d: %s", #call, ok_rc, err_text()); \
	} while (0)

/* It gives -err, and its text has all the words that follow. */
#define fails(call, err, ...)                                                          \
	do {                                                                           \
		int fails_rc = (call);                                                 \
		must(fails_rc == -(err), "%s: %d, not -%s: %s", #call, fails_rc, #err, \
		     err_text());                                                      \
		has_words(err_text(), (const char *const[]){__VA_ARGS__, NULL});       \
	} while (0)

/* In a child of a test, where Check does not listen: to stderr, and the exit status is 3. */
extern bool e2e_in_role;
void role_fails(const char *file, int line, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 3, 4)));

void has_words(const char *text, const char *const *words);

/* Waits until pred(arg) holds; the test fails after the run's patience, with `what`. */
void wait_until(bool (*pred)(void *arg), void *arg, const char *what);
void nap_us(uint32_t us);

/* A small seeded generator: the same numbers everywhere. */
uint64_t mix64(uint64_t x);
uint32_t rnd(uint64_t *state, uint32_t below);

/* ---- a server in this process -------------------------------------------------------------------
 */

struct bed {
	struct srv *srv;
	const char *uri; /* for trainers */
	pthread_t thread;
	int rc; /* of srv_run */
	char text[512]; /* of its failure */
};

/* One listener on e2e_uri; short deadlines. */
struct srv_options bed_options(uint32_t trainers, enum srv_mode mode);
void bed_start(struct bed *b, const struct srv_options *opt);
/* Stops it: srv_run must return 0, within three seconds. */
void bed_stop(struct bed *b);
/* It ends by itself: srv_run must return 0. */
void bed_done(struct bed *b);
/* It ends by itself: srv_run must return -err, with these words. */
void bed_fails(struct bed *b, int err, const char *const *words);
#define BED_FAILS(b, err, ...) bed_fails(b, err, (const char *const[]){__VA_ARGS__, NULL})
struct srv_stats bed_stats(struct bed *b);
/* Until so many have been lost, and dealt with. */
void bed_wait_lost(struct bed *b, uint64_t n);
/* Until so many connections are there. */
void bed_wait_connected(struct bed *b, uint32_t n);
/* Until the released step is `step` at least. */
void bed_wait_step(struct bed *b, uint64_t step);

/* ---- trainers
 * ------------------------------------------------------------------------------------ */

struct gs_options trainer_options(const char *uri, int32_t rank);
/* Connects; while the rank of one that died is still held it tries again. */
gs_trainer *connect_as(const char *uri, int32_t rank);
/* Declares a line of `elems` floats: sgd with lr, all `value`. */
gs_param *declare_line(gs_trainer *t, const char *name, uint64_t elems, double lr, double value);
void leave(gs_trainer *t);
/* gs_start of two at once, since each waits for the other. */
void start_both(gs_trainer *const t[2]);

/* Ends a connection of this process over shm, at either end, any one. */
void cut_one(uint64_t *rng);

#endif
