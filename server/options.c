/* SPDX-License-Identifier: Apache-2.0
 *
 * A server's options: defaults and limits.
 */
#include "server/options.h"

#include <errno.h>

#include "base/err.h"
#include "proto/imm.h"
#include "server/access.h"
#include "server/geometry.h"
#include "transport/transport.h"

struct srv_options srv_options_default(void)
{
	return (struct srv_options){
		.trainers = 1,
		.mode = SRV_SYNC,
		.pollers = 1,
		.workers = 1,
		.spin_us = 50,
		.block_kib = 256,
		.slots = 2,
		.talk_ms = 10000,
		.talk_rate = 2000,
		.talk_burst = 1 << 20,
		.on_loss = SRV_LOSS_WAIT,
		.loss_wait_ms = 30000,
		.keepalive_ms = 5000,
		.keep = 3,
		.stop_ms = 10000,
	};
}

static int check_range(const char *name, uint64_t value, uint64_t min, uint64_t max)
{
	if (value >= min && value <= max)
		return 0;
	return err_set(EINVAL, "%s is %llu, it may be %llu to %llu", name,
		       (unsigned long long)value, (unsigned long long)min,
		       (unsigned long long)max);
}

static int check_checkpoints(const struct srv_options *opt)
{
	if (!opt->checkpoint_dir && (opt->checkpoint_steps || opt->checkpoint_ms))
		return err_set(EINVAL, "checkpoints are to be written, and no directory for them is "
				       "given");
	if (opt->checkpoint_steps && opt->mode == SRV_ASYNC)
		return err_set(EINVAL, "a checkpoint every %llu steps, and async mode has no steps: "
				       "give a time",
			       (unsigned long long)opt->checkpoint_steps);
	for (uint32_t i = 0; i < opt->n_restore; i++)
		if (!opt->restore[i])
			return err_set(EINVAL, "restore %u has no path", i);
	return 0;
}

static int check_ranges(const struct srv_options *opt)
{
	const struct {
		const char *name;
		uint64_t value, min, max;
	} ranges[] = {
		{"number of listeners", opt->n_listen, 1, SRV_MAX_LISTENERS},
		{"trainers", opt->trainers, 1, SRV_MAX_TRAINERS},
		{"mode", opt->mode, SRV_SYNC, SRV_SSP},
		{"staleness", opt->staleness, 0, opt->mode == SRV_SSP ? SRV_MAX_STALENESS : 0},
		{"pollers", opt->pollers, 1, SRV_MAX_POLLERS},
		{"workers", opt->workers, 0, SRV_MAX_WORKERS},
		{"choice of huge pages", opt->huge_pages, SRV_HUGE_AUTO, SRV_HUGE_REQUIRE},
		{"block size in KiB", opt->block_kib, 1, GEOMETRY_MAX_BLOCK_BYTES / 1024},
		{"slots", opt->slots, 1, IMM_MAX_SLOTS},
		{"silence allowed in ms", opt->talk_ms, 1, 3600 * 1000},
		{"checkpoints that are kept", opt->keep, 1, UINT32_MAX},
		{"number of things to restore", opt->n_restore, 0, SRV_MAX_RESTORES},
		{"time to stop in ms", opt->stop_ms, 1, 24 * 3600 * 1000},
		{"control messages a second", opt->talk_rate, 1, 1000 * 1000},
		{"control messages at once", opt->talk_burst, 1, 1 << 30},
		{"policy for losses", opt->on_loss, SRV_LOSS_CONTINUE, SRV_LOSS_STOP},
		{"policy for stragglers", opt->on_straggler, SRV_STRAGGLER_WAIT, SRV_STRAGGLER_STOP},
		{"keepalive in ms", opt->keepalive_ms,
		 opt->keepalive_ms ? SRV_MIN_KEEPALIVE_MS : 0, UINT32_MAX},
	};

	for (unsigned i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		int rc = check_range(ranges[i].name, ranges[i].value, ranges[i].min,
				     ranges[i].max);

		if (rc)
			return rc;
	}
	return 0;
}

int options_check(const struct srv_options *opt)
{
	int rc = check_ranges(opt);

	if (rc)
		return rc;
	if (opt->spin_us < SRV_SPIN_FOREVER)
		return err_set(EINVAL, "spin is %d µs, it may be 0 or more, or %d (for ever)",
			       opt->spin_us, SRV_SPIN_FOREVER);
	for (uint32_t i = 0; i < opt->n_listen; i++)
		if (!opt->listen[i])
			return err_set(EINVAL, "listener %u has no URI", i);
	rc = check_checkpoints(opt);
	return rc ? rc : access_options(opt);
}

unsigned options_arena_flags(const struct srv_options *opt)
{
	static const unsigned pages[] = {
		[SRV_HUGE_AUTO] = 0,
		[SRV_HUGE_OFF] = TP_ARENA_SMALL_PAGES,
		[SRV_HUGE_REQUIRE] = TP_ARENA_HUGE_PAGES,
	};

	return TP_ARENA_PREFAULT | pages[opt->huge_pages];
}
