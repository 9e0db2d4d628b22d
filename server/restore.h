/* SPDX-License-Identifier: Apache-2.0
 *
 * Going on from checkpoints. Sources (checkpoints, or safetensors files, which have weights alone) are
 * opened and verified before anybody can connect; what they hold goes into the table when it is
 * sealed, for then it is known what is wanted. Each parameter comes from the first source that has it:
 * so several servers' checkpoints make one, and one makes several.
 *
 * What may differ from the run that wrote it: the length of blocks, the number of slots, threads and
 * trainers, formats on the wire, schedules, the rate. What may not: shape, storage, optimizer.
 *
 * Control thread.
 */
#ifndef GS_SERVER_RESTORE_H
#define GS_SERVER_RESTORE_H

#include "server/internal.h"
#include "store/checkpoint.h"

struct source {
	const char *path;        /* what it is called in texts; the checkpoint's, or the file's */
	struct checkpoint *checkpoint; /* or: */
	struct store_file *file; /* weights alone */
	uint32_t used;           /* parameters that were taken from it */
};

struct restore {
	struct source source[SRV_MAX_RESTORES];
	uint32_t n;
	uint64_t step; /* that training goes on behind */
};

/* Opens what the options name, sets srv->restore, and where the round or the pace begins. Before
 * anything runs. Errors: -EINVAL (sources that don't go together, or don't fit the mode), -ENOENT,
 * -EBADMSG, what open(2) gives. */
int restore_open(struct srv *srv);
/* Fills the table. -EINVAL (the text says which parameter, and what differs), -EBADMSG. */
int restore_apply(struct srv *srv, struct table *t);
/* NULL is allowed. */
void restore_close(struct restore *r);

/* ---- restore_param.c ---- */

/* Fills one parameter of the table; `was`: what the checkpoint says of it (NULL: of a plain file). */
int restore_param(const struct table *t, struct param *p, const struct source *from,
		  const struct checkpoint_param *was);

#endif
