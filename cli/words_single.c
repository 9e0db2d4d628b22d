/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot words-single`: the words example in one process, without a server, as the result that
 * the distributed one is compared with.
 */
#include "cli/cmd.h"
#include "cli/words_job.h"

#include "base/err.h"
#include "base/log.h"
#include "demo/words_single.h"

int cmd_words_single(int argc, char **argv)
{
	struct words_run run = words_run_default();
	struct words_task task = {0};
	struct words_config config;
	struct words_result result;
	const struct opt opts[] = {WORDS_RUN_LINES(run), {NULL}};
	const struct opt_command cmd = {"gradslot words-single",
					"Trains in one process, for comparison.", NULL, opts};

	int rc = opt_parse(&cmd, argc, argv);
	if (rc != OPT_RUN)
		return rc;
	rc = words_run_config(&run, &config);
	if (rc == 0)
		rc = words_task_start(&task, &config, run.text);
	if (rc == 0)
		rc = words_single_train(&task, NULL, &result);
	if (rc == 0)
		rc = json_line(words_result(&task, &result.before, &result.after, result.checksum));
	if (rc < 0)
		log_error("one process: %s", err_text());
	words_task_end(&task);
	return rc < 0 ? EXIT_FAILED : EXIT_OK;
}
