/* SPDX-License-Identifier: Apache-2.0
 *
 * Pinning OpenBLAS's kernel by its environment, and checking that it took.
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

int demo_pin_children(void)
{
	const char *pin = demo_blas_pin();

	if ((pin[0] && setenv("OPENBLAS_CORETYPE", pin, 1)) ||
	    setenv("OPENBLAS_NUM_THREADS", "1", 1))
		return err_set(errno, "the environment can't be set: %s", strerror(errno));
	return 0;
}

int demo_check_pin(void)
{
	const char *pin = demo_blas_pin();

	if (!pin[0] || !strcasecmp(kern_gemm_core(), pin))
		return 0;
	return err_set(ENOTSUP,
		       "OpenBLAS runs its kernel %s, not %s: set OPENBLAS_CORETYPE=%s, and use an "
		       "OpenBLAS that was built for several CPUs (DYNAMIC_ARCH)",
		       kern_gemm_core(), pin, pin);
}

int demo_pin_blas(char **argv)
{
	const char *pin = demo_blas_pin(), *now = getenv("OPENBLAS_CORETYPE");

	/* The check is also what ends the circle if setting the variable should not help. */
	if (!pin[0] || (now && !strcmp(now, pin)))
		return demo_check_pin();
	if (demo_pin_children() < 0)
		return -ENOMEM;
	execv("/proc/self/exe", argv);
	return err_set(errno, "can't run this program again with OPENBLAS_CORETYPE=%s: %s", pin,
		       strerror(errno));
}
