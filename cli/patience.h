/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a server waits for a trainer, as options of serve: `--on-trainer-loss`, `--straggler-after`,
 * `--keepalive`. Seconds may have up to three decimals.
 */
#ifndef GS_CLI_PATIENCE_H
#define GS_CLI_PATIENCE_H

#include <stdint.h>

#include "server/server.h"

enum { PATIENCE_MAX_S = 1000000 };

struct patience_loss {
	enum srv_loss policy;
	uint32_t wait_ms; /* of SRV_LOSS_WAIT */
};

struct patience_straggler {
	enum srv_straggler policy;
	uint32_t after_ms; /* 0: nobody is one */
};

struct patience {
	struct patience_loss loss;
	struct patience_straggler straggler;
	uint32_t keepalive_ms;
};

/* The server's own defaults. */
struct patience patience_default(void);
void patience_apply(const struct patience *p, struct srv_options *opt);

/* For OPT_PARSED: into a struct patience_loss, a struct patience_straggler, a uint32_t of milliseconds.
 * -EINVAL: the text says what it may be. */
int patience_parse_loss(const char *text, void *loss);
int patience_parse_straggler(const char *text, void *straggler);
int patience_parse_keepalive(const char *text, void *ms);

/* Lines of an option table that fill the struct patience `p`. */
/* clang-format off */
#define PATIENCE_LINES(p) \
	{"on-trainer-loss", OPT_PARSED, &(p).loss, "continue|wait:SECONDS|stop", \
	 "sync mode: when a trainer is lost, the step goes on without it; waits for its rank so long, " \
	 "then goes on; or the server stops", \
	 .parse = patience_parse_loss, .shown = "wait:30"}, \
	{"straggler-after", OPT_PARSED, &(p).straggler, "SECONDS[:wait|drop|stop]", \
	 "sync mode: when a trainer's barrier is missing so long after the step's first, it is told of, " \
	 "dropped, or the server stops; 0: nobody is one", \
	 .parse = patience_parse_straggler, .shown = "0"}, \
	{"keepalive", OPT_PARSED, &(p).keepalive_ms, "SECONDS", \
	 "a trainer whose machine is silent for so long is lost; 0: never", \
	 .parse = patience_parse_keepalive, .shown = "5"}
/* clang-format on */

#endif
