/* SPDX-License-Identifier: Apache-2.0
 *
 * gradslot: the program. Finds the command and hands it the rest of the line.
 */
#include "cli/cmd.h"
#include "cli/opt.h"

#include <stdio.h>
#include <string.h>

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary; /* NULL: not for users */
} commands[] = {
    {"serve", cmd_serve, "run the parameter server"},
    {"demo", cmd_demo, "train on real data and check the result against one process"},
    {"words", cmd_words, "train word vectors on a real text, through tables by rows"},
    {"bench", cmd_bench, "measure latency, bandwidth and whole training steps"},
    {"inspect", cmd_inspect, "say what is in a checkpoint, and whether it is sound"},
    {"export", cmd_export, "write a checkpoint's weights as a safetensors file"},
    {"soak", cmd_soak, "kill trainers and servers, and check that nothing is lost or doubled"},
    {"doctor", cmd_doctor, "say what this machine can do, and why not what it can't"},
    {"demo-trainer", cmd_demo_trainer, NULL},
    {"demo-single", cmd_demo_single, NULL},
    {"words-trainer", cmd_words_trainer, NULL},
    {"words-single", cmd_words_single, NULL},
    {"bench-trainer", cmd_bench_trainer, NULL},
    {"bench-peer", cmd_bench_peer, NULL},
    {"soak-trainer", cmd_soak_trainer, NULL},
};

static void print_commands(FILE *to)
{
	fprintf(to, "Usage: gradslot COMMAND [OPTION]...\n\nCommands:\n");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (commands[i].summary)
			fprintf(to, "  %-10s%s\n", commands[i].name, commands[i].summary);
	}
	fprintf(to,
		"\n`gradslot COMMAND --help` shows a command's options; `gradslot --version` the "
		"version.\nExit status: 0 done, 1 failed, 2 wrong usage.\n");
}

/* A result that nobody could read is a failure, too. */
static int finish(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	fprintf(stderr, "gradslot: the output can't be written\n");
	return status == EXIT_OK ? EXIT_FAILED : status;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
		print_commands(stdout);
		return finish(EXIT_OK);
	}
	if (!strcmp(name, "--version")) {
		printf("gradslot %s\n", GS_VERSION);
		return finish(EXIT_OK);
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (!strcmp(name, commands[i].name))
			return finish(commands[i].run(argc - 1, argv + 1));
	}
	if (*name)
		fprintf(stderr, "gradslot: there is no command '%s'\n\n", name);
	print_commands(stderr);
	return EXIT_USAGE;
}
