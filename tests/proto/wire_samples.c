/* SPDX-License-Identifier: Apache-2.0
 *
 * Valid messages for the codec's tests.
 */
#include "wire_samples.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

static void fill(char *s, size_t cap, char c)
{
	memset(s, c, cap - 1);
	s[cap - 1] = 0;
}

static struct wire_param longest_param(void)
{
	struct wire_param p = {
	    .ndim = WIRE_DIMS_MAX,
	    /* 2 bytes each, and the product is still below 2^40; five of them and three of one
	     * byte are longer than any other choice. */
	    .dim = {128, 128, 128, 128, 128, 1, 1, 31},
	    .n_settings = WIRE_SETTINGS_MAX,
	    .init = WIRE_INIT_NORMAL,
	    .init_a = -DBL_MAX,
	    .init_b = DBL_MIN,
	    .init_seed = UINT64_MAX,
	    .grad_type = WIRE_F16,
	    .weight_type = WIRE_F16,
	    .reduce = WIRE_WEIGHTED,
	    .nonfinite = WIRE_NONFINITE_SKIP,
	};

	fill(p.name, sizeof(p.name), 'n');
	fill(p.rule, sizeof(p.rule), 'r');
	fill(p.schedule, sizeof(p.schedule), 's');
	for (int i = 0; i < (int)WIRE_SETTINGS_MAX; i++) {
		fill(p.setting[i].name, sizeof(p.setting[i].name), (char)('a' + i));
		p.setting[i].value = -1.0 / (i + 3);
	}
	return p;
}

struct wire_msg sample_longest_declare(void)
{
	struct wire_msg m = {.kind = WIRE_DECLARE};

	m.declare.last = true;
	m.declare.n = WIRE_PARAMS_MAX;
	for (uint32_t i = 0; i < WIRE_PARAMS_MAX; i++)
		m.declare.param[i] = longest_param();
	return m;
}

static struct wire_msg longest_grant(void)
{
	struct wire_msg m = {.kind = WIRE_GRANT};

	m.grant.last = true;
	m.grant.n = WIRE_PARAMS_MAX;
	for (uint32_t i = 0; i < WIRE_PARAMS_MAX; i++)
		m.grant.place[i] =
		    (struct wire_place){UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
					UINT32_MAX, UINT32_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
					UINT64_MAX, UINT32_MAX};
	m.grant.slots = UINT32_MAX;
	m.grant.blocks = UINT32_MAX;
	m.grant.weights = (struct wire_ref){UINT64_MAX, UINT64_MAX, UINT64_MAX,
					    .more = WIRE_RAILS_MAX - 1};
	for (uint32_t i = 0; i < WIRE_RAILS_MAX - 1; i++)
		m.grant.weights.more_key[i] = UINT64_MAX - i;
	m.grant.slot_mem = m.grant.weights;
	return m;
}

static struct wire_msg usual_declare(bool last)
{
	struct wire_msg m = {.kind = WIRE_DECLARE};

	m.declare.last = last;
	m.declare.n = 2;
	m.declare.param[0] = (struct wire_param){.name = "layer.0.weight",
						 .ndim = 2,
						 .dim = {1024, 768},
						 .rule = "momentum",
						 .n_settings = 2,
						 .setting = {{"lr", 0.1}, {"momentum", 0.9}},
						 .init = WIRE_INIT_UNIFORM,
						 .init_a = -0.5,
						 .init_b = 0.5,
						 .init_seed = 7};
	m.declare.param[1] = (struct wire_param){.name = "b",
						 .ndim = 1,
						 .dim = {1},
						 .rule = "sgd",
						 .n_settings = 0,
						 .init = WIRE_INIT_TRAINER};
	return m;
}

static struct wire_msg usual_grant(bool last)
{
	struct wire_msg m = {.kind = WIRE_GRANT};

	m.grant.last = last;
	m.grant.n = 1;
	m.grant.place[0] =
	    (struct wire_place){786432, 65536, 4096, 192, 3145728, 0, 12, 64, 8192, 0, 128, 3};
	if (last) {
		m.grant.slots = 2;
		m.grant.blocks = 12;
		m.grant.weights = (struct wire_ref){0x7f0000000000, 3149824, 0x1234, .more = 0};
		m.grant.slot_mem = (struct wire_ref){
		    0x7e0000000000, 6291520, 0x5678, .more = 2, .more_key = {7, 8}};
	}
	return m;
}

static struct wire_msg longest_error(void)
{
	struct wire_msg m = {.kind = WIRE_ERROR, .error = {.code = WIRE_E_MISMATCH}};

	fill(m.error.text, sizeof(m.error.text), '.');
	return m;
}

static struct wire_msg longest_notice(void)
{
	struct wire_msg m = {
	    .kind = WIRE_NOTICE,
	    .notice = {.param = UINT32_MAX, .code = WIRE_E_CAPACITY, .refused = UINT64_MAX}};

	fill(m.notice.text, sizeof(m.notice.text), '!');
	return m;
}

static struct wire_msg table_declare(void)
{
	struct wire_msg m = {.kind = WIRE_DECLARE, .declare = {.last = true, .n = 1}};

	m.declare.param[0] = (struct wire_param){.name = "embedding",
						 .ndim = 2,
						 .dim = {10000000, 16},
						 .rule = "adagrad",
						 .init = WIRE_INIT_NORMAL,
						 .init_b = 0.01,
						 .schedule = "warmup:steps=10+constant",
						 .storage = WIRE_HASHED,
						 .slot_rows = 4096,
						 .push_rows = 65536,
						 .pull_rows = 1024,
						 .admit_after = 2,
						 .evict_after = 1000};
	return m;
}

static struct wire_msg full_hello(void)
{
	struct wire_msg m = {.kind = WIRE_HELLO,
			     .hello = {.version = WIRE_VERSION, .has_nonce = true, .resumes = true}};

	fill(m.hello.name, sizeof(m.hello.name), 'x');
	memset(m.hello.nonce, 0x80, sizeof(m.hello.nonce));
	memset(m.hello.session, 0xff, sizeof(m.hello.session));
	return m;
}

static struct wire_msg full_welcome(void)
{
	struct wire_msg m = {.kind = WIRE_WELCOME,
			     .welcome = {.version = WIRE_VERSION,
					 .rank = 3,
					 .trainers = 4,
					 .mode = WIRE_SYNC,
					 .server = UINT64_MAX,
					 .resumed = true,
					 .has_mac = true}};

	memset(m.welcome.session, 1, sizeof(m.welcome.session));
	memset(m.welcome.mac, 0xfe, sizeof(m.welcome.mac));
	return m;
}

static struct wire_msg failed_saved(void)
{
	struct wire_msg m = {.kind = WIRE_SAVED,
			     .saved = {.step = 7, .failed = true, .code = WIRE_E_STORE}};

	fill(m.saved.text, sizeof(m.saved.text), '?');
	return m;
}

struct wire_msg sample(int i)
{
	struct wire_msg hello = {.kind = WIRE_HELLO, .hello = {WIRE_VERSION, -1, "trainer one"}};

	switch (i) {
	case 0:
		return hello;
	case 1:
		fill(hello.hello.name, sizeof(hello.hello.name), '~');
		hello.hello.version = UINT32_MAX;
		hello.hello.rank = INT32_MAX;
		return hello;
	case 2:
		return (struct wire_msg){.kind = WIRE_WELCOME, .welcome = {.version = 1, .rank = 3, .trainers = 4, .mode = WIRE_ASYNC, .staleness = 0}};
	case 3:
		return usual_declare(false);
	case 4:
		return usual_declare(true);
	case 5:
		return sample_longest_declare();
	case 6:
		return (struct wire_msg){.kind = WIRE_DECLARE, .declare = {.last = true}};
	case 7:
		return usual_grant(false);
	case 8:
		return usual_grant(true);
	case 9:
		return longest_grant();
	case 10:
		return (struct wire_msg){.kind = WIRE_ATTACH, .attach = {{1, 2, UINT64_MAX}}};
	case 11:
		return (struct wire_msg){.kind = WIRE_READY, .ready = {true}};
	case 12:
		return (struct wire_msg){.kind = WIRE_INIT_DONE};
	case 13:
		return (struct wire_msg){.kind = WIRE_START, .start = {UINT64_MAX}};
	case 14:
		return (struct wire_msg){.kind = WIRE_BYE};
	case 15:
		return longest_error();
	case 16:
		return (struct wire_msg){.kind = WIRE_WELCOME, .welcome = {.version = 1, .rank = 3, .trainers = 4, .mode = WIRE_SSP, .staleness = 7}};
	case 17:
		return (struct wire_msg){.kind = WIRE_SET_RATE, .set_rate = {3, 0.25}};
	case 18:
		return (struct wire_msg){.kind = WIRE_RATE_SET, .rate_set = {UINT32_MAX}};
	case 19:
		return table_declare();
	case 20:
		return longest_notice();
	case 21:
		return full_hello();
	case 22:
		return full_welcome();
	case 23:
		return (struct wire_msg){.kind = WIRE_CHALLENGE, .challenge = {{0, 1, 255}}};
	case 24:
		return (struct wire_msg){.kind = WIRE_PROOF, .proof = {{7, 0, 128}}};
	case 25:
		return (struct wire_msg){.kind = WIRE_SAVE};
	case 26:
		return (struct wire_msg){.kind = WIRE_SAVED, .saved = {.step = UINT64_MAX}};
	default:
		return failed_saved();
	}
}
