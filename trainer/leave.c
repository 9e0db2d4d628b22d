/* SPDX-License-Identifier: Apache-2.0
 *
 * The orderly end.
 */
#include "trainer/trainer.h"

#include <errno.h>

#include "base/err.h"

static bool step_over(gs_trainer *t, void *arg)
{
	return step_released(t, t->step);
}

/* The bye goes by rail 0, and must not overtake what went by others. A table's pieces are answered; of
 * a dense gradient nothing is heard before its step's release, so the last block on each rail is asked
 * for: the answer comes behind all that was posted there. (Sync mode, with pushes and no barrier.) */
static int ask_last(gs_param *p, uint32_t *asked)
{
	gs_trainer *t = p->t;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < p->blocks; i++) {
		uint32_t bit = 1u << trainer_rail(t, p->first_block + i);

		if (*asked & bit)
			continue;
		*asked |= bit;
		rc = pull_queue_ask(p, i, i + 1);
	}
	return rc;
}

static bool all_taken(gs_trainer *t, void *arg)
{
	for (uint32_t i = 0; i < t->n_params; i++) {
		gs_param *p = t->param[i];

		if (param_is_table(p) ? !push_credited(p, p->out.pushes) : p->pull_left > 0)
			return false;
	}
	return true;
}

static int await_rails(gs_trainer *t)
{
	uint32_t asked = 1; /* rail 0 keeps the order */
	int rc = 0;

	if (t->link.rails == 1)
		return 0;
	for (uint32_t i = 0; rc == 0 && i < t->n_params; i++)
		if (!param_is_table(t->param[i]))
			rc = ask_last(t->param[i], &asked);
	return rc < 0 ? rc
		      : trainer_wait(t, all_taken, NULL, t->timeout_ms, "gradients to arrive");
}

/* What was pushed is in the weights. In sync mode without a barrier under way there is nothing to
 * wait for: the step is then made without this trainer's barrier. */
static int settle(gs_trainer *t)
{
	if (t->phase != PHASE_WORK)
		return 0;
	for (uint32_t i = 0; i < t->n_params && !t->posted; i++) {
		int rc = push_flush(t->param[i]);

		if (rc < 0)
			return rc;
	}
	if (!trainer_is_sync(t))
		return trainer_wait(t, push_all_credited, NULL, t->timeout_ms,
				    "gradients to be applied");
	return t->posted ? trainer_wait(t, step_over, NULL, t->timeout_ms, "the step's release")
			 : await_rails(t);
}

static bool has_let_go(gs_trainer *t, void *arg)
{
	return t->expect == 0 || (t->link.closed && t->err == 0);
}

int gs_leave(gs_trainer *t)
{
	struct wire_msg bye = {.kind = WIRE_BYE};
	int rc = trainer_enter(t);

	if (rc < 0)
		return rc;
	if (t->phase == PHASE_LEFT)
		rc = err_set(ENOTCONN, "gs_leave was called");
	else
		rc = settle(t);
	if (rc == 0) {
		t->phase = PHASE_LEFT;
		t->patience_ms = t->timeout_ms;
		t->expect = WIRE_BYE;
		rc = talk_send(t, &bye);
		if (rc == 0)
			rc = trainer_wait(t, has_let_go, NULL, t->timeout_ms,
					  "the server to let go");
	}
	trainer_exit(t);
	return rc;
}
