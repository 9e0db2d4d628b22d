/* SPDX-License-Identifier: Apache-2.0
 *
 * The option parser. Only `--name value` and `--name=value`: every option of gradslot has a long
 * name and takes one value or none, so nothing more is needed.
 */
#include "cli/opt.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { RANGE_TEXT_MAX = 256, HELP_COLUMN = 28 };

const char *opt_size_text(int64_t bytes, char buf[32])
{
	static const char units[] = "KMGT";
	int64_t value = bytes;
	int unit = -1;

	while (value != 0 && value % 1024 == 0 && unit < 3) {
		value /= 1024;
		unit++;
	}
	if (unit < 0)
		snprintf(buf, 32, "%" PRId64, value);
	else
		snprintf(buf, 32, "%" PRId64 "%c", value, units[unit]);
	return buf;
}

int opt_usage(const struct opt_command *cmd, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", cmd->name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nSee `%s --help`.\n", cmd->name);
	return EXIT_USAGE;
}

/* What the option may be, for messages: "1..64", "4K..1G", "sync or async". */
static const char *allowed(const struct opt *o, char buf[RANGE_TEXT_MAX])
{
	char lo[32], hi[32];
	int n = 0;

	buf[0] = 0;
	switch (o->kind) {
	case OPT_SIZE:
		n = snprintf(buf, RANGE_TEXT_MAX, "a size from %s to %s", opt_size_text(o->min, lo),
			     opt_size_text(o->max, hi));
		break;
	case OPT_NUMBER:
		n = snprintf(buf, RANGE_TEXT_MAX, "a number from %" PRId64 " to %" PRId64, o->min,
			     o->max);
		break;
	case OPT_CHOICE:
		for (int i = 0; o->choices[i]; i++)
			n += snprintf(buf + n, (size_t)(RANGE_TEXT_MAX - n), "%s%s",
				      !i                  ? ""
				      : o->choices[i + 1] ? ", "
							  : " or ",
				      o->choices[i]);
		return buf;
	default:
		snprintf(buf, RANGE_TEXT_MAX, "%s", o->operand);
		return buf;
	}
	if (o->multiple)
		n += snprintf(buf + n, (size_t)(RANGE_TEXT_MAX - n), ", a multiple of %s",
			      opt_size_text(o->multiple, lo));
	if (o->word)
		snprintf(buf + n, (size_t)(RANGE_TEXT_MAX - n), ", or %s", o->word);
	return buf;
}

static int bad_value(const struct opt_command *cmd, const struct opt *o, const char *value)
{
	char buf[RANGE_TEXT_MAX];

	return opt_usage(cmd, "--%s can't be '%s': it may be %s", o->name, value, allowed(o, buf));
}

/* Digits, then for sizes at most one unit. Returns false for anything else, also for what would not
 * fit into 64 bits. */
static bool parse_number(const char *text, bool units, int64_t *out)
{
	static const char letters[] = "KMGT";
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	int64_t value = strtoll(text, &end, 10);
	if (errno)
		return false;
	if (units && *end) {
		const char *unit = strchr(letters, toupper((unsigned char)*end));
		if (!unit ||
		    __builtin_mul_overflow(value, INT64_C(1) << 10 * (unit - letters + 1), &value))
			return false;
		end++;
		if (!strcmp(end, "iB") || !strcmp(end, "B"))
			end += strlen(end);
	}
	if (*end)
		return false;
	*out = value;
	return true;
}

static int set_number(const struct opt_command *cmd, const struct opt *o, const char *value)
{
	int64_t number;

	if (o->word && !strcmp(value, o->word)) {
		*(int64_t *)o->to = o->word_value;
		return OPT_RUN;
	}
	if (!parse_number(value, o->kind == OPT_SIZE, &number) || number < o->min ||
	    number > o->max || (o->multiple && number % o->multiple))
		return bad_value(cmd, o, value);
	*(int64_t *)o->to = number;
	return OPT_RUN;
}

static int set_choice(const struct opt_command *cmd, const struct opt *o, const char *value)
{
	for (int i = 0; o->choices[i]; i++) {
		if (!strcmp(value, o->choices[i])) {
			*(int *)o->to = i;
			return OPT_RUN;
		}
	}
	return bad_value(cmd, o, value);
}

static int set_parsed(const struct opt_command *cmd, const struct opt *o, const char *value)
{
	if (o->parse(value, o->to) < 0)
		return opt_usage(cmd, "--%s can't be '%s': %s", o->name, value, err_text());
	return OPT_RUN;
}

static int add_text(const struct opt_command *cmd, const struct opt *o, const char *value)
{
	struct opt_texts *list = o->to;

	if (list->n == (uint32_t)o->max)
		return opt_usage(cmd,
				 "--%s '%s' is one too many: it may be given %" PRId64 " times",
				 o->name, value, o->max);
	list->text[list->n++] = value;
	return OPT_RUN;
}

static int set_value(const struct opt_command *cmd, const struct opt *o, const char *value)
{
	switch (o->kind) {
	case OPT_NUMBER:
	case OPT_SIZE:
		return set_number(cmd, o, value);
	case OPT_CHOICE:
		return set_choice(cmd, o, value);
	case OPT_TEXT:
	case OPT_TEXTS:
		if (!*value)
			return bad_value(cmd, o, value);
		if (o->kind == OPT_TEXTS)
			return add_text(cmd, o, value);
		*(const char **)o->to = value;
		return OPT_RUN;
	case OPT_PARSED:
		return set_parsed(cmd, o, value);
	case OPT_FLAG:
		break;
	}
	return OPT_RUN;
}

static void print_default(const struct opt *o)
{
	char buf[32];
	int64_t number;

	switch (o->kind) {
	case OPT_NUMBER:
	case OPT_SIZE:
		number = *(int64_t *)o->to;
		if (o->word && number == o->word_value)
			printf(" (default %s)", o->word);
		else if (number < o->min)
			break; /* chosen later: the help text says how */
		else if (o->kind == OPT_SIZE)
			printf(" (default %s)", opt_size_text(number, buf));
		else
			printf(" (default %" PRId64 ")", number);
		break;
	case OPT_CHOICE:
		printf(" (default %s)", o->choices[*(int *)o->to]);
		break;
	case OPT_TEXT:
		if (*(const char **)o->to)
			printf(" (default %s)", *(const char **)o->to);
		break;
	case OPT_PARSED:
		printf(" (default %s)", o->shown);
		break;
	default:
		break;
	}
}

static void print_help(const struct opt_command *cmd, const struct opt_operand *operands)
{
	printf("Usage: %s", cmd->name);
	for (const struct opt_operand *o = operands; o && o->name; o++)
		printf(" %s", o->name);
	printf("%s\n\n%s\n", cmd->opts[0].name ? " [OPTION]..." : "", cmd->summary);
	printf("\nOptions:\n");
	for (const struct opt *o = cmd->opts; o->name; o++) {
		int n = printf("  --%s%s%s", o->name, o->operand ? " " : "",
			       o->operand ? o->operand : "");
		if (n > HELP_COLUMN - 2)
			printf("\n%*s", HELP_COLUMN, "");
		else
			printf("%*s", HELP_COLUMN - n, "");
		printf("%s", o->help);
		print_default(o);
		printf("\n");
	}
	printf("  %-*s%s\n", HELP_COLUMN - 2, "--help", "show this and exit");
	if (cmd->text)
		printf("\n%s", cmd->text);
}

/* The option that `arg` names, up to its end or a '='; *value is what follows the '=', or NULL. */
static const struct opt *find(const struct opt_command *cmd, const char *arg, const char **value)
{
	const char *eq = strchr(arg, '=');
	size_t len = eq ? (size_t)(eq - arg) : strlen(arg);

	for (const struct opt *o = cmd->opts; o->name; o++) {
		if (strlen(o->name) == len && !memcmp(o->name, arg, len)) {
			*value = eq ? eq + 1 : NULL;
			return o;
		}
	}
	return NULL;
}

static int unknown(const struct opt_command *cmd, bool operands, const char *arg)
{
	char names[1024];
	size_t n = 0;

	if (arg[0] != '-' && operands)
		return opt_usage(cmd, "'%s' is one too many", arg);
	if (arg[0] != '-')
		return opt_usage(cmd, "'%s' is not an option: there are only options here", arg);
	for (const struct opt *o = cmd->opts; o->name && n < sizeof(names); o++)
		n += (size_t)snprintf(names + n, sizeof(names) - n, "--%s, ", o->name);
	if (n < sizeof(names))
		snprintf(names + n, sizeof(names) - n, "--help");
	return opt_usage(cmd, "there is no option '%s': there are %s", arg, names);
}

/* The option at argv[*i], and its value, if that is the next one. */
static int parse_option(const struct opt_command *cmd, bool operands, int argc, char **argv, int *i)
{
	const char *arg = argv[*i], *value = NULL;
	const struct opt *o = !strncmp(arg, "--", 2) ? find(cmd, arg + 2, &value) : NULL;

	if (!o)
		return unknown(cmd, operands, arg);
	if (o->kind == OPT_FLAG) {
		if (value)
			return opt_usage(cmd, "--%s takes no value, but got '%s'", o->name, value);
		*(bool *)o->to = true;
		return OPT_RUN;
	}
	if (!value && *i + 1 == argc) {
		char buf[RANGE_TEXT_MAX];
		return opt_usage(cmd, "--%s needs a value: %s", o->name, allowed(o, buf));
	}
	return set_value(cmd, o, value ? value : argv[++*i]);
}

int opt_parse_with(const struct opt_command *cmd, const struct opt_operand *operands, int argc,
		   char **argv)
{
	const struct opt_operand *next = operands;
	bool only_operands = false; /* behind -- */

	for (int i = 1; i < argc; i++) {
		if (!only_operands && (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))) {
			print_help(cmd, operands);
			return EXIT_OK;
		}
		if (operands && !only_operands && !strcmp(argv[i], "--")) {
			only_operands = true;
		} else if (next && next->name && (only_operands || argv[i][0] != '-')) {
			*next++->to = argv[i];
		} else if (only_operands) {
			return opt_usage(cmd, "'%s' is one too many", argv[i]);
		} else {
			int rc = parse_option(cmd, operands != NULL, argc, argv, &i);
			if (rc != OPT_RUN)
				return rc;
		}
	}
	if (next && next->name)
		return opt_usage(cmd, "%s is missing", next->name);
	return OPT_RUN;
}

int opt_parse(const struct opt_command *cmd, int argc, char **argv)
{
	return opt_parse_with(cmd, NULL, argc, argv);
}
