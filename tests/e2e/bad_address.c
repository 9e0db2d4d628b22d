#include "cases.h"
TCase *bad_address_case(void)
{
	return tcase_create("bad_address");
}
