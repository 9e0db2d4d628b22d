#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gradslot demo: the same weights as one process, for any number of trainers, at every run.

# shellcheck source=tests/cli/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

for trainers in 1 2 4; do
    first=
    for _ in 1 2; do
        expect 0 demo --json --trainers "$trainers" --mode sync --transport shm
        json '.checksums_equal == true and .weights_checksum == .single_process_checksum'
        json '.weights_checksum | test("^[0-9a-f]{16}$")'
        json '.test_accuracy >= 0.95 and .test_accuracy <= 1'
        json '.steps > 0 and .steps_per_s > 0 and .seconds > 0'
        json ".trainers == $trainers and .mode == \"sync\" and .transport == \"shm\" and .seed == 1"
        checksum=$(jq -r .weights_checksum "$out")
        [[ -z $first || $first == "$checksum" ]] || fail "$first, then $checksum"
        first=$checksum
        none_left || fail "processes are left"
    done
done

# Another seed is another run; a shorter one too. Threads make no difference.
expect 0 demo --json --epochs 5 --seed 2
two=$(jq -r .weights_checksum "$out")
json '.seed == 2 and .checksums_equal'
[[ $two != "$first" ]] || fail "the seed makes no difference"
for threads in '--workers 0' '--workers 3 --pollers 2' '--spin 0' '--spin 200'; do
    # shellcheck disable=SC2086
    expect 0 demo --json --epochs 5 --seed 2 $threads
    [[ $(jq -r .weights_checksum "$out") == "$two" ]] || fail "$threads changes the weights"
done

# The environment can't make the processes compute with different kernels.
status=0
OPENBLAS_CORETYPE=Prescott timeout 100 "$gradslot" demo --json --epochs 5 --seed 2 \
    >"$out" 2>"$err" || status=$?
[[ $status == 0 && $(jq -r .weights_checksum "$out") == "$two" ]] ||
    fail "OPENBLAS_CORETYPE changes the weights"

# Async: other bits, as good a model.
for trainers in 1 2; do
    expect 0 demo --json --mode async --trainers "$trainers"
    json ".test_accuracy >= 0.95 and .mode == \"async\" and .trainers == $trainers"
done

# For people: the result on stdout, the progress on stderr.
expect 0 demo --epochs 5 --seed 2
said "$out" "$two"
said "$out" 'the same'
grep -qE 'step [0-9]+/[0-9]+ +epoch' "$err" || fail "no progress on stderr"

done_testing
