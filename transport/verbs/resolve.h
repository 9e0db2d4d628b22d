/* SPDX-License-Identifier: Apache-2.0
 *
 * Names to addresses, with a deadline that holds even when DNS hangs.
 */
#ifndef GS_TRANSPORT_VERBS_RESOLVE_H
#define GS_TRANSPORT_VERBS_RESOLVE_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage storage;
};

#define RESOLVE_MAX 8

struct addresses {
	int n;
	union address at[RESOLVE_MAX];
};

/* The addresses of a host (IPv4, IPv6 or a name), with the port set; at least one. A name that is
 * not resolved by `deadline` (clock_ns) gives -ETIMEDOUT, and a thread that is still waiting for
 * the resolver ends by itself later. Errors: -ENOENT, -ETIMEDOUT, -ENOMEM. */
int resolve_host(const char *host, uint16_t port, uint64_t deadline, struct addresses *out);

/* "10.0.0.1:4711", "[fd00::1]:4711"; returns `text`. */
const char *address_text(const union address *at, char *text, size_t size);

#endif
