/* SPDX-License-Identifier: Apache-2.0
 *
 * What names a connection alone, for tp_conn_binding: of the connecting side, then of the listening
 * one, its address, port, QP number, and what it drew. Addresses, ports and QP numbers are those
 * which packets really go to (rdma_cm's; the hello's QP number is held against it). So of someone who
 * connects to both, and gives on what one says to the other, the two ends see two bindings.
 */
#include "base/err.h"
#include "transport/verbs/verbs.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define PART_BYTES 28 /* address 16, port 2, QP 4, drawn 6 */

_Static_assert(2 * PART_BYTES <= TP_BINDING_LEN, "both ends' fit");

int binding_introduce(const struct conn *conn, struct hello *own)
{
	own->qp_num = conn->qp_num;
	if (getrandom(own->drawn, sizeof(own->drawn), 0) == sizeof(own->drawn))
		return 0;
	return err_set(errno, "no random bytes for a connection: %s", strerror(errno));
}

int binding_check(const struct conn *conn, const struct hello *peer, uint32_t cm_qp_num)
{
	if (conn->dev->iwarp || peer->qp_num == cm_qp_num)
		return 0;
	return err_set(EPROTO, "the peer's hello names the QP %u, and its connection is to %u",
		       peer->qp_num, cm_qp_num);
}

/* An IPv4 address is the same in its own form and mapped into IPv6. */
static void put_address(uint8_t at[18], const struct sockaddr *addr)
{
	const union address *a = (const union address *)addr;

	if (a->any.sa_family == AF_INET) {
		at[10] = at[11] = 0xff;
		memcpy(at + 12, &a->v4.sin_addr, 4);
		memcpy(at + 16, &a->v4.sin_port, 2);
	} else if (a->any.sa_family == AF_INET6) {
		memcpy(at, &a->v6.sin6_addr, 16);
		memcpy(at + 16, &a->v6.sin6_port, 2);
	}
}

static void put_part(uint8_t at[PART_BYTES], const struct sockaddr *addr, const struct hello *hello)
{
	uint32_t qp_num = htole32(hello->qp_num);

	put_address(at, addr);
	memcpy(at + 18, &qp_num, 4);
	memcpy(at + 22, hello->drawn, HELLO_DRAWN);
}

void binding_make(struct conn *conn, bool connecting, const struct hello *own,
		  const struct hello *peer)
{
	uint8_t *out = conn->base.binding;

	put_part(out + (connecting ? 0 : PART_BYTES), rdma_get_local_addr(conn->id), own);
	put_part(out + (connecting ? PART_BYTES : 0), rdma_get_peer_addr(conn->id), peer);
}
