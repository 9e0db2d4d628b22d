/* SPDX-License-Identifier: Apache-2.0
 *
 * Control messages: what can be decoded can be encoded, in at most as many bytes as a message may
 * have, and says the same then.
 */
#include "proto/wire.h"

#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct wire_msg msg, again;
	uint8_t first[WIRE_MSG_MAX], second[WIRE_MSG_MAX];
	enum wire_kind claimed = wire_peek(data, size);
	int n, m;

	memset(&msg, 0, sizeof(msg));
	memset(&again, 0, sizeof(again));
	if (wire_decode(data, size, &msg))
		return 0;
	FUZZ_MUST(claimed == msg.kind, "peeked %d, decoded %d", (int)claimed, (int)msg.kind);
	n = wire_encode(&msg, first, sizeof(first));
	/* Another's encoding may be shorter than ours: it may leave out what we never do. */
	if (n < 0)
		FUZZ_MUST(n == -90 /* EMSGSIZE */, "decoded, and can't be encoded: %d", n);
	if (n < 0)
		return 0;
	FUZZ_MUST(wire_decode(first, (size_t)n, &again) == 0, "encoded, and can't be decoded");
	m = wire_encode(&again, second, sizeof(second));
	FUZZ_MUST(m == n && !memcmp(first, second, (size_t)n), "it changed on the way");
	return 0;
}
