/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport contract, as each backend must pass it:
 *
 *   transport_contract [--skip-if-unavailable] [URI]
 *
 * URI is what to listen on: shm:NAME, or rdma://HOST:0 with an address of the device under test.
 * GRADSLOT_TEST_SCALE=small makes sizes and counts smaller, for emulated machines. The program runs
 * itself again, as `--role ROLE URI`, for peers that must be killed.
 */
#include "contract.h"
#include "harness.h"

#include <errno.h>
#include <unistd.h>
#include "run.h"

static Suite *contract(void)
{
	Suite *s = suite_create("transport contract");

	suite_add_tcase(s, connect_tests());
	suite_add_tcase(s, message_tests());
	suite_add_tcase(s, data_tests());
	suite_add_tcase(s, queue_tests());
	suite_add_tcase(s, death_tests());
	suite_add_tcase(s, wake_tests());
	return s;
}

static int usage(void)
{
	fprintf(stderr, "usage: transport_contract [--skip-if-unavailable] [URI]\n");
	return 2;
}

int main(int argc, char **argv)
{
	bool skip = false;
	static char own[64];
	int i = 1;

	test_small =
	    getenv("GRADSLOT_TEST_SCALE") && !strcmp(getenv("GRADSLOT_TEST_SCALE"), "small");
	if (argc == 4 && !strcmp(argv[1], "--role")) {
		test_uri = argv[3];
		return run_role(argv[2]);
	}
	if (i < argc && !strcmp(argv[i], "--skip-if-unavailable")) {
		skip = true;
		i++;
	}
	if (argc - i > 1)
		return usage();
	test_uri = i < argc ? argv[i] : "shm:contract";
	/* Two runs on one host must not meet. */
	if (test_is_shm()) {
		snprintf(own, sizeof(own), "%.40s-%d", test_uri, (int)getpid());
		test_uri = own;
	}

	char scheme[8] = "";

	sscanf(test_uri, "%7[a-z]", scheme);
	int rc = tp_available(scheme);

	if (rc < 0) {
		fprintf(stderr, "%s: %s\n", test_uri, err_text());
		return skip && rc != -EINVAL ? 77 : 1;
	}
	SRunner *runner = srunner_create(contract());
	return run_all(runner);
}
