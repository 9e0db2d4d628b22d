/* SPDX-License-Identifier: Apache-2.0
 *
 * When checkpoints are due, and who is told: the control thread's part of the saver.
 */
#include "server/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "server/checkpoint_write.h"
#include "server/control.h"
#include "server/dialog.h"
#include "server/internal.h"
#include "server/strangers.h"

/* ---- what is asked of others ----------------------------------------------------------------- */

void saver_done_one(struct saver *sv)
{
	if (atomic_fetch_sub_explicit(&sv->open, 1, memory_order_acq_rel) == 1)
		sem_post(&sv->done);
}

void saver_cut(struct saver *sv, uint64_t step)
{
	struct table *t = srv_table(sv->srv);

	if (atomic_load(&sv->given_up))
		return;
	sv->step = step;
	atomic_store(&sv->cut_made, true);
	atomic_store(&sv->hold, false);
	for (uint32_t i = 0; i < t->params; i++)
		srv_post(sv->srv, t->param[i].home, &t->param[i].snapshot.item);
}

bool saver_holds(const struct saver *sv, bool wanted)
{
	return !atomic_load(&sv->given_up) &&
	       (atomic_load(&sv->coming) || (atomic_load(&sv->hold) && !wanted));
}

/* The round looks again whether it may go on. */
static void let_go(struct saver *sv)
{
	if (sv->srv->opt.mode == SRV_SYNC && !atomic_exchange(&sv->go_posted, true))
		srv_post(sv->srv, &sv->srv->round.actor, &sv->go_item);
}

void saver_is_due(struct saver *sv)
{
	if (!atomic_exchange(&sv->due_noted, true))
		inbox_post(&sv->srv->inbox, &sv->due_note);
}

/* ---- when ------------------------------------------------------------------------------------ */

static bool keeps(const struct saver *sv)
{
	return sv->srv->opt.checkpoint_dir != NULL;
}

/* There is something to write. */
static bool is_ready(const struct saver *sv)
{
	return srv_table(sv->srv) && sv->srv->weights_ready;
}

/* What tells whether there is something new to write. */
static uint64_t moves(const struct srv *srv)
{
	struct srv_stats stats;

	srv_get_stats(srv, &stats);
	return stats.step + stats.updates;
}

static void set_due(struct saver *sv)
{
	uint64_t ms = sv->srv->opt.checkpoint_ms;

	sv->due_ns = ms ? clock_ns() + ms * NS_PER_MS : 0;
}

/* Who asked so far waits for this one. */
static void begin(struct saver *sv)
{
	struct srv *srv = sv->srv;

	sv->busy = true;
	sv->wanted = false;
	sv->moved = moves(srv);
	set_due(sv);
	atomic_store(&sv->due_step, UINT64_MAX);
	atomic_store(&sv->cut_asked, false);
	atomic_store(&sv->cut_made, false);
	for (struct session *s = srv->sessions; s; s = s->next)
		if (s->save == SAVE_ASKED)
			s->save = SAVE_UNDER_WAY;
	sem_post(&sv->begin);
}

static void begin_if_wanted(struct saver *sv)
{
	if (sv->wanted && !sv->busy && is_ready(sv))
		begin(sv);
}

/* The one behind step `last` is asked for while the step that is to be in it is still being made:
 * so its files are there when that ends, or soon after. */
static void due_behind(struct saver *sv, uint64_t last)
{
	uint64_t every = sv->srv->opt.checkpoint_steps;

	atomic_store(&sv->due_step, every && keeps(sv) ? last + every - 1 : UINT64_MAX);
}

void saver_tick(struct saver *sv)
{
	if (atomic_exchange(&sv->asked, false)) {
		if (keeps(sv))
			sv->wanted = true;
		else
			log_warn("no checkpoint is written: there is no directory for them "
				 "(--checkpoint-dir)");
	}
	if (sv->due_ns && clock_ns() >= sv->due_ns) {
		sv->wanted |= sv->moved != moves(sv->srv) || sv->failed;
		set_due(sv);
	}
	begin_if_wanted(sv);
}

/* ---- trainers -------------------------------------------------------------------------------- */

/* `code`: 0 when it is written. */
static void tell(struct session *s, enum wire_error_code code, const char *text, uint64_t step)
{
	struct wire_msg msg = {.kind = WIRE_SAVED, .saved = {.step = code ? 0 : step}};

	s->save = SAVE_NONE;
	strangers_answered(s);
	if (session_state(s) != SESSION_ACTIVE || atomic_load(&s->condemned))
		return;
	if (code) {
		msg.saved.failed = true;
		msg.saved.code = code;
		snprintf(msg.saved.text, sizeof(msg.saved.text), "%s", text);
	}
	dialog_send(s, &msg);
}

void saver_save(struct session *s)
{
	struct saver *sv = &s->srv->saver;

	if (s->save != SAVE_NONE) {
		violation(s, "it asks for a checkpoint while it waits for one");
		return;
	}
	if (!keeps(sv)) {
		tell(s, WIRE_E_MISMATCH, "the server keeps no checkpoints (--checkpoint-dir)", 0);
		return;
	}
	log_debug("%s: asks for a checkpoint", s->who);
	/* While this wish is counted as coming, no cut is made. */
	if (sv->busy && !atomic_load(&sv->cut_made) && srv_is_sync(s->srv)) {
		s->save = SAVE_UNDER_WAY;
	} else {
		s->save = SAVE_ASKED;
		sv->wanted = true;
	}
	atomic_store(&sv->hold, srv_is_sync(s->srv));
	begin_if_wanted(sv);
}

bool saver_counts(const struct saver *sv, enum wire_kind kind)
{
	return kind == WIRE_SAVE && keeps(sv) && srv_is_sync(sv->srv);
}

void saver_came(struct saver *sv)
{
	if (atomic_fetch_sub(&sv->coming, 1) == 1)
		let_go(sv);
}

static void finished(struct saver *sv)
{
	struct srv *srv = sv->srv;

	sv->busy = false;
	sv->failed = sv->rc != 0;
	for (struct session *s = srv->sessions; s; s = s->next)
		if (s->save == SAVE_UNDER_WAY)
			tell(s, sv->rc ? WIRE_E_STORE : 0, sv->text, sv->step);
	if (!atomic_load(&sv->cut_made) && !sv->wanted) {
		atomic_store(&sv->hold, false);
		let_go(sv);
	}
	/* After a failure the next one comes when it would have come. */
	due_behind(sv, atomic_load(&sv->cut_made) ? sv->step : srv_steps(srv));
	begin_if_wanted(sv);
}

void saver_note(struct note *note)
{
	struct saver *sv;

	if (note->kind == NOTE_SAVE_DUE) {
		sv = (struct saver *)(void *)((char *)note - offsetof(struct saver, due_note));
		atomic_store(&sv->due_noted, false);
		/* Of one that is begun already it is an old story. */
		sv->wanted |= atomic_load(&sv->due_step) != UINT64_MAX;
		begin_if_wanted(sv);
	} else {
		sv = (struct saver *)(void *)((char *)note - offsetof(struct saver, saved_note));
		finished(sv);
	}
}

/* ---- the last one ---------------------------------------------------------------------------- */

/* Control has nothing else to do by now but what lets the step end. It is given stop_ms for that, and
 * not for the files: the one before may still be on its way to the disk, and these may be long. */
static int await(struct srv *srv)
{
	struct saver *sv = &srv->saver;
	uint64_t deadline = 0;

	while (sv->busy || sv->wanted) {
		if (atomic_load(&srv->stops) > 1)
			return err_set(ECANCELED, "the last checkpoint was not written: stopped "
						  "again");
		if (!atomic_load(&sv->cut_asked) || atomic_load(&sv->cut_made))
			deadline = 0;
		else if (!deadline)
			deadline = clock_ns() + srv->opt.stop_ms * NS_PER_MS;
		else if (clock_ns() > deadline)
			return err_set(ETIME, "the last checkpoint was not written: step %" PRIu64
					      " did not end within %u ms", srv_steps(srv) + 1,
				       srv->opt.stop_ms);
		control_turn(srv, false);
	}
	return sv->rc ? err_set(-sv->rc, "the last checkpoint was not written: %s", sv->text) : 0;
}

/* It holds what it restored: servers that come and go while nobody trains must not push older
 * checkpoints out. */
static bool is_unchanged(struct srv *srv)
{
	struct srv_stats stats;

	srv_get_stats(srv, &stats);
	return srv->restored_own && stats.gradients == 0 && !srv->saver.busy && !srv->saver.wanted;
}

int saver_last(struct srv *srv)
{
	struct saver *sv = &srv->saver;
	int rc;

	if (srv->failed) /* its step will never be complete */
		atomic_store(&sv->given_up, true);
	if (!keeps(sv) || !is_ready(sv) || srv->failed)
		return 0;
	if (is_unchanged(srv)) {
		log_info("no checkpoint is written: the weights are those of the one restored");
		atomic_store(&sv->given_up, true);
		return 0;
	}
	log_info("the last checkpoint is written when the step is over");
	srv->opt.checkpoint_ms = srv->opt.checkpoint_steps = 0;
	set_due(sv);
	sv->wanted = true;
	begin_if_wanted(sv);
	rc = await(srv);
	/* When the connections end, steps may. */
	atomic_store(&sv->given_up, true);
	return rc;
}

/* ---- life ------------------------------------------------------------------------------------ */

int saver_init(struct saver *sv, struct srv *srv)
{
	int rc;

	sv->srv = srv;
	sem_init(&sv->begin, 0, 0);
	sem_init(&sv->done, 0, 0);
	sv->cut_item = (struct item){.kind = ITEM_CUT};
	sv->go_item = (struct item){.kind = ITEM_GO};
	sv->due_note.kind = NOTE_SAVE_DUE;
	sv->saved_note.kind = NOTE_SAVED;
	due_behind(sv, srv_steps(srv));
	if (!keeps(sv))
		return 0;
	set_due(sv);
	rc = pthread_create(&sv->thread, NULL, saver_main, sv);
	sv->started = rc == 0;
	return rc ? err_set(rc, "the saver's thread could not be started: %s", strerror(rc)) : 0;
}

void saver_end(struct saver *sv)
{
	atomic_store(&sv->end, true);
	if (!sv->started)
		return;
	sem_post(&sv->begin);
	sem_post(&sv->done);
	pthread_join(sv->thread, NULL);
	sem_destroy(&sv->begin);
	sem_destroy(&sv->done);
}
