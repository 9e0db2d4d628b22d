/* SPDX-License-Identifier: Apache-2.0
 *
 * The hello's encoding.
 *
 *   0  magic "GSRD"   4  length u16   6  version u16   8  kind u16   10 reason u16   12 zero u32
 *  16  flags u32     20  depth u32   24  max_chunk u32  28 mtu u32
 *  32  reads_out u8  33  reads_in u8 34  drawn, 6 bytes     40  probe_addr u64
 *  48  probe_key u32 52  qp_num u32
 */
#include "transport/verbs/hello.h"

#include <endian.h>
#include <string.h>

#define FIXED_BYTES 16
#define DEPTH_MAX   65535
#define CHUNK_MIN   64

static const char magic[4] = {'G', 'S', 'R', 'D'};

static void put16(uint8_t *at, uint16_t v)
{
	v = htole16(v);
	memcpy(at, &v, sizeof(v));
}

static void put32(uint8_t *at, uint32_t v)
{
	v = htole32(v);
	memcpy(at, &v, sizeof(v));
}

static void put64(uint8_t *at, uint64_t v)
{
	v = htole64(v);
	memcpy(at, &v, sizeof(v));
}

static uint64_t get64(const uint8_t *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return le64toh(v);
}

static uint16_t get16(const uint8_t *at)
{
	uint16_t v;

	memcpy(&v, at, sizeof(v));
	return le16toh(v);
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return le32toh(v);
}

void hello_encode(const struct hello *hello, uint8_t out[HELLO_BYTES])
{
	memset(out, 0, HELLO_BYTES);
	memcpy(out, magic, sizeof(magic));
	put16(out + 4, HELLO_BYTES);
	put16(out + 6, hello->version);
	put16(out + 8, hello->kind);
	put16(out + 10, hello->reason);
	put32(out + 16, hello->flags);
	put32(out + 20, hello->depth);
	put32(out + 24, hello->max_chunk);
	put32(out + 28, hello->mtu);
	out[32] = hello->reads_out;
	out[33] = hello->reads_in;
	memcpy(out + 34, hello->drawn, HELLO_DRAWN);
	put64(out + 40, hello->probe_addr);
	put32(out + 48, hello->probe_key);
	put32(out + 52, hello->qp_num);
}

static bool mtu_valid(uint32_t mtu)
{
	return mtu == 0 || (mtu >= 256 && mtu <= 4096 && (mtu & (mtu - 1)) == 0);
}

static bool fields_valid(const struct hello *h)
{
	if (h->kind == HELLO_REFUSAL)
		return h->reason != HELLO_OK;
	return (h->kind == HELLO_OFFER || h->kind == HELLO_ANSWER) && h->reason == HELLO_OK &&
	       h->depth >= 1 && h->depth <= DEPTH_MAX && h->max_chunk >= CHUNK_MIN &&
	       mtu_valid(h->mtu) && h->reads_out >= 1 && h->reads_in >= 1;
}

enum hello_verdict hello_decode(const void *data, size_t len, struct hello *out)
{
	const uint8_t *at = data;

	if (!data || len < FIXED_BYTES || memcmp(at, magic, sizeof(magic)) != 0)
		return HELLO_FOREIGN;
	uint16_t said = get16(at + 4);

	/* Padding may make it longer than it says, nothing may make it shorter. */
	if (said < FIXED_BYTES || said > len)
		return HELLO_FOREIGN;
	*out = (struct hello){
	    .version = get16(at + 6), .kind = get16(at + 8), .reason = get16(at + 10)};
	if (out->version != HELLO_VERSION)
		return HELLO_OTHER_VERSION;
	if (said != HELLO_BYTES)
		return HELLO_BAD;
	out->flags = get32(at + 16);
	out->depth = get32(at + 20);
	out->max_chunk = get32(at + 24);
	out->mtu = get32(at + 28);
	out->reads_out = at[32];
	out->reads_in = at[33];
	memcpy(out->drawn, at + 34, HELLO_DRAWN);
	out->probe_addr = get64(at + 40);
	out->probe_key = get32(at + 48);
	out->qp_num = get32(at + 52);
	return fields_valid(out) ? HELLO_GOOD : HELLO_BAD;
}

struct hello hello_agree(const struct hello *offer, const struct hello *own)
{
	return (struct hello){
	    .version = HELLO_VERSION,
	    .kind = HELLO_ANSWER,
	    .flags = offer->flags & own->flags,
	    .depth = least(offer->depth, own->depth),
	    .max_chunk = least(offer->max_chunk, own->max_chunk),
	    .mtu = least(offer->mtu, own->mtu),
	    .reads_out = (uint8_t)least(own->reads_out, offer->reads_in),
	    .reads_in = (uint8_t)least(own->reads_in, offer->reads_out),
	};
}

bool hello_fits(const struct hello *offer, const struct hello *answer)
{
	return answer->kind == HELLO_ANSWER && answer->flags == offer->flags &&
	       answer->depth <= offer->depth && answer->max_chunk <= offer->max_chunk &&
	       answer->mtu <= offer->mtu && !answer->mtu == !offer->mtu &&
	       answer->reads_out <= offer->reads_in && answer->reads_in <= offer->reads_out;
}

const char *hello_reason_text(unsigned reason)
{
	static const char *const texts[] = {
	    [HELLO_OK] = "it gave no reason",
	    [HELLO_VERSIONS] = "it speaks another version of the protocol",
	    [HELLO_NONSENSE] = "it found no sense in this side's hello",
	    [HELLO_FULL] = "it has all the connections that it takes",
	    [HELLO_SCARCE] = "it has no memory or no queue for one more connection",
	    [HELLO_DEVICE] = "it takes connections of another RDMA device only",
	};

	return reason < sizeof(texts) / sizeof(*texts) ? texts[reason] : "for an unknown reason";
}
