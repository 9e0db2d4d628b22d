#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gradslot bench, all but step: each benchmark runs, its figures are there and agree with one another.

# shellcheck source=tests/cli/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

# ops BENCHMARK SERIES… -- OPTION…: runs it and checks what holds for all.
ops() {
    local name=$1 series='[]'
    shift
    while [[ $1 != -- ]]; do
        series=$(jq -c --arg s "$1" '. + [$s]' <<<"$series")
        shift
    done
    shift
    expect 0 bench "$name" --json --iters 20 --warmup 8 "$@"
    json ".benchmark == \"$name\" and (.points | length) > 0"
    json "all(.points[]; (.us | keys) == ($series | sort))"
    json 'all(.points[].us[]; 0 < .min and .min <= .p50 and .p50 <= .p90 and .p90 <= .p99
          and .p99 <= .p99_9 and .p99_9 <= .max and .min <= .mean and .mean <= .max)'
    json 'all(.points[]; .samples == 20 * .trainers and .per_s > 0 and .gb_per_s >= 0)'
    json 'all(.points[]; .trainer_cpu_us > 0 and .server_cpu_us >= 0)'
    json 'all(.points[]; (.server_instructions == null) == (.trainer_instructions == null))'
    json '.config.rounds as $r | all(.points[]; (.core_to_core_ns_each | length) == 2 * $r)'
    json 'all(.points[]; .core_to_core_ns as $c | $c == null or any(.core_to_core_ns_each[]; . == $c))'
    none_left || fail "processes are left"
}

ops latency round post applied pull -- --size 4,4K,100004
json '[.points[].bytes] == [4, 4096, 100004] and .config.mode == "async" and .config.transport == "shm"'
json 'all(.points[].us; .applied.p50 < .round.max and .post.min <= .applied.min)'
json 'all(.points[].us; .applied.one_way_estimate == .applied.p50 / 2 and .pull.one_way_estimate == null)'
ops latency round post applied pull -- --mode sync --trainers 1,2 --copy --read view
json '[.points[].trainers] == [1, 2] and .config.copy and .config.read == "view"'
ops latency round post applied pull -- --size 1K:4K --params 3 --many --read ordered --rounds 2 --workers 0
json '[.points[].bytes] == [1024, 2048, 4096] and .config.workers == 0'
ops latency round post applied pull -- --read none
json '.config.read == "none" and all(.points[].us; .pull.p50 < .post.min)'

ops push push -- --size 4K --params 1,5 --depth 8 --trainers 2
json '.config.depth == 8 and .unit == "gradients"'
json 'all(.points[]; (.gb_per_s * 1e9 / .per_s / .bytes - 1 | fabs) < 1e-6)'
ops push push -- --size 300K --block-size 64K --copy --spin 10
json '.points[0].blocks == 5 and .config.block_size == 65536 and .config.spin == 10'

for how in relaxed consistent ordered view; do
    ops pull pull -- --read "$how" --size 64K
    json ".config.read == \"$how\" and .unit == \"pulls\""
done

ops connect all connect start leave -- --params 10
json '.unit == "connections"'
ops rows read gather push -- --rows 1,100 --table 500
json '[.points[].rows] == [1, 100]'
ops rows read gather push -- --rows 100 --table 50 --mode sync --near --optimizer adagrad --size 8
ops rows read gather push -- --rows 100 --zipf --trainers 2
ops scale step -- --params 1,10 --size 1K
json '.config.mode == "sync" and [.points[].params] == [1, 10]'
ops scale step one -- --params 100 --size 1K --against-one --trainers 2
json 'all(.points[]; (.to_one - .us.step.p50 / .us.one.p50 | fabs) < 1e-6)'

# A duration: more than the least.
expect 0 bench pull --json --iters 1 --duration 1
json '.points[0].samples > 1'

expect 0 bench apply --json --size 4K,8K --duration 0 --iters 3 --gradients 2 --threads 2
json '.benchmark == "apply" and [.points[].bytes] == [4096, 8192]'
json 'all(.points[].rules[]; .samples == 3 and .us.p50 <= .us.p99 and .us.p99 <= .us.max)'
json 'all(.points[]; [.rules[].rule] | contains(["memcpy", "triad", "saxpy", "sgd", "adam"]))'

# ---- the table for people ------------------------------------------------------------------------

expect 0 bench latency --iters 20
for word in transport depth spin p50 p99.9 GB/s gradients/s 'server us' 'core ns' 'one way, estimated' shm; do
    said "$out" "$word"
done
grep -q '^ *4096 *1 *1  applied ' "$out" || fail 'no row of 4096 bytes'
expect 0 bench scale --iters 10 --warmup 8 --params 2 --against-one
said "$out" 'times that of one'
expect 0 bench apply --size 4K --duration 0
said "$out" 'of triad'

# ---- two hosts -----------------------------------------------------------------------------------

"$gradslot" bench latency --server --uri "shm:bench-test-$$" >"$scratch/uri" 2>"$scratch/server.err" &
server=$!
within 10 test -s "$scratch/uri"
[[ $(cat "$scratch/uri") == "shm:bench-test-$$" ]] || fail "the server prints $(cat "$scratch/uri")"
# Several points, and clients one after the other.
for benchmark in latency push; do
    expect 0 bench "$benchmark" --connect "shm:bench-test-$$" --size 4K,8K --iters 20 --rounds 2 --json
    json 'all(.points[]; .server_cpu_us == null) and .config.connect != null'
done
expect 1 bench latency --connect "shm:bench-test-$$" --mode sync --iters 20
said "$err" 'give both the same --mode'
kill -TERM "$server"
status=0
wait "$server" || status=$?
[[ $status == 143 ]] || fail "the server ends with $status"
within 5 none_left

# Nobody there; and an interrupt.
expect 1 bench latency --connect "shm:bench-test-none-$$"
"$gradslot" bench push --duration 60 >"$out" 2>"$err" &
bench=$!
within 10 child_of "$bench" bench-peer >/dev/null
kill -TERM "$bench"
status=0
wait "$bench" || status=$?
[[ $status == 143 ]] || fail "interrupted, it ends with $status"
within 5 none_left

# ---- pictures ------------------------------------------------------------------------------------

for run in "latency --size 1K:4K" "push --params 1,2" "scale --trainers 1,2 --params 1,2 --against-one"; do
    # shellcheck disable=SC2086
    expect 0 bench $run --iters 10 --warmup 8 --plot "$scratch/it's a picture.svg"
    [[ ! -s $err ]] || fail "gnuplot said something"
    grep -q '</svg>' "$scratch/it's a picture.svg" || fail 'no picture'
    said "$scratch/it's a picture.svg" "gradslot bench ${run%% *}"
    rm "$scratch/it's a picture.svg"
done
expect 0 bench apply --size 4K,8K --duration 0 --plot "$scratch/apply.svg"
said "$scratch/apply.svg" '8KB of weights'

expect 2 bench push --iters 10 --plot /nowhere/a.svg
said "$err" /nowhere/a.svg
# A gnuplot that fails, one that draws nothing, and none.
mkdir "$scratch/bin"
for body in 'cat >/dev/null; exit 1' 'cat >/dev/null'; do
    printf '#!/bin/sh\n%s\n' "$body" >"$scratch/bin/gnuplot"
    chmod +x "$scratch/bin/gnuplot"
    PATH=$scratch/bin:$PATH expect 1 bench push --iters 10 --plot "$scratch/a.svg"
    said "$err" "$scratch/a.svg"
done
rm "$scratch/bin/gnuplot"
ln -s "$(command -v timeout)" "$scratch/bin/timeout"
PATH=$scratch/bin expect 2 bench push --iters 10 --plot "$scratch/a.svg"
said "$err" gnuplot-nox
[[ ! -e $scratch/a.svg ]] || fail 'an empty picture is left'

# ---- wrong usage ---------------------------------------------------------------------------------

for benchmark in latency push pull scale rows connect apply; do
    expect 0 bench "$benchmark" --help
    said "$out" "Usage: gradslot bench $benchmark"
    [[ ! -s $err ]] || fail "bench $benchmark --help writes to stderr"
    expect 2 bench "$benchmark" --no-such-option
    for size in 0 3 1K: 4K:1K 4K,,8K 2G x; do
        expect 2 bench "$benchmark" --size "$size"
        said "$err" "--size can't be '$size'"
    done
done
expect 0 bench --help
for benchmark in latency push pull step apply rows scale connect; do
    said "$out" "$benchmark"
done

# wrong TEXT OPTION…: options that do not go together, or are too much.
wrong() {
    local text=$1
    shift
    expect 2 bench "$@"
    said "$err" "$text"
}
wrong "--depth can't be '9'" push --depth 9
wrong "--trainers can't be '65'" push --trainers 65
wrong "--params can't be '100001'" scale --params 100001
wrong "--warmup can't be '7'" latency --warmup 7
wrong "--mode can't be 'ssp:1'" latency --mode ssp:1
wrong "--read can't be 'all'" pull --read all
wrong 'exclude one another' push --server --connect shm:x
wrong 'exclude one another' rows --near --zipf
wrong 'one number of --trainers' push --server --trainers 1,2
wrong 'one number of --trainers' push --connect shm:x --trainers 1,2
wrong 'one too many' push --uri shm:x --address 10.0.0.1
wrong 'one too many' push --uri shm:x --connect shm:y
wrong '--transport rdma only' push --address 10.0.0.1
wrong '--read none' pull --read none
wrong '--read view' pull --transport rdma --read view
wrong '--read view' pull --connect rdma://10.0.0.1:1 --read view
wrong '--rounds 3' push --iters 2 --rounds 3
wrong 'there may be 256' push --size 4:1G --trainers 1,2,3,4,5,6,7,8,9,10

done_testing
