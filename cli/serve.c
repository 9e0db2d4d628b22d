/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot serve`: the parameter server as a program.
 */
#include "cli/cmd.h"
#include "cli/opt.h"

#include "base/err.h"
#include "base/log.h"
#include "cli/mode.h"
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

	(void)signo;
	if (srv)
		srv_stop(srv);
}

/* SIGTERM and SIGINT wait until there is a server to stop: `blocked` is what to give back then. The
 * server's threads start with them blocked, so the signals come to this thread. */
static void hold_signals(sigset_t *blocked)
{
	struct sigaction act = {.sa_handler = on_signal};

	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGINT, &act, NULL);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(blocked);
	sigaddset(blocked, SIGTERM);
	sigaddset(blocked, SIGINT);
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

int cmd_serve(int argc, char **argv)
{
	static const char *const levels[] = {"error", "warn", "info", "debug", NULL};
	struct srvopt so = srvopt_default();
	struct opt_texts listen = {.n = 0};
	int64_t trainers = 1, slots = 2, block = 256 << 10, memory = 0;
	struct mode mode = {.kind = SRV_SYNC};
	int level = LOG_INFO;
	bool exit_when_done = false;
	const struct opt opts[] = {
	    {"listen", OPT_TEXTS, &listen, "URI",
	     "shm:NAME or rdma://HOST:PORT; may be given again (default shm:gradslot)",
	     .max = SRV_MAX_LISTENERS},
	    {"trainers", OPT_NUMBER, &trainers, "N", "how many trainers take part", .min = 1,
	     .max = SRV_MAX_TRAINERS},
	    MODE_LINE(mode),
	    SRVOPT_LINES(so),
	    {"block-size", OPT_SIZE, &block, "BYTES", "longest block", .min = 1 << 10,
	     .max = 1 << 30, .multiple = 1 << 10},
	    {"slots", OPT_NUMBER, &slots, "N", "gradients of one block under way at once", .min = 1,
	     .max = 8},
	    {"max-memory", OPT_SIZE, &memory, "BYTES",
	     "limit of weights, optimizer state and slots", .min = 1 << 20, .max = INT64_C(1) << 50,
	     .word = "available", .word_value = 0},
	    {"exit-when-done", OPT_FLAG, &exit_when_done, NULL,
	     .help = "exit once all trainers have come and gone"},
	    {"log", OPT_CHOICE, &level, "LEVEL", "error, warn, info or debug", .choices = levels},
	    {NULL},
	};
	const struct opt_command cmd = {
	    "gradslot serve", "Runs the parameter server until SIGTERM or SIGINT.",
	    "Prints `READY URI...` to stdout once trainers can connect; logs to stderr.\n", opts};

	int rc = opt_parse(&cmd, argc, argv);
	if (rc != OPT_RUN)
		return rc;
	log_set_level((enum log_level)level);
	if (kern_isa_use(NULL) < 0) {
		log_error("%s", err_text());
		return EXIT_FAILED;
	}
	struct srv_options o = srv_options_default();
	o.n_listen = listen.n ? listen.n : 1;
	o.listen[0] = "shm:gradslot";
	memcpy(o.listen, listen.text, listen.n * sizeof(listen.text[0]));
	o.trainers = (uint32_t)trainers;
	o.mode = mode.kind;
	o.staleness = mode.staleness;
	srvopt_settle(&so, 1); /* a trainer may be a neighbour */
	o.pollers = (uint32_t)so.pollers;
	o.workers = (uint32_t)so.workers;
	o.spin_us = (int32_t)so.spin_us;
	o.block_kib = (uint32_t)(block >> 10);
	o.slots = (uint32_t)slots;
	o.max_memory = (uint64_t)memory;
	o.exit_when_done = exit_when_done;
	return serve(&o);
}
