#include "cases.h"
TCase *server_end_case(void)
{
	return tcase_create("server_end");
}
