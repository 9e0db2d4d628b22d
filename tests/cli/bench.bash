#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gradslot bench: the figures are there and agree with one another.

# shellcheck source=tests/cli/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

step() {
    expect 0 bench step --json --iters 20 --duration 0 "$@"
    json '.step_us_p50 > 0 and .step_us_p50 <= .step_us_p99 and .step_us_p99 <= .step_us_p99_9'
    json '.step_us_min <= .step_us_p50 and .step_us_p99_9 <= .step_us_max'
    json '.floor_us > 0 and (.ratio_to_floor - .floor_us / .step_us_p50 | fabs) < 1e-6'
    json '(.gb_per_s * .step_us_p50 * 1000 / .bytes_moved - 1 | fabs) < 1e-6'
    json '.bytes_moved == 2 * .config.size * .config.trainers'
    json '.samples == 20 * .config.trainers'
    json '(.floors_us | length) == .config.rounds + 1 and (.floors_us | min) <= .floor_us'
    none_left || fail "processes are left"
}

step --size 4K
json '.config.size == 4096 and .config.transport == "shm" and .config.optimizer == "sgd"'
step --size 1M --optimizer momentum --trainers 2
json '.config.trainers == 2 and .config.optimizer == "momentum"'
step --size 1M --optimizer nesterov --copy
json '.config.copy == true'
step --size 1M --view --workers 0 --spin 20
json '.config.view == true and .config.workers == 0'
# Not a whole number of blocks, rows or pages.
step --size 1000004

# A duration without --iters.
expect 0 bench step --json --size 64K --duration 1
json '.samples >= 20'

# One round, and more rounds than steps.
step --size 64K --rounds 1
expect 2 bench step --iters 2 --rounds 3
said "$err" '--rounds 3'

# The table for people.
expect 0 bench step --size 64K --iters 20 --duration 0
for word in p50 p99 floor GB/s; do
    said "$out" "$word"
done

done_testing
