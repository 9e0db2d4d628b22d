/* SPDX-License-Identifier: Apache-2.0
 *
 * The beginning and the end of a trainer.
 */
#include "trainer/trainer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"

enum {
	SPIN_DEFAULT_US = 50,
	BACKOFF_FIRST_MS = 5,
	BACKOFF_MAX_MS = 500,
	CLOSE_MS = 1500, /* the transport gives itself one second */
};

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
	return 0;
}

static void fill_hello(struct wire_msg *msg, const struct gs_options *opt)
{
	*msg = (struct wire_msg){.kind = WIRE_HELLO};
	msg->hello.version = WIRE_VERSION;
	msg->hello.rank = opt->rank;
	snprintf(msg->hello.name, sizeof(msg->hello.name), "%s",
		 opt->name ? opt->name : program_invocation_short_name);
	/* A program may be called anything; a name that was given must be right, and is checked
	 * when the message is encoded. */
	for (char *c = msg->hello.name; !opt->name && *c; c++) {
		if (*c < 0x20 || *c > 0x7e)
			*c = '?';
	}
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* Nobody listens yet: that heals when the server is started. */
static bool worth_a_retry(int rc)
{
	return rc == -ECONNREFUSED;
}

/* Half to all of it, so that trainers that were started together don't knock together. */
static uint64_t jittered_ns(uint64_t ms)
{
	uint64_t mix = (clock_ns() ^ (uint64_t)(uintptr_t)&mix) * UINT64_C(0x9e3779b97f4a7c15);

	return ms * NS_PER_MS / 2 + (mix >> 32) % (ms * NS_PER_MS / 2);
}

static int connect_until(gs_trainer *t, uint64_t deadline)
{
	uint64_t backoff_ms = BACKOFF_FIRST_MS;
	char refusal[256] = "";
	int refused = 0;

	for (;;) {
		uint64_t now = clock_ns();
		uint64_t left = deadline > now ? (deadline - now) / NS_PER_MS : 0;
		struct tp_options opt = {.timeout_ms = left ? (uint32_t)left : 1};
		int rc = tp_connect(t->uri, &opt, t->cq, t, &t->conn);

		/* The last try has little time left: that it ran out says less than why there was
		 * another one. */
		if (rc == -ETIMEDOUT && refused)
			return err_set(refused, "no server at %s within %u ms: %s", t->uri,
				       t->timeout_ms, refusal);
		if (rc == 0 || !worth_a_retry(rc))
			return rc;
		refused = -rc;
		snprintf(refusal, sizeof(refusal), "%s", err_text());
		uint64_t pause = jittered_ns(backoff_ms);
		if (clock_ns() + pause >= deadline)
			return err_wrap(rc, "no server at %s within %u ms", t->uri, t->timeout_ms);
		struct timespec ts = {.tv_sec = (time_t)(pause / NS_PER_S),
				      .tv_nsec = (long)(pause % NS_PER_S)};
		nanosleep(&ts, NULL);
		if (backoff_ms < BACKOFF_MAX_MS)
			backoff_ms *= 2;
	}
}

static int check_welcome(const struct wire_welcome *w, int32_t asked)
{
	if (w->version != WIRE_VERSION)
		return err_set(EPROTO, "welcome: version %u to our %u", w->version, WIRE_VERSION);
	if (w->rank >= w->trainers)
		return err_set(EPROTO, "welcome: rank %u of %u trainers", w->rank, w->trainers);
	if (asked >= 0 && w->rank != (uint32_t)asked)
		return err_set(EPROTO, "welcome: rank %u; %d was asked for", w->rank, asked);
	return 0;
}

static int greet(gs_trainer *t, const struct gs_options *opt, uint64_t deadline)
{
	struct wire_msg hello;
	uint64_t now = clock_ns();
	uint32_t left = deadline > now ? (uint32_t)((deadline - now) / NS_PER_MS) + 1 : 1;

	fill_hello(&hello, opt);
	pthread_mutex_lock(&t->lock);
	t->expect = WIRE_WELCOME;
	int rc = talk_send(t, &hello);
	if (rc == 0)
		rc = talk_wait(t, left);
	if (rc == 0 && check_welcome(&t->welcome, opt->rank) < 0)
		rc = trainer_breach(t);
	pthread_mutex_unlock(&t->lock);
	return rc;
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
	t->timeout_ms = t->patience_ms = opt->timeout_ms;
	t->start_timeout_ms = opt->start_timeout_ms;
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->changed, &attr);
	pthread_condattr_destroy(&attr);
	*out = t;
	return 0;
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
	uint64_t deadline = clock_ns() + opt->timeout_ms * NS_PER_MS;
	rc = tp_cq_create(opt->spin_us == GS_SPIN_DEFAULT ? SPIN_DEFAULT_US : opt->spin_us, &t->cq);
	if (rc == 0)
		rc = connect_until(t, deadline);
	if (rc == 0) {
		t->load_store = tp_conn_limits(t->conn).load_store;
		rc = greet(t, opt, deadline);
	}
	if (rc < 0) {
		char text[512];

		/* Closing must not cost the reason. */
		snprintf(text, sizeof(text), "%s", err_text());
		gs_close(t);
		return err_set(-rc, "%s", text);
	}
	*out = t;
	return 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* The connection's end is waited for so that what was said last (a bye, an error) gets out. */
static void close_conn(gs_trainer *t)
{
	uint64_t deadline = clock_ns() + CLOSE_MS * NS_PER_MS;

	pthread_mutex_lock(&t->lock);
	if (t->err == 0)
		t->err = -ENOTCONN; /* what comes now is not for anybody */
	tp_conn_close(t->conn);
	while (trainer_poll(t), !t->closed && clock_ns() < deadline)
		tp_cq_wait(t->cq, CLOSE_MS);
	pthread_mutex_unlock(&t->lock);
	tp_conn_destroy(t->conn);
}

void gs_close(gs_trainer *t)
{
	if (!t || t->forks != trainer_forks())
		return; /* a child's copy goes with the child */
	if (t->conn)
		close_conn(t);
	tp_cq_destroy(t->cq);
	tp_arena_destroy(t->mailbox);
	tp_arena_destroy(t->local);
	for (uint32_t i = 0; i < t->n_params; i++) {
		free(t->param[i]->sum);
		free(t->param[i]->addend);
		free(t->param[i]);
	}
	free(t->param);
	free(t->grant.place);
	free(t->owner);
	free(t->pull_asked);
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
	    .blocks = t->blocks,
	    .slots = t->slots,
	    .transport = tp_conn_transport(t->conn),
	    .load_store = t->load_store,
	};
	pthread_mutex_unlock(&t->lock);
}
