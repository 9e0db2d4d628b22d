/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot inspect` of a checkpoint, and of a directory of them. What is wrong is a result, and
 * goes to stdout; the manifest of an unsound one is shown all the same, if it can be read.
 */
#include "cli/inspect.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "cli/json.h"
#include "cli/opt.h"
#include "store/checkpoint.h"

/* What is known of one. */
struct known {
	const char *path;
	struct checkpoint *sound; /* or NULL, and: */
	char why[512];
	bool has_manifest; /* `manifest` is to be freed */
	struct checkpoint_manifest manifest;
};

static int know(const char *path, struct known *k)
{
	*k = (struct known){.path = path};
	int rc = checkpoint_open(path, &k->sound);
	if (rc < 0)
		snprintf(k->why, sizeof(k->why), "%s", err_text());
	if (rc < 0 && rc != -EBADMSG)
		return rc;
	/* Its own, also of a sound one: one way to free it. */
	k->has_manifest = checkpoint_peek(path, &k->manifest) == 0;
	return 0;
}

static void forget(struct known *k)
{
	checkpoint_close(k->sound);
	if (k->has_manifest)
		checkpoint_manifest_free(&k->manifest);
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *when(int64_t written, char buf[32])
{
	time_t t = (time_t)written;
	struct tm tm;

	if (!gmtime_r(&t, &tm) || !strftime(buf, 32, "%Y-%m-%d %H:%M:%S UTC", &tm))
		snprintf(buf, 32, "%" PRId64, written);
	return buf;
}

static const char *mode_name(const struct checkpoint_manifest *m, char buf[24])
{
	snprintf(buf, 24, "%s", m->mode == WIRE_SYNC ? "sync" : "async");
	if (m->mode == WIRE_SSP)
		snprintf(buf, 24, "ssp:%u", m->staleness);
	return buf;
}

static void print_param(const struct checkpoint_param *p)
{
	static const char *const storages[] = {"dense", "table", "hashed"};
	char shape[SHAPE_TEXT], schedule[STORE_NAME_MAX + 1];
	const struct wire_param *d = &p->decl;

	printf("  %s: %s %s, %s", d->name, storages[d->storage],
	       inspect_shape(d->ndim, d->dim, shape), d->rule);
	for (uint32_t i = 0; i < d->n_settings; i++)
		printf("%c%s=%.9g", i ? ',' : ':', d->setting[i].name, d->setting[i].value);
	if (d->schedule[0])
		printf(", schedule %s", inspect_name(d->schedule, schedule));
	printf(", rate %.9g, %" PRIu64 " updates\n", p->rate, p->updates);
}

static void print_manifest(const struct checkpoint_manifest *m)
{
	char date[32], mode[24];

	printf("  number    %" PRIu64 "\n", m->number);
	printf("  written   %s\n", when(m->written, date));
	printf("  mode      %s\n", mode_name(m, mode));
	printf("  step      %" PRIu64 "\n", m->step);
	printf("  trainers  %u\n", m->trainers);
	printf("  server    %016" PRIx64 "\n", m->server);
	printf("  weights   %s\n", size_text(m->weights.bytes).s);
	printf("  state     %s\n", size_text(m->state.bytes).s);
	printf("Parameters\n");
	for (uint32_t i = 0; i < m->params; i++)
		print_param(&m->param[i]);
}

static void print_text(const struct known *k, const struct inspect *how)
{
	if (k->sound)
		printf("%s: sound (lengths and checksums are those of its manifest)\n", k->path);
	else
		printf("%s: not sound: %s\n", k->path, k->why);
	if (k->has_manifest)
		print_manifest(&k->manifest);
	if (k->sound && how->stats) {
		printf("Weights\n");
		inspect_tensors(checkpoint_weights_of(k->sound), how);
	}
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* The manifest as it is on the disk, without its checksum. */
static json_t *manifest_json(const struct checkpoint_manifest *m)
{
	char *text;

	if (checkpoint_manifest_print(m, &text) < 0)
		return NULL;
	json_t *object = json_loads(text, 0, NULL);
	free(text);
	json_object_del(object, "checksum");
	return object;
}

static json_t *known_json(const struct known *k, const struct inspect *how)
{
	json_t *object =
	    json_pack("{s:s, s:s, s:b, s:o}", "kind", "checkpoint", "path", k->path, "sound",
		      k->sound != NULL, "reason", k->sound ? json_null() : json_string(k->why));

	if (k->has_manifest)
		json_object_update_new(object, manifest_json(&k->manifest));
	if (k->sound && how->stats)
		json_object_set_new(object, "weights",
				    inspect_tensors_json(checkpoint_weights_of(k->sound), how));
	return object;
}

static int print_json(json_t *object)
{
	if (json_result(object) == 0)
		return EXIT_OK;
	log_error("%s", err_text());
	return EXIT_FAILED;
}

/* ---- one, and all of a directory ------------------------------------------------------------- */

int inspect_checkpoint(const char *path, const struct inspect *how)
{
	struct known k;
	int status = EXIT_OK;

	if (know(path, &k) < 0) {
		log_error("%s", k.why);
		return EXIT_FAILED;
	}
	if (how->json)
		status = print_json(known_json(&k, how));
	else
		print_text(&k, how);
	if (!k.sound)
		status = EXIT_FAILED;
	forget(&k);
	return status;
}

static void print_line(const char *name, const struct known *k)
{
	const struct checkpoint_manifest *m = &k->manifest;
	char date[32], mode[24];

	if (!k->sound)
		printf("%s  not sound: %s\n", name, k->why);
	else
		printf("%s  sound  %s  %s  step %" PRIu64 "  %u parameters  %s\n", name,
		       when(m->written, date), mode_name(m, mode), m->step, m->params,
		       size_text(m->weights.bytes + m->state.bytes).s);
}

static json_t *line_json(const struct known *k)
{
	json_t *object = json_pack("{s:s, s:b, s:o}", "path", k->path, "sound", k->sound != NULL,
				   "reason", k->sound ? json_null() : json_string(k->why));

	if (k->has_manifest) {
		json_t *manifest = manifest_json(&k->manifest);

		json_object_del(manifest, "params");
		json_object_update_new(object, manifest);
	}
	return object;
}

/* Returns whether it is sound. */
static bool inspect_line(const char *dir, uint64_t number, const struct inspect *how, json_t *list)
{
	char name[CHECKPOINT_NAME], *path;
	struct known k;

	checkpoint_name(number, name);
	if (asprintf(&path, "%s/%s", dir, name) < 0)
		return false;
	know(path, &k);
	if (how->json)
		json_array_append_new(list, line_json(&k));
	else
		print_line(name, &k);
	bool sound = k.sound != NULL;
	forget(&k);
	free(path);
	return sound;
}

int inspect_directory(const char *path, const struct inspect *how)
{
	json_t *list = json_array();
	uint64_t *numbers;
	uint32_t n, sound = 0;
	int status;

	if (checkpoint_list(path, &numbers, &n) < 0) {
		log_error("%s", err_text());
		json_decref(list);
		return EXIT_FAILED;
	}
	for (uint32_t i = 0; i < n; i++)
		sound += inspect_line(path, numbers[i], how, list);
	free(numbers);
	status = sound ? EXIT_OK : EXIT_FAILED;
	if (how->json) {
		json_t *all = json_pack("{s:s, s:s, s:o}", "kind", "directory", "path", path,
					"checkpoints", json_incref(list));
		if (print_json(all) != EXIT_OK)
			status = EXIT_FAILED;
	} else if (n == 0) {
		printf("%s: there is no checkpoint\n", path);
	}
	json_decref(list);
	return status;
}
