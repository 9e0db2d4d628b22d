/* SPDX-License-Identifier: Apache-2.0
 *
 * Rates for schedule.py: each line of the input is LR CLOCK SCHEDULE, each of the output its rate.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/err.h"
#include "kernels/schedule.h"

int main(void)
{
	char text[SCHEDULE_TEXT + 1];
	struct schedule s;
	uint64_t clock;
	double lr;

	while (scanf("%lf %" SCNu64 " %255s", &lr, &clock, text) == 3) {
		if (schedule_parse(text, &s)) {
			fprintf(stderr, "schedule_dump: %s\n", err_text());
			return 1;
		}
		printf("%.17g\n", schedule_rate(&s, lr, clock));
	}
	return !feof(stdin);
}
