/* SPDX-License-Identifier: Apache-2.0
 *
 * What is trained in a hostile play: any optimizer, its settings at their limits, all types and
 * modes.
 */
#include "hostile.h"

#include "kernels/kern.h"

/* Adds the setting if the optimizer takes it. */
static void offer(struct wire_param *p, const char *name, double value)
{
	struct kern_setting s[WIRE_SETTINGS_MAX];
	struct wire_setting *last = &p->setting[p->n_settings];
	struct kern_opt opt;

	snprintf(last->name, sizeof(last->name), "%s", name);
	last->value = value;
	for (uint32_t i = 0; i <= p->n_settings; i++) {
		memcpy(s[i].name, p->setting[i].name, sizeof(s[i].name));
		s[i].value = p->setting[i].value;
	}
	if (kern_opt_parse(p->rule, s, p->n_settings + 1, &opt) == 0)
		p->n_settings++;
	else
		memset(last, 0, sizeof(*last));
}

/* Any of the optimizer's settings, at its limits or near them. */
static void offer_odd(struct wire_param *p, uint64_t *rng)
{
	static const double odd[] = {0,     1,    0.5,    0.999999999, 0.9999999, 1e-45,
				     1e-30, 1e-8, 3.4e38, 1e10,        -1,        -0.5};
	const struct kern_setting lr = {"lr", 0.01};
	struct kern_opt opt;
	const char *name;
	double value;

	ok(kern_opt_parse(p->rule, &lr, 1, &opt));
	for (uint32_t i = 0; kern_opt_setting(&opt, i, &name, &value); i++)
		if (strncmp(name, "clip_global", 11) != 0 && strcmp(name, "dc_lambda") != 0 &&
		    p->n_settings < WIRE_SETTINGS_MAX - 6 && chance(rng, 3))
			offer(p, name, odd[rnd(rng, 12)]);
}

void hostile_pick_rule(struct wire_param *p, uint64_t *rng)
{
	const struct kern_setting lr = {"lr", 0.01};
	struct kern_opt opt;
	uint32_t rules = 0;

	while (kern_opt_at(rules))
		rules++;
	do
		snprintf(p->rule, sizeof(p->rule), "%s", kern_opt_at(rnd(rng, rules)));
	while (kern_opt_parse(p->rule, &lr, 1, &opt) ||
	       !(p->storage == WIRE_DENSE ? kern_opt_dense(&opt) : kern_opt_by_rows(&opt)));
	p->n_settings = 0;
	if (chance(rng, 3))
		offer_odd(p, rng);
	offer(p, "lr", 0.01);
}

void hostile_pick_settings(struct wire_param *p, uint64_t *rng, enum srv_mode mode)
{
	if (chance(rng, 3))
		offer(p, "clip_norm", 0.5);
	if (mode == SRV_SYNC && chance(rng, 2))
		offer(p, "clip_global_norm", 0.5);
	if (mode != SRV_SYNC && p->storage == WIRE_DENSE && chance(rng, 2))
		offer(p, "dc_lambda", 0.1);
	if (chance(rng, 4))
		offer(p, "clip_value", 1);
	if (chance(rng, 4))
		offer(p, "weight_decay", 0.01);
	if (p->storage != WIRE_DENSE && chance(rng, 3)) {
		snprintf(p->setting[p->n_settings].name, sizeof(p->setting[0].name), "lazy");
		p->setting[p->n_settings++].value = 0;
	}
}

static void pick_dense(struct wire_param *p, uint64_t *rng)
{
	static const uint64_t lines[] = {1, 7, 255, 256, 257, 775, 1300};

	p->storage = WIRE_DENSE;
	p->ndim = 1 + rnd(rng, 3);
	p->dim[0] = lines[rnd(rng, 7)];
	if (p->ndim > 1)
		p->dim[0] = 1 + rnd(rng, 40);
	for (uint32_t i = 1; i < p->ndim; i++)
		p->dim[i] = 1 + rnd(rng, 9);
}

static void pick_table(struct wire_param *p, uint64_t *rng)
{
	p->storage = chance(rng, 2) ? WIRE_HASHED : WIRE_TABLE;
	p->ndim = 2;
	p->dim[0] = 1 + rnd(rng, HOSTILE_CAPACITY);
	p->dim[1] = 1 + rnd(rng, chance(rng, 4) ? 300 : 9);
	p->slot_rows = 1 + rnd(rng, 8);
	if (chance(rng, 8)) { /* longer than what the kernels work on at once */
		p->dim[1] = 1000 + rnd(rng, 1500);
		p->slot_rows = 1 + rnd(rng, 4);
	}
	p->push_rows = p->slot_rows + rnd(rng, 20);
	p->pull_rows = 1 + rnd(rng, 12);
	if (p->storage == WIRE_HASHED) {
		p->admit_after = rnd(rng, 4);
		p->evict_after = rnd(rng, 6);
	}
}

void hostile_pick(struct hostile_model *m, uint64_t seed)
{
	static const char *const schedules[] = {"", "cosine:steps=9,cycle=1,mult=3",
						"warmup:steps=5+step:every=3,gamma=0.9"};
	uint64_t rng = seed;

	memset(m, 0, sizeof(*m));
	m->opt = bed_options(HOSTILE_TRAINERS, (enum srv_mode)(1 + rnd(&rng, 3)));
	if (m->opt.mode == SRV_SSP)
		m->opt.staleness = 1 + rnd(&rng, 3);
	m->opt.block_kib = 1;
	m->opt.workers = rnd(&rng, 3);
	m->opt.pollers = 1 + rnd(&rng, 2);
	m->opt.slots = 1 + rnd(&rng, 4);
	m->n = 1 + rnd(&rng, HOSTILE_PARAMS);
	for (uint32_t i = 0; i < m->n; i++) {
		struct wire_param *p = &m->p[i];

		snprintf(p->name, sizeof(p->name), "p%u", i);
		(chance(&rng, 2) ? pick_dense : pick_table)(p, &rng);
		hostile_pick_rule(p, &rng);
		hostile_pick_settings(p, &rng, m->opt.mode);
		p->init = WIRE_INIT_CONSTANT + rnd(&rng, 3);
		p->init_a = 0;
		p->init_b = p->init == WIRE_INIT_CONSTANT ? 0 : 0.1;
		snprintf(p->schedule, sizeof(p->schedule), "%s", schedules[rnd(&rng, 3)]);
		p->grad_type = (enum wire_dtype)rnd(&rng, 3);
		p->weight_type = (enum wire_dtype)rnd(&rng, 3);
		p->reduce = (enum wire_reduce)rnd(&rng, 3);
		p->nonfinite = (enum wire_nonfinite)rnd(&rng, 3);
	}
}

void hostile_pick_ids(const struct wire_param *p, uint64_t *rng, int64_t *id, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		id[i] = rnd(rng,
			    p->storage == WIRE_HASHED ? 3 * HOSTILE_CAPACITY : (uint32_t)p->dim[0]);
}
