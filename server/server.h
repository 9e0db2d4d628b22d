/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameter server as a library: what `gradslot serve`, the tests and the benchmarks start.
 */
#ifndef GS_SERVER_H
#define GS_SERVER_H

#include <stdbool.h>
#include <stdint.h>

struct srv;

enum srv_mode { SRV_SYNC = 1, SRV_ASYNC, SRV_SSP };

enum {
	SRV_MAX_LISTENERS = 8,
	SRV_MAX_TRAINERS = 1024,
	SRV_MAX_POLLERS = 64,
	SRV_MAX_WORKERS = 256,
	SRV_MAX_STALENESS = 1 << 20,
	SRV_SPIN_FOREVER = -1, /* spin_us */
};

struct srv_options {
	const char *listen[SRV_MAX_LISTENERS]; /* transport URIs */
	uint32_t n_listen;                     /* 1 at least */
	uint32_t trainers;   /* N: sync and ssp mode start when this many have come; no more may be
			      * connected */
	enum srv_mode mode;
	uint32_t staleness;  /* SRV_SSP: how many steps a trainer may be ahead of the slowest; 0 is sync
			      * mode */
	uint32_t pollers;    /* threads that poll completions; 1 at least */
	uint32_t workers;    /* threads that update parameters; 0: the pollers do it themselves */
	int32_t spin_us;     /* how long an idle thread polls before it sleeps */
	uint32_t block_kib;  /* longest block, KiB; a row that is longer makes a longer block */
	uint32_t slots;      /* ring of each (trainer, block): 1..8 */
	uint32_t talk_ms;    /* how long a trainer may be silent while it connects and leaves */
	uint64_t max_memory; /* bytes; 0: what is available when the parameters are declared */
	bool exit_when_done; /* srv_run returns once as many trainers as N have trained, and none is
			      * connected */
};

/* trainers 1, sync, 1 poller, 1 worker, spin 50 µs, blocks of 256 KiB, 2 slots, 10 s of
 * silence. */
struct srv_options srv_options_default(void);

/* Checks the options, listens, starts the threads. Trainers are taken once srv_run runs.
 * Errors: -EINVAL (the text names the option, the value and the limit), tp_listen's, -ENOMEM. */
int srv_create(const struct srv_options *opt, struct srv **out);

/* The URI that trainers give for listener i, with the real port. */
const char *srv_uri(const struct srv *srv, uint32_t i);

/* Serves, on the calling thread, until srv_stop, or until all is done with exit_when_done. On the
 * way out trainers are told (-ESHUTDOWN), what they delivered is applied, connections end within
 * two seconds. Returns 0, or a negative errno when it could not go on. */
int srv_run(struct srv *srv);

/* Ends srv_run. Any thread; async-signal-safe; repeats are harmless. */
void srv_stop(struct srv *srv);

/* After srv_run returned, or instead of it. NULL is allowed. */
void srv_destroy(struct srv *srv);

struct srv_stats {
	uint64_t step;        /* sync: last released step; ssp: the slowest trainer's */
	uint64_t updates;     /* optimizer applications, of blocks */
	uint64_t gradients;   /* block gradients taken from the wire */
	uint64_t joined;      /* trainers that got as far as ready, ever */
	uint64_t aged;        /* pushes whose age is known: updates that their weights had not seen */
	uint64_t age_sum, age_max;
	uint64_t violations;  /* connections ended for breaking the protocol */
	uint32_t connected;   /* now */
	uint64_t memory;      /* bytes of weights, state, and slots in use now: those of one who is
			       * gone stay in use until what they hold is in the weights */
};
/* A snapshot; each number by itself is right. Any thread. */
void srv_get_stats(const struct srv *srv, struct srv_stats *out);

#endif
