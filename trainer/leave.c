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
			 : 0;
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
