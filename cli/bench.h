/* SPDX-License-Identifier: Apache-2.0
 *
 * The benchmarks of `gradslot bench`: as commands (cli/cmd.h), with argv[0] their name.
 */
#ifndef GS_CLI_BENCH_H
#define GS_CLI_BENCH_H

int bench_latency(int argc, char **argv);
int bench_push(int argc, char **argv);
int bench_pull(int argc, char **argv);
int bench_connect(int argc, char **argv);
int bench_scale(int argc, char **argv);
int bench_apply(int argc, char **argv);
int bench_rows(int argc, char **argv);
int bench_step(int argc, char **argv);

#endif
