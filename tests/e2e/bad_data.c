#include "cases.h"
TCase *bad_data_case(void)
{
	return tcase_create("bad_data");
}
