/* SPDX-License-Identifier: Apache-2.0
 *
 * The saver's thread: makes the files, asks for the cut and for unit after unit, and commits.
 *
 * It asks for one unit at a time: so a worker has no more than one to copy in a row, and with no
 * workers it copies them itself, as whoever posts to a parameter then runs it.
 */
#include "server/checkpoint_write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "server/checkpoint.h"
#include "server/saved.h"
#include "store/checkpoint.h"

/* One that is being written. */
struct saving {
	struct saver *sv;
	struct table *t;
	struct store_tensor *weights, *state; /* [params]; [n_state] */
	uint32_t n_state;
	struct checkpoint_param *param; /* [params] */
	struct checkpoint_writer *writer;
};

/* ---- what is in it --------------------------------------------------------------------------- */

static int list_tensors(struct saving *w)
{
	uint32_t n = w->t->params;

	w->weights = calloc(n, sizeof(*w->weights));
	w->state = calloc((size_t)n * SAVED_KINDS, sizeof(*w->state));
	w->param = calloc(n, sizeof(*w->param));
	if (!w->weights || !w->state || !w->param)
		return err_set(ENOMEM, "no memory to write %u parameters", n);
	for (uint32_t i = 0; i < n; i++) {
		saved_weights(&w->t->param[i], &w->weights[i]);
		for (unsigned k = 0; k < SAVED_KINDS; k++)
			w->n_state += saved_tensor(&w->t->param[i], k, &w->state[w->n_state]);
	}
	return 0;
}

/* The pages are there before the cut, so that a copy into them is no more than that. Where the
 * kernel can't do it, copies take longer. */
static void touch(const struct store_tensor *tensor)
{
	uintptr_t first = (uintptr_t)tensor->data & ~(uintptr_t)4095;

	if (tensor->len)
		madvise((void *)first, (uintptr_t)tensor->data + tensor->len - first,
			MADV_POPULATE_WRITE);
}

static void *place_of(const struct store_file *file, const char *name)
{
	const struct store_tensor *t = store_find(file, name);

	touch(t);
	return t->data;
}

static void aim(struct param *p, const struct store_file *state)
{
	struct snapshot_to *to = &p->snapshot.to;
	void *data[SAVED_KINDS] = {NULL};
	struct store_tensor t;

	for (unsigned k = 0; k < SAVED_KINDS; k++)
		if (saved_tensor(p, k, &t))
			data[k] = place_of(state, t.name);
	for (unsigned k = 0; k < KERN_STATE_MAX; k++)
		to->state[k] = data[SAVED_STATE + k];
	to->updates = data[SAVED_UPDATES];
	to->applied = data[SAVED_APPLIED];
	to->keys = data[SAVED_KEYS];
	to->touched = data[SAVED_TOUCHED];
	to->newer = data[SAVED_NEWER];
	to->older = data[SAVED_OLDER];
	to->map = data[SAVED_MAP];
	to->sketch = data[SAVED_SKETCH];
}

static void aim_all(struct saving *w)
{
	const struct store_file *weights = checkpoint_weights(w->writer);
	const struct store_file *state = checkpoint_state(w->writer);

	for (uint32_t i = 0; i < w->t->params; i++) {
		struct param *p = &w->t->param[i];

		p->snapshot.to.weights = place_of(weights, p->decl.name);
		aim(p, state);
		p->snapshot.due = true;
		atomic_store(&p->snapshot.complete, false);
	}
}

/* ---- cut and copies -------------------------------------------------------------------------- */

/* Until all that was posted was handled. */
static int await(struct saver *sv)
{
	while (sem_wait(&sv->done))
		; /* a signal */
	if (atomic_load(&sv->open) == 0)
		return 0;
	return err_set(ECANCELED, "the server ended before it was written");
}

static void ask_for_cut(struct saver *sv)
{
	struct srv *srv = sv->srv;

	atomic_store(&sv->cut_asked, true);
	if (srv->opt.mode == SRV_SYNC)
		srv_post(srv, &srv->round.actor, &sv->cut_item);
	else if (srv->opt.mode == SRV_SSP)
		srv_post(srv, &srv->pace.actor, &sv->cut_item);
	else
		saver_cut(sv, 0);
}

static bool is_complete(struct param *p)
{
	return atomic_load_explicit(&p->snapshot.complete, memory_order_acquire);
}

static int copy_all(struct saving *w)
{
	struct saver *sv = w->sv;
	int rc;

	atomic_store(&sv->open, w->t->params);
	ask_for_cut(sv);
	rc = await(sv);
	for (uint32_t i = 0; i < w->t->params && !rc; i++) {
		struct param *p = &w->t->param[i];

		while (!rc && !is_complete(p)) {
			atomic_store(&sv->open, 1);
			srv_post(sv->srv, p->home, &p->snapshot.item);
			rc = await(sv);
		}
	}
	return rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static struct checkpoint_manifest describe(struct saving *w)
{
	const struct srv *srv = w->sv->srv;

	for (uint32_t i = 0; i < w->t->params; i++) {
		const struct param *p = &w->t->param[i];

		w->param[i] = (struct checkpoint_param){
		    .decl = p->decl,
		    .rate = p->snapshot.rate,
		    .block_elems = p->cut.block_elems,
		    .blocks = p->cut.blocks,
		    .updates = p->snapshot.updates,
		};
	}
	return (struct checkpoint_manifest){
	    .mode = (enum wire_mode)srv->opt.mode, /* numbered alike */
	    .staleness = srv->opt.staleness,
	    .step = w->sv->step,
	    .trainers = srv->opt.trainers,
	    .server = srv->id,
	    .params = w->t->params,
	    .param = w->param,
	};
}

static uint64_t bytes_of(const struct saving *w)
{
	return store_size(checkpoint_weights(w->writer)) + store_size(checkpoint_state(w->writer));
}

static int write_one(struct saving *w, uint64_t *number, uint64_t *bytes)
{
	const struct srv_options *opt = &w->sv->srv->opt;
	struct checkpoint_manifest manifest;
	int rc = list_tensors(w);

	if (!rc)
		rc = checkpoint_begin(opt->checkpoint_dir, w->weights, w->t->params, w->state,
				      w->n_state, &w->writer);
	if (rc)
		return rc;
	aim_all(w);
	rc = copy_all(w);
	if (rc) {
		checkpoint_abandon(w->writer);
		return rc;
	}
	*bytes = bytes_of(w);
	manifest = describe(w);
	return checkpoint_commit(w->writer, &manifest, opt->keep, number);
}

static void save(struct saver *sv)
{
	struct saving w = {.sv = sv, .t = srv_table(sv->srv)};
	uint64_t number = 0, bytes = 0, begin = clock_ns();

	sv->rc = write_one(&w, &number, &bytes);
	free(w.weights);
	free(w.state);
	free(w.param);
	if (sv->rc == 0) {
		atomic_store(&sv->written_step, sv->step);
		atomic_fetch_add(&sv->written, 1);
		log_info("checkpoint %" PRIu64 " of step %" PRIu64 ": %s in %.2f s, in %s", number,
			 sv->step, size_text(bytes).s, (double)(clock_ns() - begin) / 1e9,
			 sv->srv->opt.checkpoint_dir);
	} else {
		snprintf(sv->text, sizeof(sv->text), "%s", err_text());
		atomic_fetch_add(&sv->failures, 1);
		log_error("NO CHECKPOINT was written to %s: %s%s", sv->srv->opt.checkpoint_dir,
			  sv->text, sv->rc == -ECANCELED ? "" : "; training goes on");
	}
	inbox_post(&sv->srv->inbox, &sv->saved_note);
}

void *saver_main(void *arg)
{
	struct saver *sv = arg;

	for (;;) {
		while (sem_wait(&sv->begin))
			;
		if (atomic_load(&sv->end))
			return NULL;
		save(sv);
	}
}
