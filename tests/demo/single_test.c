/* SPDX-License-Identifier: Apache-2.0
 *
 * Training without a server: what it reaches, that it always gives the same bits, and that stale
 * gradients leave it standing.
 */
#include "suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "demo/mlp.h"
#include "demo/optimizer.h"
#include "demo/single.h"

enum { SEEDS = 5, TRAINERS_MAX = 4, STALE_MAX = 2 * TRAINERS_MAX };

static const unsigned counts[] = {1, 2, 4};

static struct digits_config config(uint64_t seed, unsigned trainers)
{
	struct digits_config c = digits_default();

	c.seed = seed;
	c.trainers = trainers;
	return c;
}

START_TEST(learns)
{
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct digits_config c = config(seed, counts[_i]);
		struct single_result r;

		ck_assert_int_eq(single_train(&c, &r), 0);
		ck_assert_uint_eq(r.steps, digits_steps(&c));
		ck_assert_uint_le(r.steps, 1000);
		ck_assert_double_eq(r.accuracy, (double)r.hits / DIGITS_TEST);
		ck_assert_msg(r.accuracy >= 0.965, "seed %u, %u trainers: accuracy %g",
			      (unsigned)seed, c.trainers, r.accuracy);
		ck_assert_double_lt(r.loss, 0.01);
	}
}
END_TEST

/* Again, with another instruction set each time. */
START_TEST(same_bits)
{
	static const char *const rules[] = {"sgd", "momentum", "nesterov", "adam:clip_norm=1",
					    "lamb:clip_global_norm=1"};

	for (unsigned rule = 0; rule < 5; rule++) {
		struct digits_config c = config(7, counts[_i]);
		struct single_result first, again;

		c.epochs = 3;
		c.grad_dtype = (enum kern_dtype)(rule % 3);
		ck_assert_int_eq(optimizer_parse(rules[rule], &c.opt), 0);
		ck_assert_int_eq(single_train(&c, &first), 0);
		for (unsigned i = 0; kern_isa_at(i); i++) {
			if (kern_isa_use(kern_isa_at(i)))
				continue;
			ck_assert_int_eq(single_train(&c, &again), 0);
			ck_assert_msg(again.checksum == first.checksum, "%s, %s: another checksum",
				      kern_isa(), kern_opt_name(&c.opt));
			ck_assert(again.loss == first.loss);
			ck_assert_uint_eq(again.hits, first.hits);
		}
		c.seed++;
		ck_assert_int_eq(single_train(&c, &again), 0);
		ck_assert_uint_ne(again.checksum, first.checksum);
	}
}
END_TEST

/* Weights, feeds and room for gradients, for the tests that do the steps themselves. */
struct run {
	struct digits_config config;
	struct digits *digits;
	struct digits_feed *feeds[TRAINERS_MAX];
	struct mlp *mlp;
	float weights[MLP_WEIGHTS], grads[STALE_MAX + 1][MLP_WEIGHTS];
	const float *w[MLP_PARAMS];
};

static struct run *run_start(const struct digits_config *c)
{
	struct run *run = calloc(1, sizeof(*run));

	run->config = *c;
	ck_assert_int_eq(digits_load(c->seed, &run->digits), 0);
	ck_assert_int_eq(mlp_create(digits_shard_rows(c), &run->mlp), 0);
	for (unsigned r = 0; r < c->trainers; r++)
		ck_assert_int_eq(digits_feed_create(run->digits, c, r, &run->feeds[r]), 0);
	for (unsigned p = 0; p < MLP_PARAMS; p++) {
		struct mlp_init init = mlp_init_of(p, c->seed);
		float *w = run->weights + mlp_params[p].offset;

		kern_init_fill(init.kind, init.seed, init.a, init.b, 0, w, mlp_params[p].len);
		run->w[p] = w;
	}
	return run;
}

static void run_end(struct run *run)
{
	for (unsigned r = 0; r < run->config.trainers; r++)
		digits_feed_destroy(run->feeds[r]);
	mlp_destroy(run->mlp);
	digits_free(run->digits);
	free(run);
}

static void run_gradient(struct run *run, unsigned rank, unsigned step, float *into)
{
	float *grads[MLP_PARAMS];
	const uint8_t *y;
	const float *x;

	for (unsigned p = 0; p < MLP_PARAMS; p++)
		grads[p] = into + mlp_params[p].offset;
	digits_feed_step(run->feeds[rank], step, &x, &y);
	mlp_gradient(run->mlp, run->w, x, y, digits_shard_rows(&run->config), grads, NULL, NULL);
}

/* The compiler's own conversions; to the nearest, ties to even. */
static void round_to(enum kern_dtype dtype, float *grads)
{
	for (size_t i = 0; i < MLP_WEIGHTS; i++) {
		uint32_t bits;

		if (dtype == KERN_F16)
			grads[i] = (float)(_Float16)grads[i];
		if (dtype != KERN_BF16)
			continue;
		memcpy(&bits, &grads[i], sizeof(bits));
		bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
		memcpy(&grads[i], &bits, sizeof(bits));
	}
}

/* The steps by hand, in plain C: shards' gradients added in rank order, the mean, and w -= lr g; of
 * rounded gradients with a schedule as well. */
START_TEST(does_what_it_says)
{
	struct digits_config c = config(3, 3);
	struct single_result r;
	struct run *run = run_start(&c);
	uint64_t sum;

	c.epochs = 1;
	c.grad_dtype = (enum kern_dtype)_i;
	ck_assert_int_eq(schedule_parse(_i ? "step:every=7,gamma=0.5" : "", &c.schedule), 0);
	ck_assert_int_eq(single_train(&c, &r), 0);
	for (unsigned step = 1; step <= digits_steps(&c); step++) {
		float lr = kern_opt_lr(&c.opt);

		for (unsigned halved = 0; _i && halved < (step - 1) / 7; halved++)
			lr /= 2;
		for (unsigned rank = 0; rank < 3; rank++) {
			run_gradient(run, rank, step, run->grads[rank]);
			round_to(c.grad_dtype, run->grads[rank]);
		}
		for (size_t i = 0; i < MLP_WEIGHTS; i++) {
			float g = (run->grads[0][i] + run->grads[1][i]) + run->grads[2][i];

			run->weights[i] -= lr * (g * (1.0f / 3));
		}
	}
	sum = mlp_checksum(run->w);
	ck_assert_uint_eq(r.checksum, sum);
	run_end(run);
}
END_TEST

/* Asynchronous training with each gradient applied `stale` updates after its weights were read. */
static double train_stale(uint64_t seed, unsigned trainers, unsigned stale)
{
	struct digits_config c = config(seed, trainers);
	struct kern_opt opt = digits_async_opt(&c);
	struct run *run = run_start(&c);
	unsigned hits, updates = digits_steps(&c) * trainers;

	for (unsigned t = 0; t < updates + stale; t++) {
		if (t < updates)
			run_gradient(run, t % trainers, t / trainers + 1,
				     run->grads[t % (stale + 1)]);
		if (t >= stale) {
			const float *const g[] = {run->grads[(t - stale) % (stale + 1)]};

			kern_apply_mean(&opt, t - stale + 1, run->weights, NULL, g, 1, MLP_WEIGHTS);
		}
	}
	mlp_evaluate(run->mlp, run->w, run->digits->test_x[0], run->digits->test_y, DIGITS_TEST,
		     NULL, &hits);
	run_end(run);
	return (double)hits / DIGITS_TEST;
}

/* As stale as N trainers make it when each sends one gradient at a time, and twice that, as when
 * each has two under way. */
START_TEST(learns_from_stale_gradients)
{
	static const unsigned trainers[] = {2, 4};

	for (unsigned n = 0; n < 2; n++)
		for (unsigned stale = trainers[n]; stale <= 2 * trainers[n]; stale *= 2) {
			double accuracy = train_stale((uint64_t)_i, trainers[n], stale);

			ck_assert_msg(accuracy >= 0.95,
				      "seed %d, %u trainers, %u updates late: accuracy %g", _i,
				      trainers[n], stale, accuracy);
		}
}
END_TEST

START_TEST(refuses)
{
	struct digits_config c = config(1, 5);
	struct single_result r = {.steps = 77};

	ck_assert_int_eq(single_train(&c, &r), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "can't be shared equally by 5 trainers"));
	ck_assert_uint_eq(r.steps, 77);
}
END_TEST

Suite *single_suite(void)
{
	Suite *suite = suite_create("single");
	TCase *tc = tcase_create("train");

	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, learns, 0, 3);
	tcase_add_loop_test(tc, same_bits, 0, 3);
	tcase_add_loop_test(tc, does_what_it_says, 0, 3);
	tcase_add_loop_test(tc, learns_from_stale_gradients, 1, SEEDS + 1);
	tcase_add_test(tc, refuses);
	suite_add_tcase(suite, tc);
	return suite;
}
