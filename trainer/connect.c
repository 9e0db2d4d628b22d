/* SPDX-License-Identifier: Apache-2.0
 *
 * The beginning and the end of a trainer.
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "trainer/backoff.h"

enum { SPIN_DEFAULT_US = 50 };

/* ---- options --------------------------------------------------------------------------------- */

static int check_options(const struct gs_options *opt)
{
	if (opt->size != sizeof(*opt))
		return err_set(
		    EINVAL,
		    "options: size is %zu, not %zu; begin with GS_OPTIONS_INIT, and build "
		    "against the header of this library",
		    opt->size, sizeof(*opt));
	if (!opt->uri)
		return err_set(EINVAL, "options: no uri; give shm:NAME or rdma://HOST:PORT");
	if (opt->name && strlen(opt->name) > WIRE_NAME_MAX)
		return err_set(EINVAL, "options: name has %zu bytes; the limit is %u",
			       strlen(opt->name), WIRE_NAME_MAX);
	if (opt->rank < -1)
		return err_set(EINVAL, "options: rank %d; must be 0 or more, or -1", opt->rank);
	if (opt->timeout_ms == 0)
		return err_set(EINVAL, "options: timeout_ms 0; must be 1 at least");
	if (opt->spin_us < GS_SPIN_DEFAULT)
		return err_set(EINVAL, "options: spin_us %d; must be 0 or more, or GS_SPIN_…",
			       opt->spin_us);
	if (opt->key_file && !opt->key_file[0])
		return err_set(EINVAL, "options: key_file is empty; NULL means none");
	if (opt->reconnect_ms == 0)
		return err_set(EINVAL, "options: reconnect_ms 0; must be 1 at least");
	return 0;
}

static void fill_hello(struct wire_hello *hello, const struct gs_options *opt)
{
	hello->version = WIRE_VERSION;
	hello->rank = opt->rank;
	snprintf(hello->name, sizeof(hello->name), "%s",
		 opt->name ? opt->name : program_invocation_short_name);
	/* A program may be called anything; a name that was given must be right, and is checked
	 * when the message is encoded. */
	for (char *c = hello->name; !opt->name && *c; c++) {
		if (*c < 0x20 || *c > 0x7e)
			*c = '?';
	}
}

/* ---- connecting ------------------------------------------------------------------------------ */

static uint64_t jitter(void)
{
	uint64_t mix = (clock_ns() ^ (uint64_t)(uintptr_t)&mix) * UINT64_C(0x9e3779b97f4a7c15);

	return mix >> 32 | mix << 32;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec ts = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};

	nanosleep(&ts, NULL);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

int connect_try(gs_trainer *t, const struct tries *tries)
{
	uint64_t deadline = clock_ns() + tries->within_ms * NS_PER_MS;
	char refusal[256] = "";
	int refused = 0;

	if (tries->late)
		sleep_ns(
		    least(backoff_ns(t->attempts++, jitter()), tries->within_ms * NS_PER_MS / 2));
	for (;;) {
		int rc = tries->once(t, deadline);

		/* The last try has little time left: that it ran out says less than why there was
		 * another one. */
		if (rc == -ETIMEDOUT && refused && clock_ns() + NS_PER_MS >= deadline)
			return err_set(refused, "no server at %s within %u ms: %s", t->uri,
				       tries->within_ms, refusal);
		if (rc == 0 || !tries->again(rc))
			return rc;
		refused = -rc;
		snprintf(refusal, sizeof(refusal), "%s", err_text());
		uint64_t pause = backoff_ns(t->attempts++, jitter());
		if (clock_ns() + pause >= deadline)
			return err_wrap(rc, "no server at %s within %u ms", t->uri,
					tries->within_ms);
		sleep_ns(pause);
	}
}

static uint32_t ms_left(uint64_t deadline)
{
	uint64_t now = clock_ns();

	return deadline > now ? (uint32_t)((deadline - now) / NS_PER_MS) + 1 : 1;
}

/* A try takes timeout_ms at most, so that a try that can't succeed does not take them all. */
static uint32_t ms_of_try(const gs_trainer *t, uint64_t deadline)
{
	uint32_t left = ms_left(deadline);

	return left < t->timeout_ms ? left : t->timeout_ms;
}

static int check_welcome(const gs_trainer *t, const struct wire_welcome *w)
{
	if (w->version != WIRE_VERSION)
		return err_set(EPROTO, "welcome: version %u to our %u", w->version, WIRE_VERSION);
	if (w->rank >= w->trainers)
		return err_set(EPROTO, "welcome: rank %u of %u trainers", w->rank, w->trainers);
	if (t->hello.rank >= 0 && w->rank != (uint32_t)t->hello.rank)
		return err_set(EPROTO, "welcome: rank %u; %d was asked for", w->rank,
			       t->hello.rank);
	return 0;
}

/* Hello and welcome; talk.c answers a challenge in between. */
static int greet(gs_trainer *t, uint32_t ms)
{
	struct wire_msg hello = {.kind = WIRE_HELLO, .hello = t->hello};

	access_hello(&t->access, &hello.hello);
	t->patience_ms = t->timeout_ms;
	t->expect = WIRE_WELCOME;
	int rc = talk_send(t, &hello);
	if (rc == 0)
		rc = talk_wait(t, ms);
	if (rc == 0 && check_welcome(t, &t->welcome) < 0)
		rc = trainer_breach(t);
	return rc;
}

int connect_once(gs_trainer *t, uint64_t deadline)
{
	struct tp_options opt = {
	    .timeout_ms = ms_of_try(t, deadline),
	    .lend_bytes = t->reg_cache_bytes,
	};
	int rc = tp_connect(t->uri, &opt, t->cq, t, &t->link.conn);

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&t->lock);
	t->load_store = tp_conn_limits(t->link.conn).load_store;
	t->link.rails = tp_conn_limits(t->link.conn).rails;
	snprintf(t->transport, sizeof(t->transport), "%s", tp_conn_transport(t->link.conn));
	rc = greet(t, ms_of_try(t, deadline));
	pthread_mutex_unlock(&t->lock);
	return rc;
}

/* Nobody listens yet: that heals when the server is started. */
static bool worth_a_retry(int rc)
{
	return rc == -ECONNREFUSED;
}

static int trainer_create(const struct gs_options *opt, gs_trainer **out)
{
	pthread_condattr_t attr;
	gs_trainer *t = calloc(1, sizeof(*t));

	if (!t)
		return err_set(ENOMEM, "no memory for a trainer");
	t->uri = strdup(opt->uri);
	if (!t->uri) {
		free(t);
		return err_set(ENOMEM, "no memory for a trainer");
	}
	t->forks = trainer_forks();
	t->samples = t->grad_scale = 1;
	t->timeout_ms = opt->timeout_ms;
	t->start_timeout_ms = opt->start_timeout_ms;
	t->keepalive_ms = opt->keepalive_ms;
	t->reconnect_ms = opt->reconnect_ms;
	t->reg_cache_bytes = opt->reg_cache_bytes;
	fill_hello(&t->hello, opt);
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->changed, &attr);
	pthread_condattr_destroy(&attr);
	*out = t;
	return 0;
}

static int make_cq(gs_trainer *t, int32_t spin_us)
{
	t->spin_us = spin_us == GS_SPIN_DEFAULT ? SPIN_DEFAULT_US : spin_us;
	yields_init(&t->yields, t->spin_us == GS_SPIN_FOREVER);
	return tp_cq_create(t->spin_us, &t->cq);
}

int gs_connect(const struct gs_options *opt, gs_trainer **out)
{
	gs_trainer *t = NULL;

	if (!opt || !out)
		return err_set(EINVAL, "gs_connect: NULL");
	int rc = check_options(opt);
	if (rc == 0)
		rc = trainer_create(opt, &t);
	if (rc < 0)
		return rc;
	struct tries tries = {connect_once, worth_a_retry, opt->timeout_ms, false};
	rc = access_open(&t->access, opt->key_file);
	if (rc == 0)
		rc = make_cq(t, opt->spin_us);
	if (rc == 0)
		rc = connect_try(t, &tries);
	if (rc < 0) {
		char text[512];

		/* Closing must not cost the reason. */
		snprintf(text, sizeof(text), "%s", err_text());
		gs_close(t);
		return err_set(-rc, "%s", text);
	}
	t->attempts = 0;
	t->up_since = clock_ns();
	*out = t;
	return 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

void gs_close(gs_trainer *t)
{
	if (!t || t->forks != trainer_forks())
		return; /* a child's copy goes with the child */
	pthread_mutex_lock(&t->lock);
	link_end(t);
	pthread_mutex_unlock(&t->lock);
	link_free(&t->link);
	link_free(&t->old);
	tp_cq_destroy(t->cq);
	access_close(&t->access);
	for (uint32_t i = 0; i < t->n_params; i++) {
		free(t->param[i]->sum);
		free(t->param[i]->addend);
		free(t->param[i]);
	}
	free(t->param);
	free(t->by_name);
	pthread_cond_destroy(&t->changed);
	pthread_mutex_destroy(&t->lock);
	free(t->uri);
	free(t);
}

/* ---- facts ----------------------------------------------------------------------------------- */

const char *gs_last_error(void)
{
	return err_text();
}

const char *gs_version_string(void)
{
	return GS_VERSION;
}

void gs_get_info(gs_trainer *t, struct gs_info *out)
{
	pthread_mutex_lock(&t->lock);
	*out = (struct gs_info){
	    .rank = t->welcome.rank,
	    .trainers = t->welcome.trainers,
	    .mode = (enum gs_mode)t->welcome.mode, /* numbered alike */
	    .staleness = t->welcome.staleness,
	    .step = t->step,
	    .blocks = t->link.blocks,
	    .slots = t->link.slots,
	    .transport = t->transport,
	    .load_store = t->load_store,
	};
	pthread_mutex_unlock(&t->lock);
}
