/* SPDX-License-Identifier: Apache-2.0
 *
 * The verbs backend's table.
 */
#include "base/err.h"
#include "transport/backend.h"

#include <errno.h>

static int verbs_available(void)
{
	return err_set(ENODEV, "rdma: this build has no verbs backend; use shm:NAME on one host");
}

const struct tp_backend tp_verbs_backend = {
    .scheme = "rdma",
    .available = verbs_available,
};
