/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot export`: a checkpoint's weights as a safetensors file, which is there whole or not at
 * all.
 */
#include "cli/cmd.h"
#include "cli/opt.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "kernels/kern.h"
#include "store/checkpoint.h"

struct job {
	const char *from, *to;
	int dtype; /* of enum kern_dtype */
	struct opt_texts only;
	uint32_t n;
	struct store_tensor *tensor; /* as they will be in the file, n of them */
};

static const enum store_dtype stored_as[] = {
    [KERN_F32] = STORE_F32, [KERN_BF16] = STORE_BF16, [KERN_F16] = STORE_F16};

/* ---- what goes into it ----------------------------------------------------------------------- */

static bool matches(const char *pattern, const char *name)
{
	return !strcmp(pattern, name) || fnmatch(pattern, name, 0) == 0;
}

static bool wanted(const struct job *job, const char *name)
{
	for (uint32_t i = 0; i < job->only.n; i++) {
		if (matches(job->only.text[i], name))
			return true;
	}
	return job->only.n == 0;
}

/* A name that nothing has is a mistake. */
static int check_only(const struct job *job, const struct store_file *weights)
{
	for (uint32_t i = 0; i < job->only.n; i++) {
		bool found = false;

		for (uint32_t k = 0; k < store_count(weights) && !found; k++)
			found = matches(job->only.text[i], store_at(weights, k)->name);
		if (!found)
			return err_set(ENOENT, "--only '%s': %s has no such tensor",
				       job->only.text[i], store_path(weights));
	}
	return 0;
}

static int choose(struct job *job, const struct store_file *weights)
{
	int rc = check_only(job, weights);

	if (rc < 0)
		return rc;
	job->tensor = calloc((size_t)store_count(weights) + 1, sizeof(*job->tensor));
	if (!job->tensor)
		return err_set(ENOMEM, "no memory for %u tensors", store_count(weights));
	for (uint32_t i = 0; i < store_count(weights); i++) {
		if (!wanted(job, store_at(weights, i)->name))
			continue;
		struct store_tensor *t = &job->tensor[job->n++];
		*t = *store_at(weights, i);
		/* What is no weight (a table's keys) stays what it is. */
		if (t->dtype == STORE_F32)
			t->dtype = stored_as[job->dtype];
	}
	return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* In pieces: the checkpoint's data may be at any address. */
static void narrow(enum kern_dtype dtype, const struct store_tensor *from, struct store_tensor to)
{
	enum { PIECE = 4096 };
	float v[PIECE];
	uint64_t left = from->len / sizeof(float), at = 0;

	while (left) {
		size_t n = left < PIECE ? (size_t)left : PIECE;

		memcpy(v, (const char *)from->data + at * sizeof(float), n * sizeof(float));
		kern_narrow(dtype, v, (char *)to.data + at * kern_size(dtype), n);
		at += n;
		left -= n;
	}
}

static void fill(const struct job *job, const struct store_file *weights, struct store_file *out)
{
	for (uint32_t i = 0; i < store_count(out); i++) {
		const struct store_tensor *to = store_at(out, i);
		const struct store_tensor *from = store_find(weights, to->name);

		if (from->dtype == to->dtype)
			memcpy(to->data, from->data, to->len);
		else
			narrow((enum kern_dtype)job->dtype, from, *to);
	}
}

/* The directory that a file is in, on the disk: its new name is there for good. */
static int sync_directory(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	int rc = fd < 0 || fsync(fd) < 0
		     ? err_set(errno, "%s: fsync of its directory: %s", path, strerror(errno))
		     : 0;

	if (fd >= 0)
		close(fd);
	free(dir);
	return rc;
}

static int write_as(const struct job *job, const struct checkpoint *c, const char *tmp)
{
	static const char *const modes[] = {
	    [WIRE_SYNC] = "sync", [WIRE_ASYNC] = "async", [WIRE_SSP] = "ssp"};
	const struct checkpoint_manifest *m = checkpoint_manifest(c);
	char step[24];
	/* "format": what there is of readers of such files asks for it. */
	const char *meta[][2] = {
	    {"format", "pt"}, {"gradslot.mode", modes[m->mode]}, {"gradslot.step", step}};
	struct store_file *out;

	snprintf(step, sizeof(step), "%" PRIu64, m->step);
	int rc = store_create(tmp, job->tensor, job->n, meta, 3, &out);
	if (rc < 0)
		return rc;
	fill(job, checkpoint_weights_of(c), out);
	rc = store_sync(out);
	uint64_t bytes = store_size(out);
	store_close(out);
	if (rc == 0 && rename(tmp, job->to) < 0)
		rc = err_set(errno, "%s: rename: %s", job->to, strerror(errno));
	if (rc < 0) {
		unlink(tmp);
		return rc;
	}
	rc = sync_directory(job->to);
	if (rc == 0)
		printf("%s: %u tensors of %s, %s\n", job->to, job->n, checkpoint_path(c),
		       size_text(bytes).s);
	return rc;
}

static int export_to(struct job *job, const struct checkpoint *c)
{
	char *tmp;
	int rc = choose(job, checkpoint_weights_of(c));

	if (rc < 0)
		return rc;
	if (asprintf(&tmp, "%s.%d.tmp", job->to, (int)getpid()) < 0)
		return err_set(ENOMEM, "%s: no memory", job->to);
	rc = write_as(job, c, tmp);
	free(tmp);
	return rc;
}

static int run(struct job *job)
{
	struct checkpoint *c;
	int rc = checkpoint_is_one(job->from) ? checkpoint_open(job->from, &c)
					      : checkpoint_open_newest(job->from, &c);

	if (rc == 0) {
		rc = export_to(job, c);
		checkpoint_close(c);
	}
	free(job->tensor);
	if (rc < 0)
		log_error("%s", err_text());
	return rc < 0 ? EXIT_FAILED : EXIT_OK;
}

int cmd_export(int argc, char **argv)
{
	static const char *const dtypes[] = {"f32", "bf16", "f16", NULL};
	struct job job = {.dtype = KERN_F32};
	const struct opt opts[] = {
	    {"dtype", OPT_CHOICE, &job.dtype, "TYPE", "of the weights: f32, bf16 or f16",
	     .choices = dtypes},
	    {"only", OPT_TEXTS, &job.only, "NAME",
	     "this tensor alone, * and ? stand for any; may be given again", .max = OPT_TEXTS_MAX},
	    {NULL},
	};
	const struct opt_operand operands[] = {
	    {"CHECKPOINT", &job.from}, {"FILE", &job.to}, {NULL, NULL}};
	const struct opt_command cmd = {"gradslot export",
					"Writes the weights of a checkpoint, or of the newest "
					"sound one of a directory, to a file.",
					"FILE is a safetensors file; one that is there is replaced "
					"once the new one is whole.\n",
					opts};

	int rc = opt_parse_with(&cmd, operands, argc, argv);
	if (rc != OPT_RUN)
		return rc;
	if (kern_isa_use(NULL) < 0) {
		log_error("%s", err_text());
		return EXIT_FAILED;
	}
	return run(&job);
}
