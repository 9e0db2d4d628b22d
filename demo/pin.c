/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the program again with OPENBLAS_CORETYPE set.
 */
#include "demo/pin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "kernels/kern.h"

const char *demo_blas_pin(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return "Haswell";
	return "Prescott";
#else
	return "";
#endif
}

int demo_pin_blas(char **argv)
{
	const char *pin = demo_blas_pin(), *now = getenv("OPENBLAS_CORETYPE");

	if (!pin[0])
		return 0;
	if (now && !strcmp(now, pin)) {
		/* Also what ends the circle if setting the variable should not help. */
		if (strcasecmp(kern_gemm_core(), pin))
			return err_set(ENOTSUP, "OpenBLAS runs its kernel %s, not %s as asked for",
				       kern_gemm_core(), pin);
		return 0;
	}
	if (setenv("OPENBLAS_CORETYPE", pin, 1) || setenv("OPENBLAS_NUM_THREADS", "1", 1))
		return err_set(errno, "OPENBLAS_CORETYPE can't be set: %s", strerror(errno));
	execv("/proc/self/exe", argv);
	return err_set(errno, "can't run this program again with OPENBLAS_CORETYPE=%s: %s", pin,
		       strerror(errno));
}
