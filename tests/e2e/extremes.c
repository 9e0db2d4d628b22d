/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations at their limits, by chance: each is granted, or refused with a reason.
 *
 * EXTREME_SEED and EXTREME_ROUNDS take the place of the suite's few rounds.
 */
#include "cases.h"
#include "hostile.h"

/* From 1 to 2^bits, its logarithm by chance; now and then a power of two, or one beside it. */
static uint64_t any_size(uint64_t *rng, uint32_t bits)
{
	uint64_t power = (uint64_t)1 << rnd(rng, bits + 1);

	switch (rnd(rng, 4)) {
	case 0:
		return power;
	case 1:
		return power > 1 ? power - 1 : 1;
	case 2:
		return power + 1;
	default:
		return 1 + mix64(*rng) % power;
	}
}

static void pick_extreme(struct wire_param *p, uint64_t *rng, uint32_t i)
{
	memset(p, 0, sizeof(*p));
	snprintf(p->name, sizeof(p->name), "%0*u", 1 + (int)rnd(rng, WIRE_NAME_MAX - 10), i);
	p->storage = (enum wire_storage)rnd(rng, 3);
	p->ndim = p->storage == WIRE_DENSE ? 1 + rnd(rng, WIRE_DIMS_MAX) : 2;
	for (uint32_t k = 0; k < p->ndim; k++)
		p->dim[k] = any_size(rng, 40 / p->ndim + rnd(rng, 8));
	if (p->storage != WIRE_DENSE) {
		p->slot_rows = (uint32_t)any_size(rng, 26);
		p->push_rows = (uint32_t)any_size(rng, 26);
		if (chance(rng, 2) && p->push_rows < p->slot_rows)
			p->push_rows = p->slot_rows;
		p->pull_rows = (uint32_t)any_size(rng, 26);
	}
	if (p->storage == WIRE_HASHED) {
		p->admit_after = (uint32_t)any_size(rng, 17) - 1;
		p->evict_after = any_size(rng, 63);
	}
	hostile_pick_rule(p, rng);
	for (uint32_t k = 0; k < 2; k++)
		hostile_pick_settings(p, rng, (enum srv_mode)(1 + rnd(rng, 2)));
	p->init = (enum wire_init)(WIRE_INIT_TRAINER + rnd(rng, 4));
	p->init_b = 1;
	p->grad_type = (enum wire_dtype)rnd(rng, 3);
	p->weight_type = (enum wire_dtype)rnd(rng, 3);
	p->nonfinite = (enum wire_nonfinite)rnd(rng, 3);
	memset(p->schedule, '9', rnd(rng, 2) * rnd(rng, WIRE_SCHEDULE_MAX));
	if (chance(rng, 4))
		snprintf(p->schedule, sizeof(p->schedule), "cosine:steps=9007199254740992");
	else if (!chance(rng, 8))
		p->schedule[0] = 0;
}

/* True: it was granted. */
static bool declares(struct bed *bed, uint64_t *rng)
{
	struct hostile_bad b = {.rng = *rng};
	struct wire_msg msg, d = {.kind = WIRE_DECLARE};
	uint8_t buf[WIRE_MSG_MAX];
	bool granted;

	bed_wait_connected(bed, 0); /* or its rank is still held */
	raw_connect(&b.r, bed->uri, 0);
	raw_hello(&b.r, -1);
	must(hostile_next(&b, WIRE_WELCOME, &msg), "no welcome");
	d.declare.n = 1 + rnd(rng, 2);
	d.declare.last = true;
	for (uint32_t i = 0; i < d.declare.n; i++)
		do
			pick_extreme(&d.declare.param[i], rng, i);
		while (wire_encode(&(struct wire_msg){.kind = WIRE_DECLARE,
						      .declare = {true, 1, {d.declare.param[i]}}},
				   buf, sizeof(buf)) < 0);
	raw_send(&b.r, &d);
	granted = hostile_next(&b, WIRE_GRANT, &msg);
	must(granted || msg.kind == WIRE_ERROR, "it hung up without a word");
	must(granted || msg.error.code == WIRE_E_MEMORY || msg.error.code == WIRE_E_MISMATCH,
	     "code %d: %s", (int)msg.error.code, msg.error.text);
	if (getenv("EXTREME_SEED"))
		fprintf(stderr, "%s\n", granted ? "granted" : msg.error.text);
	raw_close(&b.r);
	return granted;
}

START_TEST(extreme_declarations)
{
	const char *seed = getenv("EXTREME_SEED"), *rounds = getenv("EXTREME_ROUNDS");
	uint64_t rng = seed ? strtoull(seed, NULL, 10) : 5;

	for (uint64_t i = 0; i < (rounds ? strtoull(rounds, NULL, 10) : scaled(20, 4)); i++) {
		struct srv_options opt = bed_options(1, (enum srv_mode)(1 + rnd(&rng, 2)));
		struct bed bed;

		opt.trainers = chance(&rng, 2) ? SRV_MAX_TRAINERS : 1 + rnd(&rng, 8);
		opt.slots = 1 + rnd(&rng, 8);
		opt.block_kib = 1u << rnd(&rng, 12);
		opt.max_memory = (uint64_t)1 << (20 + rnd(&rng, 7));
		bed_start(&bed, &opt);
		for (int k = 0; k < 20 && !declares(&bed, &rng); k++)
			;
		bed_stop(&bed);
	}
}
END_TEST

TCase *extremes_case(void)
{
	TCase *t = e2e_case("extremes");

	tcase_add_test(t, extreme_declarations);
	return t;
}
