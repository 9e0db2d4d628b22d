/* SPDX-License-Identifier: Apache-2.0
 *
 * The registration cache's bookkeeping.
 */
#include "transport/verbs/regcache.h"

#include <stddef.h>
#include <string.h>

static struct regcache_entry **bucket_of(struct regcache *c, uintptr_t first)
{
	uint64_t page = first >> 12;

	return &c->buckets[(page * 0x9e3779b97f4a7c15u >> 32) % REGCACHE_BUCKETS];
}

void regcache_init(struct regcache *c, uint64_t limit)
{
	memset(c, 0, sizeof(*c));
	c->limit = limit;
	for (uint32_t i = REGCACHE_ENTRIES; i > 0; i--) {
		c->entry[i - 1].older = c->free;
		c->free = &c->entry[i - 1];
	}
}

/* ---- the order of last use --------------------------------------------------------------------- */

static void order_remove(struct regcache *c, struct regcache_entry *e)
{
	*(e->newer ? &e->newer->older : &c->newest) = e->older;
	*(e->older ? &e->older->newer : &c->oldest) = e->newer;
}

static void order_add(struct regcache *c, struct regcache_entry *e)
{
	e->newer = NULL;
	e->older = c->newest;
	*(c->newest ? &c->newest->newer : &c->oldest) = e;
	c->newest = e;
}

/* ---- in use ------------------------------------------------------------------------------------ */

struct regcache_entry *regcache_find(struct regcache *c, uintptr_t first, uintptr_t end, bool target)
{
	struct regcache_entry *e = *bucket_of(c, first);

	while (e && (e->first != first || e->end < end || e->dead || !e->handle ||
		     (target && !e->target)))
		e = e->bucket;
	if (!e)
		return NULL;
	e->users++;
	order_remove(c, e);
	order_add(c, e);
	return e;
}

bool regcache_has_room(const struct regcache *c, uintptr_t first, uintptr_t end)
{
	return c->free && end - first <= c->limit && c->bytes <= c->limit - (end - first);
}

struct regcache_entry *regcache_add(struct regcache *c, uintptr_t first, uintptr_t end, bool target)
{
	struct regcache_entry **bucket = bucket_of(c, first), *e = c->free;

	c->free = e->older;
	*e = (struct regcache_entry){
	    .first = first, .end = end, .users = 1, .target = target, .bucket = *bucket};
	*bucket = e;
	order_add(c, e);
	c->bytes += end - first;
	c->entries++;
	return e;
}

void regcache_set(struct regcache_entry *e, void *handle)
{
	e->handle = handle;
}

void regcache_hold(struct regcache_entry *e)
{
	e->users++;
}

void regcache_put(struct regcache *c, struct regcache_entry *e)
{
	e->users--;
	c->dead_idle += e->users == 0 && e->dead;
}

/* ---- the end of a range ------------------------------------------------------------------------ */

static bool overlap(const struct regcache_entry *e, uintptr_t first, uintptr_t end)
{
	return e->first < end && first < e->end;
}

void regcache_gone(struct regcache *c, uintptr_t first, uintptr_t end)
{
	for (struct regcache_entry *e = c->newest; e; e = e->older) {
		if (e->dead || !overlap(e, first, end))
			continue;
		e->dead = true;
		c->dead_idle += e->users == 0;
	}
}

bool regcache_overlaps(const struct regcache *c, uintptr_t first, uintptr_t end)
{
	const struct regcache_entry *e = c->newest;

	while (e && (e->dead || !overlap(e, first, end)))
		e = e->older;
	return e != NULL;
}

static void release(struct regcache *c, struct regcache_entry *e)
{
	struct regcache_entry **at = bucket_of(c, e->first);

	while (*at != e)
		at = &(*at)->bucket;
	*at = e->bucket;
	order_remove(c, e);
	c->bytes -= e->end - e->first;
	c->entries--;
	e->older = c->free;
	c->free = e;
}

bool regcache_take_out(struct regcache *c, bool any, struct regcache_entry *out)
{
	struct regcache_entry *e = c->oldest;

	if (!any && c->dead_idle == 0)
		return false;
	/* The dead first: they are of no use to anybody. */
	while (e && (e->users || e->dead != (c->dead_idle > 0)))
		e = e->newer;
	if (!e)
		return false;
	c->dead_idle -= e->dead;
	*out = *e;
	release(c, e);
	return true;
}

void regcache_end(struct regcache *c)
{
	for (struct regcache_entry *e = c->newest; e; e = e->older) {
		e->users = 0;
		e->dead = true;
	}
	c->dead_idle = c->entries;
}

void regcache_cancel(struct regcache *c, struct regcache_entry *e)
{
	release(c, e);
}
