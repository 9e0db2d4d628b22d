/* SPDX-License-Identifier: Apache-2.0
 *
 * An address to listen on for a user who only said "rdma".
 */
#ifndef GS_CLI_ADDRESS_H
#define GS_CLI_ADDRESS_H

#include <stddef.h>

/* The IP address (IPv6 in brackets) of the first RDMA device whose network interface has one. Reads
 * sysfs only: no device is opened. Errors: -ENODEV (no device; or none with an address: the text
 * says what was found and how to get one). */
int address_of_first_device(char *buf, size_t size);

#endif
