/* SPDX-License-Identifier: Apache-2.0
 *
 * Manifests of checkpoints, as they are, and with the checksum that they should have: what is taken
 * can be written, and says the same when it is read again.
 */
#include "base/err.h"
#include "input.h"
#include "store/manifest.h"

static void take(const char *text, size_t len)
{
	struct checkpoint_manifest m, again;
	char *first, *second;

	if (checkpoint_manifest_parse(text, len, &m))
		return;
	FUZZ_MUST(checkpoint_manifest_print(&m, &first) == 0, "it can't be written: %s", err_text());
	FUZZ_MUST(checkpoint_manifest_parse(first, strlen(first), &again) == 0,
		  "it can't be read again: %s", err_text());
	FUZZ_MUST(checkpoint_manifest_print(&again, &second) == 0, "nor written");
	FUZZ_MUST(!strcmp(first, second), "it changed on the way");
	free(first);
	free(second);
	checkpoint_manifest_free(&m);
	checkpoint_manifest_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 3), *sealed;
	size_t n = size;

	FUZZ_MUST(text, "no memory");
	if (size)
		memcpy(text, data, size);
	take(text, n);
	/* Without its last member, which is the checksum of what is in front of it. */
	while (n && !(text[n - 1] == ',' && n > 1 && text[n - 2] != ','))
		n--;
	if (n && size - n < 80) {
		memcpy(text + n - 1, "\n}", 2);
		n++;
	} else {
		n = size;
	}
	sealed = manifest_seal(text, n);
	if (sealed) {
		take(sealed, strlen(sealed));
		free(sealed);
	}
	free(text);
	return 0;
}
