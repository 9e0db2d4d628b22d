/* SPDX-License-Identifier: Apache-2.0
 *
 * Trainers that are killed, at each point of a step, and one that is stopped: the others go on, the
 * dead one's memory comes back, and its rank can be taken again. All push ones with lr 1, so every
 * step that anybody made takes exactly 1 off the weights.
 */
#include <dirent.h>
#include <signal.h>

#include "cases.h"
#include "child.h"
#include "raw.h"

struct stepper {
	const char *uri;
	_Atomic bool end;
	_Atomic uint64_t made;
	float seen; /* at the end */
	uint64_t step;
	pthread_t thread;
};

static const float ones[RAW_A_ELEMS] = {[0 ... RAW_A_ELEMS - 1] = 1};

static gs_trainer *join_as(const char *uri, int32_t rank, gs_param **a, gs_param **b)
{
	gs_trainer *t = connect_as(uri, rank);

	*a = declare_line(t, "a", RAW_A_ELEMS, 1, 0);
	*b = declare_line(t, "b", RAW_B_ELEMS, 1, 0);
	ok(gs_start(t));
	return t;
}

static void *keep_stepping(void *arg)
{
	struct stepper *s = arg;
	float w[RAW_A_ELEMS];
	struct gs_info info;
	gs_param *a, *b;
	gs_trainer *t = join_as(s->uri, 0, &a, &b);

	while (!s->end) {
		ok(gs_push(t, a, ones));
		ok(gs_push(t, b, ones));
		ok(gs_step_end(t));
		s->made++;
		nap_us(100);
	}
	ok(gs_pull(t, a, GS_RELAXED, w));
	for (int i = 0; i < RAW_A_ELEMS; i++)
		must(w[i] == w[0], "element %d", i);
	s->seen = w[0];
	gs_get_info(t, &info);
	s->step = info.step - 1;
	leave(t);
	return NULL;
}

struct goal {
	struct bed *bed;
	struct stepper *stepper;
	uint64_t n;
};

static bool has_made(void *arg)
{
	struct goal *g = arg;

	return g->stepper->made >= g->n;
}

static bool has_memory(void *arg)
{
	struct goal *g = arg;

	return bed_stats(g->bed).memory == g->n;
}

static bool has_less(void *arg)
{
	struct goal *g = arg;

	return bed_stats(g->bed).memory < g->n;
}

static void wait_memory(struct bed *bed, uint64_t n)
{
	struct goal g = {bed, NULL, n};

	wait_until(has_memory, &g, "the dead one's memory to come back");
}

static void wait_less(struct bed *bed, uint64_t n)
{
	struct goal g = {bed, NULL, n};

	wait_until(has_less, &g, "the dead one's memory to come back");
}

static void steps_on(struct stepper *s, uint64_t more)
{
	struct goal g = {NULL, s, s->made + more};

	wait_until(has_made, &g, "the other trainer's steps");
}

/* Takes the dead one's rank and makes two steps. Returns the server's memory meanwhile. */
static uint64_t comes_back(struct bed *bed)
{
	gs_param *a, *b;
	gs_trainer *t = join_as(bed->uri, 1, &a, &b);
	uint64_t memory = bed_stats(bed).memory;

	for (int i = 0; i < 2; i++) {
		ok(gs_push(t, b, ones));
		ok(gs_step_end(t));
	}
	leave(t);
	return memory;
}

static const char *const stages[] = {"talk",   "begin",   "between", "pushed",
				     "posted", "waiting", "pulling", "running"};

START_TEST(killed_at_a_point_of_a_step)
{
	const char *stage = stages[_i % 8];
	struct srv_options opt = bed_options(2, SRV_SYNC);
	uint32_t rounds = _i == 7 ? scaled(8, 2) : 1;
	uint64_t alone, rng = 3;
	struct stepper s;
	struct child child;
	struct bed bed;

	opt.block_kib = 1;
	opt.workers = (uint32_t)_i % 3;
	bed_start(&bed, &opt);
	s = (struct stepper){.uri = bed.uri};
	pthread_create(&s.thread, NULL, keep_stepping, &s);
	/* Step 1 takes two; then it is alone. */
	alone = comes_back(&bed);
	bed_wait_connected(&bed, 1);
	wait_less(&bed, alone);
	alone = bed_stats(&bed).memory;
	for (uint32_t i = 0; i < rounds; i++) {
		child_start(&child, "trainer", bed.uri, "1", stage, NULL);
		child_says(&child, stage);
		if (_i >= 5)
			nap_us(rnd(&rng, 3000)); /* anywhere in what it does */
		child_kill(&child);
		bed_wait_connected(&bed, 1);
		steps_on(&s, 3);
		wait_memory(&bed, alone);
		comes_back(&bed);
	}
	s.end = true;
	pthread_join(s.thread, NULL);
	bed_wait_connected(&bed, 0);
	must(bed_stats(&bed).step == s.step, "step %llu, the trainer's is %llu",
	     (unsigned long long)bed_stats(&bed).step, (unsigned long long)s.step);
	must(s.seen == -(float)s.step, "%g after %llu steps", (double)s.seen,
	     (unsigned long long)s.step);
	must(bed_stats(&bed).violations == 0, "a death is no violation");
	bed_stop(&bed);
}
END_TEST

START_TEST(killed_giving_initial_weights)
{
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	float data[RAW_A_ELEMS], w[RAW_A_ELEMS];
	struct child child;
	struct bed bed;
	gs_trainer *t;
	gs_param *p;

	opt.block_kib = 1;
	bed_start(&bed, &opt);
	child_start(&child, "giver", bed.uri, "0", _i ? "3" : "0", NULL);
	child_says(&child, "asked");
	for (int i = 0; i < RAW_A_ELEMS; i++)
		data[i] = (float)i;
	t = connect_as(bed.uri, 1);
	d.name = "a";
	d.ndim = 1;
	d.shape[0] = RAW_A_ELEMS;
	d.init = GS_INIT_DATA;
	d.init_data = data;
	gs_setting(&d, "lr", 1);
	ok(gs_declare(t, &d, &p));
	child_kill(&child);
	ok(gs_start(t));
	ok(gs_pull(t, p, GS_ORDERED, w));
	must(memcmp(w, data, sizeof(w)) == 0, "its own data");
	leave(t);
	bed_stop(&bed);
}
END_TEST

/* ---- many times
 * ----------------------------------------------------------------------------------- */

static uint32_t count_entries(const char *folder)
{
	DIR *d = opendir(folder);
	uint32_t n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static uint32_t count_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	uint32_t n = 0;

	for (int c; (c = fgetc(f)) != EOF;)
		n += c == '\n';
	fclose(f);
	return n;
}

START_TEST(many_deaths_leave_nothing)
{
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	uint32_t cycles = scaled(30, 4), fds = 0, maps = 0, threads = 0;
	uint64_t memory = 0, rng = 9;
	struct child child;
	struct bed bed;

	opt.block_kib = 1;
	bed_start(&bed, &opt);
	for (uint32_t i = 0; i < cycles; i++) {
		child_start(&child, "pusher", bed.uri, i % 2 ? "-1" : "1", "0", NULL);
		child_says(&child, "pushing");
		nap_us(rnd(&rng, 2000));
		if (i == 0)
			memory = bed_stats(&bed).memory;
		child_kill(&child);
		bed_wait_connected(&bed, 0);
		if (i == 0) {
			wait_less(&bed, memory);
			memory = bed_stats(&bed).memory;
		}
		if (i == cycles / 3) {
			wait_memory(&bed, memory);
			fds = count_entries("/proc/self/fd");
			maps = count_maps();
			threads = count_entries("/proc/self/task");
		}
	}
	wait_memory(&bed, memory);
	must(count_entries("/proc/self/fd") == fds, "%u descriptors, there were %u",
	     count_entries("/proc/self/fd"), fds);
	must(count_entries("/proc/self/task") == threads, "threads");
	/* The allocator may have taken a little more. */
	must(count_maps() <= maps + 4, "%u mappings, there were %u", count_maps(), maps);
	bed_stop(&bed);
}
END_TEST

/* ---- stopped
 * ------------------------------------------------------------------------------------- */

static void push_alone(struct bed *bed, uint32_t n)
{
	float w[RAW_A_ELEMS];
	gs_param *a, *b;
	gs_trainer *t = join_as(bed->uri, 0, &a, &b);
	uint64_t begin, end;

	ok(gs_block_version(t, a, 0, &begin));
	for (uint32_t i = 0; i < n; i++) {
		ok(gs_push(t, a, ones));
		ok(gs_push(t, b, ones));
		ok(gs_wait_applied(t, a));
		ok(gs_pull(t, a, GS_ORDERED, w));
	}
	ok(gs_block_version(t, a, 0, &end));
	must(end - begin >= n, "updates");
	leave(t);
}

/* Its queues are full, and it hears nothing: nobody else waits for that. */
START_TEST(stopped_with_full_queues)
{
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	struct child child;
	struct bed bed;
	uint64_t memory;

	opt.block_kib = 1;
	opt.workers = (uint32_t)_i;
	bed_start(&bed, &opt);
	child_start(&child, "deaf", bed.uri, "1", NULL);
	child_says(&child, "deaf");
	child_signal(&child, SIGSTOP);
	memory = bed_stats(&bed).memory;
	push_alone(&bed, scaled(300, 20));
	child_kill(&child);
	bed_wait_connected(&bed, 0);
	must(bed_stats(&bed).violations == 0, "a violation");
	wait_less(&bed, memory);
	push_alone(&bed, 5);
	bed_stop(&bed);
}
END_TEST

START_TEST(stopped_and_continued)
{
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	uint32_t pushes = scaled(2000, 60), others = scaled(200, 10);
	struct child child;
	struct bed bed;
	char n[16];
	float w[RAW_A_ELEMS];
	gs_param *a, *b;
	gs_trainer *t;

	opt.block_kib = 1;
	bed_start(&bed, &opt);
	snprintf(n, sizeof(n), "%u", pushes);
	child_start(&child, "pusher", bed.uri, "1", n, NULL);
	child_says(&child, "pushing");
	child_signal(&child, SIGSTOP);
	push_alone(&bed, others);
	child_signal(&child, SIGCONT);
	int status = child_end(&child);
	must(status == 0, "it ended with %d", status);
	t = join_as(bed.uri, 0, &a, &b);
	ok(gs_pull(t, a, GS_RELAXED, w));
	must(w[7] == -(float)(pushes + others), "%g", (double)w[7]);
	leave(t);
	bed_stop(&bed);
}
END_TEST

/* The child holds the connection's descriptors, and says nothing. (Over a network that is what a
 * machine looks like that has gone silent.) */
START_TEST(killed_while_its_child_lives)
{
	struct srv_options opt = bed_options(1, SRV_SYNC);
	struct child child;
	struct bed bed;
	gs_param *a, *b;

	if (!over_shm())
		return;
	bed_start(&bed, &opt);
	child_start(&child, "forker", bed.uri, "0", NULL);
	child_says(&child, "forked");
	child_kill(&child);
	bed_wait_connected(&bed, 0);
	leave(join_as(bed.uri, 0, &a, &b));
	bed_stop(&bed);
}
END_TEST

START_TEST(child_that_uses_its_parents_trainer)
{
	struct srv_options opt = bed_options(1, SRV_ASYNC);
	struct child child;
	struct bed bed;

	bed_start(&bed, &opt);
	child_start(&child, "misuser", bed.uri, "0", NULL);
	int status = child_end(&child);
	must(status == 0, "it ended with %d", status);
	must(bed_stats(&bed).violations == 0, "a violation");
	bed_stop(&bed);
}
END_TEST

TCase *deaths_case(void)
{
	TCase *t = e2e_wire_case("deaths");

	tcase_add_loop_test(t, killed_at_a_point_of_a_step, 0, 8);
	tcase_add_loop_test(t, killed_giving_initial_weights, 0, 2);
	tcase_add_test(t, many_deaths_leave_nothing);
	tcase_add_loop_test(t, stopped_with_full_queues, 0, 2);
	tcase_add_test(t, stopped_and_continued);
	tcase_add_test(t, killed_while_its_child_lives);
	tcase_add_test(t, child_that_uses_its_parents_trainer);
	return t;
}
