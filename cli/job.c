/* SPDX-License-Identifier: Apache-2.0
 *
 * A server and its trainers as processes.
 */
#include "cli/job.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cli/address.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	READY_MS = 15000,    /* registering memory comes later: listening is quick */
	FAREWELL_MS = 10000, /* for the server to see that its trainers are gone */
	AFTERMATH_MS = 500,  /* for those that die of the same cause to be named, too */
	JOB_MAX = SRV_MAX_TRAINERS + 1,
};

const char *const job_transports[] = {"shm", "rdma", NULL};

struct job {
	const char *name;
	struct children *set;
	struct child *server;
	struct child *list[JOB_MAX]; /* all but the server */
	unsigned n, left;            /* started; of them still running */
	bool server_left, stays;
	int signal;
	char uri[384];
};

int job_server_check(const struct opt_command *cmd, const struct job_server *server)
{
	if (server->address && server->transport != JOB_RDMA)
		return opt_usage(cmd, "--address '%s' goes with --transport rdma only",
				 server->address);
	return OPT_RUN;
}

int job_create(const char *name, struct job **out)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		return err_set(ENOMEM, "no memory for a job");
	job->name = name;
	int rc = children_create(&job->set);
	if (rc < 0) {
		free(job);
		return rc;
	}
	*out = job;
	return 0;
}

void job_destroy(struct job *job)
{
	if (!job)
		return;
	children_destroy(job->set);
	free(job);
}

const char *job_uri(const struct job *job)
{
	return job->uri;
}

void job_use_server(struct job *job, const char *uri)
{
	snprintf(job->uri, sizeof(job->uri), "%s", uri);
}

pid_t job_server_pid(const struct job *job)
{
	return job->server ? child_pid(job->server) : 0;
}

/* ---- the server ------------------------------------------------------------------------------ */

static int listen_uri(const struct job *job, const struct job_server *server, char *buf,
		      size_t size)
{
	char address[128];
	int rc;

	if (server->uri) {
		snprintf(buf, size, "%s", server->uri);
		return 0;
	}
	if (server->transport == JOB_SHM) {
		snprintf(buf, size, "shm:%s-%d", job->name, (int)getpid());
		return 0;
	}
	if (server->address) {
		/* A colon after the last bracket, or the only one there is, begins a port. */
		const char *bracket = strrchr(server->address, ']');
		const char *colon = strchr(bracket ? bracket : server->address, ':');
		snprintf(buf, size, "rdma://%s%s", server->address, colon ? "" : ":0");
		return 0;
	}
	rc = address_of_first_device(address, sizeof(address));
	if (rc < 0)
		return rc;
	snprintf(buf, size, "rdma://%s:0", address);
	return 0;
}

static int wait_ready(struct job *job)
{
	static const char word[] = "READY ";
	uint64_t deadline = clock_ns() + READY_MS * NS_PER_MS;
	struct child_event ev;
	char reason[128];

	for (;;) {
		uint64_t now = clock_ns();
		int left = now < deadline ? (int)((deadline - now) / NS_PER_MS) : 0;
		int rc = children_wait(job->set, left, &ev);
		if (rc < 0)
			return rc;
		switch (ev.kind) {
		case CHILD_LINE:
			if (strncmp(ev.line, word, sizeof(word) - 1))
				break;
			snprintf(job->uri, sizeof(job->uri), "%s", ev.line + sizeof(word) - 1);
			job->server_left = true;
			return 0;
		case CHILD_ENDED:
			if (!child_failed(ev.child, reason, sizeof(reason)))
				snprintf(reason, sizeof(reason), "exited");
			return err_set(ECHILD, "the server %s before it was ready", reason);
		case CHILD_SIGNAL:
			job->signal = ev.signal;
			return err_set(EINTR, "interrupted");
		case CHILD_TIMEOUT:
			return err_set(ETIMEDOUT, "the server is not ready after %d s",
				       READY_MS / 1000);
		}
	}
}

void job_spin_arg(struct child_args *args, const struct srvopt *opt)
{
	if (opt->spin_us == SRV_SPIN_FOREVER)
		child_arg(args, "--spin=forever");
	else
		child_arg(args, "--spin=%" PRId64, opt->spin_us);
}

int job_start_server(struct job *job, const struct job_server *server)
{
	struct child_args args = {0};
	char listen[384];
	int rc = listen_uri(job, server, listen, sizeof(listen));

	if (rc < 0)
		return rc;
	child_arg(&args, "serve");
	child_arg(&args, "--insecure"); /* its trainers are this program, and go with it */
	if (!server->stays)
		child_arg(&args, "--exit-when-done");
	job->stays = server->stays;
	child_arg(&args, "--log=%s", server->quiet ? "error" : "warn");
	/* A trainer that fails ends the job: nobody comes in its place. */
	child_arg(&args, "--on-trainer-loss=continue");
	child_arg(&args, "--listen=%s", listen);
	child_arg(&args, "--mode=%s", server->mode);
	child_arg(&args, "--trainers=%" PRId64, server->trainers);
	child_arg(&args, "--pollers=%" PRId64, server->opt.pollers);
	child_arg(&args, "--workers=%" PRId64, server->opt.workers);
	if (server->opt.cpus)
		child_arg(&args, "--cpus=%s", server->opt.cpus);
	child_arg(&args, "--huge-pages=%s", srvopt_huge_words[server->opt.huge_pages]);
	job_spin_arg(&args, &server->opt);
	if (server->slots)
		child_arg(&args, "--slots=%" PRId64, server->slots);
	if (server->block)
		child_arg(&args, "--block-size=%" PRId64, server->block);
	rc = child_start(job->set, "the server", &args, &job->server);
	return rc < 0 ? rc : wait_ready(job);
}

/* ---- all processes --------------------------------------------------------------------------- */

int job_start(struct job *job, const char *name, const struct child_args *args)
{
	if (job->n == JOB_MAX)
		return err_set(E2BIG, "no more than %d processes", JOB_MAX);
	int rc = child_start(job->set, name, args, &job->list[job->n]);
	if (rc < 0)
		return rc;
	job->n++;
	job->left++;
	return 0;
}

static unsigned number_of(const struct job *job, const struct child *child)
{
	unsigned i = 0;

	while (i < job->n && job->list[i] != child)
		i++;
	return i;
}

/* Adds "; NAME REASON" for a process that has ended badly. */
static size_t add_failure(const struct child *child, char *text, size_t n, size_t size)
{
	char reason[128];

	if (!child || child_running(child) || !child_failed(child, reason, sizeof(reason)) ||
	    n >= size)
		return n;
	return n + (size_t)snprintf(text + n, size - n, "%s%s %s", n ? "; " : "", child_name(child),
				    reason);
}

/* Something has failed: gives the others a moment to fail of the same cause, then names all. */
static int aftermath(struct job *job)
{
	uint64_t deadline = clock_ns() + AFTERMATH_MS * NS_PER_MS;
	struct child_event ev = {0};
	char text[400] = "";
	size_t n = 0;

	for (uint64_t now = clock_ns(); now < deadline && ev.kind != CHILD_SIGNAL;
	     now = clock_ns()) {
		if (children_wait(job->set, (int)((deadline - now) / NS_PER_MS) + 1, &ev) < 0)
			break;
	}
	if (ev.kind == CHILD_SIGNAL) {
		job->signal = ev.signal;
		return err_set(EINTR, "ended by signal %d", ev.signal);
	}
	n = add_failure(job->server, text, n, sizeof(text));
	for (unsigned i = 0; i < job->n; i++)
		n = add_failure(job->list[i], text, n, sizeof(text));
	return err_set(ECHILD, "%s: the other processes were ended", text);
}

/* Returns 0 to go on. */
static int one_ended(struct job *job, const struct child *child)
{
	char reason[128];

	if (child == job->server)
		job->server_left = false;
	else if (--job->left == 0 && job->stays && job->server_left)
		kill(child_pid(job->server), SIGTERM);
	return child_failed(child, reason, sizeof(reason)) ? aftermath(job) : 0;
}

int job_run(struct job *job, job_line_fn line, void *arg)
{
	struct child_event ev;
	int rc = 0;

	while (rc >= 0 && (job->left || job->server_left)) {
		rc = children_wait(job->set, job->left ? -1 : FAREWELL_MS, &ev);
		if (rc < 0)
			break;
		switch (ev.kind) {
		case CHILD_LINE:
			if (ev.child != job->server)
				rc = line(arg, number_of(job, ev.child), ev.line);
			break;
		case CHILD_ENDED:
			rc = one_ended(job, ev.child);
			break;
		case CHILD_SIGNAL:
			job->signal = ev.signal;
			rc = err_set(EINTR, "interrupted");
			break;
		case CHILD_TIMEOUT:
			rc = err_set(ETIMEDOUT,
				     "the server did not exit within %d s of its last "
				     "trainer's end",
				     FAREWELL_MS / 1000);
			break;
		}
	}
	return rc;
}

int job_wait_server(struct job *job)
{
	struct child_event ev;
	int rc = 0;

	while (rc >= 0 && job->server_left) {
		rc = children_wait(job->set, -1, &ev);
		if (rc == 0 && ev.kind == CHILD_ENDED)
			rc = one_ended(job, ev.child);
		if (rc == 0 && ev.kind == CHILD_SIGNAL) {
			job->signal = ev.signal;
			rc = err_set(EINTR, "interrupted");
		}
	}
	return rc;
}

int job_abandon(struct job *job)
{
	int signo = job ? job->signal : 0;

	if (!signo) {
		log_error("%s", err_text());
		job_destroy(job);
		return EXIT_FAILED;
	}
	job_destroy(job);
	signal(signo, SIG_DFL);
	raise(signo);
	return EXIT_FAILED;
}
