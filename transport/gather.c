/* SPDX-License-Identifier: Apache-2.0
 *
 * Bundles that are not complete.
 */
#include "transport/gather.h"

#include "base/clock.h"

#include <stddef.h>

#define WAIT_NS  (TP_RAILS_WAIT_MS * NS_PER_MS)
#define YOUNG_NS (GATHER_YOUNG_MS * NS_PER_MS)

static struct gathering *find(struct gather *g, uint64_t id)
{
	for (int i = 0; i < GATHER_PLACES; i++)
		if (g->at[i].rails && g->at[i].id == id)
			return &g->at[i];
	return NULL;
}

static void take_out(struct gathering *at, struct gathering *out)
{
	*out = *at;
	*at = (struct gathering){.rails = 0};
}

/* A free place, or that of the oldest. */
static struct gathering *best_place(struct gather *g)
{
	struct gathering *oldest = &g->at[0];

	for (int i = 0; i < GATHER_PLACES; i++) {
		if (!g->at[i].rails)
			return &g->at[i];
		if (g->at[i].since < oldest->since)
			oldest = &g->at[i];
	}
	return oldest;
}

static struct gathering *begin(struct gather *g, uint64_t id, uint32_t rails, uint64_t now,
			       struct gathering *out)
{
	struct gathering *at = best_place(g);

	if (at->rails && now < at->since + YOUNG_NS)
		return NULL;
	if (at->rails)
		take_out(at, out);
	*at = (struct gathering){.id = id, .since = now, .rails = (uint8_t)rails};
	return at;
}

enum gather_verdict gather_add(struct gather *g, uint64_t id, uint32_t rails, uint32_t rail,
			       void *request, uint64_t now, struct gathering *out)
{
	out->rails = 0;
	if (rails < 2 || rails > TP_RAILS_MAX || rail >= rails)
		return GATHER_WRONG;
	struct gathering *at = find(g, id);

	if (at && (at->rails != rails || at->request[rail]))
		return GATHER_WRONG;
	if (!at)
		at = begin(g, id, rails, now, out);
	if (!at)
		return GATHER_CROWDED;
	at->request[rail] = request;
	if (++at->have < at->rails)
		return GATHER_WAITS;
	take_out(at, out);
	return GATHER_COMPLETE;
}

bool gather_expired(struct gather *g, uint64_t now, struct gathering *out)
{
	for (int i = 0; i < GATHER_PLACES; i++) {
		struct gathering *at = &g->at[i];

		if (!at->rails || now < at->since + WAIT_NS)
			continue;
		take_out(at, out);
		return true;
	}
	return false;
}

bool gather_drop(struct gather *g, uint64_t id, struct gathering *out)
{
	struct gathering *at = find(g, id);

	if (at)
		take_out(at, out);
	return at != NULL;
}

uint64_t gather_deadline(const struct gather *g)
{
	uint64_t first = UINT64_MAX;

	for (int i = 0; i < GATHER_PLACES; i++)
		if (g->at[i].rails && g->at[i].since + WAIT_NS < first)
			first = g->at[i].since + WAIT_NS;
	return first;
}
