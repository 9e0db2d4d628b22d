/* SPDX-License-Identifier: Apache-2.0
 *
 * The embedded data file: gzip'd CSV.
 */
#ifndef GS_DEMO_DATA_H
#define GS_DEMO_DATA_H

#include <stddef.h>

extern const unsigned char digits_file[];
size_t digits_file_size(void);

#endif
