/* SPDX-License-Identifier: Apache-2.0
 *
 * The public header needs no other, and its initialisers work.
 */
#include <gradslot/gradslot.h>

#include "header_test.h"

int header_in_c(void)
{
	struct gs_options opt = GS_OPTIONS_INIT;
	struct gs_param_desc desc = GS_PARAM_DESC_INIT;

	gs_setting(&desc, "lr", 0.1);
	return opt.rank == -1 && opt.spin_us == GS_SPIN_DEFAULT && desc.n_settings == 1 &&
	       opt.size == sizeof(opt) && desc.size == sizeof(desc);
}
