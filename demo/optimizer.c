/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers for the demo.
 */
#include "demo/optimizer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { SETTINGS_MAX = 20 };

/* For batches of 48 rows and 22 epochs: the best of those that were tried, over 5 seeds, but the
 * lower one where two were as good. */
static const struct {
	const char *name;
	double lr;
} rates[] = {
    {"sgd", 0.5},      {"momentum", 0.1},
    {"nesterov", 0.1}, {"adagrad", 0.05},
    {"adadelta", 1},   {"rmsprop", 0.002},
    {"adam", 0.002},   {"adamw", 0.002},
    {"adamax", 0.005}, {"ftrl", 0.1},
    {"lars", 3},       {"lamb", 0.005},
    {"lion", 0.0002},  {"decayed_adagrad", 0.005},
};

const char *optimizer_at(unsigned i)
{
	return i < sizeof(rates) / sizeof(rates[0]) ? rates[i].name : NULL;
}

/* NAN: not one of the demo's. */
static double rate_of(const char *name)
{
	for (unsigned i = 0; optimizer_at(i); i++)
		if (!strcmp(rates[i].name, name))
			return rates[i].lr;
	return NAN;
}

/* "name=value", of `len` bytes. */
static int parse_setting(const char *text, size_t len, struct kern_setting *out)
{
	const char *eq = memchr(text, '=', len);
	size_t name = eq ? (size_t)(eq - text) : 0;
	char *end = NULL;

	if (name == 0 || name >= sizeof(out->name) || eq + 1 == text + len)
		return err_set(EINVAL, "\"%.*s\" is not setting=value", (int)len, text);
	memset(out->name, 0, sizeof(out->name));
	memcpy(out->name, text, name);
	out->value = strtod(eq + 1, &end);
	if (end != text + len || !isfinite(out->value))
		return err_set(EINVAL, "\"%.*s\": the value is not a number", (int)len, text);
	return 0;
}

/* Settings with a comma between; NULL: none. How many, or an error. */
static int parse_settings(const char *text, struct kern_setting *s)
{
	int n = 0;

	while (text) {
		size_t len = strcspn(text, ",");
		int rc = n == SETTINGS_MAX ? err_set(EINVAL, "more than %d settings", SETTINGS_MAX)
					   : parse_setting(text, len, &s[n++]);

		if (rc)
			return rc;
		text = text[len] ? text + len + 1 : NULL;
	}
	return n;
}

static bool gives_rate(const struct kern_setting *s, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(s[i].name, "lr"))
			return true;
	return false;
}

enum { NAME_CAP = 32 };

/* The name, cut if it is longer than any, and the settings. How many those are, or an error. */
static int take_apart(const char *text, char name[NAME_CAP], struct kern_setting *s)
{
	const char *colon = strchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : strlen(text);

	snprintf(name, NAME_CAP, "%.*s", (int)(len < NAME_CAP ? len : NAME_CAP), text);
	return parse_settings(colon ? colon + 1 : NULL, s);
}

int optimizer_parse(const char *text, struct kern_opt *out)
{
	struct kern_setting s[SETTINGS_MAX + 1];
	char name[NAME_CAP];
	int n = take_apart(text, name, s);

	if (!strcmp(name, "add"))
		return err_set(EINVAL, "add is for changes of weights; the demo pushes gradients");
	if (!strcmp(name, "rowwise_adagrad"))
		return err_set(EINVAL, "rowwise_adagrad is for tables; the demo has none");
	if (n < 0)
		return n;
	if (!gives_rate(s, n) && !isnan(rate_of(name)))
		s[n++] = (struct kern_setting){"lr", rate_of(name)};
	return kern_opt_parse(name, s, (unsigned)n, out);
}

int optimizer_parse_rows(const char *text, struct kern_opt *out)
{
	struct kern_setting s[SETTINGS_MAX];
	char name[NAME_CAP];
	struct kern_opt opt;
	int n = take_apart(text, name, s);
	int rc = n < 0 ? n : kern_opt_parse(name, s, (unsigned)n, &opt);

	if (rc == 0 && !strcmp(name, "add"))
		rc = err_set(EINVAL, "add is for changes of rows; these are gradients");
	if (rc == 0 && !kern_opt_by_rows(&opt))
		rc = err_set(EINVAL, "optimizer %s needs the whole tensor: it can't work by rows",
			     name);
	if (rc == 0)
		*out = opt;
	return rc;
}

/* As short as gives the same float again. Returns the length. */
static size_t put_float(char *buf, size_t cap, double value)
{
	int n = 0;

	for (int digits = 6; digits <= 9; digits++) {
		n = snprintf(buf, cap, "%.*g", digits, value);
		if ((float)strtod(buf, NULL) == (float)value)
			break;
	}
	return (size_t)n;
}

const char *optimizer_text(const struct kern_opt *opt, char buf[OPTIMIZER_TEXT])
{
	const struct kern_setting lr = {"lr", (double)kern_opt_lr(opt)};
	struct kern_opt plain = *opt;
	const char *name;
	double value, usual;
	size_t n;

	/* Not optimizer_parse: tables have optimizers that it does not take. */
	kern_opt_parse(kern_opt_name(opt), &lr, 1, &plain);
	n = (size_t)snprintf(buf, OPTIMIZER_TEXT, "%s", kern_opt_name(opt));
	for (unsigned i = 0; kern_opt_setting(opt, i, &name, &value) && n < OPTIMIZER_TEXT; i++) {
		kern_opt_setting(&plain, i, &name, &usual);
		if (i != 0 && value == usual)
			continue;
		n += (size_t)snprintf(buf + n, OPTIMIZER_TEXT - n, "%c%s=", i ? ',' : ':', name);
		if (n < OPTIMIZER_TEXT)
			n += put_float(buf + n, OPTIMIZER_TEXT - n, value);
	}
	return buf;
}
