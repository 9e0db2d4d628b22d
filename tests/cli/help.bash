#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Help, version, and wrong usage.

# shellcheck source=tests/cli/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

expect 0 --version
grep -qE '^gradslot [0-9]+\.[0-9]+\.[0-9]+$' "$out" || fail "no version"

expect 0 --help
for command in serve demo words bench inspect export doctor; do
    said "$out" "$command"
done
! grep -qE '^  [a-z]+-' "$out" || fail "--help shows a hidden command"

for command in serve demo words 'bench step' inspect export doctor; do
    # shellcheck disable=SC2086
    expect 0 $command --help
    said "$out" "Usage: gradslot $command"
    said "$out" --help
    [[ ! -s $err ]] || fail "$command --help writes to stderr"
    # shellcheck disable=SC2086
    expect 2 $command --no-such-option
    said "$err" --no-such-option
    [[ ! -s $out ]] || fail "an error of $command goes to stdout"
done
expect 0 bench --help
said "$out" step

expect 2
expect 2 no-such-command
said "$err" no-such-command
expect 2 bench no-such-benchmark
said "$err" no-such-benchmark

# bad COMMAND OPTION VALUE: exits with 2 and names both, before anything is started.
bad() {
    # shellcheck disable=SC2086
    expect 2 $1 "$2" "$3"
    said "$err" "$2"
    said "$err" "'$3'"
    said "$err" 'may be'
}

bad serve --trainers 0
bad serve --trainers 2x
bad serve --trainers -1
for command in serve demo; do
    for mode in fast ssp ssp: ssp:-1 ssp:x ssp:1048577; do
        bad "$command" --mode "$mode"
        said "$err" '0 to 1048576'
    done
done
bad serve --on-trainer-loss 30
bad serve --on-trainer-loss wait:soon
bad serve --straggler-after 5:kill
bad serve --keepalive 0.1
bad serve --pollers 0
bad serve --workers 100000
bad serve --spin long
bad serve --block-size 1
bad serve --block-size 4097
bad serve --slots 9
bad serve --max-memory lots
bad serve --log loud
bad demo --transport tcp
bad demo --epochs 0
bad demo --seed x
for mode in fast ssp ssp: ssp:2x ssp:-1 ssp:1048577; do
    bad words --mode "$mode"
done
for optimizer in adagrad: adagrad:lr adagrad:lr= adagrad:lr=x :lr=1 'adagrad:lr=0.1,'; do
    expect 2 words --optimizer "$optimizer"
    said "$err" "--optimizer can't be '$optimizer'"
done
expect 2 words --optimizer add:lr=1
said "$err" "add is for changes"
expect 2 words --optimizer lamb:lr=1
said "$err" "can't work by rows"
expect 2 words --optimizer nonsense:lr=1
said "$err" nonsense
bad words --grad-dtype f64
bad words --dim 0
bad demo --trainers 97
bad demo --grad-dtype f64
bad 'bench step' --size 1K
bad 'bench step' --size 2G
bad 'bench step' --size 4097
bad 'bench step' --optimizer lion
bad 'bench step' --warmup 0
bad 'bench step' --iters 0

bad 'export a b' --dtype f64

# Operands.
expect 2 inspect
said "$err" 'PATH is missing'
expect 2 inspect a b
said "$err" "'b' is one too many"
expect 2 inspect -- --help b
said "$err" "'b' is one too many"
expect 2 export a --dtype f16
said "$err" 'FILE is missing'
expect 0 export --help
said "$out" 'Usage: gradslot export CHECKPOINT FILE [OPTION]...'

# Texts of their own: what is wrong with them, and what there is.
expect 2 demo --optimizer sgdd
said "$err" "--optimizer can't be 'sgdd'"
said "$err" adamw
expect 2 demo --optimizer adam:beta=0.9
said "$err" beta1
expect 2 demo --optimizer adam:beta1=2
said "$err" 'beta1 is 2'
expect 2 demo --lr-schedule cosin:steps=3
said "$err" "--lr-schedule can't be 'cosin:steps=3'"
said "$err" cosine
expect 2 demo --lr-schedule step:every=0
said "$err" 'every is 0'

# Options that do not go together.
expect 2 demo --address 10.0.0.1
said "$err" 10.0.0.1
expect 2 bench step --transport rdma --view
said "$err" --view
# A batch that can't be shared equally.
expect 2 demo --trainers 7
said "$err" '--trainers 7'

# A result that can't be written is a failure.
status=0
"$gradslot" --help >/dev/full 2>"$err" || status=$?
[[ $status == 1 ]] || fail "a full disk gives status $status"

done_testing
