/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a provider refused a work request. Some say ENOMEM for a full queue, too many SGEs and too
 * much inline data alike, others EINVAL for the last two; what was asked tells them apart. None
 * of them is waited out: room is counted before posting (a full queue is -EAGAIN there), so that a
 * refusal shows the accounts or the device to be wrong.
 */
#ifndef GS_TRANSPORT_VERBS_REFUSED_H
#define GS_TRANSPORT_VERBS_REFUSED_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct refused {
	int err;
	uint32_t under_way, cap; /* work requests */
	uint32_t sges, max_sges;
	uint32_t inline_len, max_inline; /* inline_len 0: none is inline */
};

static inline void refused_text(const struct refused *r, char *out, size_t size)
{
	const char *err = strerror(r->err);

	if (r->sges > r->max_sges)
		snprintf(out, size, "ibv_post_send: %s: %u SGEs, the queue pair takes %u", err,
			 r->sges, r->max_sges);
	else if (r->inline_len > r->max_inline)
		snprintf(out, size, "ibv_post_send: %s: %u bytes inline, the queue pair takes %u",
			 err, r->inline_len, r->max_inline);
	else if (r->under_way >= r->cap)
		snprintf(out, size, "ibv_post_send: %s: the send queue is full: %u of %u under way",
			 err, r->under_way, r->cap);
	else
		snprintf(out, size,
			 "ibv_post_send: %s: not for want of room (%u of %u under way), SGEs or "
			 "inline data",
			 err, r->under_way, r->cap);
}

#endif
