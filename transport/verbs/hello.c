/* SPDX-License-Identifier: Apache-2.0
 *
 * The hello's encoding.
 *
 *   0  magic "GSRD"   4  length u16   6  version u16   8  kind u16   10 reason u16   12 zero u32
 *  16  flags u8      17  rail u4, rails u4   18  depth u16       20  max_chunk u32
 *  24  mtu u16       26  reads_out u8        27  reads_in u8     28  drawn, 6 bytes
 *  34  qp_num u32    38  probe_addr u64      46  probe_key u32   50  bundle, 6 bytes
 */
#include "transport/verbs/hello.h"

#include <endian.h>
#include <string.h>

#define FIXED_BYTES 16
#define DEPTH_MAX   65535
#define CHUNK_MIN   64

#define HELLO_RAILS_MAX 8

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

static void put48(uint8_t *at, uint64_t v)
{
	put32(at, (uint32_t)v);
	put16(at + 4, (uint16_t)(v >> 32));
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
	out[16] = (uint8_t)hello->flags;
	out[17] = (uint8_t)(hello->rail | hello->rails << 4);
	put16(out + 18, (uint16_t)hello->depth);
	put32(out + 20, hello->max_chunk);
	put16(out + 24, (uint16_t)hello->mtu);
	out[26] = hello->reads_out;
	out[27] = hello->reads_in;
	memcpy(out + 28, hello->drawn, HELLO_DRAWN);
	put32(out + 34, hello->qp_num);
	put64(out + 38, hello->probe_addr);
	put32(out + 46, hello->probe_key);
	put48(out + 50, hello->bundle);
}

static bool mtu_valid(uint32_t mtu)
{
	return mtu == 0 || (mtu >= 256 && mtu <= 4096 && (mtu & (mtu - 1)) == 0);
}

static bool rails_valid(const struct hello *h)
{
	if (h->rails == 0)
		return h->rail == 0;
	return h->kind == HELLO_OFFER && h->rails >= 2 && h->rails <= HELLO_RAILS_MAX &&
	       h->rail < h->rails;
}

static bool fields_valid(const struct hello *h)
{
	if (h->kind == HELLO_REFUSAL)
		return h->reason != HELLO_OK;
	return (h->kind == HELLO_OFFER || h->kind == HELLO_ANSWER) && h->reason == HELLO_OK &&
	       h->depth >= 1 && h->depth <= DEPTH_MAX && h->max_chunk >= CHUNK_MIN &&
	       mtu_valid(h->mtu) && h->reads_out >= 1 && h->reads_in >= 1 && rails_valid(h);
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
	out->flags = at[16];
	out->rail = at[17] & 15;
	out->rails = at[17] >> 4;
	out->depth = get16(at + 18);
	out->max_chunk = get32(at + 20);
	out->mtu = get16(at + 24);
	out->reads_out = at[26];
	out->reads_in = at[27];
	memcpy(out->drawn, at + 28, HELLO_DRAWN);
	out->qp_num = get32(at + 34);
	out->probe_addr = get64(at + 38);
	out->probe_key = get32(at + 46);
	out->bundle = get32(at + 50) | (uint64_t)get16(at + 54) << 32;
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
	    [HELLO_RAILS] = "not all rails of the connection came, or one could not be made",
	};

	return reason < sizeof(texts) / sizeof(*texts) ? texts[reason] : "for an unknown reason";
}
