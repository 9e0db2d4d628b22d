/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot serve`: the parameter server as a program.
 */
#include "cli/cmd.h"
#include "cli/opt.h"

#include "base/err.h"
#include "base/log.h"
#include "cli/mode.h"
#include "cli/patience.h"
#include "cli/saveopt.h"
#include "cli/srvopt.h"
#include "kernels/kern.h"
#include "server/server.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Atomic(struct srv *) running;

static void on_signal(int signo)
{
	struct srv *srv = atomic_load(&running);

	if (srv && signo == SIGUSR1)
		srv_checkpoint(srv);
	else if (srv)
		srv_stop(srv);
}

/* SIGTERM, SIGINT and SIGUSR1 wait until there is a server to tell: `blocked` is what to give back
 * then. The server's threads start with them blocked, so the signals come to this thread. */
static void hold_signals(sigset_t *blocked)
{
	struct sigaction act = {.sa_handler = on_signal};

	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGUSR1, &act, NULL);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(blocked);
	sigaddset(blocked, SIGTERM);
	sigaddset(blocked, SIGINT);
	sigaddset(blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, blocked, NULL);
}

static bool print_ready(const struct srv *srv, uint32_t listeners)
{
	printf("READY");
	for (uint32_t i = 0; i < listeners; i++)
		printf(" %s", srv_uri(srv, i));
	printf("\n");
	return fflush(stdout) == 0;
}

static int serve(const struct srv_options *opt)
{
	struct srv *srv;
	sigset_t blocked;

	hold_signals(&blocked);
	if (srv_create(opt, &srv) < 0) {
		log_error("%s", err_text());
		return EXIT_FAILED;
	}
	atomic_store(&running, srv);
	sigprocmask(SIG_UNBLOCK, &blocked, NULL);
	int rc = -1;
	if (!print_ready(srv, opt->n_listen)) {
		log_error("stdout can't be written");
	} else {
		rc = srv_run(srv);
		if (rc < 0)
			log_error("%s", err_text());
	}
	atomic_store(&running, NULL);
	srv_destroy(srv);
	return rc < 0 ? EXIT_FAILED : EXIT_OK;
}

/* What the command line says. */
struct args {
	struct opt_texts listen;
	int64_t trainers, slots, block, memory;
	struct mode mode;
	struct srvopt threads;
	struct saveopt saves;
	struct patience patience;
	const char *key_file;
	bool insecure, exit_when_done;
	int level;
};

static int settle(struct args *a, struct srv_options *o)
{
	*o = srv_options_default();
	o->n_listen = a->listen.n ? a->listen.n : 1;
	o->listen[0] = "shm:gradslot";
	memcpy(o->listen, a->listen.text, a->listen.n * sizeof(a->listen.text[0]));
	o->trainers = (uint32_t)a->trainers;
	o->mode = a->mode.kind;
	o->staleness = a->mode.staleness;
	o->pollers = (uint32_t)a->threads.pollers;
	o->workers = (uint32_t)a->threads.workers;
	o->cpus = a->threads.cpus;
	o->huge_pages = (enum srv_huge)a->threads.huge_pages;
	o->spin_us = (int32_t)a->threads.spin_us;
	o->block_kib = (uint32_t)(a->block >> 10);
	o->slots = (uint32_t)a->slots;
	o->max_memory = (uint64_t)a->memory;
	o->exit_when_done = a->exit_when_done;
	o->key_file = a->key_file;
	o->insecure = a->insecure;
	patience_apply(&a->patience, o);
	return saveopt_settle(&a->saves, o);
}

int cmd_serve(int argc, char **argv)
{
	static const char *const levels[] = {"error", "warn", "info", "debug", NULL};
	struct args a = {
	    .trainers = 1,
	    .slots = 2,
	    .block = 256 << 10,
	    .mode = {.kind = SRV_SYNC},
	    .threads = srvopt_default(),
	    .saves = saveopt_default(),
	    .patience = patience_default(),
	    .level = LOG_INFO,
	};
	const struct opt opts[] = {
	    {"listen", OPT_TEXTS, &a.listen, "URI",
	     "shm:NAME or rdma://HOST:PORT; may be given again (default shm:gradslot)",
	     .max = SRV_MAX_LISTENERS},
	    {"trainers", OPT_NUMBER, &a.trainers, "N", "how many trainers take part", .min = 1,
	     .max = SRV_MAX_TRAINERS},
	    MODE_LINE(a.mode),
	    SRVOPT_LINES(a.threads),
	    {"block-size", OPT_SIZE, &a.block, "BYTES", "longest block", .min = 1 << 10,
	     .max = 1 << 30, .multiple = 1 << 10},
	    {"slots", OPT_NUMBER, &a.slots, "N", "gradients of one block under way at once", .min = 1,
	     .max = 8},
	    {"max-memory", OPT_SIZE, &a.memory, "BYTES",
	     "limit of weights, optimizer state and slots", .min = 1 << 20, .max = INT64_C(1) << 50,
	     .word = "available", .word_value = 0},
	    SAVEOPT_LINES(a.saves),
	    {"key-file", OPT_TEXT, &a.key_file, "FILE",
	     .help = "only trainers that have this key are let in (mode 0600, 16 to 4096 bytes)"},
	    {"insecure", OPT_FLAG, &a.insecure, NULL,
	     .help = "let anybody in without a key, also from other machines"},
	    PATIENCE_LINES(a.patience),
	    {"exit-when-done", OPT_FLAG, &a.exit_when_done, NULL,
	     .help = "exit once all trainers have come and gone"},
	    {"log", OPT_CHOICE, &a.level, "LEVEL", "error, warn, info or debug", .choices = levels},
	    {NULL},
	};
	const struct opt_command cmd = {
	    "gradslot serve", "Runs the parameter server until SIGTERM or SIGINT.",
	    "Prints `READY URI...` to stdout once trainers can connect; logs to stderr.\n", opts};

	int rc = opt_parse(&cmd, argc, argv);
	if (rc != OPT_RUN)
		return rc;
	log_set_level((enum log_level)a.level);
	struct srv_options o;
	if (kern_isa_use(NULL) < 0 || settle(&a, &o) < 0) {
		log_error("%s", err_text());
		return EXIT_FAILED;
	}
	return serve(&o);
}
