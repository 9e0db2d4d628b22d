/* SPDX-License-Identifier: Apache-2.0
 *
 * The saver: writes checkpoints while training goes on (store/checkpoint.h has their format).
 *
 *   control              saver's thread               round or pace          parameters' actors
 *   one is due ────────▶ makes the files
 *                        asks for the cut ──────────▶ at the step's end ───▶ each its cut
 *                        asks for unit after unit ◀───────────────────────▶ each copies one
 *   tells who asked ◀─── checksums, fsync, rename
 *
 * One is made at a time; one that is asked for or due meanwhile comes right after. In sync mode the
 * cut is made between two steps: when the last unit of step k is settled, and before anyone is told.
 * In async mode it is made at once, in ssp mode by the pace, which knows the slowest trainer's step.
 *
 * A trainer that asks in sync mode asks for the end of the step that it is in, and may wait for the
 * answer before it goes on: so that step does not end before the cut can be made. Its poller counts the
 * message (`coming`) before it sees the trainer's barrier; once control has read it, `hold` says that
 * somebody waits so. A checkpoint that was begun for another reason, and not cut yet, is theirs too.
 *
 * Which thread has what stands at each member. What is written to files is written by actors, so the
 * files stay mapped until no actor runs: a saver that is waiting gives up only in saver_end.
 */
#ifndef GS_SERVER_CHECKPOINT_H
#define GS_SERVER_CHECKPOINT_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/wire.h"
#include "server/actor.h"
#include "server/inbox.h"

struct session;
struct srv;

struct saver {
	struct srv *srv;
	pthread_t thread;
	bool started;
	sem_t begin;          /* its thread: there is one to be made, or the end */
	sem_t done;           /* its thread: all that was posted was handled, or the end */
	_Atomic bool end;
	_Atomic uint32_t open; /* items that actors have yet to handle */
	struct item cut_item;  /* ITEM_CUT, to the round or the pace */
	struct item go_item;   /* ITEM_GO, to the round */
	_Atomic bool go_posted;
	_Atomic uint32_t coming; /* sync: wishes of trainers that control has yet to read */
	_Atomic bool hold;       /* sync: somebody waits for a cut at the end of this step */
	_Atomic bool given_up;   /* no cut is made any more */

	/* control */
	bool busy;         /* one is being made */
	bool wanted;       /* another is to come */
	uint64_t due_ns;   /* by time; 0: not */
	uint64_t moved;    /* steps and updates when the last one was begun */
	bool failed;       /* the last one */

	_Atomic bool asked;        /* srv_checkpoint was called */
	_Atomic bool cut_asked;    /* of the one that is being made: its files are there */
	_Atomic bool cut_made;     /* of the one that is being made */
	_Atomic uint64_t due_step; /* by steps: at the end of which one is due; UINT64_MAX: none */
	_Atomic bool due_noted;
	struct note due_note;

	/* of the last one: whoever makes the cut writes the step, its thread the rest, before the
	 * note */
	uint64_t step;
	int rc;
	char text[WIRE_TEXT_MAX + 1]; /* of its failure */
	struct note saved_note;

	_Atomic uint64_t written, failures, written_step;
};

/* The options' strings are srv's. -ENOMEM, or why no thread could be started. */
int saver_init(struct saver *sv, struct srv *srv);
/* Once no poller and no worker runs any more. */
void saver_end(struct saver *sv);

/* ---- control thread ---- */

/* What is due, and what srv_checkpoint asked for. */
void saver_tick(struct saver *sv);
/* A trainer asks. */
void saver_save(struct session *s);
/* A message that saver_counts counted was read. */
void saver_came(struct saver *sv);
/* NOTE_SAVED, NOTE_SAVE_DUE. */
void saver_note(struct note *note);
/* The last one, on the server's way out: waits for it. 0 also when there is nothing to write; -ETIME
 * (its files were there for stop_ms, and no cut came), -ECANCELED (stopped again), what the store gives. */
int saver_last(struct srv *srv);

/* ---- pollers ---- */

/* A message of this kind is on its way to control. True: it counts, and saver_came must follow. */
bool saver_counts(const struct saver *sv, enum wire_kind kind);

/* ---- round, pace ---- */

/* The step may not end yet. `wanted`: the cut can be made. */
bool saver_holds(const struct saver *sv, bool wanted);

/* Makes the cut: what is in the queues now is in it, what comes later is not. */
void saver_cut(struct saver *sv, uint64_t step);
void saver_is_due(struct saver *sv);

/* A step is over. */
static inline void saver_step_ended(struct saver *sv, uint64_t step)
{
	if (step >= atomic_load_explicit(&sv->due_step, memory_order_relaxed))
		saver_is_due(sv);
}

/* ---- parameters ---- */

/* What was asked for is done. */
void saver_done_one(struct saver *sv);

#endif
