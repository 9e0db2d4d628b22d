/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of tensors: what is opened has every tensor's bytes within the file, and its header, written
 * again, says the same.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "input.h"
#include "store/header.h"

/* As the sanitizer sees it: each byte is there. */
static void touch(const struct store_file *file)
{
	volatile uint8_t sum = 0;
	uint64_t total = 0, hash[2];

	for (uint32_t i = 0; i < store_count(file); i++) {
		const struct store_tensor *t = store_at(file, i);
		const uint8_t *data = t->data;

		FUZZ_MUST(store_find(file, t->name) == t, "\"%s\" is not found", t->name);
		total += t->len;
		for (uint64_t k = 0; k < t->len; k++)
			sum = (uint8_t)(sum + data[k]);
	}
	FUZZ_MUST(total < store_size(file), "tensors of %llu bytes in a file of %llu",
		  (unsigned long long)total, (unsigned long long)store_size(file));
	store_metadata(file, "format");
	store_hash(file, hash);
}

static void again(const char *text, size_t len, uint64_t data_len)
{
	struct header first, laid, second;
	char *printed;
	size_t n;

	if (header_parse(text, len, data_len, &first))
		return;
	if (header_layout(first.tensor, first.n, &laid) == 0) {
		FUZZ_MUST(header_print(&laid, &printed, &n) == 0, "it can't be written");
		FUZZ_MUST(header_parse(printed, n, data_len, &second) == 0, "it can't be read again");
		FUZZ_MUST(second.n == first.n, "%u tensors of %u", second.n, first.n);
		free(printed);
		header_free(&second);
		header_free(&laid);
	}
	header_free(&first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	char path[64];
	struct store_file *file;

	if (fd < 0)
		fd = memfd_create("fuzz", 0);
	FUZZ_MUST(fd >= 0 && !ftruncate(fd, (off_t)size) &&
		      pwrite(fd, data, size, 0) == (ssize_t)size, "no file");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (store_open(path, &file) == 0) {
		touch(file);
		store_close(file);
	}
	if (size > 8) {
		uint64_t n;

		memcpy(&n, data, sizeof(n));
		if (n <= size - 8)
			again((const char *)data + 8, n, size - 8 - n);
	}
	return 0;
}
