/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes over the wire besides users' bytes: the header of every SEND. Little endian.
 */
#ifndef GS_TRANSPORT_VERBS_WIRE_H
#define GS_TRANSPORT_VERBS_WIRE_H

#include <endian.h>
#include <stdint.h>

enum wire_kind {
	WIRE_MSG = 1,    /* value: the message's length; its bytes follow the header */
	WIRE_IMM = 2,    /* value: the immediate, extra: bytes of the last WRITE (iWARP only) */
	WIRE_CREDIT = 3, /* value: the cumulative count of receives posted again */
	WIRE_BYE = 4,    /* this side closes, or has seen that the peer does; nothing follows */
	WIRE_HI = 5,     /* the connecting side's first: the connection stands */
};

struct wire_header {
	uint32_t kind;
	uint32_t value;
	uint32_t extra;
	uint32_t zero;
};
_Static_assert(sizeof(struct wire_header) == 16, "the wire has it so");

static inline struct wire_header wire_header(enum wire_kind kind, uint32_t value, uint32_t extra)
{
	return (struct wire_header){
	    .kind = htole32(kind), .value = htole32(value), .extra = htole32(extra)};
}

#endif
