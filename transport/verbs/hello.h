/* SPDX-License-Identifier: Apache-2.0
 *
 * The hello: what the two sides of a connection agree on, carried in rdma_cm's private data. Pure
 * encoding and decoding; no verbs.
 *
 * The connecting side offers; the listening side answers with what both can do, or refuses with a
 * reason. Private data arrives padded with zeros and has little room (a connect's 56 bytes), so a
 * hello carries its own length and is small. Its first 16 bytes keep their meaning in every
 * version, so that two versions can always name each other. Little endian.
 */
#ifndef GS_TRANSPORT_VERBS_HELLO_H
#define GS_TRANSPORT_VERBS_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HELLO_VERSION 3
#define HELLO_BYTES   56
#define HELLO_DRAWN   6
#define HELLO_BUNDLE  6 /* bytes of a bundle's id */

enum hello_kind { HELLO_OFFER = 1, HELLO_ANSWER = 2, HELLO_REFUSAL = 3 };

enum hello_reason {
	HELLO_OK = 0,
	HELLO_VERSIONS = 1, /* the versions do not match; `version` is the refuser's */
	HELLO_NONSENSE = 2, /* a field has no sense */
	HELLO_FULL = 3,     /* the listener has all the connections it takes */
	HELLO_SCARCE = 4,   /* no memory, or no queue of the device, for one more */
	HELLO_DEVICE = 5,   /* the listener takes connections of another device only */
	HELLO_RAILS = 6,    /* the bundle that it is a rail of does not come about */
};

enum hello_flags {
	HELLO_NATIVE_IMM = 1 << 0, /* WRITE with immediate data; else WRITE then SEND */
};

/* What both sides can do of a thing that each has a limit of. */
static inline uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

struct hello {
	uint16_t version;
	uint16_t kind;
	uint16_t reason;
	uint32_t flags;
	uint32_t depth;      /* receives for immediates and messages, each way */
	uint32_t max_chunk;  /* longest work request */
	uint32_t mtu;        /* path MTU in bytes; 0 where there is none (iWARP) */
	uint8_t reads_out;   /* READs this side may have under way */
	uint8_t reads_in;    /* READs of the peer that this side takes at once */
	uint64_t probe_addr; /* iWARP: memory of no meaning that the peer may READ, to learn that */
	uint32_t probe_key;  /* what it had posted before has arrived */
	uint32_t qp_num;
	uint8_t drawn[HELLO_DRAWN]; /* at random, for this connection */
	/* An offer's: it is rail `rail` of `rails` (2 to 8), of the bundle with this id; rails is 0 where
	 * there is but one. */
	uint64_t bundle;
	uint8_t rail, rails;
};

enum hello_verdict {
	HELLO_GOOD,
	HELLO_FOREIGN,       /* not a hello at all: magic or length */
	HELLO_OTHER_VERSION, /* out->version, kind and reason alone are valid */
	HELLO_BAD,           /* a field has no sense */
};

void hello_encode(const struct hello *hello, uint8_t out[HELLO_BYTES]);
enum hello_verdict hello_decode(const void *data, size_t len, struct hello *out);

/* What both sides can do: the smaller of every limit. `own` is the listening side's. */
struct hello hello_agree(const struct hello *offer, const struct hello *own);
/* Whether an answer keeps to what was offered. */
bool hello_fits(const struct hello *offer, const struct hello *answer);

/* A sentence for a refusal. */
const char *hello_reason_text(unsigned reason);

#endif
