/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract's tests post and send nothing to see it refused.
 */
#include "faults.h"

void faults_zero_is_meant_at_start(void);

__attribute__((constructor)) void faults_zero_is_meant_at_start(void)
{
	faults_zero_is_meant();
}
