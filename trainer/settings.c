/* SPDX-License-Identifier: Apache-2.0
 *
 * What a trainer says and hears while it trains, beside gradients and weights: the number of
 * samples, the loss scale, learning rates, counts.
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <math.h>

#include "base/err.h"

static int set_positive(gs_trainer *t, const char *what, double value, float *field)
{
	float f = (float)value;

	if (!layout_factor_ok(f))
		return err_set(EINVAL, "%s: %g; must be from 2^-60 to 2^60", what, value);
	int rc = trainer_enter(t);
	if (rc < 0)
		return rc;
	*field = f;
	trainer_exit(t);
	return 0;
}

int gs_set_samples(gs_trainer *t, double samples)
{
	return set_positive(t, "samples", samples, t ? &t->samples : NULL);
}

int gs_set_grad_scale(gs_trainer *t, double scale)
{
	return set_positive(t, "grad_scale", scale, t ? &t->grad_scale : NULL);
}

static bool rate_free(gs_trainer *t, void *arg)
{
	return !t->rate_asked;
}

static int set_rate(gs_trainer *t, gs_param *p, double lr)
{
	struct wire_msg msg = {.kind = WIRE_SET_RATE, .set_rate = {.param = p->index, .rate = lr}};
	int rc = trainer_wait(t, rate_free, NULL, 0, "another rate's turn");

	if (rc < 0)
		return rc;
	/* Gradients that were pushed before are applied at the rate before. */
	t->rate_asked = true;
	rc = push_await_rails(p);
	if (rc == 0)
		rc = talk_send(t, &msg);
	if (rc == 0)
		rc = trainer_wait(t, rate_free, NULL, 0, "the rate to hold");
	trainer_changed(t);
	return rc;
}

int gs_set_lr(gs_trainer *t, gs_param *p, double lr)
{
	if (!isfinite(lr) || lr < 0)
		return err_set(EINVAL, "lr: %g; must be 0 at least, and finite", lr);
	int rc = push_enter(t, p);
	if (rc < 0)
		return rc;
	rc = set_rate(t, p, lr);
	trainer_exit(t);
	return rc;
}

int gs_get_counts(gs_trainer *t, struct gs_counts *out)
{
	if (!out || out->size != sizeof(*out))
		return err_set(EINVAL,
			       "counts: size is %zu, not %zu: build against the header of "
			       "this library",
			       out ? out->size : 0, sizeof(*out));
	int rc = trainer_enter_working(t);
	if (rc < 0)
		return rc;
	out->nonfinite =
	    word_acquire(t->link.mail, offsetof(struct layout_mailbox_head, nonfinite));
	out->skipped = word_acquire(t->link.mail, offsetof(struct layout_mailbox_head, skipped));
	out->refused = word_acquire(t->link.mail, offsetof(struct layout_mailbox_head, refused));
	trainer_exit(t);
	return 0;
}

static bool is_noticed(gs_trainer *t, void *count)
{
	return t->refused_noticed >= *(uint64_t *)count;
}

int trainer_refused(gs_trainer *t)
{
	uint64_t count = word_acquire(t->link.mail, offsetof(struct layout_mailbox_head, refused));
	/* The count comes with what was waited for, and the notice by itself. */
	int rc = trainer_wait(t, is_noticed, &count, t->timeout_ms, "the notice of a refused push");
	int refused = t->refused;

	if (rc == -ETIMEDOUT) {
		err_set(EPROTO, "a push was refused, and in %u ms no notice said why",
			t->timeout_ms);
		return trainer_breach(t);
	}
	if (rc < 0)
		return rc;
	t->refused = 0;
	return refused ? err_set(refused, "%s", t->refused_text) : 0;
}
