/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps, in sync and ssp mode. t->step is being made; with t->posted its barrier is on its way. The
 * server answers by writing the step into the head of the mailbox.
 *
 *        making k  --gs_step_post-->  posted k  --gs_step_wait-->  making k+1
 */
#include "trainer/trainer.h"

#include <errno.h>

#include "base/err.h"

bool step_released(gs_trainer *t, uint64_t step)
{
	uint64_t word =
	    word_acquire(t->link.mail, offsetof(struct layout_mailbox_head, released_step));

	if (word < t->released)
		word = t->released;
	if (word > t->step || (word == t->step && !t->posted)) {
		err_set(EPROTO, "step %llu is released; this trainer has passed %llu",
			(unsigned long long)word,
			(unsigned long long)(t->posted ? t->step : t->step - 1));
		trainer_breach(t);
		return false;
	}
	return step < t->step || word >= step;
}

static bool is_released(gs_trainer *t, void *step)
{
	return step_released(t, *(uint64_t *)step);
}

int step_wait_released(gs_trainer *t, uint64_t step)
{
	return trainer_wait(t, is_released, &step, 0, "the step's release");
}

int step_post_barrier(gs_trainer *t)
{
	/* The payload means nothing. It is the padding of the mailbox's head, which is registered (a
	 * device need not have inline sends) and which nobody writes: the head's line is the server's. */
	uint8_t *source = ((struct layout_mailbox_head *)(void *)t->link.mail)->pad;
	struct tp_op op = {
	    .kind = TP_OP_WRITE,
	    .flags = TP_F_IMM,
	    .imm = imm_step(IMM_BARRIER, t->step),
	    .local = source,
	    .region = t->link.mailbox_region,
	    .remote = t->link.slot_mem,
	    .offset = offsetof(struct layout_slots_head, barrier),
	    .len = sizeof(((struct layout_slots_head *)NULL)->barrier),
	};

	int rc = 0;

	/* Behind what was pushed on each rail: it counts when it came by all. */
	for (; rc == 0 && op.rail < t->link.rails; op.rail++)
		rc = trainer_post(t, &op, 1);
	return rc;
}

int step_post(gs_trainer *t)
{
	if (t->welcome.mode == WIRE_ASYNC)
		return err_set(EPERM, "there are no steps in async mode");
	if (t->posted)
		return err_set(
		    EALREADY,
		    "the barrier of step %llu was posted already; call gs_step_wait first",
		    (unsigned long long)t->step);
	/* Now, since a flush lets go of the lock: another thread must find the step posted. */
	t->posted = true;
	for (uint32_t i = 0; t->sums > 0 && i < t->n_params; i++) {
		int rc = push_flush(t->param[i]);

		if (rc < 0)
			return rc;
	}
	int rc = step_post_barrier(t);
	t->barrier = rc == 0;
	return rc;
}

/* Of several threads that wait for it, the first goes on to the next step. */
void step_advance(gs_trainer *t, uint64_t step)
{
	if (t->step != step)
		return;
	lend_step_told(t);
	t->step++;
	t->posted = t->barrier = t->goes_on = false;
}

static int wait(gs_trainer *t)
{
	uint64_t step = t->step;

	if (t->welcome.mode == WIRE_ASYNC)
		return err_set(EPERM, "there are no steps in async mode");
	if (!t->posted)
		return err_set(EDEADLK,
			       "step %llu has no barrier yet: it would never be released; call "
			       "gs_step_post first",
			       (unsigned long long)step);
	int rc = step_wait_released(t, step);
	if (rc == 0)
		step_advance(t, step);
	return rc < 0 ? rc : trainer_refused(t);
}

int gs_step_post(gs_trainer *t)
{
	int rc = trainer_enter_working(t);

	if (rc < 0)
		return rc;
	rc = step_post(t);
	trainer_exit(t);
	return rc;
}

int gs_step_wait(gs_trainer *t)
{
	int rc = trainer_enter_working(t);

	if (rc < 0)
		return rc;
	rc = wait(t);
	trainer_exit(t);
	return rc;
}

int gs_step_end(gs_trainer *t)
{
	int rc = trainer_enter_working(t);

	if (rc < 0)
		return rc;
	if (!t->goes_on)
		rc = step_post(t);
	if (rc == 0)
		rc = wait(t);
	trainer_exit(t);
	return rc;
}
