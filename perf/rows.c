/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a table: pulls of 1 to 10,000 of them, read and gathered in turn, and pushes, against one
 * server in this process. METHOD.md says what it is for.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/proc.h"
#include "gradslot/gradslot.h"
#include "perf/percentile.h"
#include "server/server.h"

enum { MOST = 10000, ROUNDS = 41 };

struct bench {
	struct srv *srv;
	gs_trainer *t;
	gs_param *p;
	uint64_t rows, dim;
	const char *optimizer;
	bool sync, near, zipf;
	int64_t id[MOST];
	float *values;
	uint64_t ns[3][ROUNDS]; /* read, gather, push */
};

static void check(int rc)
{
	if (rc == 0)
		return;
	log_error("%s", err_text());
	exit(1);
}

static void *serve(void *srv)
{
	check(srv_run(srv));
	return NULL;
}

static uint64_t draw(void)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x;
}

/* The k-th most frequent row comes 1/k times as often as the first (Zipf's law, by the integral of
 * 1/k). Neighbours in frequency are not neighbours in the table. */
static uint64_t draw_zipf(uint64_t rows)
{
	double u = (double)(draw() >> 11) * 0x1p-53;
	uint64_t k = (uint64_t)(exp(u * log((double)rows + 1)) - 1);

	return (k < rows ? k : rows - 1) * 2654435761u % rows;
}

/* Anywhere, by Zipf's law, or one behind the other. */
static void draw_ids(struct bench *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (b->near && i)
			b->id[i] = (b->id[i - 1] + 1) % (int64_t)b->rows;
		else
			b->id[i] = (int64_t)(b->zipf ? draw_zipf(b->rows) : draw() % b->rows);
	}
}

static void pull(struct bench *b, size_t n, enum gs_rows_way way, uint64_t *ns)
{
	uint64_t begin = clock_ns();

	check(gs_pull_rows(b->t, b->p, b->id, n, way, b->values));
	*ns = clock_ns() - begin;
}

/* Until it is applied. */
static void push(struct bench *b, size_t n, uint64_t *ns)
{
	uint64_t begin = clock_ns();

	check(gs_push_rows(b->t, b->p, b->id, b->values, n));
	check(b->sync ? gs_step_end(b->t) : gs_wait_applied(b->t, b->p));
	*ns = clock_ns() - begin;
}

static double median_us(uint64_t *ns)
{
	perf_sort(ns, ROUNDS);
	return (double)perf_percentile(ns, ROUNDS, 5000) / 1e3;
}

static void measure(struct bench *b, size_t n)
{
	double us[3];

	for (int i = -3; i < ROUNDS; i++) {
		int at = i < 0 ? 0 : i;

		draw_ids(b, n);
		pull(b, n, GS_ROWS_READ, &b->ns[0][at]);
		pull(b, n, GS_ROWS_GATHER, &b->ns[1][at]);
		memset(b->values, 0, n * b->dim * sizeof(float));
		push(b, n, &b->ns[2][at]);
	}
	for (int k = 0; k < 3; k++)
		us[k] = median_us(b->ns[k]);
	printf("%6zu %10.1f %10.1f %10.1f %8.2f %12.0f %12.0f %12.0f\n", n, us[0], us[1], us[2],
	       us[0] / us[1], (double)n / us[0] * 1e6, (double)n / us[1] * 1e6,
	       (double)n / us[2] * 1e6);
	fflush(stdout);
}

static void start(struct bench *b, const char *uri)
{
	struct srv_options opt = srv_options_default();
	struct gs_options to = GS_OPTIONS_INIT;
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	pthread_t thread;

	opt.listen[0] = uri;
	opt.n_listen = 1;
	opt.insecure = true;
	opt.on_loss = SRV_LOSS_CONTINUE;
	opt.mode = b->sync ? SRV_SYNC : SRV_ASYNC;
	opt.insecure = true;
	check(srv_create(&opt, &b->srv));
	to.uri = srv_uri(b->srv, 0);
	if (pthread_create(&thread, NULL, serve, b->srv))
		check(err_set(EAGAIN, "no thread for the server"));
	check(gs_connect(&to, &b->t));
	d.name = "table";
	d.ndim = 2;
	d.shape[0] = b->rows;
	d.shape[1] = b->dim;
	d.kind = GS_TABLE;
	d.optimizer = b->optimizer;
	gs_setting(&d, "lr", 0.1);
	check(gs_declare(b->t, &d, &b->p));
	check(gs_start(b->t));
}

int main(int argc, char **argv)
{
	static const size_t counts[] = {1, 4, 16, 32, 64, 128, 256, 1024, 4096, MOST};
	static struct bench b = {.rows = 1000000, .dim = 16, .optimizer = "sgd"};
	int c;

	while ((c = getopt(argc, argv, "r:d:o:snz")) != -1) {
		if (c == 'r' && strtoull(optarg, NULL, 10))
			b.rows = strtoull(optarg, NULL, 10);
		else if (c == 'd' && strtoull(optarg, NULL, 10))
			b.dim = strtoull(optarg, NULL, 10);
		else if (c == 'o')
			b.optimizer = optarg;
		else if (c == 'z')
			b.zipf = true;
		else if (c == 's')
			b.sync = true;
		else if (c == 'n')
			b.near = true;
		else
			goto usage;
	}
	if (optind + 1 != argc)
		goto usage;
	log_set_level(LOG_INFO); /* the server states its memory */
	b.values = calloc(MOST * b.dim, sizeof(float));
	if (!b.values)
		check(err_set(ENOMEM, "no memory for %d rows", MOST));
	start(&b, argv[optind]);
	printf("%s, %llu rows of %llu floats\n%6s %10s %10s %10s %8s %12s %12s %12s\n",
	       b.sync ? "sync" : "async", (unsigned long long)b.rows, (unsigned long long)b.dim,
	       "rows", "read us", "gather us", "push us", "r/g", "read/s", "gather/s", "push/s");
	for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		measure(&b, counts[i]);
	printf("held: %llu MiB\n",
	       (unsigned long long)proc_number("/proc/self/smaps_rollup", "Pss", 10, UINT64_MAX) /
		   1024);
	check(gs_leave(b.t));
	gs_close(b.t);
	exit(0); /* with the server */
usage:
	fprintf(stderr, "Usage: perf_rows [-r ROWS] [-d FLOATS] [-o OPTIMIZER] [-s] [-n] [-z] URI\n"
			"-s: sync mode; -n: rows that follow one another; -z: by Zipf's law\n");
	return 2;
}
