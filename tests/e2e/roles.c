#include "child.h"
int role_main(const char *role, int argc, char **argv)
{
	return 2;
}
