/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer process's connection.
 */
#ifndef GS_CLI_MEMBER_H
#define GS_CLI_MEMBER_H

#include "cli/training.h"
#include "gradslot/gradslot.h"

/* A call's result; its text, which the library keeps for itself, becomes err_text(). */
int member_rc(int rc);
/* Connects as "NAME trainer RANK". Errors: gs_connect's. */
int member_connect(const struct training_member *m, const char *name, gs_trainer **out);

#endif
