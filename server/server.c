/* SPDX-License-Identifier: Apache-2.0
 *
 * The server object: made, stopped, destroyed.
 */
#include "server/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "auth/auth.h"
#include "base/clock.h"
#include "base/err.h"
#include "server/access.h"
#include "server/dialog.h"
#include "server/internal.h"
#include "server/options.h"
#include "server/restore.h"
#include "server/strangers.h"
#include "store/checkpoint.h"

static int listen_all(struct srv *srv)
{
	struct tp_options opt = {.max_conns = srv->opt.trainers + STRANGERS_CONNECTIONS};

	for (uint32_t i = 0; i < srv->opt.n_listen; i++) {
		int rc = tp_listen(srv->opt.listen[i], &opt, &srv->listener[i]);

		if (rc)
			return err_wrap(rc, "%s", srv->opt.listen[i]);
	}
	return 0;
}

static int start_threads(struct srv *srv)
{
	int rc = 0;

	for (uint32_t i = 0; i < srv->opt.pollers && !rc; i++) {
		struct poller *p = &srv->poller[i];

		p->srv = srv;
		rc = tp_cq_create(srv->opt.spin_us, &p->cq);
		if (rc)
			return rc;
		rc = pthread_create(&p->thread, NULL, poller_main, p);
		p->started = rc == 0;
		if (!rc && place_thread(&srv->place, i, p->thread))
			return -EINVAL;
	}
	for (uint32_t i = 0; i < srv->opt.workers && !rc; i++) {
		rc = pthread_create(&srv->worker[i], NULL, worker_main, srv);
		if (!rc)
			srv->workers_started++;
		if (!rc && place_thread(&srv->place, srv->opt.pollers + i, srv->worker[i]))
			return -EINVAL;
	}
	return rc ? err_set(rc, "a thread could not be started: %s", strerror(rc)) : 0;
}

static int copy_options(struct srv *srv, const struct srv_options *opt)
{
	srv->opt = *opt; /* key_file is read before srv_create returns, and not again */
	if (opt->mode == SRV_SSP && opt->staleness == 0)
		srv->opt.mode = SRV_SYNC; /* nobody is ever ahead: the barrier */
	if (opt->checkpoint_dir) {
		srv->checkpoint_dir = strdup(opt->checkpoint_dir);
		srv->opt.checkpoint_dir = srv->checkpoint_dir;
		if (!srv->checkpoint_dir)
			return err_set(ENOMEM, "no memory for the server");
		/* Now, not when hours of training are to be saved. */
		int rc = checkpoint_prepare(opt->checkpoint_dir);
		if (rc)
			return rc;
	}
	for (uint32_t i = 0; i < opt->n_listen; i++) {
		srv->uri[i] = strdup(opt->listen[i]);
		srv->opt.listen[i] = srv->uri[i];
		if (!srv->uri[i])
			return err_set(ENOMEM, "no memory for the server");
	}
	return 0;
}

/* The object as srv_destroy may have it, and no more. NULL: no memory. */
static struct srv *srv_new(const struct srv_options *opt)
{
	struct srv *srv = line_alloc(1, sizeof(*srv));

	if (!srv)
		return NULL;
	srv->inbox.fd = -1;
	srv->looked_note.kind = NOTE_LOOKED;
	while (srv->id == 0)
		auth_random(&srv->id, sizeof(srv->id));
	sched_init(&srv->sched, opt->workers);
	return srv;
}

static int make_arrays(struct srv *srv, const struct srv_options *opt)
{
	srv->poller = line_alloc(opt->pollers, sizeof(*srv->poller));
	srv->worker = calloc(opt->workers + 1, sizeof(*srv->worker));
	srv->rank = calloc(opt->trainers, sizeof(*srv->rank));
	return srv->poller && srv->worker && srv->rank
		       ? 0
		       : err_set(ENOMEM, "no memory for the server");
}

int srv_create(const struct srv_options *opt, struct srv **out)
{
	int rc = options_check(opt);
	struct srv *srv;

	if (rc)
		return rc;
	srv = srv_new(opt);
	if (!srv)
		return err_set(ENOMEM, "no memory for the server");
	rc = opt->cpus ? place_parse(opt->cpus, &srv->place) : 0;
	if (!rc)
		rc = place_check(&srv->place);
	if (!rc)
		rc = make_arrays(srv, opt);
	if (!rc)
		rc = copy_options(srv, opt);
	if (!rc)
		rc = access_start(srv);
	if (!rc)
		rc = inbox_init(&srv->inbox);
	if (!rc)
		rc = round_init(&srv->round, srv, opt->trainers);
	if (!rc)
		rc = pace_init(&srv->pace, srv, opt->trainers, opt->staleness);
	if (!rc)
		rc = ledger_init(&srv->ledger, opt->trainers);
	if (!rc)
		rc = vigil_init(&srv->vigil, opt->trainers, opt->loss_wait_ms * NS_PER_MS,
				opt->straggler_ms * NS_PER_MS);
	if (!rc)
		rc = restore_open(srv);
	if (!rc)
		rc = listen_all(srv);
	if (!rc)
		rc = start_threads(srv);
	if (!rc)
		rc = saver_init(&srv->saver, srv);
	if (rc) {
		srv_destroy(srv);
		return rc;
	}
	*out = srv;
	return 0;
}

bool srv_over_rdma(const struct srv *srv)
{
	for (uint32_t i = 0; i < srv->opt.n_listen; i++)
		if (strncmp(srv->opt.listen[i], "rdma:", 5) == 0)
			return true;
	return false;
}

const char *srv_uri(const struct srv *srv, uint32_t i)
{
	return i < srv->opt.n_listen ? tp_listener_uri(srv->listener[i]) : NULL;
}

static void wake_control(struct srv *srv)
{
	uint64_t one = 1;

	/* write(2), not eventfd_write: a signal handler may call this. A full counter wakes too. */
	if (write(srv->inbox.fd, &one, sizeof(one)) < 0)
		return;
}

void srv_stop(struct srv *srv)
{
	atomic_fetch_add(&srv->stops, 1);
	wake_control(srv);
}

void srv_checkpoint(struct srv *srv)
{
	atomic_store(&srv->saver.asked, true);
	wake_control(srv);
}

static void stop_threads(struct srv *srv)
{
	atomic_store(&srv->pollers_end, true);
	for (uint32_t i = 0; i < srv->opt.pollers; i++) {
		if (srv->poller[i].started) {
			tp_cq_wake(srv->poller[i].cq);
			pthread_join(srv->poller[i].thread, NULL);
		}
	}
	sched_stop(&srv->sched);
	for (uint32_t i = 0; i < srv->workers_started; i++)
		pthread_join(srv->worker[i], NULL);
}

/* Connections that did not end by themselves; nobody else runs any more. */
static void free_sessions(struct srv *srv)
{
	while (srv->sessions) {
		struct session *s = srv->sessions;

		srv->sessions = s->next;
		session_destroy(s);
	}
	session_destroy(srv->spare);
}

void srv_destroy(struct srv *srv)
{
	if (!srv)
		return;
	if (srv->poller && srv->worker)
		stop_threads(srv);
	saver_end(&srv->saver);
	if (srv->inbox.fd >= 0)
		inbox_drain(&srv->inbox, control_note);
	free_sessions(srv);
	for (uint32_t i = 0; i < srv->opt.n_listen; i++) {
		tp_listener_destroy(srv->listener[i]);
		free(srv->uri[i]);
	}
	for (uint32_t i = 0; srv->poller && i < srv->opt.pollers; i++)
		tp_cq_destroy(srv->poller[i].cq);
	round_fini(&srv->round);
	pace_fini(&srv->pace);
	ledger_fini(&srv->ledger);
	vigil_fini(&srv->vigil);
	table_destroy(srv_table(srv));
	sched_fini(&srv->sched);
	inbox_fini(&srv->inbox);
	restore_close(srv->restore);
	free(srv->checkpoint_dir);
	access_end(srv);
	free(srv->rank);
	free(srv->worker);
	free(srv->poller);
	free(srv);
}

uint64_t srv_steps(const struct srv *srv)
{
	uint64_t step = atomic_load(&srv->round.step);

	if (srv->opt.mode == SRV_SSP)
		return atomic_load(&srv->pace.slowest);
	return step ? step - 1 : srv->round.barrier.from;
}

void srv_get_stats(const struct srv *srv, struct srv_stats *out)
{
	const struct table *t = srv_table(srv);
	*out = (struct srv_stats){
		.step = srv_steps(srv),
		.joined = atomic_load(&srv->joined),
		.violations = atomic_load(&srv->violations),
		.lost = atomic_load(&srv->lost),
		.rejoined = atomic_load(&srv->rejoined),
		.given_up = atomic_load(&srv->given_up),
		.stragglers = atomic_load(&srv->stragglers),
		.silent = atomic_load(&srv->silent),
		.refused_key = atomic_load(&srv->refused_key),
		.half_open = atomic_load(&srv->half_open),
		.flooded = atomic_load(&srv->flooded),
		.connected = atomic_load(&srv->connected),
		.checkpoints = atomic_load(&srv->saver.written),
		.checkpoint_failures = atomic_load(&srv->saver.failures),
		.checkpoint_step = atomic_load(&srv->saver.written_step),
		.restored_step = srv->restored_step,
		.memory = atomic_load(&srv->session_memory),
	};
	for (uint32_t i = 0; i < srv->opt.pollers; i++)
		out->gradients += atomic_load(&srv->poller[i].gradients);
	if (t) {
		struct ages_look ages = {0};

		for (uint32_t i = 0; i < t->params; i++)
			ages_add(&t->param[i].ages, &ages);
		out->aged = ages.pushes;
		out->age_sum = ages.sum;
		out->age_max = ages.max;
		out->memory += t->plan.weights + t->plan.state;
		for (uint32_t i = 0; i < t->blocks; i++)
			out->updates += atomic_load(t->block[i].version) / 2;
	}
}
