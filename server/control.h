/* SPDX-License-Identifier: Apache-2.0
 *
 * The control thread's bounds.
 */
#ifndef GS_SERVER_CONTROL_H
#define GS_SERVER_CONTROL_H

#include "base/clock.h"

/* How long a trainer may be silent in the talk before its training. */
#define CONTROL_TALK_NS (10 * NS_PER_S)
/* How long connections may take to end when the server stops. */
#define CONTROL_END_NS (2 * NS_PER_S)

#endif
