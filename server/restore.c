/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources: what is restored from where.
 */
#include "server/restore.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "proto/layout.h"
#include "server/rows.h"

static const char *mode_name(enum wire_mode mode)
{
	static const char *const names[] = {
	    [WIRE_SYNC] = "sync", [WIRE_ASYNC] = "async", [WIRE_SSP] = "ssp"};

	return mode >= WIRE_SYNC && mode <= WIRE_SSP ? names[mode] : "?";
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_checkpoint(const char *dir)
{
	char manifest[PATH_MAX];

	return snprintf(manifest, sizeof(manifest), "%s/manifest.json", dir) <
		   (int)sizeof(manifest) &&
	       access(manifest, F_OK) == 0;
}

static int open_source(const char *path, struct source *s)
{
	struct stat st;
	int rc;

	if (stat(path, &st))
		return err_set(errno, "--restore %s: %s: it may be a checkpoint, a directory of them or a "
				      "safetensors file; with --restore auto, the default, a server "
				      "begins anew where there is none", path, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		rc = store_open(path, &s->file);
	else if (is_checkpoint(path))
		rc = checkpoint_open(path, &s->checkpoint);
	else
		rc = checkpoint_open_newest(path, &s->checkpoint);
	if (rc)
		return err_wrap(rc, "restoring %s", path);
	s->path = s->checkpoint ? checkpoint_path(s->checkpoint) : store_path(s->file);
	return 0;
}

/* ---- do they go together? -------------------------------------------------------------------- */

static int check_mode(const struct srv *srv, const struct source *s)
{
	enum wire_mode was = checkpoint_manifest(s->checkpoint)->mode;
	enum wire_mode now = (enum wire_mode)srv->opt.mode; /* numbered alike */

	if (was == now)
		return 0;
	if (was == WIRE_SSP || now == WIRE_SSP)
		return err_set(EINVAL, "%s is of %s mode, the server runs in %s mode", s->path,
			       mode_name(was), mode_name(now));
	log_warn("%s is of %s mode: %s", s->path, mode_name(was),
		 now == WIRE_SYNC ? "steps are counted from 1, and schedules begin anew"
				  : "schedules go on by the parameters' updates, not by steps");
	return 0;
}

static int check_step(const struct srv *srv, struct restore *r, const struct source *s,
		      const struct source **first)
{
	uint64_t step = checkpoint_manifest(s->checkpoint)->step;

	if (step > LAYOUT_COUNT_MAX)
		return err_set(EBADMSG, "%s is of step %" PRIu64 ": no training gets there", s->path,
			       step);
	if (srv->opt.mode == SRV_ASYNC)
		return 0;
	if (!*first || step < r->step)
		r->step = step;
	if (!*first)
		*first = s;
	if (srv->opt.mode == SRV_SSP || step == checkpoint_manifest((*first)->checkpoint)->step)
		return 0;
	return err_set(EINVAL,
		       "%s is of step %" PRIu64 ", %s of step %" PRIu64
		       ": in sync mode they must be of the same",
		       (*first)->path, checkpoint_manifest((*first)->checkpoint)->step, s->path,
		       step);
}

static int check_all(const struct srv *srv, struct restore *r)
{
	const struct source *first = NULL;
	int rc = 0;

	for (uint32_t i = 0; i < r->n && !rc; i++) {
		if (!r->source[i].checkpoint)
			continue;
		rc = check_mode(srv, &r->source[i]);
		if (!rc)
			rc = check_step(srv, r, &r->source[i], &first);
	}
	return rc;
}

static void tell_opened(const struct srv *srv, const struct source *s)
{
	const struct checkpoint_manifest *m;

	if (!s->checkpoint) {
		log_info("restoring weights from %s", s->path);
		return;
	}
	m = checkpoint_manifest(s->checkpoint);
	if (m->mode != WIRE_SYNC && m->trainers > srv->opt.trainers)
		log_info("%s: what ranks %u to %u pushed is no longer counted: there are %u",
			 s->path, srv->opt.trainers, m->trainers - 1, srv->opt.trainers);
	log_info("restoring checkpoint %" PRIu64 " (%s mode, step %" PRIu64
		 ", %u parameters) from %s",
		 m->number, mode_name(m->mode), m->step, m->params, s->path);
}

int restore_open(struct srv *srv)
{
	struct restore *r;
	int rc = 0;

	if (!srv->opt.n_restore)
		return 0;
	r = srv->restore = calloc(1, sizeof(*r));
	if (!r)
		return err_set(ENOMEM, "no memory for what is restored");
	for (uint32_t i = 0; i < srv->opt.n_restore && !rc; i++) {
		rc = open_source(srv->opt.restore[i], &r->source[i]);
		if (!rc)
			tell_opened(srv, &r->source[r->n++]);
	}
	if (!rc)
		rc = check_all(srv, r);
	if (rc)
		return rc;
	srv->restored_step = r->step;
	srv->restored_own = r->n == 1 && srv->opt.checkpoint_dir &&
			    !strcmp(srv->opt.restore[0], srv->opt.checkpoint_dir);
	if (srv->opt.mode == SRV_SYNC)
		srv->round.barrier.step = srv->round.barrier.from = r->step;
	srv->pace.clocks.slowest = r->step;
	atomic_store(&srv->pace.slowest, r->step);
	return 0;
}

void restore_close(struct restore *r)
{
	if (!r)
		return;
	for (uint32_t i = 0; i < SRV_MAX_RESTORES; i++) {
		checkpoint_close(r->source[i].checkpoint);
		store_close(r->source[i].file);
	}
	free(r);
}

/* ---- filling the table ----------------------------------------------------------------------- */

/* Most often the parameters are declared in the order in which they were. */
static const struct checkpoint_param *saved_of(const struct source *s, uint32_t hint,
					       const char *name)
{
	const struct checkpoint_manifest *m = checkpoint_manifest(s->checkpoint);

	if (hint < m->params && strcmp(m->param[hint].decl.name, name) == 0)
		return &m->param[hint];
	for (uint32_t i = 0; i < m->params; i++)
		if (strcmp(m->param[i].decl.name, name) == 0)
			return &m->param[i];
	return NULL;
}

static int fill_param(struct restore *r, struct table *t, uint32_t i)
{
	struct param *p = &t->param[i];

	for (uint32_t k = 0; k < r->n; k++) {
		struct source *s = &r->source[k];
		const struct checkpoint_param *saved =
		    s->checkpoint ? saved_of(s, i, p->decl.name) : NULL;

		if (!saved && (s->checkpoint || !store_find(s->file, p->decl.name)))
			continue;
		s->used++;
		return err_wrap(restore_param(t, p, s, saved), "%s: parameter \"%s\"", s->path,
				p->decl.name);
	}
	return err_set(EINVAL, "parameter \"%s\" is in nothing that is restored (%s%s)",
		       p->decl.name, r->source[0].path, r->n > 1 ? " and others" : "");
}

/* Sync: as if this run had made the steps. */
static void set_steps(const struct srv *srv, struct table *t)
{
	uint64_t step = srv->round.barrier.from;

	for (uint32_t i = 0; i < t->params; i++) {
		struct param *p = &t->param[i];

		atomic_store(&p->settled, step * p->units);
		if (p->rows)
			p->rows->settled_step = step;
	}
	for (uint32_t i = 0; i < t->blocks; i++)
		t->block[i].settled_step = step;
	for (uint32_t i = 0; i < t->packs; i++) {
		t->pack[i].settled_step = step;
		atomic_store(&t->pack[i].settled, step * t->pack[i].n);
	}
}

static bool is_declared(const struct table *t, const char *name)
{
	for (uint32_t i = 0; i < t->params; i++)
		if (strcmp(t->param[i].decl.name, name) == 0)
			return true;
	return false;
}

static uint32_t names_in(const struct source *s)
{
	return s->checkpoint ? checkpoint_manifest(s->checkpoint)->params : store_count(s->file);
}

static void tell_taken(const struct restore *r, const struct table *t)
{
	for (uint32_t k = 0; k < r->n; k++) {
		const struct source *s = &r->source[k];
		uint32_t n = names_in(s);

		log_info("%u of %u parameters come from %s", s->used, n, s->path);
		for (uint32_t i = 0; s->used < n && i < n; i++) {
			const char *name =
			    s->checkpoint ? checkpoint_manifest(s->checkpoint)->param[i].decl.name
					  : store_at(s->file, i)->name;

			if (!is_declared(t, name))
				log_info("%s: \"%s\" is left: nobody declares it", s->path, name);
		}
	}
}

int restore_apply(struct srv *srv, struct table *t)
{
	struct restore *r = srv->restore;
	int rc = 0;

	for (uint32_t k = 0; k < r->n; k++)
		r->source[k].used = 0;
	for (uint32_t i = 0; i < t->params && !rc; i++)
		rc = fill_param(r, t, i);
	if (rc)
		return rc;
	set_steps(srv, t);
	atomic_store(&t->init_left, 0);
	tell_taken(r, t);
	return 0;
}
