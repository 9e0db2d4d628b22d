/* SPDX-License-Identifier: Apache-2.0
 *
 * The send queue's bookkeeping.
 */
#include "transport/verbs/sendq.h"

#include <errno.h>
#include <stdlib.h>

int sendq_init(struct sendq *q, uint32_t cap, uint32_t reserve)
{
	uint32_t size = 1;

	while (size < cap + reserve)
		size *= 2;
	*q = (struct sendq){
	    .cap = cap,
	    .reserve = reserve,
	    .interval = cap >= 16 ? cap / 8 : 1,
	    .mask = size - 1,
	    .ring = calloc(size, sizeof(struct sendq_wr)),
	};
	return q->ring ? 0 : -ENOMEM;
}

void sendq_free(struct sendq *q)
{
	free(q->ring);
	q->ring = NULL;
}

bool sendq_push(struct sendq *q, enum sendq_kind kind, uint64_t arg, bool signal)
{
	bool reserved = sendq_from_reserve(kind);
	bool signalled = signal || reserved || q->quiet + 1 >= q->interval;

	q->ring[q->head & q->mask] =
	    (struct sendq_wr){.arg = arg, .kind = (uint8_t)kind, .signalled = signalled};
	q->head++;
	q->reserved += reserved;
	q->quiet = signalled ? 0 : q->quiet + 1;
	return signalled;
}

void sendq_unpush(struct sendq *q, uint32_t n)
{
	while (n-- > 0 && q->head != q->tail) {
		q->head--;
		q->reserved -= sendq_from_reserve(q->ring[q->head & q->mask].kind);
	}
	/* Counted anew from the last signalled WR that stays. */
	q->quiet = 0;
	for (uint32_t pos = q->head; pos != q->tail && !sendq_at(q, pos - 1)->signalled; pos--)
		q->quiet++;
}

bool sendq_pop(struct sendq *q, struct sendq_wr *out)
{
	if (q->tail == q->head)
		return false;
	*out = *sendq_at(q, q->tail);
	q->tail++;
	q->reserved -= sendq_from_reserve(out->kind);
	return true;
}
