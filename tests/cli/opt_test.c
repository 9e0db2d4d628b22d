/* SPDX-License-Identifier: Apache-2.0
 *
 * The option parser: values, limits, and what its messages must name.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/opt.h"
#include "run.h"

static struct {
	bool flag;
	const char *text;
	struct opt_texts texts;
	int64_t number, size;
	int choice;
	int even;
} got;

static int parse_even(const char *text, void *to)
{
	int value = atoi(text);

	if (value % 2)
		return err_set(EINVAL, "it may be even, as %d", value + 1);
	*(int *)to = value;
	return 0;
}

static const char *const colours[] = {"red", "green", "blue", NULL};

static const struct opt table[] = {
    {"flag", OPT_FLAG, &got.flag, NULL, .help = "a flag"},
    {"text", OPT_TEXT, &got.text, "WORD", .help = "a text"},
    {"texts", OPT_TEXTS, &got.texts, "WORD", "texts", .max = 3},
    {"number", OPT_NUMBER, &got.number, "N", "a number", .min = 0, .max = 64, .word = "forever",
     .word_value = -1},
    {"size", OPT_SIZE, &got.size, "BYTES", "a size", .min = 4096, .max = 1 << 30, .multiple = 4},
    {"choice", OPT_CHOICE, &got.choice, "COLOUR", "a colour", .choices = colours},
    {"even", OPT_PARSED, &got.even, "EVEN", "an even number", .parse = parse_even, .shown = "two"},
    {NULL},
};

static const struct opt_command command = {"prog try", "Tries.", "More.\n", table};

static const char *from, *to;
static const struct opt_operand two[] = {{"FROM", &from}, {"TO", &to}, {NULL, NULL}};
static const struct opt_operand *operands; /* of the next parse */

static char said[4096]; /* on stdout and stderr */

/* Parses the arguments (NULL-terminated) with output caught in `said`. */
static int parse(const char *first, ...)
{
	char *argv[16] = {(char *)"try"};
	int argc = 1, fds[2] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
	FILE *out = tmpfile();
	va_list ap;

	memset(&got, 0, sizeof(got));
	va_start(ap, first);
	for (const char *a = first; a; a = va_arg(ap, const char *))
		argv[argc++] = (char *)(uintptr_t)a;
	va_end(ap);
	fflush(stdout);
	dup2(fileno(out), STDOUT_FILENO);
	dup2(fileno(out), STDERR_FILENO);
	int rc = operands ? opt_parse_with(&command, operands, argc, argv)
			  : opt_parse(&command, argc, argv);
	fflush(stdout);
	dup2(fds[0], STDOUT_FILENO);
	dup2(fds[1], STDERR_FILENO);
	close(fds[0]);
	close(fds[1]);
	rewind(out);
	said[fread(said, 1, sizeof(said) - 1, out)] = 0;
	fclose(out);
	return rc;
}

static void must_say(const char *what)
{
	ck_assert_msg(strstr(said, what) != NULL, "'%s' is not in: %s", what, said);
}

START_TEST(values)
{
	ck_assert_int_eq(parse("--flag", "--text", "a b", "--number=7", "--size", "64M", "--choice",
			       "blue", NULL),
			 OPT_RUN);
	ck_assert(got.flag);
	ck_assert_str_eq(got.text, "a b");
	ck_assert_int_eq(got.number, 7);
	ck_assert_int_eq(got.size, 64 << 20);
	ck_assert_int_eq(got.choice, 2);
	ck_assert_str_eq(said, "");
}
END_TEST

START_TEST(the_last_one_counts)
{
	ck_assert_int_eq(parse("--number", "1", "--number", "2", NULL), OPT_RUN);
	ck_assert_int_eq(got.number, 2);
}
END_TEST

START_TEST(words_stand_for_numbers)
{
	ck_assert_int_eq(parse("--number", "forever", NULL), OPT_RUN);
	ck_assert_int_eq(got.number, -1);
	ck_assert_int_eq(parse("--size", "forever", NULL), EXIT_USAGE);
}
END_TEST

START_TEST(sizes)
{
	static const struct {
		const char *text;
		int64_t bytes;
	} good[] = {{"4096", 4096},  {"4K", 4096},       {"4k", 4096}, {"4KiB", 4096},
		    {"1G", 1 << 30}, {"1024M", 1 << 30}, {"8KB", 8192}};
	static const char *const bad[] = {
	    "",           "K",      "4",  "4095", "-4K",   "4.5K", "4KX",
	    "4 K",        "0x1000", "2G", "4097", "+4096", " 4K",  "9999999999999999999999",
	    "9000000000G"};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ck_assert_int_eq(parse("--size", good[i].text, NULL), OPT_RUN);
		ck_assert_int_eq(got.size, good[i].bytes);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_msg(parse("--size", bad[i], NULL) == EXIT_USAGE, "'%s'", bad[i]);
		must_say("--size");
		must_say(bad[i]);
		must_say("a size from 4K to 1G, a multiple of 4");
	}
}
END_TEST

START_TEST(messages_name_option_value_and_limits)
{
	ck_assert_int_eq(parse("--number", "65", NULL), EXIT_USAGE);
	must_say("prog try: --number can't be '65': it may be a number from 0 to 64, or forever");
	ck_assert_int_eq(parse("--number=x", NULL), EXIT_USAGE);
	must_say("'x'");
	ck_assert_int_eq(parse("--choice", "pink", NULL), EXIT_USAGE);
	must_say("--choice can't be 'pink': it may be red, green or blue");
	ck_assert_int_eq(parse("--text=", NULL), EXIT_USAGE);
	must_say("--text can't be ''");
	ck_assert_int_eq(parse("--number", NULL), EXIT_USAGE);
	must_say("--number needs a value: a number from 0 to 64");
	ck_assert_int_eq(parse("--flag=yes", NULL), EXIT_USAGE);
	must_say("--flag takes no value, but got 'yes'");
	ck_assert_int_eq(parse("--even", "7", NULL), EXIT_USAGE);
	must_say("--even can't be '7': it may be even, as 8");
	ck_assert_int_eq(parse("--even", "8", NULL), OPT_RUN);
	ck_assert_int_eq(got.even, 8);
}
END_TEST

START_TEST(unknown_options)
{
	ck_assert_int_eq(parse("--numbers", "1", NULL), EXIT_USAGE);
	must_say("'--numbers'");
	must_say("--number, --size");
	ck_assert_int_eq(parse("--num", "1", NULL), EXIT_USAGE);
	ck_assert_int_eq(parse("file", NULL), EXIT_USAGE);
	must_say("'file'");
	ck_assert_int_eq(parse("-x", NULL), EXIT_USAGE);
	ck_assert_int_eq(parse("--", NULL), EXIT_USAGE);
}
END_TEST

START_TEST(lists_are_bounded)
{
	ck_assert_int_eq(parse("--texts", "a", "--texts=b", "--texts", "c", NULL), OPT_RUN);
	ck_assert_uint_eq(got.texts.n, 3);
	ck_assert_str_eq(got.texts.text[1], "b");
	ck_assert_int_eq(
	    parse("--texts", "a", "--texts", "b", "--texts", "c", "--texts", "d", NULL),
	    EXIT_USAGE);
	must_say("--texts 'd' is one too many: it may be given 3 times");
}
END_TEST

START_TEST(help)
{
	ck_assert_int_eq(parse("--number", "3", "--help", NULL), EXIT_OK);
	must_say("Usage: prog try");
	for (const struct opt *o = table; o->name; o++)
		must_say(o->name);
	must_say("an even number (default two)");
	must_say("More.");
}
END_TEST

START_TEST(operands_stand_anywhere)
{
	operands = two;
	ck_assert_int_eq(parse("a", "--number", "7", "b", "--flag", NULL), OPT_RUN);
	ck_assert_str_eq(from, "a");
	ck_assert_str_eq(to, "b");
	ck_assert(got.number == 7 && got.flag);
	ck_assert_int_eq(parse("--flag", "--", "--number", "-h", NULL), OPT_RUN);
	ck_assert_str_eq(from, "--number");
	ck_assert_str_eq(to, "-h");
	ck_assert_int_eq(parse("a", "--", "b", NULL), OPT_RUN);
	ck_assert_str_eq(to, "b");
}
END_TEST

START_TEST(all_operands_are_wanted)
{
	operands = two;
	ck_assert_int_eq(parse(NULL), EXIT_USAGE);
	must_say("FROM is missing");
	ck_assert_int_eq(parse("a", "--flag", NULL), EXIT_USAGE);
	must_say("TO is missing");
	ck_assert_int_eq(parse("a", "b", "c", NULL), EXIT_USAGE);
	must_say("'c' is one too many");
	ck_assert_int_eq(parse("--", "a", "b", "--flag", NULL), EXIT_USAGE);
	must_say("'--flag' is one too many");
	ck_assert_int_eq(parse("a", "-b", "c", NULL), EXIT_USAGE);
	must_say("no option '-b'");
	ck_assert_int_eq(parse("--help", NULL), EXIT_OK);
	must_say("Usage: prog try FROM TO [OPTION]...");
	/* Without a table of them there are none, and `--` is no option. */
	operands = NULL;
	ck_assert_int_eq(parse("--", NULL), EXIT_USAGE);
}
END_TEST

START_TEST(size_texts)
{
	static const struct {
		int64_t bytes;
		const char *text;
	} known[] = {{0, "0"},
		     {1, "1"},
		     {1000, "1000"},
		     {1024, "1K"},
		     {1536, "1536"},
		     {64 << 20, "64M"},
		     {(64 << 20) + 1, "67108865"},
		     {1 << 30, "1G"},
		     {INT64_C(1) << 50, "1024T"}};
	char buf[32];

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		ck_assert_str_eq(opt_size_text(known[i].bytes, buf), known[i].text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("opt");
	TCase *tc = tcase_create("options");

	tcase_add_test(tc, values);
	tcase_add_test(tc, the_last_one_counts);
	tcase_add_test(tc, words_stand_for_numbers);
	tcase_add_test(tc, sizes);
	tcase_add_test(tc, messages_name_option_value_and_limits);
	tcase_add_test(tc, unknown_options);
	tcase_add_test(tc, lists_are_bounded);
	tcase_add_test(tc, help);
	tcase_add_test(tc, operands_stand_anywhere);
	tcase_add_test(tc, all_operands_are_wanted);
	tcase_add_test(tc, size_texts);
	suite_add_tcase(suite, tc);
	SRunner *runner = srunner_create(suite);
	return run_all(runner);
}
