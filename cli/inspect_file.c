/* SPDX-License-Identifier: Apache-2.0
 *
 * `gradslot inspect` of a safetensors file.
 */
#include "cli/inspect.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "cli/json.h"
#include "cli/opt.h"
#include "cli/stats.h"

const char *inspect_shape(uint32_t ndim, const uint64_t *dim, char buf[SHAPE_TEXT])
{
	size_t n = 0;

	snprintf(buf, SHAPE_TEXT, "scalar");
	for (uint32_t i = 0; i < ndim; i++)
		n += (size_t)snprintf(buf + n, SHAPE_TEXT - n, "%s%" PRIu64, i ? "x" : "", dim[i]);
	return buf;
}

const char *inspect_name(const char *name, char buf[STORE_NAME_MAX + 1])
{
	size_t i = 0;

	for (; name[i] && i < STORE_NAME_MAX; i++)
		buf[i] = (unsigned char)name[i] < 0x20 || name[i] == 0x7f ? '?' : name[i];
	buf[i] = 0;
	return buf;
}

static int widest(const struct store_file *file)
{
	size_t width = strlen("tensor");

	for (uint32_t i = 0; i < store_count(file); i++) {
		size_t len = strlen(store_at(file, i)->name);

		width = len > width ? len : width;
	}
	return (int)width;
}

void inspect_tensors(const struct store_file *file, const struct inspect *how)
{
	char name[STORE_NAME_MAX + 1], shape[SHAPE_TEXT];
	int width = widest(file);

	if (store_count(file) == 0)
		return;
	printf("  %-*s  %-5s %-16s %14s%s\n", width, "tensor", "dtype", "shape", "bytes",
	       how->stats ? "          min         mean          max         norm  nonfinite" : "");
	for (uint32_t i = 0; i < store_count(file); i++) {
		const struct store_tensor *t = store_at(file, i);

		printf("  %-*s  %-5s %-16s %14" PRIu64, width, inspect_name(t->name, name),
		       store_dtype_name(t->dtype), inspect_shape(t->ndim, t->dim, shape), t->len);
		if (how->stats) {
			struct stats s = stats_of(t);

			printf(" %12.6g %12.6g %12.6g %12.6g %10" PRIu64, s.min, s.mean, s.max,
			       s.norm, s.nonfinite);
		}
		printf("\n");
	}
}

static json_t *tensor_json(const struct store_tensor *t, const struct inspect *how)
{
	json_t *shape = json_array();

	for (uint32_t i = 0; i < t->ndim; i++)
		json_array_append_new(shape, json_integer((json_int_t)t->dim[i]));
	json_t *object =
	    json_pack("{s:s, s:s, s:o, s:I}", "name", t->name, "dtype", store_dtype_name(t->dtype),
		      "shape", shape, "bytes", (json_int_t)t->len);
	if (how->stats) {
		struct stats s = stats_of(t);

		json_object_set_new(object, "stats", stats_json(&s));
	}
	return object;
}

json_t *inspect_tensors_json(const struct store_file *file, const struct inspect *how)
{
	json_t *tensors = json_array();

	for (uint32_t i = 0; i < store_count(file); i++)
		json_array_append_new(tensors, tensor_json(store_at(file, i), how));
	return tensors;
}

static void print_text(const struct store_file *file, const struct inspect *how)
{
	char buf[2][STORE_NAME_MAX + 1];
	const char *key, *value;

	printf("%s: %u tensors, %s\n", store_path(file), store_count(file),
	       size_text(store_size(file)).s);
	for (uint32_t i = 0; store_metadata_at(file, i, &key, &value); i++)
		printf("  %s = %s\n", inspect_name(key, buf[0]), inspect_name(value, buf[1]));
	inspect_tensors(file, how);
}

static json_t *file_json(const struct store_file *file, const struct inspect *how)
{
	json_t *meta = json_object();
	const char *key, *value;

	for (uint32_t i = 0; store_metadata_at(file, i, &key, &value); i++)
		json_object_set_new(meta, key, json_string(value));
	return json_pack("{s:s, s:s, s:b, s:I, s:o, s:o}", "kind", "safetensors", "path",
			 store_path(file), "sound", 1, "bytes", (json_int_t)store_size(file),
			 "metadata", meta, "tensors", inspect_tensors_json(file, how));
}

static int unsound(const char *path, const struct inspect *how)
{
	json_t *object = json_pack("{s:s, s:s, s:b, s:s}", "kind", "safetensors", "path", path,
				   "sound", 0, "reason", err_text());

	if (!how->json)
		printf("%s: not sound: %s\n", path, err_text());
	if (!how->json)
		json_decref(object);
	else if (json_result(object) < 0)
		log_error("%s", err_text());
	return EXIT_FAILED;
}

int inspect_file(const char *path, const struct inspect *how)
{
	struct store_file *file;
	int status = EXIT_OK, rc = store_open(path, &file);

	if (rc == -EBADMSG)
		return unsound(path, how);
	if (rc < 0) {
		log_error("%s", err_text());
		return EXIT_FAILED;
	}
	if (!how->json) {
		print_text(file, how);
	} else if (json_result(file_json(file, how)) < 0) {
		log_error("%s", err_text());
		status = EXIT_FAILED;
	}
	store_close(file);
	return status;
}
