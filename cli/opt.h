/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of a command, from a table: parsing, checking and --help all read the same lines, so they
 * can't disagree. A message names the option, the value it was given and what it may be.
 */
#ifndef GS_CLI_OPT_H
#define GS_CLI_OPT_H

#include <stdbool.h>
#include <stdint.h>

/* Exit statuses of every command. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

enum opt_kind {
	OPT_FLAG,   /* to: bool; set when the option is given */
	OPT_TEXT,   /* to: const char *; not empty */
	OPT_TEXTS,  /* to: struct opt_texts; may be given again, up to `max` times */
	OPT_NUMBER, /* to: int64_t; min..max, or `word` */
	OPT_SIZE, /* to: int64_t, bytes; 4096, 4K, 64M, 1G (powers of 1024); min..max, or `word` */
	OPT_CHOICE, /* to: int, an index into `choices` */
	OPT_PARSED, /* to: whatever `parse` fills */
};

enum { OPT_TEXTS_MAX = 16 };

struct opt_texts {
	const char *text[OPT_TEXTS_MAX];
	uint32_t n;
};

struct opt {
	const char *name; /* without the dashes; NULL ends the table */
	enum opt_kind kind;
	void *to;            /* holds the default when parsing starts; below `min`: not shown */
	const char *operand; /* what --help calls the value */
	const char *help;
	int64_t min, max;
	int64_t multiple;           /* 0, or what the value must be a multiple of */
	const char *word;           /* a word that is allowed in place of a number… */
	int64_t word_value;         /* … and what it stands for */
	const char *const *choices; /* NULL-terminated */
	/* OPT_PARSED: 0, or negative with "it may be ..." as err_text(), `to` untouched. */
	int (*parse)(const char *value, void *to);
	const char *shown; /* OPT_PARSED: the default, for --help */
};

struct opt_command {
	const char *name;    /* "gradslot serve" */
	const char *summary; /* one line */
	const char *text;    /* more, under the options; or NULL */
	const struct opt *opts;
};

enum { OPT_RUN = -1 };

/* Reads argv[1…] into the table's targets. --help goes to stdout, errors to stderr.
 * Returns OPT_RUN, or the status to exit with: EXIT_OK after --help, EXIT_USAGE after an error. */
int opt_parse(const struct opt_command *cmd, int argc, char **argv);

/* What is given without a name: PATH. All of a command's are wanted, in their order, before,
 * between or behind its options; behind `--` one may begin with a dash. */
struct opt_operand {
	const char *name; /* NULL ends the table */
	const char **to;
};

/* The same of a command that takes operands. */
int opt_parse_with(const struct opt_command *cmd, const struct opt_operand *operands, int argc,
		   char **argv);

/* A usage error that no single line of the table can find ("--iters and --duration exclude one
 * another"): printed as opt_parse prints its own. Returns EXIT_USAGE. */
int opt_usage(const struct opt_command *cmd, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* "256K", "64M", "1000": the longest unit that divides it. Returns buf. */
const char *opt_size_text(int64_t bytes, char buf[32]);

#endif
