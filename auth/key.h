/* SPDX-License-Identifier: Apache-2.0
 *
 * The key's bytes; for auth/ alone.
 */
#ifndef GS_AUTH_KEY_H
#define GS_AUTH_KEY_H

#include "auth/auth.h"

#define KEY_MIN 16u
#define KEY_MAX 4096u

struct auth_key {
	uint32_t len;
	uint8_t bytes[KEY_MAX];
};

#endif
