/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers by name: defaults, limits and what the error texts say.
 */
#include "suites.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "kernels/kern.h"

START_TEST(defaults)
{
	const struct kern_setting lr = {"lr", 0.25};
	struct kern_opt opt;

	ck_assert_int_eq(kern_opt_parse("sgd", &lr, 1, &opt), 0);
	ck_assert_str_eq(kern_opt_at(opt.rule), "sgd");
	ck_assert_float_eq(kern_opt_lr(&opt), 0.25f);
	ck_assert_str_eq(kern_opt_name(&opt), "sgd");
	ck_assert_uint_eq(kern_opt_arrays(&opt), 0);

	ck_assert_int_eq(kern_opt_parse("momentum", &lr, 1, &opt), 0);
	ck_assert_float_eq(opt.value[1], 0.9f);
	ck_assert_float_eq(opt.value[2], 0);
	ck_assert_str_eq(kern_opt_name(&opt), "momentum");
	ck_assert_uint_eq(kern_opt_arrays(&opt), 1);

	ck_assert_int_eq(kern_opt_parse("nesterov", &lr, 1, &opt), 0);
	ck_assert_float_eq(opt.value[1], 0.9f);
	ck_assert_str_eq(kern_opt_name(&opt), "nesterov");
	ck_assert_uint_eq(kern_opt_arrays(&opt), 1);
}
END_TEST

START_TEST(all_given)
{
	const struct kern_setting s[] = {{"dampening", 1}, {"momentum", 0}, {"lr", 0}};
	struct kern_opt opt;

	ck_assert_int_eq(kern_opt_parse("momentum", s, 3, &opt), 0);
	ck_assert_float_eq(kern_opt_lr(&opt), 0);
	ck_assert_float_eq(opt.value[1], 0);
	ck_assert_float_eq(opt.value[2], 1);
}
END_TEST

struct refused {
	const char *rule;
	struct kern_setting s[3];
	unsigned n;
	const char *says[3]; /* each must be in the text */
};

static const struct refused refused[] = {
    {"adamant", {{"lr", 1}}, 1, {"\"adamant\"", "sgd, momentum, nesterov"}},
    {NULL, {{"lr", 1}}, 1, {"\"\"", "sgd, momentum, nesterov"}},
    {"", {{"lr", 1}}, 1, {"\"\""}},
    {"sgd", {{"lr", 1}, {"momentum", 0.5}}, 2, {"sgd", "\"momentum\"", "it has lr"}},
    {"nesterov", {{"lr", 1}, {"dampening", 0}}, 2, {"\"dampening\"", "lr, momentum"}},
    {"momentum", {{"lr", 1}, {"beta1", 0}}, 2, {"\"beta1\"", "lr, momentum, damp"}},
    {"sgd", {{"l", 1}}, 1, {"\"l\""}},
    {"sgd", {{"lrs", 1}}, 1, {"\"lrs\""}},
    {"sgd", {{"", 1}}, 1, {"\"\""}},
    {"sgd", {{"lr", 1}, {"lr", 1}}, 2, {"lr", "twice"}},
    {"momentum", {{"momentum", 0.5}}, 1, {"momentum", "lr must be given"}},
    {"sgd", {{"", 0}}, 0, {"lr must be given"}},
    {"sgd", {{"lr", NAN}}, 1, {"lr is nan", "at least 0 and finite"}},
    {"sgd", {{"lr", -0.5}}, 1, {"lr is -0.5", "at least 0 and finite"}},
    {"sgd", {{"lr", INFINITY}}, 1, {"lr is inf", "at least 0 and finite"}},
    {"sgd", {{"lr", -INFINITY}}, 1, {"lr is -inf"}},
    /* Infinite as the float that is kept. */
    {"sgd", {{"lr", 1e300}}, 1, {"lr is 1e+300", "at least 0 and finite"}},
    {"momentum", {{"lr", 1}, {"momentum", 1}}, 2, {"momentum is 1", "less than 1"}},
    {"momentum", {{"lr", 1}, {"momentum", -0.1}}, 2, {"momentum is -0.1", "at least 0"}},
    {"momentum", {{"lr", 1}, {"momentum", NAN}}, 2, {"momentum is nan"}},
    /* 1 as the float that is kept. */
    {"nesterov", {{"lr", 1}, {"momentum", 0.999999999}}, 2, {"momentum is 0.999999999"}},
    {"momentum", {{"lr", 1}, {"dampening", 1.5}}, 2, {"dampening is 1.5", "from 0 to 1"}},
    {"momentum", {{"lr", 1}, {"dampening", NAN}}, 2, {"dampening is nan"}},
    {"adam", {{"lr", 1}, {"beta1", 1}}, 2, {"adam: beta1 is 1", "less than 1"}},
    {"adam", {{"lr", 1}, {"beta2", 1 - 1e-12}}, 2, {"beta2 is 1", "less than 1"}},
    {"adam", {{"lr", 1}, {"eps", -1e-8}}, 2, {"eps is -1e-08", "at least 0 and finite"}},
    {"adam", {{"lr", 1}, {"amsgrad", 0.5}}, 2, {"amsgrad is 0.5", "0 or 1"}},
    {"adam", {{"lr", 1}, {"centered", 1}}, 2, {"\"centered\"", "eps_hat", "clip_global_norm"}},
    {"adadelta", {{"eps", 0}}, 1, {"eps is 0", "above 0 and finite"}},
    {"ftrl", {{"lr", 1}, {"lr_power", -1.5}}, 2, {"lr_power is -1.5", "from -1 to 0"}},
    {"ftrl", {{"lr", 1}, {"lr_power", 0.5}}, 2, {"lr_power is 0.5"}},
    {"ftrl", {{"lr", 1}, {"weight_decay", 0.5}}, 2, {"\"weight_decay\"", "l1, l2"}},
    {"ftrl", {{"lr", 1}, {"l1", -1}}, 2, {"l1 is -1"}},
    {"lars", {{"lr", 1}, {"decoupled", 1}}, 2, {"\"decoupled\"", "trust"}},
    {"add", {{"lr", 1}, {"clip_value", 1}}, 2, {"\"clip_value\"", "it has lr"}},
    {"add", {{"lr", -1}}, 1, {"lr is -1"}},
    {"sgd", {{"lr", 1}, {"clip_norm", -1}}, 2, {"clip_norm is -1", "at least 0"}},
    {"sgd", {{"lr", 1}, {"clip_value", INFINITY}}, 2, {"clip_value is inf", "finite"}},
    {"sgd", {{"lr", 1}, {"weight_decay", NAN}}, 2, {"weight_decay is nan"}},
    {"sgd", {{"lr", 1}, {"decoupled", 2}}, 2, {"decoupled is 2", "0 or 1"}},
    {"sgd", {{"lr", 1}, {"l1", 0}, {"l1", 0}}, 3, {"l1", "twice"}},
    {"sgd", {{"lr", 1}, {"momentum", 0}}, 2, {"\"momentum\"", "weight_decay, decoupled"}},
};

START_TEST(refusals)
{
	const struct refused *c = &refused[_i];
	struct kern_opt opt, before;

	memset(&opt, 0x5a, sizeof(opt));
	before = opt;
	ck_assert_int_eq(kern_opt_parse(c->rule, c->s, c->n, &opt), -EINVAL);
	for (unsigned i = 0; i < 3 && c->says[i]; i++)
		ck_assert_msg(strstr(err_text(), c->says[i]), "\"%s\" is not in \"%s\"", c->says[i],
			      err_text());
	ck_assert_msg(!memcmp(&opt, &before, sizeof(opt)), "the output was touched");
}
END_TEST

/* A name off the wire may fill its array with no NUL at the end. */
START_TEST(unterminated_name)
{
	struct {
		struct kern_setting s;
		char beyond[16];
	} x = {.s = {.value = 1}, .beyond = "beyond"};
	struct kern_opt opt;

	memset(x.s.name, 'x', sizeof(x.s.name));
	ck_assert_int_eq(kern_opt_parse("sgd", &x.s, 1, &opt), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "\"xxxxxxxxxxxxxxxxxxxxxxxx\""));
}
END_TEST

START_TEST(unknown_rule_lists_all)
{
	struct kern_opt opt;

	ck_assert_int_eq(kern_opt_parse("adagard", NULL, 0, &opt), -EINVAL);
	for (unsigned i = 0; kern_opt_at(i); i++)
		ck_assert_msg(strstr(err_text(), kern_opt_at(i)), "%s is not in \"%s\"",
			      kern_opt_at(i), err_text());
}
END_TEST

static struct kern_opt parsed(const char *rule, const struct kern_setting *s, unsigned n)
{
	struct kern_opt opt;

	ck_assert_msg(kern_opt_parse(rule, s, n, &opt) == 0, "%s", err_text());
	return opt;
}

/* Those of all go to their own places, unless the rule has one of that name. */
START_TEST(commons)
{
	const struct kern_setting s[] = {
	    {"lr", 1},        {"clip_norm", 2}, {"clip_global_norm", 3}, {"clip_value", 4},
	    {"dc_lambda", 5}, {"l1", 6},        {"weight_decay", 7},     {"decoupled", 1}};
	const struct kern_setting own[] = {{"l1", 6}, {"lr", 1}, {"weight_decay", 7}};
	struct kern_opt opt = parsed("adam", s, 8);
	const struct kern_common *c = &opt.common;

	ck_assert(c->clip_norm == 2 && c->clip_global_norm == 3 && c->clip_value == 4 &&
		  c->dc_lambda == 5 && c->l1 == 6 && c->weight_decay == 7 && c->decoupled);
	opt = parsed("sgd", s, 1);
	ck_assert(!opt.common.decoupled && opt.common.weight_decay == 0);
	opt = parsed("adamw", s, 1);
	ck_assert(opt.common.decoupled && opt.common.weight_decay == 0.01f);
	opt = parsed("lion", s, 1);
	ck_assert(opt.common.decoupled && opt.common.weight_decay == 0);
	opt = parsed("ftrl", own, 2);
	ck_assert(opt.common.l1 == 0 && opt.value[1] == 6);
	opt = parsed("lamb", own + 1, 2);
	ck_assert(opt.common.weight_decay == 0 && opt.value[4] == 7);
}
END_TEST

/* What is told of an optimizer makes the same one again, and any change another. */
START_TEST(settings_are_told)
{
	const struct kern_setting s[] = {{"lr", 0.37}};
	struct kern_opt opt = parsed(kern_opt_at((unsigned)_i), s, 1), again;
	struct kern_setting told[32] = {{.value = 0}};
	const char *name;
	unsigned n = 0;

	for (; kern_opt_setting(&opt, n, &name, &told[n].value); n++)
		strncpy(told[n].name, name, sizeof(told[n].name));
	ck_assert_uint_ge(n, 1);
	ck_assert_str_eq(told[0].name, "lr");
	again = parsed(kern_opt_name(&opt), told, n);
	ck_assert(kern_opt_same(&opt, &again));
	for (unsigned i = 0; i < n; i++) {
		double value = told[i].value;

		told[i].value = value == 0 ? 1 : value * 0.5;
		if (!strcmp(told[i].name, "lr_power"))
			told[i].value = -0.25;
		if (value == 1) /* a switch, perhaps */
			told[i].value = 0;
		if (value == 0 && kern_opt_parse(kern_opt_name(&opt), told, n, &again))
			told[i].value = 0.5; /* 1 is too much */
		again = parsed(kern_opt_name(&opt), told, n);
		ck_assert_msg(!kern_opt_same(&opt, &again), "%s does not count", told[i].name);
		told[i].value = value;
	}
}
END_TEST

START_TEST(rows_and_arrays)
{
	const struct kern_setting s[] = {{"lr", 1}, {"amsgrad", 1}};
	const struct kern_setting r[] = {{"lr", 1}, {"centered", 1}, {"momentum", 0.5}};
	struct kern_opt opt = parsed("adam", s, 1);

	ck_assert_uint_eq(kern_opt_arrays(&opt), 2);
	ck_assert_uint_eq(kern_opt_row_state(&opt, 1, 7), 7);
	opt = parsed("adam", s, 2);
	ck_assert_uint_eq(kern_opt_arrays(&opt), 3);
	opt = parsed("rmsprop", r, 1);
	ck_assert_uint_eq(kern_opt_arrays(&opt), 1);
	opt = parsed("rmsprop", r, 2);
	ck_assert_uint_eq(kern_opt_arrays(&opt), 2);
	opt = parsed("rmsprop", r, 3);
	ck_assert_uint_eq(kern_opt_arrays(&opt), 3);
	for (unsigned i = 0; kern_opt_at(i); i++) {
		opt = parsed(kern_opt_at(i), s, 1);
		ck_assert_uint_le(kern_opt_arrays(&opt), KERN_STATE_MAX);
		ck_assert_float_eq(kern_opt_lr(&opt), 1);
		ck_assert(kern_opt_dense(&opt) || kern_opt_by_rows(&opt));
	}
}
END_TEST

Suite *opt_suite(void)
{
	Suite *suite = suite_create("optimizers");
	TCase *tc = tcase_create("parse");

	tcase_add_test(tc, defaults);
	tcase_add_test(tc, all_given);
	tcase_add_loop_test(tc, refusals, 0, sizeof(refused) / sizeof(refused[0]));
	tcase_add_test(tc, unterminated_name);
	tcase_add_test(tc, unknown_rule_lists_all);
	tcase_add_test(tc, commons);
	tcase_add_loop_test(tc, settings_are_told, 0, 16);
	tcase_add_test(tc, rows_and_arrays);
	suite_add_tcase(suite, tc);
	return suite;
}
