/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared-memory backend's table.
 */
#include "base/err.h"
#include "transport/backend.h"

#include <errno.h>

static int shm_available(void)
{
	return err_set(ENODEV, "shm: this build has no shared-memory backend");
}

const struct tp_backend tp_shm_backend = {
    .scheme = "shm",
    .available = shm_available,
};
