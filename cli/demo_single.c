/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot demo-single`: the demo's training in one process, without a server, as the result that
 * the distributed one is compared with. A process of its own because the matrix kernel is pinned
 * when a process starts (demo/pin.h).
 */
#include "cli/cmd.h"
#include "cli/demo_job.h"
#include "cli/json.h"

#include "base/err.h"
#include "base/log.h"
#include "demo/pin.h"
#include "demo/single.h"

#include <inttypes.h>
#include <stdio.h>

int cmd_demo_single(int argc, char **argv)
{
	struct demo_run run = demo_run_default();
	struct single_result result;
	char checksum[17];
	const struct opt opts[] = {DEMO_RUN_LINES(run), {NULL}};
	const struct opt_command cmd = {"gradslot demo-single",
					"Trains in one process, for comparison.", NULL, opts};

	int rc = opt_parse(&cmd, argc, argv);
	if (rc != OPT_RUN)
		return rc;
	struct digits_config config = demo_config(&run);
	rc = demo_check_pin();
	if (rc == 0)
		rc = single_train(&config, &result);
	if (rc == 0)
		rc = demo_check_loss(result.loss);
	if (rc == 0) {
		snprintf(checksum, sizeof(checksum), "%016" PRIx64, result.checksum);
		rc = json_line(json_pack("{s:b, s:i, s:f, s:f, s:i, s:s}", "result", 1, "steps",
					 (int)result.steps, "loss", result.loss, "accuracy",
					 result.accuracy, "hits", (int)result.hits, "checksum",
					 checksum));
	}
	if (rc < 0)
		log_error("one process: %s", err_text());
	return rc < 0 ? EXIT_FAILED : EXIT_OK;
}
