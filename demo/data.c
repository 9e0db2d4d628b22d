/* SPDX-License-Identifier: Apache-2.0
 *
 * The data set's file (data/README.md), byte for byte, in the program.
 */
#include "demo/data.h"

__asm__(".pushsection .rodata, \"a\"\n"
	".global digits_file, digits_file_end\n"
	".hidden digits_file, digits_file_end\n"
	".balign 16\n"
	"digits_file:\n"
	".incbin \"" DIGITS_FILE "\"\n"
	"digits_file_end:\n"
	".byte 0\n"
	".popsection\n");

extern const unsigned char digits_file_end[];

size_t digits_file_size(void)
{
	return (size_t)(digits_file_end - digits_file);
}
