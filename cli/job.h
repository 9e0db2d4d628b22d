/* SPDX-License-Identifier: Apache-2.0
 *
 * A training job on this machine: a server and its trainers, as processes of their own. demo and
 * bench differ only in what a trainer is and what they do with its lines.
 *
 * Errors: negative errno with err_text(); -EINTR when a signal asked this process to end, with
 * everything as after any other error: only job_abandon or job_destroy make sense.
 */
#ifndef GS_CLI_JOB_H
#define GS_CLI_JOB_H

#include "cli/child.h"
#include "cli/srvopt.h"

struct job;

enum job_transport { JOB_SHM, JOB_RDMA };
extern const char *const job_transports[]; /* names, for OPT_CHOICE */

struct job_server {
	const char *mode;    /* as serve --mode takes it */
	int transport;       /* enum job_transport */
	const char *address; /* rdma: HOST[:PORT], or NULL for that of the first device */
	const char *uri;     /* what to listen on, as it is; or NULL: by transport and address */
	int64_t trainers;
	int64_t slots, block; /* 0: serve's defaults */
	bool quiet;           /* it logs errors alone */
	bool stays;           /* it serves until the others have ended, however many come and go */
	struct srvopt opt;
};

/* Lines of an option table that fill the struct job_server `s`, without mode and trainers; and what
 * no line can check. Returns OPT_RUN or EXIT_USAGE. */
/* clang-format off */
#define JOB_SERVER_LINES(s) \
	{"transport", OPT_CHOICE, &(s).transport, "shm|rdma", \
	 "shared memory, or RDMA through a device of this machine", .choices = job_transports}, \
	{"address", OPT_TEXT, &(s).address, "HOST[:PORT]", \
	 .help = "rdma: where the server listens; unset: at the first RDMA device's address"}, \
	SRVOPT_LINES((s).opt)
/* clang-format on */
int job_server_check(const struct opt_command *cmd, const struct job_server *server);

/* `name` is that of the command: it becomes part of the shared memory's name. */
int job_create(const char *name, struct job **out);
/* Ends and reaps whatever still runs. NULL is allowed. */
void job_destroy(struct job *job);

/* Starts the server, which exits when its trainers are done, and waits until it listens. */
int job_start_server(struct job *job, const struct job_server *server);
/* The trainers' --spin, as the server's. */
void job_spin_arg(struct child_args *args, const struct srvopt *opt);
/* The same with no server of this job's own: there is one at `uri`. */
void job_use_server(struct job *job, const char *uri);
/* What trainers connect to. */
const char *job_uri(const struct job *job);
/* 0: it is not this job's own. */
pid_t job_server_pid(const struct job *job);

/* Starts one more process; the first is number 0. */
int job_start(struct job *job, const char *name, const struct child_args *args);

/* A line that process `number` wrote. Negative (with err_text()) ends the job. */
typedef int (*job_line_fn)(void *arg, unsigned number, char *line);

/* Runs until every process has ended. The first that fails ends all others; the text then names
 * those that failed, the server first (-ECHILD). */
int job_run(struct job *job, job_line_fn line, void *arg);

/* Waits until the server has ended by itself: for a job without other processes. */
int job_wait_server(struct job *job);

/* Destroys the job (or NULL) after an error, prints the error and gives the command's exit status.
 * If the error was a signal this process dies of it, as a shell expects. */
int job_abandon(struct job *job);

#endif
