/* SPDX-License-Identifier: Apache-2.0
 *
 * What it takes two processes to wake one another: the least that a step can take whose sides sleep.
 */
#ifndef GS_PERF_WAKE_H
#define GS_PERF_WAKE_H

/* The median of `rounds` round trips: one process writes an eventfd and sleeps reading another, which the
 * other process, asleep until then, answers. The other one runs on the CPU of wake_pin(1). 0 when a process
 * or descriptor can't be had. */
double wake_round_trip_us(unsigned rounds);

/* Keeps the calling thread, and what it starts, on the i-th of the CPUs it may use, modulo their number: on
 * one CPU two processes take turns without waking anything. */
void wake_pin(unsigned i);

#endif
