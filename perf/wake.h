/* SPDX-License-Identifier: Apache-2.0
 *
 * What it takes to wake one who sleeps: the least that a step can take when its two sides sleep
 * until they are told.
 */
#ifndef GS_PERF_WAKE_H
#define GS_PERF_WAKE_H

#include <stdbool.h>

/* Two processes, an eventfd each, both asleep until the other writes: the median round trip (two
 * wake-ups) of `trips`, in microseconds. They run where the scheduler puts them, which may well be on
 * one core; `apart`: on two, the first that this process may run on. NAN, with err_text(), when it
 * could not be measured. */
double wake_round_trip_us(unsigned trips, bool apart);

#endif
