/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite's cases, one a file.
 */
#ifndef GS_TESTS_E2E_CASES_H
#define GS_TESTS_E2E_CASES_H

#include <check.h>

TCase *sync_case(void);
TCase *membership_case(void);
TCase *async_case(void);
TCase *ssp_case(void);
TCase *rates_case(void);
TCase *stale_case(void);
TCase *init_case(void);
TCase *buffers_case(void);
TCase *big_case(void);
TCase *optimizers_case(void);
TCase *formats_case(void);
TCase *reduce_case(void);
TCase *accumulate_case(void);
TCase *clip_case(void);
TCase *nonfinite_case(void);
TCase *bad_data_case(void);
TCase *bad_talk_case(void);
TCase *bad_address_case(void);
TCase *deaths_case(void);
TCase *server_end_case(void);
TCase *rows_case(void);
TCase *rows_bad_case(void);
TCase *hashed_case(void);
TCase *hostile_case(void);
TCase *extremes_case(void);
TCase *checkpoint_case(void);
TCase *restore_case(void);
TCase *saving_case(void);
TCase *rejoin_case(void);
TCase *policy_case(void);
TCase *takeover_case(void);
TCase *stragglers_case(void);
TCase *ending_case(void);
TCase *access_case(void);
TCase *strangers_case(void);
TCase *rogue_case(void);
TCase *resume_case(void);
TCase *zcopy_case(void);
TCase *straight_case(void);
TCase *packs_case(void);
TCase *credits_case(void);
TCase *by_rails_case(void);

#endif
