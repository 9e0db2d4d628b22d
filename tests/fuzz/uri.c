/* SPDX-License-Identifier: Apache-2.0
 *
 * Transport URIs.
 */
#include "transport/uri.h"

#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tp_uri uri;
	char *text = malloc(size + 1);

	FUZZ_MUST(text, "no memory");
	if (size)
		memcpy(text, data, size);
	text[size] = 0;
	tp_uri_parse(text, &uri);
	free(text);
	return 0;
}
