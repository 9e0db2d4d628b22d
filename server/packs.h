/* SPDX-License-Identifier: Apache-2.0
 *
 * A push of a whole pack, at its poller: the immediate, the length and the step are checked; all of the
 * slots are, and then all of the gradients are taken, or none.
 */
#ifndef GS_SERVER_PACKS_H
#define GS_SERVER_PACKS_H

#include "proto/imm.h"
#include "server/session.h"

/* Each gradient goes to its own parameter. */
void packs_take(struct session *s, const struct pack *pack, const struct imm *imm);
/* Of a joint pack (joint.h): all of them as one. */
void packs_take_joint(struct session *s, const struct pack *pack, const struct imm *imm);

#endif
