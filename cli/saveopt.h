/* SPDX-License-Identifier: Apache-2.0
 *
 * A server's checkpoints as options of `serve`: where, how often, and what it goes on from.
 */
#ifndef GS_CLI_SAVEOPT_H
#define GS_CLI_SAVEOPT_H

#include "cli/opt.h"
#include "server/server.h"

/* Steps, or milliseconds; both 0: only when it is asked for, and at the end. */
struct saveopt_every {
	uint64_t steps, ms;
};

struct saveopt {
	const char *dir;
	struct saveopt_every every;
	int64_t keep, stop_s;
	struct opt_texts restore;
};

struct saveopt saveopt_default(void);

/* For OPT_PARSED: "100" (steps), "30s", "5m", "1h" into a struct saveopt_every. */
int saveopt_parse_every(const char *text, void *every);

/* Fills the server's options. --restore auto (the default) is what --checkpoint-dir holds, if it
 * holds any: the same command line starts a job and restarts it. -EINVAL: what contradicts what;
 * else why the directory can't be read. */
int saveopt_settle(const struct saveopt *so, struct srv_options *out);

/* Lines of an option table that fill the struct saveopt `so`. */
/* clang-format off */
#define SAVEOPT_LINES(so) \
	{"checkpoint-dir", OPT_TEXT, &(so).dir, "DIR", \
	 .help = "write checkpoints there (also by SIGUSR1, and at the end)"}, \
	{"checkpoint-every", OPT_PARSED, &(so).every, "N|TIME", \
	 "one each N steps, or each 30s, 5m, 1h", .parse = saveopt_parse_every, \
	 .shown = "at the end only"}, \
	{"keep", OPT_NUMBER, &(so).keep, "K", "how many checkpoints are kept", .min = 1, \
	 .max = 1000000}, \
	{"restore", OPT_TEXTS, &(so).restore, "auto|none|PATH", \
	 "go on from the newest checkpoint in --checkpoint-dir if there is one; from nothing; or " \
	 "from a directory of checkpoints, a checkpoint, or a safetensors file (weights alone; may " \
	 "be given again)  (default auto)", .max = SRV_MAX_RESTORES}, \
	{"stop-after", OPT_NUMBER, &(so).stop_s, "SECONDS", \
	 "how long a step may take to end before the last checkpoint", .min = 1, .max = 86400}
/* clang-format on */

#endif
