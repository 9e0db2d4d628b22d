/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer of faults between a program and the transport. A test program that is linked with
 * gs_faulty(TARGET) has every call to transport/transport.h go through it (the linker's --wrap), so
 * the product knows nothing of it. What goes wrong is said by a script (script.h): from here, or,
 * for other processes, by the environment variable GS_FAULTS. GS_FAULTS_TRACE=1 tells on stderr of
 * each fault as it is done.
 *
 * With an empty script all that the transport gives comes through, in order; but it comes through
 * this layer's queues, so what passes with an empty script shows that the layer itself is sound.
 *
 * Always, whatever the script says: nothing may post or send zero bytes. A network may drop such a
 * payload, so nothing may rest on one; who tries ends in abort().
 *
 * What is drawn follows from the seed, thread by thread in the order in which threads first draw.
 *
 * How true it is to a network:
 *  - completions of sends and receives are separate lanes, each in order; TP_EV_CLOSED comes behind
 *    all. `delay` and `reorder` of done, room and conns keep to that, so everything must work as
 *    ever. All other scripts but cap, noimm and fail err=EAGAIN simulate a broken transport or
 *    peer: then nothing may crash, hang or leak, and others must be served.
 *  - a frozen peer is one whose machine is gone and nobody says so. Posts to it are taken, as far
 *    as the connection's depth, and have no effect; what it still writes into shared memory can't
 *    be stopped. When this side closes, ops that are under way end with -ECONNABORTED.
 *  - noimm: both ends must be under it. A message may not begin with the 16 bytes that mark a
 *    message which stands in for immediate data.
 */
#ifndef GS_TESTS_FAULTS_H
#define GS_TESTS_FAULTS_H

#include "script.h"

/* Replaces the script, for what is connected too (but noimm and cap are for new connections).
 * NULL or "": no faults. Gives the parser's errors. */
int faults_set(const char *text);
/* How often faults of this kind were done since the last faults_set. */
uint64_t faults_done(enum fault_action action);
/* How often the point was reached since the last faults_set, whether or not a rule is there. */
uint64_t faults_reached(enum fault_point at);
/* Ends all connections of this process, as somebody who has waited long enough would. Any thread.
 */
void faults_cut(void);
/* The program tries to send nothing on purpose, and expects to be refused. */
void faults_zero_is_meant(void);

#endif
