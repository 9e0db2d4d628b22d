/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections as verbs has them.
 */
#include "wire.h"

#include <errno.h>
#include <stdlib.h>

#include "harness.h"
#include "transport/bundle_own.h"
#include "transport/verbs/verbs.h"

/* A rail of it is verbs' own. */
static struct conn *verbs_rail(struct tp_conn *conn)
{
	return conn_of(conn->limits.rails > 1 ? ((struct bundle *)conn)->rail[0] : conn);
}

void wire_cut(struct tp_conn *conn)
{
	if (over_shm()) {
		tp_conn_close(conn);
		return;
	}
	qp_set_error(verbs_rail(conn)); /* now, not when somebody polls */
	conn_fail(verbs_rail(conn), UNLOCKED, -ECONNRESET, "cut by a test");
}

unsigned wire_rails(void)
{
	const char *rails = getenv("GRADSLOT_TEST_RAILS");

	return rails ? (unsigned)strtoul(rails, NULL, 10) : 1;
}

bool wire_lends(void)
{
	struct vmwatch probe = {.gone = NULL};

	if (over_shm() || ibv_is_fork_initialized() != IBV_FORK_UNNEEDED ||
	    vmwatch_join(&probe) < 0)
		return false;
	vmwatch_leave(&probe);
	return true;
}

bool wire_reads_straight(struct tp_conn *conn)
{
	return wire_lends() && !verbs_rail(conn)->dev->iwarp;
}
