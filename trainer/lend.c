/* SPDX-License-Identifier: Apache-2.0
 *
 * The program's own memory, where the transport can register it: gradients that leave from there
 * (gs_push_zcopy), weights that are read to there.
 *
 * Gradients. Two promises meet here:
 *  - the transport's: what is registered stays so until the last WRITE that reads it has completed, on each
 *    rail. Those completions carry the registration (lend_cookie), since a slot may have its next push by then: the
 *    server's word that a push is applied may overtake the local completion.
 *  - the program's: its memory stays as it is until it hears that the push is applied. Until then the
 *    push may have to be sent again (replay.c), and is read from there. Afterwards nothing reads it, so
 *    what the program has heard is kept (out.told), and a server that then claims to lack such a push is
 *    not believed.
 *
 * Weights. The memory is the call's until it returns; so a call that failed waits until the connection is
 * over, after which no READ writes there. Registering costs about what copying does, so memory is registered
 * when it is pulled into once more; and where what was registered was gone the next time, as with memory
 * that is allocated for each pull, it has to be pulled into more and more often.
 */
#include "trainer/trainer.h"

#include <errno.h>

#include "base/err.h"
#include "base/log.h"

static struct lent *lent_of(gs_param *p, uint64_t push)
{
	return &p->out.lent[push_slot_index(&p->out, push, p->t->link.slots)];
}

void lend_push(gs_param *p, uint64_t push, const void *grad, unsigned rails)
{
	gs_trainer *t = p->t;
	struct lent *lent = lent_of(p, push);
	uint64_t size = p->elems * p->grad_size;

	if (t->load_store || size < LEND_MIN || !t->reg_cache_bytes || grad == push_slot(p, push) ||
	    t->link.no_lending || grad == p->not_lent || rails == 0)
		return;
	int rc = tp_register(t->link.conn, grad, size, 0, &lent->region);
	if (rc == 0) {
		lent->at = grad;
		for (unsigned r = 1; r < rails; r++)
			tp_hold(lent->region);
		pthread_mutex_lock(&t->lock);
		t->lends = true;
		pthread_mutex_unlock(&t->lock);
		return;
	}
	lent->region = NULL;
	if (rc == -EFAULT) /* its kind stays; that there is no room does not */
		p->not_lent = grad;
	if (rc != -EOPNOTSUPP) {
		log_debug("gs_push_zcopy copies \"%s\": %s", p->wire.name, err_text());
		return;
	}
	pthread_mutex_lock(&t->lock);
	if (!t->link.no_lending)
		log_info("gs_push_zcopy copies: %s", err_text());
	t->link.no_lending = true;
	pthread_mutex_unlock(&t->lock);
}

/* Parameters are aligned, and so are regions. */
uint64_t lend_cookie(const struct lent *lent)
{
	return (uintptr_t)lent->region | 1;
}

bool lend_done(uint64_t cookie)
{
	if (!(cookie & 1))
		return false;
	tp_unregister((struct tp_region *)(uintptr_t)(cookie & ~(uint64_t)1));
	return true;
}

void lend_told(gs_param *p, uint64_t pushes)
{
	if (p->out.told < pushes)
		p->out.told = pushes;
}

void lend_step_told(gs_trainer *t)
{
	for (uint32_t i = 0; t->lends && i < t->n_params; i++)
		lend_told(t->param[i], t->param[i]->out.end);
}

/* ---- weights --------------------------------------------------------------------------------- */

#define PATIENCE_MAX 1023

static bool may_be_registered(gs_param *p, const void *dst)
{
	if (dst != p->pulled_to) {
		p->pulled_to = dst;
		p->pulled_again = 0;
		return false;
	}
	if (++p->pulled_again <= p->pull_patience)
		return false;
	p->pulled_again = 0;
	p->pull_patience = p->pull_patience < PATIENCE_MAX ? 2 * p->pull_patience + 1 : PATIENCE_MAX;
	return true;
}

static void never_again(gs_trainer *t)
{
	pthread_mutex_lock(&t->lock);
	if (!t->link.no_targets)
		log_info("pulls copy: %s", err_text());
	t->link.no_targets = true;
	pthread_mutex_unlock(&t->lock);
}

/* p is the call's; without the lock. */
static bool lend_target(gs_param *p, void *dst, struct tp_region **region)
{
	struct tp_conn *conn = p->t->link.conn;
	uint64_t size = param_weight_bytes(p);
	int rc = tp_register(conn, dst, size, TP_LEND_TARGET | TP_LEND_KNOWN, region);

	if (rc == 0) {
		p->pull_patience = 0;
		return true;
	}
	if (rc == -ENOENT && may_be_registered(p, dst)) {
		rc = tp_register(conn, dst, size, TP_LEND_TARGET, region);
		if (rc < 0)
			log_debug("a pull copies \"%s\": %s", p->wire.name, err_text());
	}
	if (rc == -EOPNOTSUPP)
		never_again(p->t);
	return rc == 0;
}

void lend_targets(gs_trainer *t, struct pull *pull)
{
	bool may = t->reg_cache_bytes && !t->link.no_targets;

	pthread_mutex_unlock(&t->lock);
	for (uint32_t k = 0; k < pull->n; k++) {
		gs_param *p = pull->param[k];
		struct tp_region *region;

		p->read_to = param_landing(p);
		p->read_region = t->link.landing_region;
		if (may && param_weight_bytes(p) >= LEND_TARGET_MIN &&
		    lend_target(p, pull->dst[k], &region)) {
			p->read_region = region;
			p->read_to = pull->dst[k];
			pull->straight = true;
		}
	}
	pthread_mutex_lock(&t->lock);
}

void lend_targets_back(gs_trainer *t, const struct pull *pull)
{
	for (uint32_t k = 0; k < pull->n; k++) {
		if (pull->param[k]->pull_left > 0)
			trainer_wait_closed(t);
	}
	for (uint32_t k = 0; k < pull->n; k++) {
		if (param_reads_straight(pull->param[k]))
			tp_unregister(pull->param[k]->read_region);
	}
}
