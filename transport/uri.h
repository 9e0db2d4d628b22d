/* SPDX-License-Identifier: Apache-2.0
 *
 * Transport URIs: `shm:NAME` and `rdma://HOST:PORT[?dev=…&gid=…&tc=…&sl=…&mtu=…]`, HOST an IPv4
 * address, an IPv6 address in brackets, or a name; `*` to listen on every address.
 */
#ifndef GS_TRANSPORT_URI_H
#define GS_TRANSPORT_URI_H

#include <stdint.h>

#define URI_NAME_MAX 63

struct tp_uri {
	char scheme[8];               /* "shm", "rdma" */
	char name[URI_NAME_MAX + 1];  /* shm: [A-Za-z0-9._-]+ */
	char host[256];               /* rdma; brackets removed, "*" kept */
	uint16_t port;                /* rdma; 0 lets a listener choose */
	char dev[64];                 /* "" follows from the address */
	int gid;                      /* -1 follows from the address */
	int tc, sl;                   /* traffic class 0..255, service level 0..15; -1 default */
	int mtu;                      /* 256..4096, power of two; 0 the port's active MTU */
};

/* Errors: -EINVAL, with a text that quotes the URI, the part that is wrong and what it may be. */
int tp_uri_parse(const char *text, struct tp_uri *out);

#endif
