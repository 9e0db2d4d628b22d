/* SPDX-License-Identifier: Apache-2.0
 *
 * The bundle itself: private to its files.
 */
#ifndef GS_TRANSPORT_BUNDLE_OWN_H
#define GS_TRANSPORT_BUNDLE_OWN_H

#include "transport/bundle.h"

#include <pthread.h>
#include <sys/queue.h>

#define GRACE_MS 500

struct bundle_region {
	struct tp_region base;
	LIST_ENTRY(bundle_region) link;
	struct tp_region *rail[TP_RAILS_MAX];
};

struct bundle_remote {
	struct tp_remote base;
	LIST_ENTRY(bundle_remote) link;
	struct tp_remote *rail[TP_RAILS_MAX];
};

struct bundle {
	struct tp_conn base;
	const struct tp_backend *of; /* its rails */
	unsigned rails;
	struct tp_conn *rail[TP_RAILS_MAX]; /* NULL: could not be made */
	pthread_mutex_t making;
	atomic_bool complete;
	atomic_bool shut; /* nothing more is posted */

	/* The polling thread's, once it is complete. */
	unsigned open; /* bit r: rail r has not ended */
	int status;
	bool ends;          /* one of them has ended: it is in its queue's list */
	uint64_t close_at;  /* when the others are closed; UINT64_MAX: they were */
	struct bundle *next;

	/* The caller's one thread at a time. */
	LIST_HEAD(, bundle_region) exposed;
	LIST_HEAD(, bundle_remote) attached;
};

extern const struct tp_backend bundle_backend;

void bundle_close(struct tp_conn *conn);
void bundle_destroy(struct tp_conn *conn);

#endif
