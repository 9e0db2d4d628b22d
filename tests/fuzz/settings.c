/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of schedules, and optimizers with their settings: what is taken gives rates that are numbers.
 */
#include <float.h>
#include <math.h>

#include "input.h"
#include "kernels/kern.h"
#include "kernels/schedule.h"

static void schedules(struct input *in)
{
	char text[300];
	struct schedule s;
	size_t n = in->left < sizeof(text) - 1 ? in->left : sizeof(text) - 1;

	input_bytes(in, text, n);
	text[n] = 0;
	if (schedule_parse(text, &s))
		return;
	FUZZ_MUST(schedule_same(&s, &s), "\"%s\" is not itself", text);
	for (unsigned shift = 0; shift < 64; shift += 3) {
		double rate = schedule_rate(&s, 0.5, UINT64_C(1) << shift >> 1);

		FUZZ_MUST(rate >= 0 && rate <= (double)FLT_MAX, "\"%s\": a rate of %g", text, rate);
	}
}

static void optimizers(struct input *in)
{
	static const char *const names[] = {"lr", "momentum", "beta1", "beta2", "eps", "weight_decay",
					    "clip_norm", "clip_value", "dc_lambda", "lazy", "l1", "l2",
					    "rho", "clip_global_norm", "nesterov", "dampening"};
	struct kern_setting setting[16];
	char rule[24];
	struct kern_opt opt;
	unsigned n = input_u8(in) % 16;
	unsigned which = input_u8(in);

	input_bytes(in, rule, sizeof(rule));
	rule[sizeof(rule) - 1] = 0;
	if (which % 4 && kern_opt_at(which / 4 % 16))
		snprintf(rule, sizeof(rule), "%s", kern_opt_at(which / 4 % 16));
	for (unsigned i = 0; i < n; i++) {
		uint8_t how = input_u8(in);
		uint64_t bits = input_u64(in);

		snprintf(setting[i].name, sizeof(setting[i].name), "%s", names[how % 16]);
		if (how & 128)
			setting[i].value = (double)(bits & 1023) / 1024;
		else
			memcpy(&setting[i].value, &bits, sizeof(bits));
	}
	kern_opt_parse(rule, setting, n, &opt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	if (input_u8(&in) & 1)
		optimizers(&in);
	else
		schedules(&in);
	return 0;
}
