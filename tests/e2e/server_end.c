/* SPDX-License-Identifier: Apache-2.0
 *
 * The server's end: killed in each phase of a trainer's life, and stopped in order. Whatever a
 * trainer is waiting for, it learns of it soon.
 */
#include <signal.h>

#include "cases.h"
#include "child.h"
#include "raw.h"

enum phase {
	PHASE_CONNECTED, /* before gs_start */
	PHASE_GATHERING, /* in gs_start, for another trainer */
	PHASE_STEPPING,
	PHASE_RELEASE, /* in gs_step_wait, for another trainer */
	PHASE_PULLING,
	PHASE_IDLE, /* computing: the next call tells */
	PHASES,
};

struct victim {
	const char *uri;
	enum phase phase;
	int32_t rank;
	_Atomic bool at_it, over;
	int rc; /* of the call that failed */
	uint64_t failed_at;
	char text[256];
	pthread_t thread;
};

static int run_phase(struct victim *v, gs_trainer *t, gs_param *p)
{
	float w[RAW_A_ELEMS] = {0};
	int rc = 0;

	if (v->phase == PHASE_CONNECTED) {
		v->at_it = true;
		while (!v->over)
			nap_us(300);
		return gs_start(t);
	}
	v->at_it = v->phase == PHASE_GATHERING;
	rc = gs_start(t);
	if (rc)
		return rc;
	if (v->phase == PHASE_RELEASE && v->rank == 1) {
		/* The one that does not pass. */
		while (!v->over)
			nap_us(300);
		return gs_step_end(t);
	}
	v->at_it = true;
	while (v->phase == PHASE_IDLE && !v->over)
		nap_us(300);
	while (!rc) {
		if (v->phase == PHASE_PULLING)
			rc = gs_pull(t, p, GS_ORDERED, w);
		else
			rc = gs_push(t, p, w);
		if (!rc && v->phase != PHASE_PULLING)
			rc = gs_step_end(t);
	}
	return rc;
}

static void *be_a_victim(void *arg)
{
	struct victim *v = arg;
	gs_trainer *t = connect_as(v->uri, v->rank);
	gs_param *p = declare_line(t, "a", RAW_A_ELEMS, 1, 0);
	uint64_t begin;

	v->rc = run_phase(v, t, p);
	v->failed_at = clock_ns();
	snprintf(v->text, sizeof(v->text), "%s", err_text());
	/* It stays so, whatever is called; and nothing blocks. */
	begin = clock_ns();
	must(gs_step_end(t) == v->rc && gs_pull(t, p, GS_ORDERED, &(float){0}) == v->rc &&
		 gs_leave(t) == v->rc,
	     "another error than %d", v->rc);
	gs_close(t);
	must(clock_ns() - begin < scaled(3, 12) * NS_PER_S, "closing took too long");
	return NULL;
}

static bool is_at_it(void *v)
{
	return ((struct victim *)v)->at_it;
}

static void start_victims(struct victim *v, const char *uri, enum phase phase)
{
	uint32_t n = phase == PHASE_GATHERING || phase == PHASE_CONNECTED ? 1 : 2;

	for (uint32_t i = 0; i < 2; i++) {
		v[i] = (struct victim){.uri = uri, .phase = phase, .rank = (int32_t)i};
		v[i].over = i >= n; /* there is none */
		if (i < n)
			pthread_create(&v[i].thread, NULL, be_a_victim, &v[i]);
	}
	wait_until(is_at_it, &v[0], "the trainer to be at it");
	nap_us(scaled(30000, 200000)); /* into the call that blocks */
}

/* They all got it, in time. */
static void end_victims(struct victim *v, uint64_t since, const int *errors)
{
	bool two = !v[1].over;

	v[0].over = v[1].over = true;
	for (int i = 0; i < (two ? 2 : 1); i++) {
		bool known = false;

		pthread_join(v[i].thread, NULL);
		for (int k = 0; errors[k]; k++)
			known |= v[i].rc == -errors[k];
		must(known, "trainer %d: %d: %s", i, v[i].rc, v[i].text);
		must(v[i].text[0], "no text");
		must(v[i].failed_at - since < scaled(4, 20) * NS_PER_S,
		     "trainer %d learned of it after %llu ms", i,
		     (unsigned long long)((v[i].failed_at - since) / NS_PER_MS));
	}
}

START_TEST(killed)
{
	static const int gone[] = {ECONNRESET, ENOTCONN, 0};
	struct victim v[2];
	struct child child;
	uint64_t when;
	char uri[256];

	if (left_out(_i, 2))
		return;
	child_start(&child, "serve", e2e_uri, "1", "2", NULL);
	snprintf(uri, sizeof(uri), "%s", child_says(&child, "uri"));
	start_victims(v, uri, (enum phase)_i);
	when = clock_ns();
	child_kill(&child);
	end_victims(v, when, gone);
}
END_TEST

START_TEST(stopped_in_order)
{
	static const int shutdown[] = {ESHUTDOWN, 0};
	struct srv_options opt = bed_options(2, SRV_SYNC);
	struct victim v[2];
	struct bed bed;
	uint64_t when;
	char uri[256];

	if (left_out(_i, 2))
		return;
	opt.workers = (uint32_t)_i % 2;
	bed_start(&bed, &opt);
	snprintf(uri, sizeof(uri), "%s", bed.uri);
	start_victims(v, uri, (enum phase)_i);
	when = clock_ns();
	bed_stop(&bed);
	end_victims(v, when, shutdown);
}
END_TEST

/* A server that hangs does not hang who knocks. */
START_TEST(a_server_that_hangs)
{
	struct gs_options o;
	struct child child;
	gs_trainer *t = NULL;
	uint64_t begin;
	char uri[256];

	child_start(&child, "serve", e2e_uri, "2", "2", NULL);
	snprintf(uri, sizeof(uri), "%s", child_says(&child, "uri"));
	child_signal(&child, SIGSTOP);
	o = trainer_options(uri, 0);
	o.timeout_ms = scaled(300, 1000);
	begin = clock_ns();
	fails(gs_connect(&o, &t), ETIMEDOUT, "");
	must(clock_ns() - begin < scaled(3, 15) * NS_PER_S, "it took too long");
	child_kill(&child);
}
END_TEST

START_TEST(stopped_before_and_after)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	struct bed bed;
	struct srv *srv;

	/* Stopped before it runs; destroyed without having run. */
	ok(srv_create(&opt, &srv));
	srv_stop(srv);
	srv_stop(srv);
	must(srv_run(srv) == 0, "srv_run");
	srv_destroy(srv);
	ok(srv_create(&opt, &srv));
	srv_destroy(srv);
	bed_start(&bed, &opt);
	bed_stop(&bed);
}
END_TEST

TCase *server_end_case(void)
{
	TCase *t = e2e_wire_case("server_end");

	tcase_add_loop_test(t, killed, 0, PHASES);
	tcase_add_loop_test(t, stopped_in_order, 0, PHASES);
	tcase_add_test(t, a_server_that_hangs);
	tcase_add_test(t, stopped_before_and_after);
	return t;
}
