/* SPDX-License-Identifier: Apache-2.0
 *
 * Picks the instruction set, once, and keeps the pick in one atomic pointer.
 */
#include "kernels/isa.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* The fuzzers' build has the narrowest set alone (CMakeLists.txt): it is not the loops' that is looked
 * for there, and each is compiled for as long as all else. */
#if defined(__x86_64__) && !defined(KERN_BASELINE_ONLY)
#define KERN_WIDER_SETS 1
#else
#define KERN_WIDER_SETS 0
#endif

#define KERN_RULE_OF(name, isa) &kern_rule_##name##_##isa,
/* clang-format off */
#define KERN_LOOPS(isa)                                                                 \
	{                                                                               \
		#isa,                                                                   \
		(const struct kern_rule *const[]){KERN_RULES(KERN_RULE_OF, isa) NULL},  \
		kern_merge_##isa,                                                       \
		kern_nonfinite_##isa,                                                   \
		kern_widen_##isa,                                                       \
		kern_narrow_##isa,                                                      \
		kern_adjust_##isa,                                                      \
		kern_squares_##isa,                                                     \
	}
/* clang-format on */

/* Narrowest first. */
static const struct kern_loops sets[] = {
    KERN_LOOPS(baseline),
#if KERN_WIDER_SETS
    KERN_LOOPS(avx2),
    KERN_LOOPS(avx512),
#endif
};

enum { SETS = sizeof(sets) / sizeof(sets[0]) };

static const struct kern_loops *_Atomic in_use;

/* Whether the CPU, and the operating system that saves its registers, have what the set's files
 * were compiled for (CMakeLists.txt). */
static bool supported(const struct kern_loops *set)
{
#if KERN_WIDER_SETS
	if (!strcmp(set->name, "avx2"))
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
	if (!strcmp(set->name, "avx512"))
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
#endif
	return true;
}

/* The names of the sets that can be used here, for error texts. */
static const char *supported_names(char *text, size_t size)
{
	size_t at = 0;

	text[0] = 0;
	for (unsigned i = 0; i < SETS && at < size; i++)
		if (supported(&sets[i]))
			at += (size_t)snprintf(text + at, size - at, "%s%s", i ? ", " : "",
					       sets[i].name);
	return text;
}

static const struct kern_loops *widest(void)
{
	const struct kern_loops *best = &sets[0];

	for (unsigned i = 1; i < SETS; i++)
		if (supported(&sets[i]))
			best = &sets[i];
	return best;
}

int kern_isa_use(const char *name)
{
	const char *source = "instruction set";
	char text[64];

	if (!name) {
		source = "GRADSLOT_ISA";
		name = getenv("GRADSLOT_ISA");
	}
	if (!name || !name[0]) {
		atomic_store_explicit(&in_use, widest(), memory_order_release);
		return 0;
	}
	for (unsigned i = 0; i < SETS; i++) {
		if (strcmp(name, sets[i].name))
			continue;
		if (!supported(&sets[i]))
			return err_set(ENOTSUP, "%s \"%s\": this CPU lacks it; it has %s", source,
				       name, supported_names(text, sizeof(text)));
		atomic_store_explicit(&in_use, &sets[i], memory_order_release);
		return 0;
	}
	return err_set(EINVAL, "%s \"%.32s\": unknown; there are %s", source, name,
		       supported_names(text, sizeof(text)));
}

const struct kern_loops *kern_loops(void)
{
	const struct kern_loops *set = atomic_load_explicit(&in_use, memory_order_acquire);

	if (__builtin_expect(set != NULL, 1))
		return set;
	/* The program didn't ask, so there is no caller to give the error to; and to go on with
	 * another set than the one asked for would make a comparison of sets lie. Threads that
	 * arrive here together pick the same one. */
	if (kern_isa_use(NULL)) {
		fprintf(stderr, "gradslot: %s\n", err_text());
		abort();
	}
	return atomic_load_explicit(&in_use, memory_order_acquire);
}

const struct kern_rule *kern_rule_at(unsigned i)
{
	unsigned n = 0;

	while (n < i && sets[0].rule[n])
		n++;
	return sets[0].rule[n];
}

const char *kern_isa(void)
{
	return kern_loops()->name;
}

const char *kern_isa_at(unsigned i)
{
	return i < SETS ? sets[i].name : NULL;
}
