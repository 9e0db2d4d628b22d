/* SPDX-License-Identifier: Apache-2.0
 *
 * The end-to-end suite: `e2e [URI]`, a URI to listen on (default shm:e2e-PID).
 */
#include <signal.h>
#include <unistd.h>

#include "base/log.h"
#include "cases.h"
#include "child.h"
#include "harness.h"
#include "run.h"

const char *e2e_uri;
bool e2e_small;

static TCase *(*const cases[])(void) = {
    sync_case,      membership_case, async_case,       ssp_case,    rates_case,
    stale_case,     init_case,       buffers_case,     big_case,    optimizers_case,
    formats_case,   reduce_case,     accumulate_case,  clip_case,   nonfinite_case,
    bad_data_case, bad_talk_case,   bad_address_case, deaths_case, server_end_case,
    rows_case,     rows_bad_case,   hashed_case,
    hostile_case,  extremes_case,   checkpoint_case, restore_case,    saving_case,   rejoin_case,
    policy_case,   takeover_case,   stragglers_case, ending_case,
    resume_case,     access_case,     strangers_case, rogue_case,
    zcopy_case,    straight_case,  packs_case,
    credits_case,  by_rails_case,
};

int main(int argc, char **argv)
{
	const char *scale = getenv("GRADSLOT_TEST_SCALE");
	char name[32];
	Suite *suite;
	SRunner *runner;

	e2e_small = scale && strcmp(scale, "small") == 0;
	/* What the server says of trainers that misbehave on purpose is no news. */
	log_set_level(getenv("E2E_LOG") ? LOG_DEBUG : LOG_ERROR);
	signal(SIGPIPE, SIG_IGN);
	snprintf(name, sizeof(name), "shm:e2e-%d", (int)getpid());
	e2e_uri = name;
	if (argc > 2 && strcmp(argv[1], "--role") == 0)
		return role_main(argv[2], argc - 3, argv + 3);
	if (argc > 1)
		e2e_uri = argv[1];

	suite = suite_create("e2e");
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		suite_add_tcase(suite, cases[i]());
	runner = srunner_create(suite);
	return run_all(runner);
}
