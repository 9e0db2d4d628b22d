/* SPDX-License-Identifier: Apache-2.0
 *
 * Control messages that are wrong, late or missing, and declarations that can't be had: each is
 * answered with a code and a text, and the server goes on serving.
 */
#include "cases.h"
#include "raw.h"

static void open_bed(struct bed *bed, uint32_t talk_ms)
{
	struct srv_options opt = bed_options(2, SRV_ASYNC);

	opt.block_kib = 1;
	if (talk_ms)
		opt.talk_ms = talk_ms;
	bed_start(bed, &opt);
}

/* A well-behaved trainer finds all as it should be. */
static void still_serves(struct bed *bed)
{
	float grad[RAW_A_ELEMS] = {1}, w[RAW_A_ELEMS];
	gs_trainer *t = connect_as(bed->uri, -1);
	gs_param *a = declare_line(t, "a", RAW_A_ELEMS, 1, 0);

	declare_line(t, "b", RAW_B_ELEMS, 1, 0);
	ok(gs_start(t));
	ok(gs_push(t, a, grad));
	ok(gs_pull(t, a, GS_ORDERED, w));
	must(w[0] == -1 && w[1] == 0, "weights");
	leave(t);
}

static void close_bed(struct bed *bed, uint64_t violations)
{
	bed_wait_connected(bed, 0);
	must(bed_stats(bed).violations == violations, "%llu violations",
	     (unsigned long long)bed_stats(bed).violations);
	still_serves(bed);
	bed_wait_connected(bed, 0);
	bed_stop(bed);
}

/* ---- messages
 * ------------------------------------------------------------------------------------ */

START_TEST(another_version)
{
	struct wire_msg hello = {.kind = WIRE_HELLO, .hello = {.version = 99, .rank = 0}};
	struct bed bed;
	struct raw r;

	open_bed(&bed, 0);
	raw_connect(&r, bed.uri, 0);
	raw_send(&r, &hello);
	RAW_ENDS(&r, WIRE_E_VERSION, "version 99", "server 3");
	close_bed(&bed, 0);
}
END_TEST

START_TEST(cut_short_or_garbage)
{
	struct wire_msg hello = {.kind = WIRE_HELLO,
				 .hello = {.version = WIRE_VERSION, .rank = 0, .name = "cut"}};
	uint8_t buf[WIRE_MSG_MAX];
	struct bed bed;
	struct raw r;
	uint64_t rng = 17;
	int len = wire_encode(&hello, buf, sizeof(buf));

	open_bed(&bed, 0);
	raw_connect(&r, bed.uri, 0);
	raw_send_bytes(&r, buf, (size_t)len - 2);
	RAW_ENDS(&r, WIRE_E_PROTOCOL, "control message");
	raw_connect(&r, bed.uri, 0);
	raw_send_bytes(&r, "\xa2\x06\x00", 3); /* only a field that nobody knows */
	RAW_ENDS(&r, WIRE_E_PROTOCOL, "control message");
	for (uint32_t i = 0; i < scaled(20, 4); i++) {
		for (unsigned k = 0; k < sizeof(buf); k++)
			buf[k] = (uint8_t)rnd(&rng, 256);
		raw_connect(&r, bed.uri, 0);
		raw_send_bytes(&r, buf, i == 0 ? sizeof(buf) : 1 + rnd(&rng, sizeof(buf)));
		RAW_ENDS(&r, WIRE_E_PROTOCOL, "control message");
	}
	close_bed(&bed, 2 + scaled(20, 4));
}
END_TEST

/* A message that does not belong where it comes. */
static void out_of_turn(struct bed *bed, unsigned stage, enum wire_kind kind, const char *state)
{
	struct wire_msg msg = {.kind = kind};
	struct raw r;

	if (kind == WIRE_HELLO)
		msg.hello = (struct wire_hello){.version = WIRE_VERSION, .rank = -1};
	if (kind == WIRE_DECLARE)
		msg.declare = (struct wire_declare){.last = true, .n = 1, .param = {raw_lines[0]}};
	if (kind == WIRE_ATTACH)
		msg.attach.mailbox = (struct wire_ref){1, 1 << 20, 1, .more = 0};
	if (stage < 3) {
		raw_connect(&r, bed->uri, 0);
		if (stage >= 1) {
			raw_hello(&r, -1);
			raw_expect(&r, WIRE_WELCOME);
		}
		if (stage >= 2) {
			raw_declare(&r, raw_lines, 2);
			raw_take_grant(&r);
		}
	} else {
		raw_join(&r, bed->uri, -1);
		raw_wait_start(&r);
	}
	raw_send(&r, &msg);
	RAW_ENDS(&r, WIRE_E_PROTOCOL, wire_kind_name(kind), state);
	bed_wait_connected(bed, 0);
}

START_TEST(in_the_wrong_state)
{
	static const struct {
		unsigned stage;
		const char *state;
		enum wire_kind kinds[6];
	} turns[] = {
	    {0, "connected", {WIRE_DECLARE, WIRE_ATTACH, WIRE_INIT_DONE, WIRE_BYE}},
	    {1, "declaring", {WIRE_HELLO, WIRE_ATTACH, WIRE_INIT_DONE}},
	    {2, "attaching", {WIRE_HELLO, WIRE_DECLARE, WIRE_INIT_DONE}},
	    {3, "training", {WIRE_HELLO, WIRE_DECLARE, WIRE_ATTACH, WIRE_INIT_DONE}},
	};
	uint64_t n = 0;
	struct bed bed;

	open_bed(&bed, 0);
	for (unsigned i = 0; i < 4; i++)
		for (unsigned k = 0; turns[i].kinds[k]; k++, n++)
			out_of_turn(&bed, turns[i].stage, turns[i].kinds[k], turns[i].state);
	close_bed(&bed, n);
}
END_TEST

START_TEST(a_kind_that_only_servers_send)
{
	struct wire_msg start = {.kind = WIRE_START, .start = {.step = 5}};
	struct bed bed;
	struct raw r;

	open_bed(&bed, 0);
	raw_join(&r, bed.uri, 0);
	raw_wait_start(&r);
	raw_send(&r, &start);
	RAW_ENDS(&r, WIRE_E_PROTOCOL, wire_kind_name(WIRE_START), "training");
	close_bed(&bed, 1);
}
END_TEST

START_TEST(mailbox_too_small)
{
	struct bed bed;
	struct raw r;

	open_bed(&bed, 0);
	raw_connect(&r, bed.uri, 0);
	raw_hello(&r, 0);
	raw_expect(&r, WIRE_WELCOME);
	raw_declare(&r, raw_lines, 2);
	raw_take_grant(&r);
	raw_attach(&r, 4096);
	RAW_ENDS(&r, WIRE_E_PROTOCOL, "mailbox", "4096 bytes", "are needed");
	close_bed(&bed, 1);
}
END_TEST

START_TEST(silence)
{
	static const char *const states[] = {"connected", "declaring", "attaching"};
	struct wire_msg half = {.kind = WIRE_DECLARE, .declare = {.n = 1}};
	uint32_t ms = scaled(150, 3000);
	gs_trainer *t;
	gs_param *a;
	float w[RAW_A_ELEMS];
	struct bed bed;
	struct raw r;

	half.declare.param[0] = raw_lines[0];
	open_bed(&bed, ms);
	/* Who trains may be as silent as it likes. */
	t = connect_as(bed.uri, 0);
	a = declare_line(t, "a", RAW_A_ELEMS, 1, 0);
	declare_line(t, "b", RAW_B_ELEMS, 1, 0);
	ok(gs_start(t));
	for (int stage = 0; stage < 3; stage++) {
		raw_connect(&r, bed.uri, 0);
		if (stage >= 1) {
			raw_hello(&r, -1);
			raw_expect(&r, WIRE_WELCOME);
		}
		if (stage == 1)
			raw_send(&r, &half);
		if (stage == 2) {
			raw_declare(&r, raw_lines, 2);
			raw_take_grant(&r);
		}
		RAW_ENDS(&r, WIRE_E_PROTOCOL, "silent", states[stage]);
		bed_wait_connected(&bed, 1);
	}
	ok(gs_pull(t, a, GS_ORDERED, w));
	leave(t);
	close_bed(&bed, 3);
}
END_TEST

/* One that says bye and does not hang up is hung up on, and that is no breach. */
START_TEST(silence_behind_a_bye)
{
	struct wire_msg bye = {.kind = WIRE_BYE};
	struct bed bed;
	struct raw r;

	open_bed(&bed, scaled(700, 3000)); /* a busy machine has to get as far as the bye */
	raw_join(&r, bed.uri, 0);
	raw_wait_start(&r);
	raw_send(&r, &bye);
	raw_expect(&r, WIRE_BYE);
	raw_wait_end(&r);
	raw_free(&r);
	close_bed(&bed, 0);
}
END_TEST

/* ---- declarations
 * -------------------------------------------------------------------------------- */

struct difference {
	const char *name, *optimizer;
	uint64_t elems;
	double lr, init;
	const char *words[5];
};

START_TEST(declarations_that_differ)
{
	static const struct difference d[] = {
	    {"x", "sgd", RAW_A_ELEMS, 1, 0, {"\"x\"", "\"a\"", "at the server"}},
	    {"a", "sgd", 700, 1, 0, {"\"a\"", "[700] here", "[775] at the server"}},
	    {"a", "nesterov", RAW_A_ELEMS, 1, 0, {"nesterov(lr=1) here", "sgd(lr=1) at"}},
	    {"a", "sgd", RAW_A_ELEMS, 0.5, 0, {"lr=0.5", "lr=1)"}},
	    {"a", "sgd", RAW_A_ELEMS, 1, 3, {"constant(3", "constant(0"}},
	    {"a", "sgd", RAW_A_ELEMS, 1, 0, {"1 parameters", "2 at the server"}},
	};
	struct bed bed;

	open_bed(&bed, 0);
	still_serves(&bed);
	for (unsigned i = 0; i < sizeof(d) / sizeof(d[0]); i++) {
		gs_trainer *t = connect_as(bed.uri, 1);
		struct gs_param_desc desc = GS_PARAM_DESC_INIT;
		gs_param *p;

		desc.name = d[i].name;
		desc.ndim = 1;
		desc.shape[0] = d[i].elems;
		desc.optimizer = d[i].optimizer;
		desc.init_a = d[i].init;
		gs_setting(&desc, "lr", d[i].lr);
		ok(gs_declare(t, &desc, &p));
		fails(gs_start(t), EINVAL, d[i].words[0], d[i].words[1], d[i].words[2]);
		/* It stays so. */
		fails(gs_start(t), EINVAL, d[i].words[0]);
		gs_close(t);
	}
	bed_wait_connected(&bed, 0);
	must(bed_stats(&bed).violations == 0, "a difference is no violation");
	bed_stop(&bed);
}
END_TEST

/* The same line, described in another way. */
static void other_optimizer(struct gs_param_desc *d)
{
	d->optimizer = "adagrad";
}

static void other_setting(struct gs_param_desc *d)
{
	gs_setting(d, "clip_norm", 2);
}

static void other_schedule(struct gs_param_desc *d)
{
	d->schedule = "step:every=3";
}

static void other_gradients(struct gs_param_desc *d)
{
	d->grad_dtype = GS_BF16;
}

static void other_weights(struct gs_param_desc *d)
{
	d->weight_dtype = GS_F16;
}

static void other_reduction(struct gs_param_desc *d)
{
	d->reduce = GS_SUM;
}

static void other_policy(struct gs_param_desc *d)
{
	d->nonfinite = GS_NONFINITE_REJECT;
}

static void other_storage(struct gs_param_desc *d)
{
	d->kind = GS_TABLE;
}

/* Each is no violation, and the trainer is told both sides; accumulation is its own matter. */
START_TEST(descriptions_that_differ)
{
	static const struct {
		void (*change)(struct gs_param_desc *d);
		const char *here, *there;
	} all[] = {
	    {other_optimizer, "adagrad(lr=1) here", "sgd(lr=1) at"},
	    {other_setting, "sgd(lr=1, clip_norm=2) here", "sgd(lr=1) at"},
	    {other_schedule, "schedule step:every=3 here", "constant at"},
	    {other_gradients, "gradients bf16", "gradients f32"},
	    {other_weights, "weights f16", "weights f32"},
	    {other_reduction, ", sum,", ", mean,"},
	    {other_policy, "rejected here", "applied at"},
	    {other_storage, "storage table", "dense at"},
	};
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	struct bed bed;

	d.name = "w";
	d.ndim = 2;
	d.shape[0] = d.shape[1] = 5;
	gs_setting(&d, "lr", 1);
	bed_start(&bed, &opt);
	for (unsigned i = 0; i <= sizeof(all) / sizeof(all[0]); i++) {
		struct gs_param_desc theirs = d;
		gs_trainer *t = connect_as(bed.uri, 1);
		gs_param *p;

		if (i > 0)
			all[i - 1].change(&theirs);
		else
			theirs.accumulate = 3;
		ok(gs_declare(t, &theirs, &p));
		if (i > 0)
			fails(gs_start(t), EINVAL, "\"w\"", all[i - 1].here, all[i - 1].there);
		else
			ok(gs_start(t));
		gs_close(t);
	}
	bed_wait_connected(&bed, 0);
	must(bed_stats(&bed).violations == 0, "a difference is no violation");
	bed_stop(&bed);
}
END_TEST

static void refused_start(struct bed *bed, const char *optimizer, const char *setting, double value,
			  const char *word)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	gs_trainer *t = connect_as(bed->uri, 0);
	gs_param *p;

	d.name = "odd";
	d.ndim = 1;
	d.shape[0] = 10;
	d.optimizer = optimizer;
	gs_setting(&d, setting, value);
	ok(gs_declare(t, &d, &p));
	fails(gs_start(t), EINVAL, "\"odd\"", word);
	gs_close(t);
}

/* A name that no checkpoint could store. (The codec does not let it out, so it is put in behind.) */
START_TEST(a_name_that_no_file_can_hold)
{
	static const char good[] = "__metadata_X", bad[] = "__metadata__";
	struct wire_msg msg = {.kind = WIRE_DECLARE,
			       .declare = {.last = true, .n = 1, .param = {raw_lines[0]}}};
	uint8_t buf[WIRE_MSG_MAX], *at;
	struct bed bed;
	struct raw r;
	int len;

	open_bed(&bed, 0);
	raw_connect(&r, bed.uri, 0);
	raw_hello(&r, 1);
	raw_expect(&r, WIRE_WELCOME);
	strcpy(msg.declare.param[0].name, good);
	len = wire_encode(&msg, buf, sizeof(buf));
	must(len > 0, "encode");
	at = memmem(buf, (size_t)len, good, strlen(good));
	must(at, "no name in it");
	memcpy(at, bad, strlen(bad));
	raw_send_bytes(&r, buf, (size_t)len);
	RAW_ENDS(&r, WIRE_E_PROTOCOL, "name", "__metadata__");
	close_bed(&bed, 1);
}
END_TEST

/* Refused declarations leave no trace: the next trainer's become the server's. */
START_TEST(optimizers_that_there_are_not)
{
	struct bed bed;
	struct raw r;
	struct wire_msg none = {.kind = WIRE_DECLARE, .declare = {.last = true}};

	open_bed(&bed, 0);
	refused_start(&bed, "adamantium", "lr", 1, "adamantium");
	refused_start(&bed, "sgd", "lr", -2, "-2");
	refused_start(&bed, "sgd", "weight", 1, "weight");
	refused_start(&bed, "momentum", "momentum", 0.5, "lr");
	raw_connect(&r, bed.uri, 0);
	raw_hello(&r, 1);
	raw_expect(&r, WIRE_WELCOME);
	raw_send(&r, &none);
	RAW_ENDS(&r, WIRE_E_MISMATCH, "no parameters");
	close_bed(&bed, 0);
}
END_TEST

START_TEST(more_memory_than_allowed)
{
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	gs_trainer *t;
	struct bed bed;

	opt.block_kib = 1;
	opt.max_memory = 8 << 20;
	bed_start(&bed, &opt);
	t = connect_as(bed.uri, 0);
	declare_line(t, "large", 1 << 20, 1, 0);
	/* 4 MiB of weights, 8 of slots for each of two. */
	fails(gs_start(t), ENOMEM, "weights 4.", "slots 8.0", "2 trainers", "--max-memory",
	      "8.0 MiB");
	gs_close(t);
	close_bed(&bed, 0);
}
END_TEST

/* Declarations without end are not kept without end. */
START_TEST(declares_for_ever)
{
	struct wire_msg msg = {.kind = WIRE_DECLARE, .declare = {.last = false, .n = 2}};
	struct srv_options opt = bed_options(2, SRV_ASYNC);
	struct raw bad;
	struct bed bed;

	opt.block_kib = 1;
	opt.max_memory = 1 << 20;
	bed_start(&bed, &opt);
	raw_connect(&bad, bed.uri, 0);
	raw_hello(&bad, 0);
	raw_expect(&bad, WIRE_WELCOME);
	memcpy(msg.declare.param, raw_lines, sizeof(raw_lines));
	for (int i = 0; i < 2000; i++)
		raw_send(&bad, &msg);
	raw_expect_error(&bad, WIRE_E_MEMORY, 
			 (const char *const[]){"declarations", "--max-memory", "1.0 MiB", NULL});
	close_bed(&bed, 0);
}
END_TEST

TCase *bad_talk_case(void)
{
	TCase *t = e2e_case("bad_talk");

	tcase_add_test(t, another_version);
	tcase_add_test(t, cut_short_or_garbage);
	tcase_add_test(t, in_the_wrong_state);
	tcase_add_test(t, a_kind_that_only_servers_send);
	tcase_add_test(t, mailbox_too_small);
	tcase_add_test(t, silence);
	tcase_add_test(t, silence_behind_a_bye);
	tcase_add_test(t, declarations_that_differ);
	tcase_add_test(t, descriptions_that_differ);
	tcase_add_test(t, a_name_that_no_file_can_hold);
	tcase_add_test(t, optimizers_that_there_are_not);
	tcase_add_test(t, more_memory_than_allowed);
	tcase_add_test(t, declares_for_ever);
	return t;
}
