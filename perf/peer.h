/* SPDX-License-Identifier: Apache-2.0
 *
 * One trainer of a benchmark: it connects, does the same operation again and again with a clock
 * around each, checks what came of it, and leaves. What the operation is says a struct peer_loop; a
 * benchmark is one of those, a file each.
 *
 * What it trains are `params` float32 parameters of `bytes` each. Every gradient has the same
 * value, a power of two, and so has the learning rate: each gradient moves every weight by exactly
 * 2^-20, and the weights say at the end how many gradients are in them (up to 2^24). So a transport
 * that loses, doubles or tears one fails instead of looking fast.
 */
#ifndef GS_PERF_PEER_H
#define GS_PERF_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gradslot/gradslot.h"
#include "perf/meter.h"

enum {
	PEER_SERIES = 4,
	PEER_ITERS_MAX = 1000000,
	/* Every gradient buffer there may be is met, and written, before the clock starts. */
	PEER_WARMUP_MIN = 8,
	PEER_PARAMS_MAX = 100000,
	PEER_GRADIENTS_MAX = 1 << 24, /* that the weights can count */
};

/* What each gradient is, at which rate: so each moves a weight by PEER_UNIT, exactly. */
#define PEER_GRADIENT 0x1p-10f
#define PEER_RATE     0x1p-10f
#define PEER_UNIT     (PEER_GRADIENT * PEER_RATE)

enum peer_read { PEER_RELAXED, PEER_CONSISTENT, PEER_ORDERED, PEER_VIEW, PEER_NOTHING };

struct peer_config {
	const char *uri;
	int32_t spin_us;
	pid_t server;   /* 0: on another machine */
	uint64_t bytes; /* of each parameter; a multiple of 4 */
	uint32_t params;
	bool copy; /* push from memory of this process's own instead of the gradient buffers */
	bool many; /* push and pull the parameters in one call */
	bool one;  /* beside them one parameter that is as large as all of them */
	bool sync; /* what the server's mode has to be, or else async */
	enum peer_read read;
	/* Of the benchmark of rows, whose `bytes` and `params` are a row's, and how many at once:
	 */
	uint64_t table; /* rows that there are */
	const char *optimizer;
	bool near, zipf;        /* rows one behind the other; or by Zipf's law */
	uint32_t warmup, iters; /* iters is the least number when there is a duration */
	uint32_t duration_ms;
};

struct peer;
struct peer_result;

/* A time that is of one message there and one back, so that half of it is an estimate of one way:
 * always, or only where memory is read over a network. */
enum peer_trip { PEER_NO_TRIP, PEER_TRIP, PEER_TRIP_REMOTE };

struct peer_loop {
	const char *name, *unit;             /* "push": "gradients", which messages() counts */
	const char *count;                   /* what config.params counts: "params" */
	const char *series[PEER_SERIES + 1]; /* what is timed; NULL ends it */
	enum peer_trip trip[PEER_SERIES];
	bool rates; /* it is about how much a second, not how long */
	/* What is trained; NULL: the dense parameters, whose weights count the gradients. */
	int (*declare)(struct peer *p);
	/* Before the warm-up; NULL: nothing. */
	int (*prepare)(struct peer *p);
	/* One operation: the nanoseconds of each series. */
	int (*once)(struct peer *p, uint64_t ns[PEER_SERIES]);
	/* With `declare`: what was pushed is in, once. Sets the result's `after` and `pushed`. */
	int (*verify)(struct peer *p, struct peer_result *out);
	/* What `prepare` made, also in part; NULL: nothing. */
	void (*release)(struct peer *p);
	/* `once` connects by itself. */
	bool connects;
	/* Units and bytes of one operation, for the rates. */
	uint32_t (*messages)(const struct peer_config *c);
	uint64_t (*moved)(const struct peer_config *c);
};

struct peer_result {
	uint64_t *ns[PEER_SERIES]; /* of each series, in order */
	size_t n;
	struct meter_reading meter; /* of all operations, until the last gradient was applied */
	/* Gradients that the weights had in them before and after, and that were pushed meanwhile
	 * by this trainer. With others the caller adds up: nobody sees more than all, and somebody
	 * all. */
	uint64_t before, after, pushed;
	char transport[192];
	uint32_t blocks, slots;
	uint32_t trainers; /* of the server */
};

/* Errors: negative errno with err_text(); -EBADMSG when the weights are not what was pushed. */
int peer_run(const struct peer_loop *loop, const struct peer_config *config,
	     struct peer_result *out);
void peer_free(struct peer_result *result);

/* ---- for the loops -------------------------------------------------------------------------- */

enum { PEER_BUFFERS = 8 };

struct peer {
	const struct peer_config *config;
	const struct peer_loop *loop;
	gs_trainer *trainer;
	struct gs_info info;
	size_t elems; /* of each parameter */
	/* Of each parameter, and behind them of the one, if there is one. */
	gs_param **param;
	const void **grad; /* what is pushed next, of each */
	void **dst;        /* what is pulled into, of each */
	const void **view; /* PEER_VIEW: the weights in place */
	float *own, *weights;
	/* Gradient buffers that hold their values already. */
	float *(*filled)[PEER_BUFFERS];
	uint64_t pushed, before;
	void *extra;  /* the loop's own */
	uint64_t sum; /* of what was read in place, so that no compiler leaves the reading out */
};

/* The library's return value, with its text taken over. */
int peer_lib(int rc);
int peer_connect(struct peer *p);
int peer_declare(struct peer *p);
int peer_start(struct peer *p);
/* All three. */
int peer_join(struct peer *p);
int peer_leave(struct peer *p);
/* Pushes all parameters once: from the gradient buffers, or copied. */
int peer_push(struct peer *p);
/* Reads all of them, the configured way. */
int peer_pull(struct peer *p);
/* Until all that was pushed is in the weights: async. */
int peer_wait_applied(struct peer *p);
/* Pushes, and waits until it counts, in the server's mode. */
int peer_push_applied(struct peer *p);
/* Where the next push of parameter i leaves from: p->grad[i]. */
int peer_gradient(struct peer *p, uint32_t i);
/* How many gradients are in the weights. `settled`: nobody pushes meanwhile, and all of them have
 * to say the same; else the first counts. */
int peer_count(struct peer *p, bool settled, uint64_t *out);

#endif
