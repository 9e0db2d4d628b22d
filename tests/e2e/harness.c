/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks, waiting, servers and trainers for the end-to-end tests.
 */
#include "harness.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ---- checks and waiting
 * -------------------------------------------------------------------------- */

bool over_shm(void)
{
	return strncmp(e2e_uri, "shm:", 4) == 0;
}

TCase *e2e_case(const char *name)
{
	TCase *t = tcase_create(name);

	tcase_set_timeout(t, e2e_small ? 100 : 40);
	return t;
}

TCase *e2e_wire_case(const char *name)
{
	TCase *t = e2e_case(name);

	tcase_set_tags(t, "wire");
	return t;
}

TCase *e2e_disk_case(const char *name)
{
	TCase *t = e2e_case(name);

	tcase_set_tags(t, "disk");
	return t;
}

void has_words(const char *text, const char *const *words)
{
	for (; *words; words++)
		must(strstr(text, *words), "no \"%s\" in \"%s\"", *words, text);
}

void nap_us(uint32_t us)
{
	nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

void wait_until(bool (*pred)(void *arg), void *arg, const char *what)
{
	uint64_t deadline = clock_ns() + scaled(15, 60) * NS_PER_S;

	while (!pred(arg)) {
		must(clock_ns() < deadline, "waited in vain for %s", what);
		nap_us(300);
	}
}

uint64_t mix64(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

uint32_t rnd(uint64_t *state, uint32_t below)
{
	*state = mix64(*state);
	return (uint32_t)(*state >> 33) % below;
}

/* ---- a server
 * ------------------------------------------------------------------------------------ */

struct srv_options bed_options(uint32_t trainers, enum srv_mode mode)
{
	struct srv_options opt = srv_options_default();

	opt.listen[0] = e2e_uri;
	opt.n_listen = 1;
	opt.trainers = trainers;
	opt.mode = mode;
	opt.insecure = true;
	opt.on_loss = SRV_LOSS_CONTINUE;
	opt.talk_ms = scaled(10000, 60000);
	return opt;
}

static void *run(void *arg)
{
	struct bed *b = arg;

	b->rc = srv_run(b->srv);
	snprintf(b->text, sizeof(b->text), "%s", b->rc ? err_text() : "");
	return NULL;
}

void bed_start(struct bed *b, const struct srv_options *opt)
{
	ok(srv_create(opt, &b->srv));
	b->uri = srv_uri(b->srv, 0);
	must(pthread_create(&b->thread, NULL, run, b) == 0, "no thread");
}

void bed_stop(struct bed *b)
{
	uint64_t begin = clock_ns();

	srv_stop(b->srv);
	pthread_join(b->thread, NULL);
	must(b->rc == 0, "srv_run: %d", b->rc);
	must(clock_ns() - begin < scaled(3, 12) * NS_PER_S, "srv_run took %llu ms to return",
	     (unsigned long long)((clock_ns() - begin) / NS_PER_MS));
	srv_destroy(b->srv);
	b->srv = NULL;
}

void bed_done(struct bed *b)
{
	pthread_join(b->thread, NULL);
	must(b->rc == 0, "srv_run: %d", b->rc);
	srv_destroy(b->srv);
	b->srv = NULL;
}

void bed_fails(struct bed *b, int err, const char *const *words)
{
	pthread_join(b->thread, NULL);
	must(b->rc == -err, "srv_run: %d: %s", b->rc, b->text);
	has_words(b->text, words);
	srv_destroy(b->srv);
	b->srv = NULL;
}

struct srv_stats bed_stats(struct bed *b)
{
	struct srv_stats s;

	srv_get_stats(b->srv, &s);
	return s;
}

struct wanted {
	struct bed *bed;
	uint64_t n;
};

static bool are_connected(void *arg)
{
	struct wanted *w = arg;

	return bed_stats(w->bed).connected == w->n;
}

void bed_wait_connected(struct bed *b, uint32_t n)
{
	struct wanted w = {b, n};
	char what[64];

	snprintf(what, sizeof(what), "%u connections", n);
	wait_until(are_connected, &w, what);
}

static bool have_been_lost(void *arg)
{
	struct wanted *w = arg;
	struct srv_stats s = bed_stats(w->bed);

	return s.lost == w->n;
}

void bed_wait_lost(struct bed *b, uint64_t n)
{
	struct wanted w = {b, n};
	char what[64];

	snprintf(what, sizeof(what), "%llu losses", (unsigned long long)n);
	wait_until(have_been_lost, &w, what);
}

static bool has_stepped(void *arg)
{
	struct wanted *w = arg;

	return bed_stats(w->bed).step >= w->n;
}

void bed_wait_step(struct bed *b, uint64_t step)
{
	struct wanted w = {b, step};
	char what[64];

	snprintf(what, sizeof(what), "step %llu", (unsigned long long)step);
	wait_until(has_stepped, &w, what);
}

/* ---- trainers
 * ------------------------------------------------------------------------------------ */

struct gs_options trainer_options(const char *uri, int32_t rank)
{
	struct gs_options opt = GS_OPTIONS_INIT;

	opt.uri = uri;
	opt.rank = rank;
	opt.timeout_ms = scaled(10000, 60000);
	return opt;
}

gs_trainer *connect_as(const char *uri, int32_t rank)
{
	struct gs_options opt = trainer_options(uri, rank);
	uint64_t deadline = clock_ns() + scaled(10, 60) * NS_PER_S;
	gs_trainer *t = NULL;
	int rc;

	do {
		rc = gs_connect(&opt, &t);
		if (rc == -EEXIST || rc == -EUSERS)
			nap_us(2000);
	} while ((rc == -EEXIST || rc == -EUSERS) && clock_ns() < deadline);
	must(rc == 0, "gs_connect: %d: %s", rc, err_text());
	return t;
}

gs_param *declare_line(gs_trainer *t, const char *name, uint64_t elems, double lr, double value)
{
	struct gs_param_desc d = GS_PARAM_DESC_INIT;
	gs_param *p;

	d.name = name;
	d.ndim = 1;
	d.shape[0] = elems;
	d.init_a = value;
	gs_setting(&d, "lr", lr);
	ok(gs_declare(t, &d, &p));
	return p;
}

void leave(gs_trainer *t)
{
	ok(gs_leave(t));
	gs_close(t);
}

static void *start_one(void *t)
{
	ok(gs_start(t));
	return NULL;
}

void start_both(gs_trainer *const t[2])
{
	pthread_t thread;

	pthread_create(&thread, NULL, start_one, t[1]);
	ok(gs_start(t[0]));
	pthread_join(thread, NULL);
}

void cut_one(uint64_t *rng)
{
	DIR *d = opendir("/proc/self/fd");
	int fd[256], n = 0;
	struct dirent *e;

	while ((e = readdir(d)) && n < 256) {
		int at = atoi(e->d_name), domain = 0, listens = 0;
		socklen_t len = sizeof(int);

		if (getsockopt(at, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
		    getsockopt(at, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 &&
		    domain == AF_UNIX && !listens)
			fd[n++] = at;
	}
	closedir(d);
	if (n)
		shutdown(fd[rnd(rng, (uint32_t)n)], SHUT_RDWR);
}
