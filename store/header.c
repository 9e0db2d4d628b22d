/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of a safetensors file. What is read was written by anybody: nothing is believed that
 * was not checked, and a tensor that comes out of here lies within the data.
 */
#include "store/header.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define METADATA "__metadata__"

struct entry {
	struct store_tensor t;
	uint64_t begin, end;
};

bool header_bytes(enum store_dtype dtype, uint32_t ndim, const uint64_t *dim, uint64_t *bytes)
{
	uint64_t product = store_dtype_size(dtype);
	bool empty = false;

	for (uint32_t i = 0; i < ndim; i++) {
		if (dim[i] == 0)
			empty = true;
		else if (__builtin_mul_overflow(product, dim[i], &product))
			return false;
	}
	*bytes = empty ? 0 : product;
	return product <= INT64_MAX;
}

/* ---- parsing --------------------------------------------------------------------------------- */

static int parse_dtype(const json_t *value, enum store_dtype *out)
{
	const char *name = json_string_value(value);

	if (!name)
		return err_set(EBADMSG, "dtype: must be a string");
	for (int i = 0; i < STORE_DTYPES; i++) {
		if (!strcmp(name, store_dtype_name((enum store_dtype)i))) {
			*out = (enum store_dtype)i;
			return 0;
		}
	}
	return err_set(EBADMSG, "dtype: '%.32s' is not known here", name);
}

static int parse_number(const json_t *value, const char *field, uint64_t *out)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return err_set(EBADMSG, "%s: must be whole numbers from 0 to 2^63 - 1", field);
	*out = (uint64_t)json_integer_value(value);
	return 0;
}

static int parse_shape(const json_t *value, struct store_tensor *t)
{
	if (!json_is_array(value))
		return err_set(EBADMSG, "shape: must be an array");
	if (json_array_size(value) > STORE_DIMS_MAX)
		return err_set(EBADMSG, "shape: %zu dimensions; the limit is %u",
			       json_array_size(value), STORE_DIMS_MAX);
	t->ndim = (uint32_t)json_array_size(value);
	for (uint32_t i = 0; i < t->ndim; i++) {
		int rc = parse_number(json_array_get(value, i), "shape", &t->dim[i]);
		if (rc < 0)
			return rc;
	}
	if (!header_bytes(t->dtype, t->ndim, t->dim, &t->len))
		return err_set(EBADMSG, "shape: its bytes are more than 2^63 - 1");
	return 0;
}

static int parse_offsets(const json_t *value, uint64_t data_len, struct entry *e)
{
	if (!json_is_array(value) || json_array_size(value) != 2)
		return err_set(EBADMSG, "data_offsets: must be an array of two numbers");
	int rc = parse_number(json_array_get(value, 0), "data_offsets", &e->begin);
	if (rc == 0)
		rc = parse_number(json_array_get(value, 1), "data_offsets", &e->end);
	if (rc < 0)
		return rc;
	if (e->begin > e->end || e->end > data_len)
		return err_set(EBADMSG,
			       "data_offsets: %" PRIu64 " to %" PRIu64 "; the data has %" PRIu64
			       " bytes",
			       e->begin, e->end, data_len);
	if (e->end - e->begin != e->t.len)
		return err_set(EBADMSG,
			       "data_offsets: %" PRIu64 " bytes; its shape and type make %" PRIu64,
			       e->end - e->begin, e->t.len);
	return 0;
}

static int parse_tensor(const char *name, const json_t *value, uint64_t data_len, struct entry *e)
{
	size_t len = strlen(name);

	if (len < 1 || len > STORE_NAME_MAX)
		return err_set(EBADMSG, "its name has %zu bytes; must be 1 to %u", len,
			       STORE_NAME_MAX);
	memcpy(e->t.name, name, len + 1);
	if (!json_is_object(value) || json_object_size(value) != 3)
		return err_set(EBADMSG, "must be an object of dtype, shape and data_offsets");
	int rc = parse_dtype(json_object_get(value, "dtype"), &e->t.dtype);
	if (rc == 0)
		rc = parse_shape(json_object_get(value, "shape"), &e->t);
	if (rc == 0)
		rc = parse_offsets(json_object_get(value, "data_offsets"), data_len, e);
	return rc;
}

static int check_metadata(json_t *value)
{
	const char *key;
	json_t *text;

	if (!json_is_object(value))
		return err_set(EBADMSG, METADATA ": must be an object");
	json_object_foreach(value, key, text)
	{
		if (!json_is_string(text))
			return err_set(EBADMSG, METADATA ": '%.64s' is not a string", key);
	}
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->end < y->end ? -1 : x->end > y->end;
}

/* One after the other, from the data's start to its end. */
static int check_places(struct entry *e, uint32_t n, uint64_t data_len)
{
	uint64_t at = 0;

	if (n)
		qsort(e, n, sizeof(*e), by_place);
	for (uint32_t i = 0; i < n; i++) {
		if (e[i].begin != at)
			return err_set(EBADMSG,
				       "tensor \"%s\": begins at %" PRIu64 ", %s: %" PRIu64
				       " is where the one before it ends",
				       e[i].t.name, e[i].begin,
				       e[i].begin < at ? "which overlaps" : "which leaves a hole",
				       at);
		at = e[i].end;
	}
	if (at != data_len)
		return err_set(EBADMSG,
			       "the tensors end at %" PRIu64 "; the data has %" PRIu64 " bytes", at,
			       data_len);
	return 0;
}

static int parse_entries(json_t *root, uint64_t data_len, struct entry *e, uint32_t *n)
{
	const char *key;
	json_t *value;

	json_object_foreach(root, key, value)
	{
		int rc = strcmp(key, METADATA) ? parse_tensor(key, value, data_len, &e[*n])
					       : check_metadata(value);
		if (rc < 0)
			return strcmp(key, METADATA) ? err_wrap(rc, "tensor \"%.64s\"", key) : rc;
		*n += strcmp(key, METADATA) != 0;
	}
	return check_places(e, *n, data_len);
}

static int parse_root(json_t *root, uint64_t data_len, struct header *out)
{
	size_t most = json_object_size(root);
	struct entry *e = calloc(most + 1, sizeof(*e));
	struct header h = {0};

	h.tensor = calloc(most + 1, sizeof(*h.tensor));
	if (!e || !h.tensor || most > UINT32_MAX) {
		free(e);
		free(h.tensor);
		return err_set(ENOMEM, "no memory for %zu tensors", most);
	}
	int rc = parse_entries(root, data_len, e, &h.n);
	for (uint32_t i = 0; rc == 0 && i < h.n; i++)
		h.tensor[i] = e[i].t;
	free(e);
	if (rc < 0) {
		free(h.tensor);
		return rc;
	}
	h.meta = json_incref(json_object_get(root, METADATA));
	*out = h;
	return 0;
}

int header_parse(const char *text, size_t len, uint64_t data_len, struct header *out)
{
	json_error_t error;

	if (len == 0 || text[0] != '{')
		return err_set(EBADMSG, "the header does not begin with '{'");
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
	if (!root && json_error_code(&error) == json_error_out_of_memory)
		return err_set(ENOMEM, "no memory for a header of %zu bytes", len);
	if (!root)
		return err_set(EBADMSG, "the header, byte %d: %s", error.position, error.text);
	int rc = parse_root(root, data_len, out);
	json_decref(root);
	return rc;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int check_tensor(const struct store_tensor *t, uint64_t *bytes)
{
	size_t len = strnlen(t->name, sizeof(t->name));

	if (len < 1 || len > STORE_NAME_MAX)
		return err_set(EINVAL, "a tensor's name has %zu bytes; must be 1 to %u", len,
			       STORE_NAME_MAX);
	if (!strcmp(t->name, METADATA))
		return err_set(EINVAL, "no tensor can be called " METADATA
				       ": the file format has that for itself");
	if ((unsigned)t->dtype >= STORE_DTYPES)
		return err_set(EINVAL, "tensor \"%s\": type %d is not known", t->name,
			       (int)t->dtype);
	if (t->ndim > STORE_DIMS_MAX)
		return err_set(EINVAL, "tensor \"%s\": %u dimensions; the limit is %u", t->name,
			       t->ndim, STORE_DIMS_MAX);
	/* JSON has no more, in many a reader. */
	for (uint32_t i = 0; i < t->ndim; i++) {
		if (t->dim[i] >> 53)
			return err_set(EINVAL,
				       "tensor \"%s\": dim[%u] is %" PRIu64 "; the limit is 2^53",
				       t->name, i, t->dim[i]);
	}
	if (!header_bytes(t->dtype, t->ndim, t->dim, bytes) || *bytes >> 53)
		return err_set(EINVAL, "tensor \"%s\": its bytes are more than 2^53", t->name);
	return 0;
}

static int check_twice(const struct store_tensor *tensor, uint32_t n)
{
	uint32_t *index = header_index(tensor, n);
	int rc = index ? 0 : err_set(ENOMEM, "no memory for %u tensors", n);

	for (uint32_t i = 1; rc == 0 && i < n; i++) {
		if (!strcmp(tensor[index[i - 1]].name, tensor[index[i]].name))
			rc = err_set(EINVAL, "tensor \"%s\": there are two of this name",
				     tensor[index[i]].name);
	}
	free(index);
	return rc;
}

/* The greatest power of two up to 8 that divides a length. */
static unsigned alignment(uint64_t len)
{
	unsigned a = 8;

	while (len % a)
		a /= 2;
	return a;
}

int header_layout(const struct store_tensor *tensor, uint32_t n, struct header *out)
{
	struct header h = {.n = n, .tensor = calloc((size_t)n + 1, sizeof(*h.tensor))};
	uint64_t sum = 0, bytes = 0;
	uint32_t at = 0;

	if (!h.tensor)
		return err_set(ENOMEM, "no memory for %u tensors", n);
	int rc = 0;
	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		rc = check_tensor(&tensor[i], &bytes);
		if (rc == 0 && (sum += bytes) >> 53)
			rc = err_set(EINVAL, "the tensors are more than 2^53 bytes in all");
	}
	if (rc == 0)
		rc = check_twice(tensor, n);
	for (unsigned a = 8; rc == 0 && a; a /= 2) {
		for (uint32_t i = 0; i < n; i++) {
			header_bytes(tensor[i].dtype, tensor[i].ndim, tensor[i].dim, &bytes);
			if (alignment(bytes) != a)
				continue;
			h.tensor[at] = tensor[i];
			h.tensor[at].data = NULL;
			h.tensor[at++].len = bytes;
		}
	}
	if (rc < 0)
		free(h.tensor);
	else
		*out = h;
	return rc;
}

static json_t *print_tensor(const struct store_tensor *t, uint64_t at)
{
	json_t *shape = json_array();

	for (uint32_t i = 0; i < t->ndim; i++)
		json_array_append_new(shape, json_integer((json_int_t)t->dim[i]));
	return json_pack("{s:s, s:o, s:[I, I]}", "dtype", store_dtype_name(t->dtype), "shape",
			 shape, "data_offsets", (json_int_t)at, (json_int_t)(at + t->len));
}

static int print_root(const struct header *h, json_t *root)
{
	uint64_t at = 0;

	if (h->meta && json_object_set(root, METADATA, h->meta) < 0)
		return err_set(ENOMEM, "no memory for a header");
	for (uint32_t i = 0; i < h->n; i++) {
		const struct store_tensor *t = &h->tensor[i];

		if (json_object_set_new(root, t->name, print_tensor(t, at)) < 0)
			return err_set(EINVAL, "tensor \"%s\": the name must be UTF-8", t->name);
		at += t->len;
	}
	return 0;
}

/* `text` with spaces, to a multiple of 8 bytes: the data starts aligned. */
static int pad(char *text, char **out, size_t *out_len)
{
	size_t len = strlen(text), padded = (len + 7) / 8 * 8;

	if (padded > HEADER_MAX)
		return err_set(EINVAL, "the header is %zu bytes long; the limit is %" PRIu64,
			       padded, HEADER_MAX);
	char *longer = malloc(padded);
	if (!longer)
		return err_set(ENOMEM, "no memory for a header of %zu bytes", padded);
	memcpy(longer, text, len);
	memset(longer + len, ' ', padded - len);
	*out = longer;
	*out_len = padded;
	return 0;
}

int header_print(const struct header *h, char **text, size_t *len)
{
	json_t *root = json_object();
	int rc = root ? print_root(h, root) : err_set(ENOMEM, "no memory for a header");
	char *plain = rc == 0 ? json_dumps(root, JSON_COMPACT) : NULL;

	json_decref(root);
	if (rc < 0)
		return rc;
	rc = plain ? pad(plain, text, len) : err_set(ENOMEM, "no memory for a header");
	free(plain);
	return rc;
}

void header_free(struct header *h)
{
	free(h->tensor);
	json_decref(h->meta);
	*h = (struct header){0};
}

/* ---- by name --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b, void *tensor)
{
	const struct store_tensor *t = tensor;

	return strcmp(t[*(const uint32_t *)a].name, t[*(const uint32_t *)b].name);
}

uint32_t *header_index(const struct store_tensor *tensor, uint32_t n)
{
	uint32_t *index = calloc((size_t)n + 1, sizeof(*index));

	for (uint32_t i = 0; index && i < n; i++)
		index[i] = i;
	if (index && n)
		qsort_r(index, n, sizeof(*index), by_name, (void *)(uintptr_t)tensor);
	return index;
}
