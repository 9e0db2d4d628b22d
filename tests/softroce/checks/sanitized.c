/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sanitized test does in a guest: with no argument it ends well, with one it
 * leaks, which the leak checker can report only if it may stop the process's threads.
 */

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    void *volatile kept = malloc(100);

    (void)argv;
    if (argc == 1)
        free(kept);
    kept = NULL;
    puts("sanitized program ran");
    return 0;
}
