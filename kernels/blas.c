/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products, and saxpy, by OpenBLAS: the only file that knows of it.
 */
#include "kernels/kern.h"

#include <cblas.h>
#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Several threads split a sum differently, so results would depend on how many cores there are;
 * and trainers on one machine would fight for them. */
static void single_thread(void)
{
	openblas_set_num_threads(1);
}

void kern_gemm(bool ta, bool tb, int m, int n, int k, float alpha, const float *a, const float *b,
	       float beta, float *c)
{
	int lda = ta ? m : k, ldb = tb ? k : n;

	if (m == 0 || n == 0)
		return;
	pthread_once(&once, single_thread);
	/* BLAS wants leading dimensions of at least 1, also of matrices with no elements. */
	cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
		    m, n, k, alpha, a, lda > 0 ? lda : 1, b, ldb > 0 ? ldb : 1, beta, c, n);
}

void kern_saxpy(size_t n, float alpha, const float *x, float *y)
{
	pthread_once(&once, single_thread);
	cblas_saxpy((blasint)n, alpha, x, 1, y, 1);
}

const char *kern_gemm_core(void)
{
	return openblas_get_corename();
}
