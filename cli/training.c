/* SPDX-License-Identifier: Apache-2.0
 *
 * Trainer processes, and one that does the same alone.
 */
#include "cli/training.h"

#include "base/err.h"
#include "base/log.h"
#include "demo/pin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

const char *const training_dtypes[] = {"f32", "bf16", "f16", NULL};

enum { RESULTS = 2 };

static int on_any_line(struct training *t, char *text, bool single)
{
	json_t *line;
	int rc = json_from_line(text, &line);

	if (rc < 0)
		return rc;
	t->results += json_object_get(line, "result") != NULL;
	rc = t->take(t->arg, line, single);
	json_decref(line);
	return rc;
}

static int on_line(void *arg, unsigned number, char *text)
{
	(void)number; /* only rank 0 writes */
	return on_any_line(arg, text, false);
}

static int on_single_line(void *arg, unsigned number, char *text)
{
	(void)number;
	return on_any_line(arg, text, true);
}

static int start_trainers(const struct training *t, struct job *job)
{
	int rc = 0;

	for (int64_t rank = 0; rank < t->server.trainers && rc == 0; rank++) {
		struct child_args args = {0};
		char name[32];

		snprintf(name, sizeof(name), "trainer %" PRId64, rank);
		child_arg(&args, "%s-trainer", t->name);
		child_arg(&args, "--uri=%s", job_uri(job));
		child_arg(&args, "--rank=%" PRId64, rank);
		job_spin_arg(&args, &t->server.opt);
		t->add_args(t->arg, &args);
		rc = job_start(job, name, &args);
	}
	return rc;
}

static int run_single(struct training *t, struct job *job)
{
	struct child_args args = {0};

	fprintf(stderr, "the same training in one process, for comparison\n");
	child_arg(&args, "%s-single", t->name);
	t->add_args(t->arg, &args);
	int rc = job_start(job, "the single process", &args);
	if (rc == 0)
		rc = job_run(job, on_single_line, t);
	return rc;
}

static int run(struct training *t, struct job **job)
{
	int rc = job_create(t->name, job);

	if (rc == 0)
		rc = job_start_server(*job, &t->server);
	if (rc == 0)
		rc = start_trainers(t, *job);
	if (rc == 0)
		rc = job_run(*job, on_line, t);
	if (rc == 0)
		rc = run_single(t, *job);
	if (rc == 0 && t->results != RESULTS)
		rc = err_set(EPROTO, "a process ended without its result");
	return rc;
}

int training_run(struct training *t)
{
	struct job *job = NULL;

	t->progress = progress_begin();
	if (demo_pin_children() < 0 || run(t, &job) < 0) {
		progress_break(&t->progress);
		return job_abandon(job);
	}
	job_destroy(job);
	return EXIT_OK;
}

const char *training_verdict(const struct training *t, bool equal, bool exact)
{
	static char text[64];

	if (equal || exact)
		return equal ? "the same" : "DIFFERS";
	snprintf(text, sizeof(text), "differs, as is expected of %s mode", t->server.mode);
	return text;
}

int training_judge(const struct training *t, bool equal, bool exact)
{
	if (equal || !exact)
		return EXIT_OK;
	log_error("the weights trained by %" PRId64 " processes are not those of one process: "
		  "synchronous training must give the same bits",
		  t->server.trainers);
	return EXIT_FAILED;
}

struct training_member training_member_default(void)
{
	return (struct training_member){"shm:gradslot", 0, srvopt_default().spin_us};
}
