/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot bench-trainer`: one trainer of `gradslot bench step`. Writes one line: {"ns": [time of
 * each step, in order]}.
 */
#include "cli/cmd.h"
#include "cli/bench_job.h"
#include "cli/json.h"

#include "base/err.h"
#include "base/log.h"

#include <stdlib.h>

static int print_samples(const uint64_t *samples, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, json_integer((json_int_t)samples[i]));
	return json_line(json_pack("{s:o}", "ns", list));
}

int cmd_bench_trainer(int argc, char **argv)
{
	struct bench_run run = bench_run_default();
	const char *uri = "shm:gradslot";
	int64_t rank = 0, spin_us = 0;
	uint64_t *samples;
	size_t n;
	const struct opt opts[] = {
	    {"uri", OPT_TEXT, &uri, "URI", .help = "the server's"},
	    {"rank", OPT_NUMBER, &rank, "N", "of this trainer", .min = 0,
	     .max = SRV_MAX_TRAINERS - 1},
	    {"spin", OPT_NUMBER, &spin_us, "US|forever", "polls before it sleeps", .min = 0,
	     .max = 1000000000, .word = "forever", .word_value = SRV_SPIN_FOREVER},
	    {"milliseconds", OPT_NUMBER, &run.duration_ms, "MS", "go on for so long", .min = 0,
	     .max = 3600000},
	    BENCH_RUN_LINES(run),
	    {NULL},
	};
	const struct opt_command cmd = {"gradslot bench-trainer", "One trainer of a benchmark.",
					NULL, opts};

	int rc = opt_parse(&cmd, argc, argv);
	if (rc != OPT_RUN)
		return rc;
	struct step_config config = bench_step_config(&run);
	config.uri = uri;
	config.rank = (unsigned)rank;
	config.spin_us = (int32_t)spin_us;
	rc = step_run(&config, &samples, &n);
	if (rc == 0) {
		rc = print_samples(samples, n);
		free(samples);
	}
	if (rc < 0)
		log_error("trainer %u: %s", config.rank, err_text());
	return rc < 0 ? EXIT_FAILED : EXIT_OK;
}
