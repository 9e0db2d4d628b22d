#include "cases.h"
TCase *deaths_case(void)
{
	return tcase_create("deaths");
}
