/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers: threads that run parameters.
 */
#include "server/internal.h"

void *worker_main(void *arg)
{
	struct srv *srv = arg;

	sched_work(&srv->sched, srv->opt.spin_us);
	return NULL;
}

void srv_post(struct srv *srv, struct actor *actor, struct item *item)
{
	sched_post(&srv->sched, actor, item);
}
