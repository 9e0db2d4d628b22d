/* SPDX-License-Identifier: Apache-2.0
 *
 * The bounds of wire.h, checked on a decoded message or on one about to be encoded: one function
 * for both, so that no side can send what the other refuses. Private to proto/.
 */
#ifndef GS_PROTO_WIRE_CHECK_H
#define GS_PROTO_WIRE_CHECK_H

#include "proto/wire.h"

/* 0, or -err with a text that names the field, its value and the limit. */
int wire_check(const struct wire_msg *msg, int err);

#endif
