/* SPDX-License-Identifier: Apache-2.0
 *
 * The control thread's inbox.
 */
#include "server/inbox.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/err.h"

int inbox_init(struct inbox *inbox)
{
	queue_init(&inbox->queue);
	atomic_init(&inbox->pending, 0);
	inbox->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (inbox->fd < 0)
		return err_set(errno, "no eventfd for the control thread: raise `ulimit -n`");
	return 0;
}

void inbox_fini(struct inbox *inbox)
{
	if (inbox->fd >= 0)
		close(inbox->fd);
	inbox->fd = -1;
}

void inbox_post(struct inbox *inbox, struct note *note)
{
	queue_push(&inbox->queue, &note->node);
	if (atomic_fetch_add_explicit(&inbox->pending, 1, memory_order_acq_rel) == 0)
		eventfd_write(inbox->fd, 1);
}

void inbox_drain(struct inbox *inbox, void (*handle)(struct note *note))
{
	eventfd_t ignored;
	uint32_t n;

	eventfd_read(inbox->fd, &ignored);
	while ((n = atomic_load_explicit(&inbox->pending, memory_order_acquire))) {
		for (uint32_t i = 0; i < n; i++)
			handle((struct note *)queue_pop(&inbox->queue));
		atomic_fetch_sub_explicit(&inbox->pending, n, memory_order_acq_rel);
	}
}
