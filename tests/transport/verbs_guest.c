/* SPDX-License-Identifier: Apache-2.0
 *
 * The verbs backend on a real device: what the contract's tests, which are the same for every
 * backend, do not ask. Needs RDMA_ADDR (an address of the device) and RDMA_DEV, as the guest of
 * tests/softroce/run has them; skipped where there is no device.
 */
#include "run.h"
#include "verbs_device.h"

TCase *verbs_part(Suite *s, const char *name)
{
	TCase *t = tcase_create(name);

	tcase_set_timeout(t, 90);
	suite_add_tcase(s, t);
	return t;
}

static Suite *suite(void)
{
	Suite *s = suite_create("verbs on a device");

	verbs_memory(s);
	verbs_peers(s);
	verbs_flow(s);
	verbs_death(s);
	verbs_options(s);
	return s;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "--role"))
		return role_crowd(argv[3]);
	if (tp_available("rdma") < 0 || !*env("RDMA_ADDR")) {
		fprintf(stderr, "skipped: %s\n", *err_text() ? err_text() : "RDMA_ADDR is not set");
		return 77;
	}
	snprintf(listen_uri, sizeof(listen_uri), "rdma://%s:0", env("RDMA_ADDR"));
	test_uri = listen_uri;
	test_small = true;
	SRunner *runner = srunner_create(suite());
	return run_all(runner);
}
