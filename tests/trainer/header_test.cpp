// SPDX-License-Identifier: Apache-2.0
//
// The public header in C++.
#include <gradslot/gradslot.h>

int header_in_cxx();

int header_in_cxx()
{
	gs_options opt = GS_OPTIONS_INIT;
	gs_param_desc desc = GS_PARAM_DESC_INIT;
	gs_trainer *t = nullptr;
	gs_param *p = nullptr;

	gs_setting(&desc, "lr", 0.1);
	return gs_connect(&opt, &t) == 0 && gs_declare(t, &desc, &p) == 0;
}
