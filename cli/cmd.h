/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands of `gradslot`. Each takes its own argv (argv[0] is the command's name), prints its
 * results to stdout and everything else to stderr, and returns the exit status: EXIT_OK,
 * EXIT_FAILED or EXIT_USAGE of cli/opt.h.
 */
#ifndef GS_CLI_CMD_H
#define GS_CLI_CMD_H

int cmd_serve(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_words(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_soak(int argc, char **argv);

/* Not for users: what demo, words, bench and soak start as processes of their own. */
int cmd_demo_trainer(int argc, char **argv);
int cmd_demo_single(int argc, char **argv);
int cmd_words_trainer(int argc, char **argv);
int cmd_words_single(int argc, char **argv);
int cmd_bench_trainer(int argc, char **argv);
int cmd_bench_peer(int argc, char **argv);
int cmd_soak_trainer(int argc, char **argv);

#endif
