/* SPDX-License-Identifier: Apache-2.0
 *
 * The defaults of the server's threads.
 */
#include "cli/srvopt.h"

#include <sched.h>

const char *const srvopt_huge_words[] = {"auto", "off", "require", NULL};

struct srvopt srvopt_default(void)
{
	struct srv_options o = srv_options_default();

	return (struct srvopt){o.pollers, o.workers, SRVOPT_SPIN_AUTO, NULL, SRV_HUGE_AUTO};
}

void srvopt_settle(struct srvopt *so, int64_t others)
{
	cpu_set_t cores;

	if (so->spin_us != SRVOPT_SPIN_AUTO)
		return;
	so->spin_us = srv_options_default().spin_us;
	if (sched_getaffinity(0, sizeof(cores), &cores) == 0 &&
	    so->pollers + so->workers + others > CPU_COUNT(&cores))
		so->spin_us = 0;
}
