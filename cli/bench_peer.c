/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot bench-peer`: one trainer of a benchmark of cli/bench_frame.h. Writes one line, which
 * bench_frame.c reads: its times, series by series, and what they cost.
 */
#include "cli/bench_frame.h"
#include "cli/cmd.h"
#include "cli/json.h"

#include "base/err.h"
#include "base/log.h"
#include "perf/loops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct peer_loop *const loops[] = {
    &perf_latency, &perf_push, &perf_pull, &perf_connect, &perf_scale, &perf_scale_one, &perf_rows};

static const struct peer_loop *find_loop(const char *name)
{
	for (size_t i = 0; i < sizeof(loops) / sizeof(loops[0]); i++) {
		if (!strcmp(loops[i]->name, name))
			return loops[i];
	}
	return NULL;
}

static json_t *samples_json(const struct peer_loop *loop, const struct peer_result *r)
{
	json_t *all = json_array();

	for (unsigned k = 0; loop->series[k]; k++) {
		json_t *list = json_array();

		for (size_t i = 0; i < r->n; i++)
			json_array_append_new(list, json_integer((json_int_t)r->ns[k][i]));
		json_array_append_new(all, list);
	}
	return all;
}

static int print_result(const struct peer_loop *loop, const struct peer_config *c,
			const struct peer_result *r)
{
	const struct meter_reading *m = &r->meter;
	json_t *line = json_pack(
	    "{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "ns", samples_json(loop, r),
	    "ops", (json_int_t)(r->n * loop->messages(c)), "wall_ns", (json_int_t)m->wall_ns,
	    "cpu_ns", (json_int_t)m->cpu_ns, "before", (json_int_t)r->before, "after",
	    (json_int_t)r->after, "pushed", (json_int_t)r->pushed, "blocks", (json_int_t)r->blocks,
	    "slots", (json_int_t)r->slots, "trainers", (json_int_t)r->trainers, "transport",
	    r->transport);

	if (c->server)
		json_object_set_new(line, "server_cpu_ns",
				    json_integer((json_int_t)m->server_cpu_ns));
	if (m->counted) {
		json_object_set_new(line, "instructions",
				    json_integer((json_int_t)m->instructions));
		json_object_set_new(line, "server_instructions",
				    json_integer((json_int_t)m->server_instructions));
	}
	return json_line(line);
}

static int run(const char *name, const struct peer_config *c)
{
	const struct peer_loop *loop = find_loop(name);
	struct peer_result result;

	if (!loop)
		return err_set(EINVAL, "there is no benchmark '%s'", name);
	int rc = peer_run(loop, c, &result);
	if (rc < 0)
		return rc;
	rc = print_result(loop, c, &result);
	peer_free(&result);
	return rc;
}

int cmd_bench_peer(int argc, char **argv)
{
	const char *name = "latency", *uri = "shm:gradslot", *optimizer = "sgd";
	int64_t pid = 0, spin_us = 0, bytes = 4096, params = 1, iters = 1, ms = 0, table = 1,
		warmup = PEER_WARMUP_MIN;
	bool copy = false, many = false, one = false, near = false, zipf = false;
	int mode = 0, read = 0;
	const struct opt opts[] = {
	    {"benchmark", OPT_TEXT, &name, "NAME", .help = "which"},
	    {"uri", OPT_TEXT, &uri, "URI", .help = "the server's"},
	    {"server-pid", OPT_NUMBER, &pid, "PID", "its process; 0: on another machine", .min = 0,
	     .max = INT32_MAX},
	    {"spin", OPT_NUMBER, &spin_us, "US|forever", "polls before it sleeps", .min = 0,
	     .max = 1000000000, .word = "forever", .word_value = SRV_SPIN_FOREVER},
	    {"mode", OPT_CHOICE, &mode, "MODE", "the server's", .choices = bench_modes},
	    {"read", OPT_CHOICE, &read, "HOW", "the weights", .choices = bench_reads},
	    {"size", OPT_SIZE, &bytes, "BYTES", "of a parameter", .min = 4, .max = 1 << 30,
	     .multiple = 4},
	    {"params", OPT_NUMBER, &params, "N", "parameters", .min = 1, .max = PEER_PARAMS_MAX},
	    {"iters", OPT_NUMBER, &iters, "N", "at least", .min = 1, .max = PEER_ITERS_MAX},
	    {"milliseconds", OPT_NUMBER, &ms, "MS", "go on for so long", .min = 0, .max = 3600000},
	    {"warmup", OPT_NUMBER, &warmup, "N", "before that", .min = PEER_WARMUP_MIN,
	     .max = PEER_ITERS_MAX},
	    {"copy", OPT_FLAG, &copy, NULL, .help = "from ordinary memory"},
	    {"many", OPT_FLAG, &many, NULL, .help = "in one call"},
	    {"one", OPT_FLAG, &one, NULL, .help = "one as large as all, too"},
	    {"table", OPT_NUMBER, &table, "ROWS", "that there are", .min = 1, .max = INT32_MAX},
	    {"optimizer", OPT_TEXT, &optimizer, "NAME", .help = "of the table"},
	    {"near", OPT_FLAG, &near, NULL, .help = "rows one behind the other"},
	    {"zipf", OPT_FLAG, &zipf, NULL, .help = "rows by Zipf's law"},
	    {NULL},
	};
	const struct opt_command cmd = {"gradslot bench-peer", "One trainer of a benchmark.", NULL,
					opts};

	int rc = opt_parse(&cmd, argc, argv);
	if (rc != OPT_RUN)
		return rc;
	const struct peer_config config = {
	    .uri = uri,
	    .spin_us = (int32_t)spin_us,
	    .server = (pid_t)pid,
	    .bytes = (uint64_t)bytes,
	    .params = (uint32_t)params,
	    .copy = copy,
	    .many = many,
	    .one = one,
	    .sync = mode == 1,
	    .read = (enum peer_read)read,
	    .table = (uint64_t)table,
	    .optimizer = optimizer,
	    .near = near,
	    .zipf = zipf,
	    .warmup = (uint32_t)warmup,
	    .iters = (uint32_t)iters,
	    .duration_ms = (uint32_t)ms,
	};
	rc = run(name, &config);
	if (rc < 0)
		log_error("%s", err_text());
	return rc < 0 ? EXIT_FAILED : EXIT_OK;
}
