/* SPDX-License-Identifier: Apache-2.0
 *
 * Those who connect and say nothing, and those who say too much.
 */
#include "cases.h"
#include "keys.h"
#include "server/strangers.h"

static void trains(const char *uri, const char *key)
{
	struct gs_options opt = trainer_options(uri, -1);
	float grad[RAW_A_ELEMS] = {1};
	gs_trainer *t;
	gs_param *a;

	opt.key_file = key;
	ok(gs_connect(&opt, &t));
	a = declare_line(t, "a", RAW_A_ELEMS, 1, 0);
	declare_line(t, "b", RAW_B_ELEMS, 1, 0);
	ok(gs_start(t));
	ok(gs_push(t, a, grad));
	ok(gs_wait_applied(t, a));
	leave(t);
}

static uint64_t half_open(struct bed *bed)
{
	return bed_stats(bed).half_open;
}

/* More connections than there may be of those who have not said who they are: the oldest go, and a
 * trainer comes in at any time. */
START_TEST(silent_ones_make_room)
{
	const char *key = key_file(key_right);
	struct srv_options opt = bed_options(1, SRV_ASYNC);
	static struct raw r[2 * STRANGERS_MAX];
	struct bed bed;

	opt.key_file = key;
	opt.block_kib = 1;
	opt.talk_ms = scaled(10000, 60000);
	bed_start(&bed, &opt);
	for (int i = 0; i < STRANGERS_MAX; i++)
		raw_connect(&r[i], bed.uri, 8);
	bed_wait_connected(&bed, STRANGERS_MAX);
	must(half_open(&bed) == 0, "one was ended too early");
	trains(bed.uri, key);
	must(half_open(&bed) == 1, "%llu ended", (unsigned long long)half_open(&bed));
	RAW_ENDS(&r[0], WIRE_E_FULL, "have not said who they are", "16", "oldest");
	bed_wait_connected(&bed, STRANGERS_MAX - 1);
	for (int i = STRANGERS_MAX; i < 2 * STRANGERS_MAX; i++)
		raw_connect(&r[i], bed.uri, 8);
	for (int i = 1; i < STRANGERS_MAX; i++)
		RAW_ENDS(&r[i], WIRE_E_FULL, "oldest");
	bed_wait_connected(&bed, STRANGERS_MAX);
	must(half_open(&bed) == STRANGERS_MAX, "%llu ended", (unsigned long long)half_open(&bed));
	trains(bed.uri, key);
	RAW_ENDS(&r[STRANGERS_MAX], WIRE_E_FULL, "oldest");
	for (int i = STRANGERS_MAX + 1; i < 2 * STRANGERS_MAX; i++)
		raw_close(&r[i]);
	must(bed_stats(&bed).violations == 0, "no violations");
	bed_wait_connected(&bed, 0);
	bed_stop(&bed);
	key_files_end();
}
END_TEST

struct one_of_many {
	const char *uri, *key;
	pthread_t thread;
};

static void *come_and_go(void *arg)
{
	struct one_of_many *one = arg;

	trains(one->uri, one->key);
	return NULL;
}

/* Many trainers at the same moment are no strangers, though for a moment none has said who it is. */
START_TEST(a_crowd_of_trainers)
{
	enum { MOST = 3 * STRANGERS_MAX };
	const char *key = key_file(key_right);
	const int n = (int)scaled(MOST, STRANGERS_MAX + 4);
	struct srv_options opt = bed_options((uint32_t)n, SRV_ASYNC);
	static struct one_of_many one[MOST];
	struct bed bed;

	opt.key_file = key;
	opt.talk_ms = scaled(10000, 60000);
	opt.block_kib = 1;
	bed_start(&bed, &opt);
	for (int i = 0; i < n; i++) {
		one[i] = (struct one_of_many){.uri = bed.uri, .key = key};
		pthread_create(&one[i].thread, NULL, come_and_go, &one[i]);
	}
	for (int i = 0; i < n; i++)
		pthread_join(one[i].thread, NULL);
	must(half_open(&bed) == 0, "%llu were ended", (unsigned long long)half_open(&bed));
	bed_wait_connected(&bed, 0);
	bed_stop(&bed);
	key_files_end();
}
END_TEST

/* Those who said hello and prove nothing are no better. */
START_TEST(silent_after_hello)
{
	const char *key = key_file(key_right);
	struct srv_options opt = bed_options(1, SRV_ASYNC);
	struct talker k[2];
	struct bed bed;
	struct raw r;

	opt.key_file = key;
	opt.block_kib = 1;
	opt.talk_ms = scaled(700, 3000);
	bed_start(&bed, &opt);
	raw_connect(&r, bed.uri, 8);
	RAW_ENDS(&r, WIRE_E_PROTOCOL, "silent", "connected");
	talker_challenged(&k[0], bed.uri, key);
	RAW_ENDS(&k[0].r, WIRE_E_PROTOCOL, "silent", "proving its key");
	talker_free(&k[0]);
	must(half_open(&bed) == 2, "%llu ended", (unsigned long long)half_open(&bed));
	/* Who is welcome may take its time, to load its data. */
	talker_challenged(&k[1], bed.uri, key);
	talker_prove(&k[1], AUTH_TRAINER);
	raw_expect(&k[1].r, WIRE_WELCOME);
	nap_us(1000 * (opt.talk_ms + 300));
	raw_poll(&k[1].r);
	must(!k[1].r.closed, "closed");
	raw_close(&k[1].r);
	talker_free(&k[1]);
	bed_wait_connected(&bed, 0);
	must(half_open(&bed) == 2, "%llu ended", (unsigned long long)half_open(&bed));
	trains(bed.uri, key);
	bed_wait_connected(&bed, 0);
	bed_stop(&bed);
	key_files_end();
}
END_TEST

/* ---- too many messages -------------------------------------------------------------------------- */

START_TEST(too_much_talk)
{
	struct wire_msg msg = {.kind = WIRE_DECLARE, .declare = {.n = 1, .param = {raw_lines[0]}}};
	struct srv_options opt = bed_options(1, SRV_ASYNC);
	struct bed bed;
	struct raw r;

	opt.block_kib = 1;
	opt.talk_rate = 1;
	opt.talk_burst = 100;
	bed_start(&bed, &opt);
	raw_connect(&r, bed.uri, 0);
	raw_hello(&r, 0);
	raw_expect(&r, WIRE_WELCOME);
	for (int i = 0; i < 200; i++)
		raw_send(&r, &msg);
	RAW_ENDS(&r, WIRE_E_PROTOCOL, "too fast", "100 at once", "1 a second");
	bed_wait_connected(&bed, 0);
	must(bed_stats(&bed).flooded == 1, "%llu floods",
	     (unsigned long long)bed_stats(&bed).flooded);
	trains(bed.uri, NULL);
	must(bed_stats(&bed).flooded == 1, "one too many");
	bed_wait_connected(&bed, 0);
	bed_stop(&bed);
}
END_TEST

/* A rate that was set and answered costs nothing: a trainer may set one for each parameter, each
 * step, as fast as the server answers. */
START_TEST(answered_talk_is_free)
{
	struct srv_options opt = bed_options(1, SRV_ASYNC);
	float grad[RAW_A_ELEMS] = {1};
	struct bed bed;
	gs_trainer *t;
	gs_param *a;

	opt.block_kib = 1;
	opt.talk_rate = 1;
	opt.talk_burst = 8;
	bed_start(&bed, &opt);
	t = connect_as(bed.uri, 0);
	a = declare_line(t, "a", RAW_A_ELEMS, 1, 0);
	ok(gs_start(t));
	for (uint32_t i = 0; i < scaled(200, 30); i++)
		ok(gs_set_lr(t, a, 0.5));
	ok(gs_push(t, a, grad));
	leave(t);
	must(bed_stats(&bed).flooded == 0, "flooded");
	bed_wait_connected(&bed, 0);
	bed_stop(&bed);
}
END_TEST

/* The default leaves room for the declarations of very many parameters at once. */
START_TEST(many_declarations_are_no_flood)
{
	enum { MESSAGES = 5000 };
	struct wire_msg msg = {.kind = WIRE_DECLARE, .declare = {.n = 2}};
	struct srv_options opt = bed_options(1, SRV_ASYNC);
	struct bed bed;
	struct raw r;

	bed_start(&bed, &opt);
	raw_connect(&r, bed.uri, 0);
	raw_hello(&r, 0);
	raw_expect(&r, WIRE_WELCOME);
	memcpy(msg.declare.param, raw_lines, sizeof(raw_lines));
	for (uint32_t i = 0; i < scaled(MESSAGES, 500); i++) {
		snprintf(msg.declare.param[0].name, sizeof(msg.declare.param[0].name), "a%u", i);
		snprintf(msg.declare.param[1].name, sizeof(msg.declare.param[1].name), "b%u", i);
		raw_send(&r, &msg);
	}
	raw_send(&r, &(struct wire_msg){.kind = WIRE_BYE});
	raw_expect(&r, WIRE_BYE);
	must(bed_stats(&bed).flooded == 0, "flooded");
	raw_close(&r);
	bed_wait_connected(&bed, 0);
	bed_stop(&bed);
}
END_TEST

TCase *strangers_case(void)
{
	TCase *t = e2e_case("strangers");

	tcase_add_test(t, silent_ones_make_room);
	tcase_add_test(t, a_crowd_of_trainers);
	tcase_add_test(t, silent_after_hello);
	tcase_add_test(t, too_much_talk);
	tcase_add_test(t, answered_talk_is_free);
	tcase_add_test(t, many_declarations_are_no_flood);
	return t;
}
