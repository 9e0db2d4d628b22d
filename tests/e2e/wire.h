/* SPDX-License-Identifier: Apache-2.0
 *
 * What a test must know of verbs, whose own header does not go with the trainer's.
 */
#ifndef GS_TESTS_E2E_WIRE_H
#define GS_TESTS_E2E_WIRE_H

#include <stdbool.h>

#include "transport/transport.h"

/* Ends it at once, with what is under way. */
void wire_cut(struct tp_conn *conn);
/* Of connections that are made here. */
unsigned wire_rails(void);
/* Over verbs, gradients can leave from the program's own memory here. */
bool wire_lends(void);
/* And weights can be read straight to it on this connection. */
bool wire_reads_straight(struct tp_conn *conn);

#endif
