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
	atomic_uint users; /* of memory that is lent */
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

	/* Under `lending`: registered memory of the program's, and regions that can be used for more. */
	pthread_mutex_t lending;
	LIST_HEAD(, bundle_region) lent, spare;
};

extern const struct tp_backend bundle_backend;

void bundle_close(struct tp_conn *conn);
void bundle_destroy(struct tp_conn *conn);

int bundle_register(struct tp_conn *conn, const void *at, size_t len, unsigned how,
		    struct tp_region **out);
void bundle_hold(struct tp_region *region);
void bundle_unregister(struct tp_region *region);
void bundle_lend_free(struct bundle *b);

#endif
