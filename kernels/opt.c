/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers by name, and their settings: the rule's own and those that every optimizer takes.
 */
#include "kernels/kern.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "kernels/isa.h"

enum { NAME = sizeof(((struct kern_setting *)0)->name), TEXT = 400 };

/* In the order of kern_common. */
static const struct {
	const char *name;
	unsigned part; /* of what a rule takes */
	enum kern_limit limit;
} commons[] = {
    {"clip_norm", KERN_CLIPS, KERN_NOT_NEGATIVE},
    {"clip_global_norm", KERN_CLIPS, KERN_NOT_NEGATIVE},
    {"clip_value", KERN_CLIPS, KERN_NOT_NEGATIVE},
    {"dc_lambda", KERN_DELAY, KERN_NOT_NEGATIVE},
    {"l1", KERN_L1, KERN_NOT_NEGATIVE},
    {"weight_decay", KERN_DECAY, KERN_NOT_NEGATIVE},
    {"decoupled", KERN_DECAY, KERN_SWITCH},
};

enum { COMMONS = sizeof(commons) / sizeof(commons[0]) };

static float *common_at(struct kern_common *c, unsigned i)
{
	float *const at[] = {&c->clip_norm, &c->clip_global_norm, &c->clip_value, &c->dc_lambda,
			     &c->l1,        &c->weight_decay};

	return at[i];
}

static const struct {
	const char *text;
	float min, max;
	bool above, below; /* min, max itself is outside */
} limits[] = {
    [KERN_NOT_NEGATIVE] = {"at least 0 and finite", 0, FLT_MAX, false, false},
    [KERN_POSITIVE] = {"above 0 and finite", 0, FLT_MAX, true, false},
    [KERN_BELOW_1] = {"at least 0 and less than 1", 0, 1, false, true},
    [KERN_TO_1] = {"from 0 to 1", 0, 1, false, false},
    [KERN_SWITCH] = {"0 or 1", 0, 1, false, false},
    [KERN_MINUS_1_TO_0] = {"from -1 to 0", -1, 0, false, false},
};

static bool within(enum kern_limit limit, float v)
{
	if (limit == KERN_SWITCH && v != 0 && v != 1)
		return false;
	return (limits[limit].above ? v > limits[limit].min : v >= limits[limit].min) &&
	       (limits[limit].below ? v < limits[limit].max : v <= limits[limit].max);
}

/* ---- lists for error texts ------------------------------------------------------------------- */

struct text {
	char at[TEXT];
	size_t len;
};

static void text_add(struct text *t, const char *name)
{
	t->len += (size_t)snprintf(t->at + t->len, TEXT - t->len, "%s%s", t->len ? ", " : "", name);
	if (t->len > TEXT - 1)
		t->len = TEXT - 1;
}

static const char *all_rules(struct text *t)
{
	*t = (struct text){.len = 0};
	for (unsigned i = 0; kern_rule_at(i); i++)
		text_add(t, kern_rule_at(i)->name);
	return t->at;
}

static const char *all_settings(const struct kern_rule *rule, struct text *t)
{
	*t = (struct text){.len = 0};
	for (const struct kern_param *p = rule->param; p->name; p++)
		text_add(t, p->name);
	for (unsigned i = 0; i < COMMONS; i++)
		if (rule->common & commons[i].part)
			text_add(t, commons[i].name);
	return t->at;
}

/* ---- parsing --------------------------------------------------------------------------------- */

static int find_rule(const char *name)
{
	struct text t;

	for (unsigned i = 0; kern_rule_at(i); i++)
		if (name && !strcmp(name, kern_rule_at(i)->name))
			return (int)i;
	return err_set(EINVAL, "optimizer \"%.32s\": unknown; there are %s", name ? name : "",
		       all_rules(&t));
}

/* Its number: the rule's own come first, those that all have from KERN_VALUES_MAX on. */
static int find_setting(const struct kern_rule *rule, const struct kern_setting *s)
{
	struct text t;

	for (unsigned i = 0; rule->param[i].name; i++)
		if (!strncmp(s->name, rule->param[i].name, NAME))
			return (int)i;
	for (unsigned i = 0; i < COMMONS; i++)
		if (rule->common & commons[i].part && !strncmp(s->name, commons[i].name, NAME))
			return (int)(KERN_VALUES_MAX + i);
	return err_set(EINVAL, "optimizer %s has no setting \"%.*s\"; it has %s", rule->name, NAME,
		       s->name, all_settings(rule, &t));
}

static int take(const struct kern_rule *rule, unsigned i, double value, struct kern_opt *opt)
{
	bool own = i < KERN_VALUES_MAX;
	unsigned k = own ? i : i - KERN_VALUES_MAX;
	enum kern_limit limit = own ? rule->param[k].limit : commons[k].limit;
	float v = (float)value;

	if (!within(limit, v))
		return err_set(EINVAL, "optimizer %s: %s is %.9g; it must be %s", rule->name,
			       own ? rule->param[k].name : commons[k].name, value,
			       limits[limit].text);
	if (own)
		opt->value[k] = v;
	else if (k == COMMONS - 1)
		opt->common.decoupled = v != 0;
	else
		*common_at(&opt->common, k) = v;
	return 0;
}

static int check_given(const struct kern_rule *rule, const bool *given)
{
	struct text t;

	for (unsigned i = 0; rule->param[i].name; i++)
		if (!given[i] && isnan(rule->param[i].fallback))
			return err_set(EINVAL,
				       "optimizer %s: %s must be given; the settings are %s",
				       rule->name, rule->param[i].name, all_settings(rule, &t));
	return 0;
}

int kern_opt_parse(const char *name, const struct kern_setting *s, unsigned n, struct kern_opt *out)
{
	bool given[KERN_VALUES_MAX + COMMONS] = {false};
	const struct kern_rule *rule;
	struct kern_opt opt = {0};
	int number = find_rule(name), rc;

	if (number < 0)
		return number;
	rule = kern_rule_at((unsigned)number);
	opt.rule = (unsigned)number;
	opt.common = rule->fallback;
	for (unsigned i = 0; rule->param[i].name; i++)
		opt.value[i] = rule->param[i].fallback;
	for (unsigned i = 0; i < n; i++) {
		int k = find_setting(rule, &s[i]);

		if (k < 0)
			return k;
		if (given[k])
			return err_set(EINVAL, "optimizer %s: %.*s is given twice", rule->name,
				       NAME, s[i].name);
		given[k] = true;
		rc = take(rule, (unsigned)k, s[i].value, &opt);
		if (rc)
			return rc;
	}
	rc = check_given(rule, given);
	if (rc == 0)
		*out = opt;
	return rc;
}

/* ---- what is known of one -------------------------------------------------------------------- */

const char *kern_opt_name(const struct kern_opt *opt)
{
	return kern_rule_at(opt->rule)->name;
}

const char *kern_opt_at(unsigned i)
{
	return kern_rule_at(i) ? kern_rule_at(i)->name : NULL;
}

bool kern_opt_same(const struct kern_opt *a, const struct kern_opt *b)
{
	struct kern_common x = a->common, y = b->common;
	bool same = a->rule == b->rule && x.decoupled == y.decoupled;

	for (unsigned i = 0; i < KERN_VALUES_MAX && same; i++)
		same = a->value[i] == b->value[i];
	for (unsigned i = 0; i + 1 < COMMONS && same; i++)
		same = *common_at(&x, i) == *common_at(&y, i);
	return same;
}

bool kern_opt_setting(const struct kern_opt *opt, unsigned i, const char **name, double *value)
{
	const struct kern_rule *rule = kern_rule_at(opt->rule);
	struct kern_common common = opt->common;
	unsigned own = 0, left;

	for (; rule->param[own].name; own++)
		if (own == i) {
			*name = rule->param[i].name;
			*value = opt->value[i];
			return true;
		}
	left = i - own;
	for (unsigned k = 0; k < COMMONS; k++) {
		if (!(rule->common & commons[k].part) || left--)
			continue;
		*name = commons[k].name;
		*value = k == COMMONS - 1 ? common.decoupled : *common_at(&common, k);
		return true;
	}
	return false;
}

unsigned kern_opt_arrays(const struct kern_opt *opt)
{
	return kern_rule_at(opt->rule)->arrays(opt->value);
}

size_t kern_opt_row_state(const struct kern_opt *opt, unsigned i, size_t dim)
{
	return kern_rule_at(opt->rule)->row ? 1 : dim;
}

bool kern_opt_by_rows(const struct kern_opt *opt)
{
	return kern_rule_at(opt->rule)->by_rows;
}

bool kern_opt_dense(const struct kern_opt *opt)
{
	return !kern_rule_at(opt->rule)->row;
}

bool kern_opt_prepares(const struct kern_opt *opt)
{
	return kern_rule_at(opt->rule)->first != NULL;
}
