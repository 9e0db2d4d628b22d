/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that leave from the program's own memory (gs_push_zcopy), where the transport can register
 * it. Two promises meet here:
 *  - the transport's: what is registered stays so until the last WRITE that reads it has completed. That
 *    completion carries the registration (lend_cookie), since a slot may have its next push by then: the
 *    server's word that a push is applied may overtake the local completion.
 *  - the program's: its memory stays as it is until it hears that the push is applied. Until then the
 *    push may have to be sent again (replay.c), and is read from there. Afterwards nothing reads it, so
 *    what the program has heard is kept (out.told), and a server that then claims to lack such a push is
 *    not believed.
 */
#include "trainer/trainer.h"

#include <errno.h>

#include "base/err.h"
#include "base/log.h"

static struct lent *lent_of(gs_param *p, uint64_t push)
{
	return &p->out.lent[push_slot_index(&p->out, push, p->t->link.slots)];
}

void lend_push(gs_param *p, uint64_t push, const void *grad)
{
	gs_trainer *t = p->t;
	struct lent *lent = lent_of(p, push);
	uint64_t size = p->elems * p->grad_size;

	if (t->load_store || size < LEND_MIN || !t->reg_cache_bytes || grad == push_slot(p, push) ||
	    t->link.no_lending || grad == p->not_lent)
		return;
	int rc = tp_register(t->link.conn, grad, size, &lent->region);
	if (rc == 0) {
		lent->at = grad;
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

void lend_take_back(gs_param *p, uint64_t push)
{
	struct lent *lent = lent_of(p, push);

	tp_unregister(lent->region);
	lent->region = NULL;
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
