/* SPDX-License-Identifier: Apache-2.0
 *
 * The defaults of the server's threads.
 */
#include "cli/srvopt.h"

#include <stddef.h>

const char *const srvopt_huge_words[] = {"auto", "off", "require", NULL};

struct srvopt srvopt_default(void)
{
	struct srv_options o = srv_options_default();

	return (struct srvopt){o.pollers, o.workers, o.spin_us, NULL, SRV_HUGE_AUTO};
}
