/* SPDX-License-Identifier: Apache-2.0
 *
 * Transport URIs: `shm:NAME` and `rdma://HOST:PORT[?OPTION=VALUE[&OPTION=VALUE…]]`, HOST an IPv4
 * address, an IPv6 address in brackets, or a name; `*` to listen on every address. The options are
 * those of struct tp_uri; what stands behind the defaults is in ARCHITECTURE.md.
 *
 * To connect by several rails: `rdma://HOST[,HOST…]:PORT?qps=N&dev=DEV[,DEV…]`. Rail r of N goes to
 * host r mod how many there are, and from device r mod how many there are. Without qps=, one rail for
 * each host or device, whichever are more.
 */
#ifndef GS_TRANSPORT_URI_H
#define GS_TRANSPORT_URI_H

#include <stdint.h>

#include "transport/transport.h"

#define URI_NAME_MAX   63
#define URI_HOST_MAX   255
#define URI_DEV_MAX    63
#define URI_DEPTH_MAX  16384
#define URI_INLINE_MAX 4096

/* What a side may ask of its own queue pairs; -1 means the default. */
struct tp_tuning {
	int timeout;   /* 0..31: an ACK is waited for 4.096 µs · 2^timeout; 0: for ever */
	int retry;     /* 0..7: how often a packet that nobody acknowledges is sent again */
	int rnr;       /* 0..7: ... one that meets no receive; 7: for ever */
	int rnr_timer; /* 0..31: what the peer is to wait in between, in the standard's code */
	int depth;     /* 1..16384: instead of tp_options.depth */
	int in_line;   /* "inline", 0..4096: payloads up to this are copied at post time */
	int relaxed;   /* "ro", 0 or 1: PCIe relaxed ordering, where it can't be noticed */
	int cq_count, cq_usec; /* "cq_mod=COUNT/USEC": wake a sleeper after so many completions or µs */
};

#define TP_TUNING_DEFAULT                                                                          \
	{                                                                                          \
		-1, -1, -1, -1, -1, -1, -1, -1, -1                                                 \
	}

struct tp_uri {
	char scheme[8];               /* "shm", "rdma" */
	char name[URI_NAME_MAX + 1];  /* shm: [A-Za-z0-9._-]+ */
	char host[URI_HOST_MAX + 1];  /* rdma; brackets removed, "*" kept */
	uint16_t port;                /* rdma; 0 lets a listener choose */
	char dev[URI_DEV_MAX + 1];    /* "" follows from the address */
	int gid;                      /* -1 follows from the address */
	int tc, sl;                   /* traffic class 0..255, service level 0..15; -1 default */
	int mtu;                      /* 256..4096, power of two; 0 the port's active MTU */
	struct tp_tuning tuning;
	/* Rails, where the URI says anything of them, else 0; hosts and devices behind the first. */
	uint8_t qps, more_hosts, more_devs;
	char next_host[TP_RAILS_MAX - 1][URI_HOST_MAX + 1];
	char next_dev[TP_RAILS_MAX - 1][URI_DEV_MAX + 1];
};

/* Errors: -EINVAL, with a text that quotes the URI, the part that is wrong and what it may be. */
int tp_uri_parse(const char *text, struct tp_uri *out);

/* As one rail has it: with its host and its device alone. */
void tp_uri_rail(const struct tp_uri *uri, unsigned rail, struct tp_uri *out);

#endif
