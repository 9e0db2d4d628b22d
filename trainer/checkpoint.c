/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking the server for a checkpoint.
 */
#include "trainer/trainer.h"

#include <errno.h>

#include "base/err.h"

int gs_checkpoint(gs_trainer *t)
{
	struct wire_msg msg = {.kind = WIRE_SAVE};
	int rc = trainer_enter_working(t);

	if (rc < 0)
		return rc;
	if (t->save != SAVE_NONE) {
		rc = err_set(EALREADY, "a checkpoint was asked for already: call "
				       "gs_checkpoint_wait first");
	} else if (t->posted) {
		rc = err_set(EALREADY,
			     "the barrier of step %llu was posted already, and the server may be "
			     "past its end; call gs_step_wait first",
			     (unsigned long long)t->step);
	} else {
		t->save = SAVE_ASKED;
		t->save_step = t->step;
		rc = talk_send(t, &msg);
	}
	trainer_exit(t);
	return rc;
}

static bool is_told(gs_trainer *t, void *arg)
{
	return t->save != SAVE_ASKED;
}

/* Sync: nothing is written before the step is over. */
static int may_wait(const gs_trainer *t)
{
	if (t->save != SAVE_ASKED || !trainer_is_sync(t) || t->save_step < t->step || t->posted)
		return 0;
	return err_set(EDEADLK,
		       "step %llu has no barrier yet, and the checkpoint is of its end; call "
		       "gs_step_post first",
		       (unsigned long long)t->step);
}

/* A server that keeps none has nothing like what was asked for. */
static int failure(const struct wire_saved *saved)
{
	int rc = saved->code == WIRE_E_MISMATCH ? -ENOENT : wire_error_errno(saved->code);

	return err_set(-rc, "the server says: %s", saved->text);
}

static int take(gs_trainer *t, uint64_t *step)
{
	if (t->save != SAVE_TOLD)
		return err_set(EDEADLK,
			       "no checkpoint was asked for, or its answer was lost with the "
			       "connection; call gs_checkpoint first");
	t->save = SAVE_NONE;
	if (t->saved.failed)
		return failure(&t->saved);
	if (step)
		*step = t->saved.step;
	return 0;
}

int gs_checkpoint_wait(gs_trainer *t, uint64_t *step)
{
	int rc = trainer_enter_working(t);

	if (rc < 0)
		return rc;
	rc = may_wait(t);
	if (rc == 0)
		rc = trainer_wait(t, is_told, NULL, 0, "the checkpoint");
	if (rc == 0)
		rc = take(t, step);
	trainer_exit(t);
	return rc;
}
