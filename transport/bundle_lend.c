/* SPDX-License-Identifier: Apache-2.0
 *
 * The program's own memory on a connection of several rails: registered on each. A region that was given
 * back is used again for another, so that lending allocates nothing once it is at work.
 */
#include "base/err.h"
#include "transport/bundle_own.h"

#include <errno.h>
#include <stdlib.h>

static struct bundle_region *take_spare(struct bundle *b)
{
	pthread_mutex_lock(&b->lending);
	struct bundle_region *region = LIST_FIRST(&b->spare);

	if (region) {
		LIST_REMOVE(region, link);
	} else {
		region = calloc(1, sizeof(*region));
		if (region)
			region->base.conn = &b->base;
	}
	if (region)
		LIST_INSERT_HEAD(&b->lent, region, link);
	pthread_mutex_unlock(&b->lending);
	return region;
}

static void give_back(struct bundle *b, struct bundle_region *region)
{
	pthread_mutex_lock(&b->lending);
	LIST_REMOVE(region, link);
	LIST_INSERT_HEAD(&b->spare, region, link);
	pthread_mutex_unlock(&b->lending);
}

/* Those before `end`. */
static void unregister_rails(struct bundle *b, struct bundle_region *region, unsigned end)
{
	for (unsigned r = 0; r < end; r++)
		b->of->unreg(region->rail[r]);
}

static int register_rails(struct bundle *b, const void *at, size_t len, unsigned how,
			  struct bundle_region *region)
{
	struct tp_ref *ref = &region->base.ref;

	for (unsigned r = 0; r < b->rails; r++) {
		int rc = b->rail[r] ? b->of->reg(b->rail[r], at, len, how, &region->rail[r])
				    : err_set(ENOTCONN, "register: rail %u is not there", r);

		if (rc < 0) {
			unregister_rails(b, region, r);
			return rc;
		}
		/* One that was registered before may be longer. */
		if (r == 0 || region->rail[r]->ref.len < ref->len)
			*ref = region->rail[r]->ref;
	}
	return 0;
}

int bundle_register(struct tp_conn *conn, const void *at, size_t len, unsigned how,
		    struct tp_region **out)
{
	struct bundle *b = (struct bundle *)conn;
	struct bundle_region *region = take_spare(b);

	if (!region)
		return err_set(ENOMEM, "no memory for a region");
	int rc = register_rails(b, at, len, how, region);
	if (rc < 0) {
		give_back(b, region);
		return rc;
	}
	atomic_store_explicit(&region->users, 1, memory_order_relaxed);
	*out = &region->base;
	return 0;
}

void bundle_hold(struct tp_region *base)
{
	struct bundle_region *region = (struct bundle_region *)base;

	atomic_fetch_add_explicit(&region->users, 1, memory_order_relaxed);
}

void bundle_unregister(struct tp_region *base)
{
	struct bundle_region *region = (struct bundle_region *)base;
	struct bundle *b = (struct bundle *)base->conn;

	if (atomic_fetch_sub_explicit(&region->users, 1, memory_order_acq_rel) > 1)
		return;
	unregister_rails(b, region, b->rails);
	give_back(b, region);
}

/* The rails, and what was registered on them, are gone. */
void bundle_lend_free(struct bundle *b)
{
	struct bundle_region *region;

	while ((region = LIST_FIRST(&b->lent)) || (region = LIST_FIRST(&b->spare))) {
		LIST_REMOVE(region, link);
		free(region);
	}
	pthread_mutex_destroy(&b->lending);
}
