/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest as text and back.
 */
#include "store/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/err.h"
#include "store/fields.h"

#define MEMBERS 11u

static const char *const modes[] = {
    [WIRE_SYNC] = "sync", [WIRE_ASYNC] = "async", [WIRE_SSP] = "ssp"};

/* ---- the checksum at the end ----------------------------------------------------------------- */

#define SEAL     ",\n  \"checksum\": \"%s\"\n}\n"
#define SEAL_LEN 53u /* with its 32 digits */

static void seal_text(const char *text, size_t len, char buf[SEAL_LEN + 1])
{
	XXH128_hash_t h = XXH3_128bits(text, len);
	char hex[HEX_TEXT];

	snprintf(buf, SEAL_LEN + 1, SEAL, hex_text((uint64_t[]){h.low64, h.high64}, 2, hex));
}

char *manifest_seal(const char *text, size_t len)
{
	if (len < 2 || memcmp(text + len - 2, "\n}", 2))
		return NULL;
	len -= 2;
	char *sealed = malloc(len + SEAL_LEN + 1);
	if (sealed) {
		memcpy(sealed, text, len);
		seal_text(text, len, sealed + len);
	}
	return sealed;
}

static int check_seal(const char *text, size_t len)
{
	char seal[SEAL_LEN + 1];

	if (len > MANIFEST_MAX)
		return err_set(EBADMSG, "%zu bytes; the limit is %u", len, MANIFEST_MAX);
	if (len < SEAL_LEN)
		return err_set(EBADMSG, "%zu bytes: it is cut", len);
	seal_text(text, len - SEAL_LEN, seal);
	if (memcmp(text + len - SEAL_LEN, seal, SEAL_LEN))
		return err_set(EBADMSG,
			       "its checksum is not that of its text: it was cut or changed");
	return 0;
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
	const struct checkpoint_param *const *x = a, *const *y = b;

	return strcmp((*x)->decl.name, (*y)->decl.name);
}

static int check_twice(const struct checkpoint_manifest *m, int err)
{
	const struct checkpoint_param **sorted = calloc((size_t)m->params + 1, sizeof(*sorted));
	int rc = sorted ? 0 : err_set(ENOMEM, "no memory for %u parameters", m->params);

	for (uint32_t i = 0; rc == 0 && i < m->params; i++)
		sorted[i] = &m->param[i];
	if (rc == 0 && m->params)
		qsort(sorted, m->params, sizeof(*sorted), by_name);
	for (uint32_t i = 1; rc == 0 && i < m->params; i++) {
		if (by_name(&sorted[i - 1], &sorted[i]) == 0)
			rc = err_set(err, "\"%s\": there are two parameters of this name",
				     sorted[i]->decl.name);
	}
	free(sorted);
	return rc;
}

static int check(const struct checkpoint_manifest *m, int err)
{
	if ((unsigned)m->mode < WIRE_SYNC || (unsigned)m->mode > WIRE_SSP)
		return err_set(err, "mode: %d; known are %d to %d", (int)m->mode, WIRE_SYNC,
			       WIRE_SSP);
	if ((m->mode == WIRE_SSP) != (m->staleness > 0))
		return err_set(err, "staleness: %u; it is 1 at least in ssp mode, and 0 elsewhere",
			       m->staleness);
	if (m->number < 1 || m->trainers < 1 || m->server == 0 || m->written < 0)
		return err_set(err,
			       "number %" PRIu64 ", trainers %u, server %" PRIx64
			       ", written %" PRId64 ": all are above 0",
			       m->number, m->trainers, m->server, m->written);
	int rc = 0;
	for (uint32_t i = 0; rc == 0 && i < m->params; i++)
		rc = manifest_check_param(&m->param[i], err);
	return rc < 0 ? rc : check_twice(m, err);
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *print_file(const struct checkpoint_file *f)
{
	char hex[HEX_TEXT];

	return json_pack("{s:o, s:s}", "bytes", json_u64(f->bytes), "xxh3",
			 hex_text(f->hash, 2, hex));
}

static json_t *print_params(const struct checkpoint_manifest *m)
{
	json_t *params = json_array();

	for (uint32_t i = 0; params && i < m->params; i++) {
		if (json_array_append_new(params, manifest_print_param(&m->param[i])) < 0) {
			json_decref(params);
			return NULL;
		}
	}
	return params;
}

static json_t *print_root(const struct checkpoint_manifest *m)
{
	char server[HEX_TEXT];

	return json_pack("{s:I, s:o, s:o, s:s, s:I, s:o, s:I, s:s, s:{s:o, s:o}, s:o}", "format",
			 (json_int_t)CHECKPOINT_FORMAT, "number", json_u64(m->number), "written",
			 json_u64((uint64_t)m->written), "mode", modes[m->mode], "staleness",
			 (json_int_t)m->staleness, "step", json_u64(m->step), "trainers",
			 (json_int_t)m->trainers, "server", hex_text(&m->server, 1, server),
			 "files", CHECKPOINT_WEIGHTS, print_file(&m->weights), CHECKPOINT_STATE,
			 print_file(&m->state), "params", print_params(m));
}

int checkpoint_manifest_print(const struct checkpoint_manifest *m, char **text)
{
	int rc = check(m, EINVAL);

	if (rc < 0)
		return rc;
	json_t *root = print_root(m);
	char *plain = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
	json_decref(root);
	char *sealed = plain ? manifest_seal(plain, strlen(plain)) : NULL;
	free(plain);
	if (!sealed)
		return err_set(EINVAL,
			       "a manifest of %u parameters can't be made: no memory, or a "
			       "schedule that is not UTF-8",
			       m->params);
	if (strlen(sealed) > MANIFEST_MAX) {
		free(sealed);
		return err_set(EINVAL, "a manifest of %u parameters has more than %u bytes",
			       m->params, MANIFEST_MAX);
	}
	*text = sealed;
	return 0;
}

/* ---- parsing --------------------------------------------------------------------------------- */

static int parse_file(const json_t *files, const char *name, struct checkpoint_file *f)
{
	const json_t *value = json_object_get(files, name);
	int rc = field_object(value, name, 2);

	if (rc == 0)
		rc = field_u64(value, "bytes", 1, INT64_MAX, &f->bytes);
	if (rc == 0)
		rc = field_hex(value, "xxh3", 2, f->hash);
	return rc;
}

static int parse_files(const json_t *files, struct checkpoint_manifest *m)
{
	int rc = field_object(files, "files", 2);

	if (rc == 0)
		rc = parse_file(files, CHECKPOINT_WEIGHTS, &m->weights);
	if (rc == 0)
		rc = parse_file(files, CHECKPOINT_STATE, &m->state);
	return rc;
}

static int parse_params(const json_t *params, struct checkpoint_manifest *m)
{
	if (!json_is_array(params))
		return err_set(EBADMSG, "params: must be an array");
	m->params = (uint32_t)json_array_size(params);
	m->param = calloc((size_t)m->params + 1, sizeof(*m->param));
	if (!m->param)
		return err_set(ENOMEM, "no memory for %u parameters", m->params);
	for (uint32_t i = 0; i < m->params; i++) {
		int rc = manifest_parse_param(json_array_get(params, i), &m->param[i]);
		if (rc < 0)
			return err_wrap(rc, "params[%u]", i);
	}
	return 0;
}

static int parse_head(const json_t *root, struct checkpoint_manifest *m)
{
	uint64_t written = 0;
	unsigned mode = 0;
	int rc = field_u64(root, "number", 1, UINT64_MAX, &m->number);

	if (rc == 0)
		rc = field_u64(root, "written", 0, INT64_MAX, &written);
	if (rc == 0)
		rc = field_choice(root, "mode", modes, WIRE_SYNC, WIRE_SSP, &mode);
	if (rc == 0)
		rc = field_u32(root, "staleness", 0, UINT32_MAX, &m->staleness);
	if (rc == 0)
		rc = field_u64(root, "step", 0, UINT64_MAX, &m->step);
	if (rc == 0)
		rc = field_u32(root, "trainers", 1, UINT32_MAX, &m->trainers);
	if (rc == 0)
		rc = field_hex(root, "server", 1, &m->server);
	m->written = (int64_t)written;
	m->mode = (enum wire_mode)mode;
	return rc;
}

static int parse_root(const json_t *root, struct checkpoint_manifest *m)
{
	int rc = json_is_object(root) ? 0 : err_set(EBADMSG, "must be an object");

	/* First of all: what follows may be otherwise in another format. */
	if (rc == 0)
		rc = field_u32(root, "format", 0, UINT32_MAX, &m->format);
	if (rc == 0 && m->format != CHECKPOINT_FORMAT)
		rc = err_set(EBADMSG, "format: %u; this program knows %u", m->format,
			     CHECKPOINT_FORMAT);
	if (rc == 0)
		rc = field_object(root, "it", MEMBERS);
	if (rc == 0)
		rc = parse_head(root, m);
	if (rc == 0)
		rc = parse_files(json_object_get(root, "files"), m);
	if (rc == 0)
		rc = parse_params(json_object_get(root, "params"), m);
	return rc < 0 ? rc : check(m, EBADMSG);
}

int checkpoint_manifest_parse(const char *text, size_t len, struct checkpoint_manifest *out)
{
	struct checkpoint_manifest m = {0};
	json_error_t error;
	int rc = check_seal(text, len);

	if (rc < 0)
		return rc;
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
	if (!root && json_error_code(&error) == json_error_out_of_memory)
		return err_set(ENOMEM, "no memory for %zu bytes of JSON", len);
	if (!root)
		return err_set(EBADMSG, "line %d: %s", error.line, error.text);
	rc = parse_root(root, &m);
	json_decref(root);
	if (rc < 0)
		checkpoint_manifest_free(&m);
	else
		*out = m;
	return rc;
}

void checkpoint_manifest_free(struct checkpoint_manifest *m)
{
	free(m->param);
	m->param = NULL;
	m->params = 0;
}
