/* SPDX-License-Identifier: Apache-2.0
 *
 * The saver's thread.
 */
#ifndef GS_SERVER_CHECKPOINT_WRITE_H
#define GS_SERVER_CHECKPOINT_WRITE_H

#include "server/internal.h"

void *saver_main(void *saver);

#endif
