/* SPDX-License-Identifier: Apache-2.0
 *
 * What it takes to hand a cache line from one core to another: the least that any signal between
 * two processes of one machine can take. On a virtual machine it changes when the host moves the
 * virtual cores (from neighbours to distant ones), and every latency changes with it: so it is
 * measured beside the latencies, and times whose probes differ are not compared.
 */
#ifndef GS_PERF_PROBE_H
#define GS_PERF_PROBE_H

/* One way, in nanoseconds: half the median round trip of a line between two threads, each on a core
 * of its own (the first two that this process may run on). Takes about 2 ms, and up to 100 when the
 * cores are busy. NAN when there is only one core, or no turn on two at once. Starts two threads;
 * the caller's affinity is left alone. */
double probe_core_to_core_ns(void);

/* The same between the cores `a` and `b`; NAN also when one of them may not be used. */
double probe_pair_ns(int a, int b);

#endif
