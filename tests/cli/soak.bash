#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gradslot soak, short: killed trainers and servers, every number exactly once.

# shellcheck source=tests/cli/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

checksum() {
    jq -r .checksum "$out"
}

expect 0 soak --trainers 3 --steps 4000 --kills 0 --json
json '.steps == 4000 and .kills == 0 and .flat'
undisturbed=$(checksum)

# (A kill that is due when the last step is over is left out.)
# Trainers die one by one, and all at once: the weights are the same as if nobody had.
expect 0 soak --trainers 3 --steps 4000 --kills 30 --seed 2 --json
json '.kills >= 5 and .flat'
[[ $(checksum) == "$undisturbed" ]] || fail "other weights after 30 kills"
expect 0 soak --trainers 3 --steps 4000 --kills 5 --together --seed 3 --json
[[ $(checksum) == "$undisturbed" ]] || fail "other weights after all were killed at once"

# The server dies, checkpoints being written, and its trainers with it at times.
expect 0 soak --trainers 3 --steps 4000 --kills 5 --server-kills 10 --seed 4 \
    --checkpoint-dir "$scratch/sync" --json
json '.server_kills >= 7'
[[ $(checksum) == "$undisturbed" ]] || fail "other weights after the server was killed"

# Async: pushes are counted, not steps.
expect 0 soak --mode async --trainers 3 --steps 4000 --kills 30 --seed 5 --json
json '.kills >= 5 and .flat'
expect 0 soak --mode async --trainers 2 --steps 2000 --kills 0 --server-kills 5 --seed 6 \
    --checkpoint-dir "$scratch/async" --json

expect 2 soak --server-kills 1
said "$err" '--checkpoint-dir'
expect 2 soak --mode ssp:2
expect 2 soak --steps 16777216

done_testing
