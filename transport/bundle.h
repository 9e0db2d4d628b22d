/* SPDX-License-Identifier: Apache-2.0
 *
 * Bundles: connections of several rails. A rail is a backend's connection like any other; it belongs
 * to a bundle, which is what the user sees.
 *
 *   connecting  each rail by a thread of its own, since the listener takes none before all have come;
 *               if one fails, all do
 *   accepting   the backend has gathered the requests; a rail that can't be made once others are bound
 *               to their queue is an event of the bundle, which ends at once, and no error
 *
 * The end. When the first rail ends, nothing more is posted by any, and the others have GRACE_MS to
 * end by themselves (what the peer sent on them before still comes); then they are closed. The
 * bundle's TP_EV_CLOSED follows the last rail's.
 *
 * Threads. Rails are there for good once `complete` is set, under `making`; before that no event of
 * the bundle is handed out. What is said of the polling thread is its alone.
 */
#ifndef GS_TRANSPORT_BUNDLE_H
#define GS_TRANSPORT_BUNDLE_H

#include "transport/backend.h"

/* Connects `rails` of them. -E… of the first that failed. */
int bundle_connect(const struct tp_backend *backend, const struct tp_uri *uri,
		   const struct tp_options *opt, unsigned rails, struct tp_subcq *sub, void *user,
		   struct tp_conn **out);

/* Accepts rail number owner->rail of those that were gathered, which uses up its request: 1, or a
 * negative errno. */
typedef int (*bundle_take)(void *listener, void *request, struct tp_subcq *sub,
			   const struct tp_owner *owner, struct tp_conn **out);
/* 1, or a negative errno if there is no bundle. Requests of rails from *used on were not used up. */
int bundle_accept(void *listener, bundle_take take, void *const *request, unsigned rails,
		  struct tp_subcq *sub, void *user, unsigned *used, struct tp_conn **out);

/* Events of rails become events of bundles, or nothing; returns how many there are then. Polling
 * thread. */
int bundle_translate(struct tp_event *ev, int n);
/* Closes the rails of bundles in `ending` whose time is over. When to come back, UINT64_MAX: not. */
uint64_t bundle_overdue(struct bundle *ending, uint64_t now);

size_t bundle_binding(const struct bundle *bundle, uint8_t out[TP_BINDING_MAX]);

#endif
