/* SPDX-License-Identifier: Apache-2.0
 *
 * The server's threads as options: serve takes them, demo and bench pass them on.
 */
#ifndef GS_CLI_SRVOPT_H
#define GS_CLI_SRVOPT_H

#include "cli/opt.h"
#include "server/server.h"

struct srvopt {
	int64_t pollers, workers, spin_us;
};

static inline struct srvopt srvopt_default(void)
{
	struct srv_options o = srv_options_default();

	return (struct srvopt){o.pollers, o.workers, o.spin_us};
}

/* Lines of an option table that fill the struct srvopt `so`. */
#define SRVOPT_LINES(so)                                                                           \
	{"pollers",                                                                                \
	 OPT_NUMBER,                                                                               \
	 &(so).pollers,                                                                            \
	 "N",                                                                                      \
	 "server threads that take what arrives",                                                  \
	 .min = 1,                                                                                 \
	 .max = SRV_MAX_POLLERS},                                                                  \
	    {"workers",                                                                            \
	     OPT_NUMBER,                                                                           \
	     &(so).workers,                                                                        \
	     "N",                                                                                  \
	     "server threads that update weights; 0: the pollers do",                              \
	     .min = 0,                                                                             \
	     .max = SRV_MAX_WORKERS},                                                              \
	{                                                                                          \
		"spin", OPT_NUMBER, &(so).spin_us, "US|forever",                                   \
		    "microseconds that an idle thread polls before it sleeps",                     \
		    .min = 0, .max = 1000000000, .word = "forever", .word_value = SRV_SPIN_FOREVER \
	}

#endif
