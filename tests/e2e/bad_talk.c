#include "cases.h"
TCase *bad_talk_case(void)
{
	return tcase_create("bad_talk");
}
