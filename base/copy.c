/* SPDX-License-Identifier: Apache-2.0
 *
 * Copying past the caches.
 */
#include "base/copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>

/* Streaming stores are ordered by nothing but the fence at the end. */
void copy_streaming(void *to, const void *from, size_t len)
{
	size_t head = (size_t)(-(uintptr_t)to & 63);
	const char *src = from;
	char *dst = to;

	if (head > len)
		head = len;
	memcpy(dst, src, head);
	dst += head;
	src += head;
	len -= head;
	for (; len >= 64; len -= 64, dst += 64, src += 64) {
		__m128i a = _mm_loadu_si128((const __m128i *)(const void *)src);
		__m128i b = _mm_loadu_si128((const __m128i *)(const void *)(src + 16));
		__m128i c = _mm_loadu_si128((const __m128i *)(const void *)(src + 32));
		__m128i d = _mm_loadu_si128((const __m128i *)(const void *)(src + 48));

		_mm_prefetch(src + 1024, _MM_HINT_NTA);
		_mm_stream_si128((__m128i *)(void *)dst, a);
		_mm_stream_si128((__m128i *)(void *)(dst + 16), b);
		_mm_stream_si128((__m128i *)(void *)(dst + 32), c);
		_mm_stream_si128((__m128i *)(void *)(dst + 48), d);
	}
	memcpy(dst, src, len);
	_mm_sfence();
}
#else
void copy_streaming(void *to, const void *from, size_t len)
{
	memcpy(to, from, len);
}
#endif
