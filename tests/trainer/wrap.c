/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands between the trainer and the transport.
 */
#include "wrap.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "proto/layout.h"
#include "transport/transport.h"

bool fake_unmapped;

void *__real_tp_remote_map(const struct tp_remote *remote);
void *__wrap_tp_remote_map(const struct tp_remote *remote);
int __real_tp_post(struct tp_conn *conn, const struct tp_op *ops, int n);
int __wrap_tp_post(struct tp_conn *conn, const struct tp_op *ops, int n);
int __real_tp_cq_poll(struct tp_cq *cq, struct tp_event *ev, int max);
int __wrap_tp_cq_poll(struct tp_cq *cq, struct tp_event *ev, int max);
int __real_tp_connect(const char *uri, const struct tp_options *opt, struct tp_cq *cq, void *user,
		      struct tp_conn **out);
int __wrap_tp_connect(const char *uri, const struct tp_options *opt, struct tp_cq *cq, void *user,
		      struct tp_conn **out);

void *__wrap_tp_remote_map(const struct tp_remote *remote)
{
	return fake_unmapped ? NULL : __real_tp_remote_map(remote);
}

/* ---- posts ----------------------------------------------------------------------------------- */

static _Thread_local char reads[64];
static _Thread_local size_t n_reads;
static _Thread_local unsigned read_rails;
static _Thread_local bool watching;
static _Thread_local int cut_after = -1;
static _Thread_local struct tp_conn *cut;
static _Thread_local unsigned beats;

void wrap_reads_begin(void)
{
	memset(reads, 0, sizeof(reads));
	n_reads = 0;
	read_rails = 0;
	watching = true;
}

const char *wrap_reads_end(void)
{
	watching = false;
	return reads;
}

unsigned wrap_read_rails(void)
{
	return read_rails;
}

void wrap_cut_after(int ops)
{
	cut_after = ops;
	cut = NULL;
}

bool wrap_was_cut(void)
{
	return cut != NULL;
}

unsigned wrap_beats(void)
{
	return beats;
}

static void note(const struct tp_op *op)
{
	/* (A pull's signalled READ has a cookie.) */
	if (op->kind == TP_OP_READ && op->flags & TP_F_SIGNAL && op->cookie == 0) {
		beats++;
		return;
	}
	if (watching && op->kind == TP_OP_READ && op->len != 8)
		read_rails |= 1u << op->rail;
	if (!watching || op->kind != TP_OP_READ || n_reads + 2 >= sizeof(reads))
		return;
	if (op->flags & TP_F_FENCE)
		reads[n_reads++] = 'f';
	reads[n_reads++] = op->len == 8 ? 'V' : 'R';
}

/* How many of them are before the cut. */
static int before_cut(const struct tp_op *ops, int n)
{
	int i = 0;

	for (; i < n && (cut_after > 0 || !(ops[i].flags & TP_F_IMM)); i++)
		cut_after -= (ops[i].flags & TP_F_IMM) != 0;
	return i;
}

static int post_until_cut(struct tp_conn *conn, const struct tp_op *ops, int n)
{
	int most = before_cut(ops, n), done = 0;

	while (done < most) {
		int rc = __real_tp_post(conn, ops + done, most - done);

		if (rc > 0)
			done += rc;
		else if (rc != -EAGAIN)
			return rc;
	}
	if (most == n)
		return n;
	cut_after = -1;
	cut = conn;
	tp_conn_close(conn);
	return most > 0 ? most : err_set(ENOTCONN, "it was cut");
}

int __wrap_tp_post(struct tp_conn *conn, const struct tp_op *ops, int n)
{
	if (cut_after >= 0)
		return post_until_cut(conn, ops, n);
	if (cut && conn == cut)
		return err_set(ENOTCONN, "it was cut");
	int rc = __real_tp_post(conn, ops, n);
	for (int i = 0; i < rc; i++)
		note(&ops[i]);
	return rc;
}

/* ---- completions ----------------------------------------------------------------------------- */

static _Thread_local bool silent, ended;

void wrap_silence(bool on)
{
	silent = on;
	ended = false;
}

bool wrap_saw_end(void)
{
	return ended;
}

int __wrap_tp_cq_poll(struct tp_cq *cq, struct tp_event *ev, int max)
{
	int n = __real_tp_cq_poll(cq, ev, max), left = 0;

	for (int i = 0; i < n; i++) {
		ended |= ev[i].kind == TP_EV_CLOSED;
		if (!silent || ev[i].kind != TP_EV_DONE)
			ev[left++] = ev[i];
	}
	return left;
}

/* ---- connecting ------------------------------------------------------------------------------ */

static _Thread_local unsigned knocks;
static _Thread_local uint64_t last_knock, shortest_pause;

void wrap_knocks_begin(void)
{
	knocks = 0;
	shortest_pause = UINT64_MAX;
}

unsigned wrap_knocks(uint64_t *shortest)
{
	*shortest = shortest_pause;
	return knocks;
}

static _Thread_local uint32_t rails = 1;

void wrap_rails(uint32_t n)
{
	rails = n;
}

int __wrap_tp_connect(const char *uri, const struct tp_options *opt, struct tp_cq *cq, void *user,
		      struct tp_conn **out)
{
	struct tp_options own = *opt;
	uint64_t now = clock_ns();

	if (knocks++ > 0 && now - last_knock < shortest_pause)
		shortest_pause = now - last_knock;
	own.rails = rails;
	int rc = __real_tp_connect(uri, &own, cq, user, out);
	last_knock = clock_ns();
	return rc;
}
