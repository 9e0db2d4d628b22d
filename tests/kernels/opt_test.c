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

Suite *opt_suite(void)
{
	Suite *suite = suite_create("optimizers");
	TCase *tc = tcase_create("parse");

	tcase_add_test(tc, defaults);
	tcase_add_test(tc, all_given);
	tcase_add_loop_test(tc, refusals, 0, sizeof(refused) / sizeof(refused[0]));
	tcase_add_test(tc, unterminated_name);
	suite_add_tcase(suite, tc);
	return suite;
}
