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
	const char *cpus; /* NULL: anywhere */
	int huge_pages;   /* enum srv_huge */
};

/* Of enum srv_huge. */
extern const char *const srvopt_huge_words[];

struct srvopt srvopt_default(void);

/* Lines of an option table that fill the struct srvopt `so`. */
/* clang-format off */
#define SRVOPT_LINES(so) \
	{"pollers", OPT_NUMBER, &(so).pollers, "N", "server threads that take what arrives", \
	 .min = 1, .max = SRV_MAX_POLLERS}, \
	{"workers", OPT_NUMBER, &(so).workers, "N", \
	 "server threads that update weights; 0: the pollers do", \
	 .min = 0, .max = SRV_MAX_WORKERS}, \
	{"cpus", OPT_TEXT, &(so).cpus, "LIST", \
	 .help = "CPUs of these threads, in turn, and of the server's memory (0-3,8)"}, \
	{"huge-pages", OPT_CHOICE, &(so).huge_pages, "WHEN", \
	 "for the server's memory: where there are any, never, or nothing else", \
	 .choices = srvopt_huge_words}, \
	{"spin", OPT_NUMBER, &(so).spin_us, "US|forever", \
	 "microseconds that an idle thread polls before it sleeps, while that pays", \
	 .min = 0, .max = 1000000000, .word = "forever", .word_value = SRV_SPIN_FOREVER}
/* clang-format on */

#endif
