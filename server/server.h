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

/* Sync mode: what follows when a trainer's connection is lost without a bye. */
enum srv_loss {
	SRV_LOSS_CONTINUE, /* the step goes on without it; what it delivered counts */
	SRV_LOSS_WAIT,     /* the step waits for its rank to come back, for loss_wait_ms; then continue */
	SRV_LOSS_STOP,     /* srv_run ends with -ECONNRESET */
};

/* Sync mode: what follows when a trainer's barrier is missing straggler_ms after the step's first. */
enum srv_straggler {
	SRV_STRAGGLER_WAIT, /* it is logged */
	SRV_STRAGGLER_DROP, /* its connection is ended, and the step goes on without it */
	SRV_STRAGGLER_STOP, /* srv_run ends with -ETIME */
};

enum {
	SRV_MAX_LISTENERS = 8,
	SRV_MAX_RESTORES = 16,
	SRV_MAX_TRAINERS = 1024,
	SRV_MAX_POLLERS = 64,
	SRV_MAX_WORKERS = 256,
	SRV_MAX_STALENESS = 1 << 20,
	SRV_MIN_KEEPALIVE_MS = 300,
	SRV_SPIN_FOREVER = -1, /* spin_us */
};

/* Huge pages: where there are any; never; or else the server takes no trainers (its parameters'
 * declaration is refused). */
enum srv_huge {
	SRV_HUGE_AUTO,
	SRV_HUGE_OFF,
	SRV_HUGE_REQUIRE,
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
	const char *cpus;    /* pollers, then workers, are pinned to these in turn ("0-3,8"), and memory
			      * comes from their nodes; NULL: anywhere. Read before srv_create returns */
	enum srv_huge huge_pages; /* of weights, optimizer state and slots, where one fits */
	int32_t spin_us;     /* how long an idle thread polls before it sleeps */
	uint32_t block_kib;  /* longest block, KiB; a row that is longer makes a longer block */
	uint32_t slots;      /* ring of each (trainer, block): 1..8 */
	uint32_t talk_ms;    /* how long a trainer may be silent while it connects and leaves */
	uint32_t talk_rate;  /* control messages a second that one may send in the long run */
	uint32_t talk_burst; /* and at once: declaring a million parameters is half a million */
	uint64_t max_memory; /* bytes; 0: what is available when the parameters are declared */
	bool exit_when_done; /* srv_run returns once as many trainers as N have trained, and none is
			      * connected or waited for; connections that said nothing don't count */

	enum srv_loss on_loss;
	uint32_t loss_wait_ms; /* of SRV_LOSS_WAIT */
	enum srv_straggler on_straggler;
	uint32_t straggler_ms; /* 0: nobody is one */
	uint32_t keepalive_ms; /* a trainer whose machine is silent for so long is lost; 0: never, or
				* SRV_MIN_KEEPALIVE_MS at least */

	const char *key_file; /* NULL: no key */
	bool insecure;        /* without a key, listen on more than shm and loopback */

	const char *checkpoint_dir; /* NULL: none are written */
	uint64_t checkpoint_steps;  /* sync, ssp: one every so many steps; 0: not by steps */
	uint64_t checkpoint_ms;     /* one every so often; 0: not by time */
	uint32_t keep;              /* how many are kept; 1 at least */
	uint32_t n_restore;
	const char *restore[SRV_MAX_RESTORES]; /* directories of checkpoints, the newest sound one of
						* each, or checkpoints, or safetensors files (weights
						* alone): parameters are taken from the first that has
						* them */
	uint32_t stop_ms; /* srv_stop: how long the step may take to end before the last checkpoint; 1 at
			   * least */
};

/* No listener yet, trainers 1, sync, 1 poller, 1 worker, spin 50 µs, blocks of 256 KiB, 2 slots, 10 s
 * of silence in the talk and 5 s elsewhere, 2000 messages a second and 2^20 at once; a lost trainer is
 * waited for for 30 s, nobody is a straggler; no key; no checkpoints, of others the last 3 kept, 10 s to
 * stop. */
struct srv_options srv_options_default(void);

/* Checks the options, reads the key, opens and verifies all that is restored (which reads it: as long
 * as that takes), listens, starts the threads. Trainers are taken once srv_run runs. The options'
 * strings need not stay. Errors: -EINVAL (the text names the option, the value and the limit; what is
 * restored does not go together; the key's length), tp_listen's, -ENOMEM, -EACCES (no key and not
 * insecure, or the key file), -ENOENT (the key file; nothing to restore), -EBADMSG (nothing sound to
 * restore), what open(2) and pthread_create(3) give. */
int srv_create(const struct srv_options *opt, struct srv **out);

/* The URI that trainers give for listener i, with the real port; NULL: there is no such. Any thread;
 * lives as long as the server. */
const char *srv_uri(const struct srv *srv, uint32_t i);

/* Serves, on the calling thread, until srv_stop, or until all is done with exit_when_done. On the
 * way out the step under way may end (stop_ms), a checkpoint is written where there is a directory,
 * trainers are told (-ESHUTDOWN), what they delivered is applied, connections end within two seconds.
 * Once for each server. Returns 0; or, when it could not go on: -ECONNRESET (SRV_LOSS_STOP), -ETIME
 * (SRV_STRAGGLER_STOP); or, when the last checkpoint could not be written: -ETIME (the step did not end
 * within stop_ms), -ECANCELED (srv_stop was called again), the store's. */
int srv_run(struct srv *srv);

/* Ends srv_run; a second call ends it at once, with no checkpoint. Any thread; async-signal-safe;
 * repeats are harmless. */
void srv_stop(struct srv *srv);

/* Asks for a checkpoint: in sync mode at the next end of a step, elsewhere at once. Does not wait; what
 * became of it is in the log and the stats. Any thread; async-signal-safe. */
void srv_checkpoint(struct srv *srv);

/* After srv_run returned, or instead of it; no other call may be under way. Ends the threads. NULL is
 * allowed. */
void srv_destroy(struct srv *srv);

struct srv_stats {
	uint64_t step;        /* sync: last released step; ssp: the slowest trainer's */
	uint64_t updates;     /* optimizer applications, of blocks */
	uint64_t gradients;   /* block gradients taken from the wire */
	uint64_t joined;      /* trainers that got as far as ready, ever */
	uint64_t aged;        /* pushes whose age is known: updates that their weights had not seen */
	uint64_t age_sum, age_max;
	uint64_t violations;  /* connections ended for breaking the protocol */
	uint64_t lost, rejoined, given_up; /* trainers, each time */
	uint64_t stragglers;  /* told of */
	uint64_t silent;      /* connections ended by keepalive */
	uint64_t refused_key; /* connections turned away: no proof, or a wrong one */
	uint64_t half_open;   /* connections ended because they said nothing in time, or too many such */
	uint64_t flooded;     /* connections ended because control messages came too fast */
	uint64_t checkpoints, checkpoint_failures, checkpoint_step; /* written; the last one's step */
	uint64_t restored_step; /* that it went on behind; 0: none */
	uint32_t connected;   /* now */
	uint64_t memory;      /* bytes of weights, state, and slots in use now: those of one who is
			       * gone stay in use until what they hold is in the weights */
};
/* A snapshot; each number by itself is right. Any thread. */
void srv_get_stats(const struct srv *srv, struct srv_stats *out);

#endif
