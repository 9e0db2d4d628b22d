/* SPDX-License-Identifier: Apache-2.0
 *
 * exp, log and cosine from their series, the normal quantile from a published rational
 * approximation.
 */
#include "kernels/rmath.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* ln 2 in two parts: the first has 21 zero bits at its end, so that its product with an exponent
 * is exact. */
#define LN2_HIGH 0x1.62e42feep-1
#define LN2_LOW  0x1.a39ef35793c76p-33
#define INV_LN2  0x1.71547652b82fep+0
#define SQRT2    0x1.6a09e667f3bcdp+0
#define PI       0x1.921fb54442d18p+1

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* c[0] + c[1] x + c[2] x^2 + ..., by Horner's rule */
static double poly(const double *c, unsigned n, double x)
{
	double sum = c[n - 1];

	for (unsigned i = n - 1; i-- > 0;)
		sum = sum * x + c[i];
	return sum;
}

/* 2^k, for a normal result */
static double power_of_2(int k)
{
	uint64_t bits = (uint64_t)(k + 1023) << 52;
	double x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* x = k ln 2 + r with |r| <= ln 2 / 2, and e^r from its Taylor series: the first term left out,
 * r^14/14!, is less than 2^-57. */
double rm_exp(double x)
{
	static const double c[] = {
	    1.0,
	    1.0,
	    1.0 / 2,
	    1.0 / 6,
	    1.0 / 24,
	    1.0 / 120,
	    1.0 / 720,
	    1.0 / 5040,
	    1.0 / 40320,
	    1.0 / 362880,
	    1.0 / 3628800.0,
	    1.0 / 39916800.,
	    1.0 / 479001600,
	    1.0 / 6227020800.0,
	};
	int k;

	if (x < -708)
		return 0;
	k = (int)(x * INV_LN2 + (x < 0 ? -0.5 : 0.5));
	return poly(c, COUNT(c), (x - k * LN2_HIGH) - k * LN2_LOW) * power_of_2(k);
}

/* x = 2^k m with m in [sqrt(1/2), sqrt(2)), and ln m = 2 artanh(s) = 2 (s + s^3/3 + s^5/5 + ...)
 * with s = (m - 1)/(m + 1), |s| < 0.172: the first term left out, s^25/25, is less than 2^-68. */
double rm_log(double x)
{
	static const double c[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13,
				   1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
	uint64_t bits;
	double m, s, z;
	int k;

	memcpy(&bits, &x, sizeof(bits));
	k = (int)(bits >> 52) - 1023;
	bits = (bits & 0xfffffffffffffULL) | 1023ULL << 52;
	memcpy(&m, &bits, sizeof(m));
	if (m >= SQRT2) {
		m *= 0.5;
		k++;
	}
	s = (m - 1) / (m + 1);
	z = s * s;
	return k * LN2_HIGH + (2 * s + (2 * s * (z * poly(c, COUNT(c), z)) + k * LN2_LOW));
}

/* By squaring: few roundings, and none where the powers fit. */
static double whole_pow(double x, unsigned n)
{
	double y = 1;

	for (; n; n >>= 1, x *= x)
		if (n & 1)
			y *= x;
	return y;
}

/* The error of y ln x is what e^ magnifies: |y ln x| units in the last place. */
double rm_pow(double x, double y)
{
	double most = rm_exp(709), z;

	if (y <= 64 && y == (unsigned)y) {
		z = whole_pow(x, (unsigned)y);
		return z < most ? z : most;
	}
	if (x == 0)
		return 0;
	z = y * rm_log(x);
	return z < 709 ? rm_exp(z) : most;
}

/* Folded to angles of at most pi/4, where the first term left out is less than 2^-57 of the sum:
 * 1 - x and 1/2 - x are exact where they are taken. */
double rm_cos_pi(double x)
{
	static const double cosine[] = {1.0,
					-1.0 / 2,
					1.0 / 24,
					-1.0 / 720,
					1.0 / 40320,
					-1.0 / 3628800,
					1.0 / 479001600,
					-1.0 / 87178291200.,
					1.0 / 20922789888000.};
	static const double sine[] = {1.0,
				      -1.0 / 6,
				      1.0 / 120,
				      -1.0 / 5040,
				      1.0 / 362880,
				      -1.0 / 39916800,
				      1.0 / 6227020800.,
				      -1.0 / 1307674368000.,
				      1.0 / 355687428096000.};
	double sign = x > 0.5 ? -1 : 1, y;

	if (x > 0.5)
		x = 1 - x;
	if (x <= 0.25) {
		y = PI * x;
		return sign * poly(cosine, COUNT(cosine), y * y);
	}
	y = PI * (0.5 - x);
	return sign * (y * poly(sine, COUNT(sine), y * y));
}

/* M. J. Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution", Applied
 * Statistics 37 (1988) 477-484, https://doi.org/10.2307/2347330, PPND16: about 16 digits. */
double rm_normal_quantile(double p)
{
	static const double a[] = {3.3871328727963666080e0, 1.3314166789178437745e2,
				   1.9715909503065514427e3, 1.3731693765509461125e4,
				   4.5921953931549871457e4, 6.7265770927008700853e4,
				   3.3430575583588128105e4, 2.5090809287301226727e3};
	static const double b[] = {1.0,
				   4.2313330701600911252e1,
				   6.8718700749205790830e2,
				   5.3941960214247511077e3,
				   2.1213794301586595867e4,
				   3.9307895800092710610e4,
				   2.8729085735721942674e4,
				   5.2264952788528545610e3};
	static const double c[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
				   5.76949722146069140550e0,  3.64784832476320460504e0,
				   1.27045825245236838258e0,  2.41780725177450611770e-1,
				   2.27238449892691845833e-2, 7.74545014278341407640e-4};
	static const double d[] = {1.0,
				   2.05319162663775882187e0,
				   1.67638483018380384940e0,
				   6.89767334985100004550e-1,
				   1.48103976427480074590e-1,
				   1.51986665636164571966e-2,
				   5.47593808499534494600e-4,
				   1.05075007164441684324e-9};
	static const double e[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
				   1.78482653991729133580e0,  2.96560571828504891230e-1,
				   2.65321895265761230930e-2, 1.24266094738807843860e-3,
				   2.71155556874348757815e-5, 2.01033439929228813265e-7};
	static const double f[] = {1.0,
				   5.99832206555887937690e-1,
				   1.36929880922735805310e-1,
				   1.48753612908506148525e-2,
				   7.86869131145613259100e-4,
				   1.84631831751005468180e-5,
				   1.42151175831644588870e-7,
				   2.04426310338993978564e-15};
	double q = p - 0.5, r, x;

	if (fabs(q) <= 0.425) {
		r = 0.180625 - q * q;
		return q * poly(a, COUNT(a), r) / poly(b, COUNT(b), r);
	}
	r = sqrt(-rm_log(q < 0 ? p : 1 - p));
	if (r <= 5)
		x = poly(c, COUNT(c), r - 1.6) / poly(d, COUNT(d), r - 1.6);
	else
		x = poly(e, COUNT(e), r - 5) / poly(f, COUNT(f), r - 5);
	return q < 0 ? -x : x;
}
