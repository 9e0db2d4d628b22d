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

# Every optimizer, gradients of every format, schedules, clipping: the same bits as one process.
dtypes=(f32 bf16 f16)
bytes=(68904 34452 34452)
i=0
for optimizer in sgd momentum nesterov adagrad decayed_adagrad adadelta rmsprop adam adamw adamax \
    ftrl lars lamb lion adam:lr=0.001,amsgrad=1,clip_norm=1 momentum:clip_global_norm=0.5 \
    sgd:clip_norm=0.05,clip_global_norm=0.05; do
    expect 0 demo --json --epochs 3 --trainers 3 --optimizer "$optimizer" \
        --grad-dtype "${dtypes[i % 3]}" --lr-schedule cosine:steps=60,end=0.01
    json ".checksums_equal and .grad_dtype == \"${dtypes[i % 3]}\""
    json ".optimizer | startswith(\"${optimizer%%:*}:lr=\")"
    json ".lr_schedule == \"cosine:steps=60,end=0.01\""
    json ".wire_bytes_per_step == ${bytes[i % 3]}"
    i=$((i + 1))
done

# Each of them makes a difference, at the server as well.
for option in --optimizer=momentum --optimizer=sgd:lr=0.25 --grad-dtype=bf16 --grad-dtype=f16 \
    --lr-schedule=step:every=50; do
    expect 0 demo --json --epochs 5 --seed 2 "$option"
    json .checksums_equal
    [[ $(jq -r .weights_checksum "$out") != "$two" ]] || fail "$option makes no difference"
done
expect 0 demo --json --epochs 5 --seed 2 --mode ssp:0
json '.checksums_equal and .mode == "ssp:0"'
[[ $(jq -r .weights_checksum "$out") == "$two" ]] || fail "ssp:0 is not sync"

# Nonsense that comes of a rate is called that.
expect 1 demo --epochs 3 --optimizer sgd:lr=1e9
said "$err" 'diverges'

# What the mode can't do is said by the server.
expect 1 demo --epochs 1 --optimizer sgd:dc_lambda=0.1
said "$err" dc_lambda

# Async and ssp: other bits, as good a model.
for mode in async ssp:1 ssp:4; do
    for trainers in 1 2; do
        expect 0 demo --json --mode "$mode" --trainers "$trainers"
        json ".test_accuracy >= 0.95 and .mode == \"$mode\" and .trainers == $trainers"
    done
done
expect 0 demo --json --mode async --trainers 2 --optimizer adam:dc_lambda=0.1 --grad-dtype bf16
json '.test_accuracy >= 0.95 and .optimizer == "adam:lr=0.002,dc_lambda=0.1"'

# For people: the result on stdout, the progress on stderr.
expect 0 demo --epochs 5 --seed 2
said "$out" "$two"
said "$out" 'the same'
said "$out" 'sgd:lr=0.5'
grep -qE 'step [0-9]+/[0-9]+ +epoch [0-9]+/5 +sgd +loss' "$err" || fail "no progress on stderr"

done_testing
