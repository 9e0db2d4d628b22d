/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of tables on their way in: which way, the way through mapped memory, and asking for them.
 *
 *            mapped (shm)                              over a network
 *   read     loads: version, row, version              READs into the landing area, likewise
 *   gather   the ids go to the server, which writes the rows into the landing area, for both
 *
 * The landing area takes pull_rows rows: longer pulls go in batches.
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

/* What the server updates at once it is done with in a microsecond or two. */
enum { ROW_TRIES = 64 };

/* ---- asked for ------------------------------------------------------------------------------- */

int rows_answered(gs_param *p, bool refused, uint32_t len)
{
	gs_trainer *t = p->t;
	uint64_t bytes = refused ? sizeof(int64_t) : p->rows_asked * param_row_bytes(p);
	uint32_t want = tp_imm_len(t->link.conn, bytes);

	if (refused && p->wire.storage != WIRE_HASHED)
		return err_set(EPROTO, "table \"%s\": a pull is refused, and all its rows exist",
			       p->wire.name);
	if (len != want)
		return err_set(EPROTO,
			       "rows of table \"%s\": %u bytes in the last piece instead of %u",
			       p->wire.name, len, want);
	t->link.pull_asked[p->first_block] = 0;
	p->rows_refused = refused;
	p->pull_left--;
	return 0;
}

static int ask(gs_param *p, uint32_t n)
{
	gs_trainer *t = p->t;
	struct tp_op op = {
	    .kind = TP_OP_WRITE,
	    .flags = TP_F_IMM,
	    .imm = imm_block(IMM_PULL, p->first_block, 0, false),
	    .local = p->request,
	    .region = t->link.local_region,
	    .remote = t->link.slot_mem,
	    .offset = p->request_off,
	    .len = layout_request_bytes(n),
	    .rail = trainer_rail(t, p->first_block),
	};

	t->link.pull_asked[p->first_block] = 1;
	p->rows_asked = n;
	p->pull_left++;
	return trainer_post(t, &op, 1);
}

static int refusal(const gs_param *p)
{
	int64_t key;

	memcpy(&key, param_landing(p), sizeof(key));
	return err_set(
	    ENOSPC,
	    "table \"%s\": no row is free for key %lld: it has %llu, all of them in use; its "
	    "capacity must be more%s",
	    p->wire.name, (long long)key, (unsigned long long)p->wire.dim[0],
	    p->wire.evict_after ? "" : ", or evict_after be set");
}

int rows_gather(gs_param *p, const int64_t *ids, uint32_t n, void *dst)
{
	gs_trainer *t = p->t;
	struct pull pull = {.param = &p, .n = 1};

	p->request->rows = n;
	memcpy(p->request + 1, ids, n * sizeof(*ids));
	pthread_mutex_lock(&t->lock);
	int rc = ask(p, n);
	if (rc == 0)
		rc = pull_wait(t, &pull);
	pthread_mutex_unlock(&t->lock);
	if (rc < 0)
		return rc;
	if (p->rows_refused)
		return refusal(p);
	memcpy(dst, param_landing(p), n * param_row_bytes(p));
	return 0;
}

/* ---- mapped ---------------------------------------------------------------------------------- */

static const uint8_t *mapped_at(const gs_param *p, int64_t row)
{
	return p->t->link.weights_map + p->weights_off + (uint64_t)row * param_row_bytes(p);
}

static bool mapped_row(const gs_param *p, int64_t row, void *dst)
{
	const uint8_t *map = p->t->link.weights_map;
	uint64_t word_off = layout_version_off(param_row_block(p, row));

	for (int try = 0; try < ROW_TRIES; try++) {
		uint64_t before = word_acquire(map, word_off);

		if (before % 2) {
			cpu_relax();
			continue;
		}
		copy_live(dst, mapped_at(p, row), param_dim(p), p->weight_size);
		if (word_acquire(map, word_off) == before)
			return true;
	}
	return false;
}

static int read_mapped(gs_param *p, const int64_t *ids, uint32_t n, bool still, uint8_t *dst)
{
	uint64_t row = param_row_bytes(p);
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		if (still)
			memcpy(dst + i * row, mapped_at(p, ids[i]), row);
		else if (!mapped_row(p, ids[i], dst + i * row))
			rc = rows_gather(p, &ids[i], 1, dst + i * row);
	}
	return rc;
}

/* ---- which way ------------------------------------------------------------------------------- */

/* Measured (perf/METHOD.md). Mapped: loads need nobody, but where rows may change they are loads of
 * words, which many and long rows make slower than the server's copying. Over a network: a READ
 * costs as much as 20 rows or 10 KiB do when they are gathered, and asking for them as much as 16
 * READs. */
static bool reads_are_cheaper(gs_param *p, const int64_t *ids, size_t n, bool still)
{
	uint64_t row = param_row_bytes(p), reads;

	if (p->t->link.weights_map)
		return still || row < 1024 || n < 256;
	reads = rows_count_reads(p, ids, n, still);
	return reads <= 16 + n / 20 + n * row / 10240;
}

static enum gs_rows_way choose(gs_param *p, const int64_t *ids, size_t n, enum gs_rows_way way,
			       bool still)
{
	if (way != GS_ROWS_AUTO)
		return way;
	if (p->wire.storage == WIRE_HASHED || !reads_are_cheaper(p, ids, n, still))
		return GS_ROWS_GATHER;
	return GS_ROWS_READ;
}

static int pull_batch(gs_param *p, const int64_t *ids, uint32_t n, enum gs_rows_way way, bool still,
		      uint8_t *dst)
{
	if (way == GS_ROWS_GATHER)
		return rows_gather(p, ids, n, dst);
	return p->t->link.weights_map ? read_mapped(p, ids, n, still, dst)
				      : rows_read_wire(p, ids, n, still, dst);
}

static int pull_batches(gs_param *p, const int64_t *ids, size_t n, enum gs_rows_way way, bool still,
			uint8_t *dst)
{
	uint64_t row = param_row_bytes(p);
	int rc = 0;

	for (size_t at = 0; rc == 0 && at < n; at += p->wire.pull_rows) {
		uint32_t len = n - at < p->wire.pull_rows ? (uint32_t)(n - at) : p->wire.pull_rows;

		rc = pull_batch(p, ids + at, len, way, still, dst + at * row);
	}
	return rc;
}

/* A batch that a hashed table refuses must not leave those before it behind. */
static int pull_aside(gs_param *p, const int64_t *ids, size_t n, enum gs_rows_way way, void *dst)
{
	uint64_t bytes = n * param_row_bytes(p);
	uint8_t *aside = malloc(bytes);

	if (!aside)
		return err_set(ENOMEM, "no memory for %zu rows", n);
	int rc = pull_batches(p, ids, n, way, false, aside);
	if (rc == 0)
		memcpy(dst, aside, bytes);
	free(aside);
	return rc;
}

/* ---- the API --------------------------------------------------------------------------------- */

static int check_pull(const gs_param *p, const int64_t *ids, size_t n, enum gs_rows_way way,
		      const void *dst)
{
	if (!param_is_table(p))
		return err_set(EINVAL, "parameter \"%s\" is not a table: call gs_pull",
			       p->wire.name);
	if (way != GS_ROWS_AUTO && way != GS_ROWS_READ && way != GS_ROWS_GATHER)
		return err_set(EINVAL, "gs_pull_rows: way %d; known are %d to %d", (int)way,
			       GS_ROWS_AUTO, GS_ROWS_GATHER);
	if (way == GS_ROWS_READ && p->wire.storage == WIRE_HASHED)
		return err_set(
		    EOPNOTSUPP,
		    "the rows of hashed table \"%s\" have no fixed place to be read from",
		    p->wire.name);
	if (n > 0 && (!ids || !dst))
		return err_set(EINVAL, "gs_pull_rows: NULL");
	return rows_check_ids(p, ids, n);
}

int gs_pull_rows(gs_trainer *t, gs_param *p, const int64_t *ids, size_t n, enum gs_rows_way way,
		 void *dst)
{
	struct pull pull = {.param = &p, .n = 1};
	int rc = push_enter(t, p);

	if (rc < 0)
		return rc;
	trainer_exit(t);
	rc = check_pull(p, ids, n, way, dst);
	if (rc < 0 || n == 0)
		return rc;
	rc = pull_begin(t, &pull);
	if (rc < 0)
		return rc;
	pull.still = pull_stands_still(t, &pull);
	trainer_exit(t);
	way = choose(p, ids, n, way, pull.still);
	if (p->wire.storage == WIRE_HASHED && n > p->wire.pull_rows)
		rc = pull_aside(p, ids, n, way, dst);
	else
		rc = pull_batches(p, ids, n, way, pull.still, dst);
	pthread_mutex_lock(&t->lock);
	pull_end(t, &pull);
	return rc;
}
