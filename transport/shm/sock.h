/* SPDX-License-Identifier: Apache-2.0
 *
 * The Unix socket under a connection: its address, who is at the other end, packets with a
 * descriptor. Nothing here waits.
 */
#ifndef GS_TRANSPORT_SHM_SOCK_H
#define GS_TRANSPORT_SHM_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

/* The abstract address of shm:NAME, which is in no file system and goes with its listener. */
socklen_t sock_address(const char *name, struct sockaddr_un *out);

/* A SOCK_SEQPACKET socket, close-on-exec, not blocking. Negative errno with a text. */
int sock_open(void);

/* Fills *out; 0, or -EACCES with a text if the process at the other end is neither this user's nor
 * root's. */
int sock_check_peer(int sock, struct ucred *out);

/* Sends one packet, with a descriptor unless `passed` is -1. Negative errno, no text; -EAGAIN when
 * the peer has not read what came before. */
int sock_send(int sock, const void *packet, size_t len, int passed);

/* Receives one packet of up to `len` bytes. Returns its length, 0 at the end, or a negative errno
 * without a text: -EAGAIN when there is none, -EPROTO when it was longer or carried more than one
 * descriptor. *passed is a descriptor that is now the caller's, or -1. */
ssize_t sock_recv(int sock, void *packet, size_t len, int *passed);

#endif
