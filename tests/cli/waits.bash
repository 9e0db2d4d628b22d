#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gradslot serve waits for trainers: it says for whom, and what it does about it is an option.

# shellcheck source=tests/cli/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

export OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=1
name=cli-patience-$$

# start ARGUMENT…: a server for two trainers in the background; sets `server`.
start() {
    : >"$out"
    "$gradslot" serve --listen "shm:$name" --trainers 2 "$@" >"$out" 2>"$err" </dev/null &
    server=$!
    within 20 grep -q '^READY ' "$out"
}

# trainer RANK: one that would go on for minutes, in the background; sets `trainer`.
trainer() {
    "$gradslot" demo-trainer --uri "shm:$name" --rank "$1" --trainers 2 --epochs 1000000 \
        >/dev/null 2>&1 </dev/null &
    trainer=$!
}

# both: two trainers that train; sets `first` and `second`.
both() {
    trainer 0
    first=$trainer
    trainer 1
    second=$trainer
    within 20 grep -q 'step 1: 2 trainers' "$err"
}

# ended STATUS: so the server ends, and all trainers.
ended() {
    within 10 gone "$server"
    status=0
    wait "$server" || status=$?
    [[ $status == "$1" ]] || fail "status $status instead of $1"
    kill -9 "$first" "$second" 2>/dev/null || true
    wait "$first" "$second" 2>/dev/null || true
}

# The one that came alone waits; the server says for whom. One that goes before the first step is not
# waited for in its place: anybody may come.
start --on-trainer-loss stop
trainer 1
within 20 grep -q 'the first step has waited [0-9]* s for trainers 0 of 2' "$err"
kill -9 "$trainer"
wait "$trainer" 2>/dev/null || true
within 5 grep -q 'trainer 1 .*: lost while waiting to start' "$err"

# Then both are there, and one is lost: the server stops, and says why.
both
kill -9 "$second"
ended 1
grep -q 'error trainer 1 .* was lost in step [0-9]*' "$err" || fail "the loss is not named"

# Waited for, then given up. (The demo's trainer goes on alone.)
start --on-trainer-loss wait:0.5
both
kill -9 "$first"
within 5 grep -q 'trainer 0 .*: lost in step [0-9]* (.*): waited for for 0.5 s' "$err"
within 5 grep -q 'trainer 0: given up: it did not come back within 0.5 s' "$err"
kill -TERM "$server"
ended 0

# A stopped trainer is a straggler: told of with what is missing.
start --straggler-after 0.5
both
kill -STOP "$second"
within 10 grep -q 'trainer 1 .*: a straggler: step [0-9]* has waited 0.[5-9] s for its barrier' "$err"
within 20 grep -q 'step [0-9]* has waited [0-9]* s for the barrier of trainer 1' "$err"
kill -TERM "$server"
ended 0

# Dropped: the other one goes on.
start --straggler-after 0.5:drop
both
kill -STOP "$second"
within 10 grep -q 'trainer 1 .*: dropped as a straggler' "$err"
within 10 grep -q 'trainer 1 .*: given up in step' "$err"
kill -TERM "$server"
ended 0

start --straggler-after 0.5:stop
both
kill -STOP "$second"
ended 1
grep -q 'error trainer 1 .* is a straggler: step [0-9]* has waited' "$err" || fail "no straggler named"

done_testing
