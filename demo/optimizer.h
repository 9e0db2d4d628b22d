/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers as text: NAME[:setting=value[,setting=value...]]. For the digits, with a learning rate
 * that learns them where none is given.
 */
#ifndef GS_DEMO_OPTIMIZER_H
#define GS_DEMO_OPTIMIZER_H

#include "kernels/kern.h"

/* Errors: -EINVAL, with the text as far as it was understood, and what there is. */
int optimizer_parse(const char *text, struct kern_opt *out);
/* The same for tables of rows: no rate but the optimizer's own default, and it must be one that works
 * by rows. */
int optimizer_parse_rows(const char *text, struct kern_opt *out);

enum { OPTIMIZER_TEXT = 400 };
/* The name, the rate, and what differs from the defaults: what either of them takes. Returns buf.
 */
const char *optimizer_text(const struct kern_opt *opt, char buf[OPTIMIZER_TEXT]);

/* The i-th name, for tests and help texts; NULL past the last. */
const char *optimizer_at(unsigned i);

#endif
