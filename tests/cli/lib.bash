# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests of the command line share. A test sources this with the program as its argument,
# and calls `done_testing` at its end.

set -euo pipefail

gradslot=$1
scratch=$(mktemp -d)
# Every process that a test starts, and theirs, carries this in its environment.
export GRADSLOT_TEST=$$-$RANDOM
# Set by `run`.
status=0 out=$scratch/out err=$scratch/err

# ours: the pids of this test's processes of the program under test that are not zombies.
ours() {
    local dir
    for dir in /proc/[0-9]*; do
        if [[ $dir/exe -ef $gradslot ]] &&
            grep -qz "^GRADSLOT_TEST=$GRADSLOT_TEST\$" "$dir/environ" 2>/dev/null; then
            printf '%s\n' "${dir#/proc/}"
        fi
    done
}

finish() {
    local pid code=$?
    for pid in $(ours); do
        kill -9 "$pid" 2>/dev/null || true
    done
    rm -rf "$scratch"
    exit "$code"
}
trap finish EXIT

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    printf 'stdout of the last run:\n%s\nstderr of the last run:\n%s\n' \
        "$(head -c 4000 "$out" 2>/dev/null)" "$(head -c 4000 "$err" 2>/dev/null)" >&2
    exit 1
}

# run ARGUMENT…: runs the program, for 100 s at most.
run() {
    status=0
    timeout 100 "$gradslot" "$@" >"$out" 2>"$err" </dev/null || status=$?
}

# expect STATUS [ARGUMENT…]
expect() {
    local want=$1
    shift
    run "$@"
    [[ $status == "$want" ]] || fail "gradslot $*: status $status instead of $want"
}

# said FILE TEXT: FILE has the text.
said() {
    grep -qF -- "$2" "$1" || fail "'$2' is not in ${1##*/}"
}

# json FILTER: stdout is one JSON text for which the jq filter is true.
json() {
    jq -es "length == 1 and (.[0] | $1)" "$out" >/dev/null || fail "not true of the JSON: $1"
}

# within SECONDS COMMAND…: until the command succeeds.
within() {
    local end=$((SECONDS + $1)) limit=$1
    shift
    until "$@"; do
        ((SECONDS < end)) || fail "not within $limit s: $*"
        sleep 0.05
    done
}

none_left() {
    [[ -z $(ours) ]]
}

gone() {
    ! kill -0 "$1" 2>/dev/null
}

# child_of PID WORD: the pid of a process of this test that PID started with WORD as its command.
child_of() {
    local pid words
    for pid in $(ours); do
        mapfile -d '' -t words <"/proc/$pid/cmdline" || true
        if [[ $(sed 's/.*) . \([0-9]*\) .*/\1/' "/proc/$pid/stat" 2>/dev/null) == "$1" &&
            ${words[1]-} == "$2" ]]; then
            printf '%s\n' "$pid"
            return
        fi
    done
    return 1
}

done_testing() {
    within 5 none_left
    printf 'ok\n'
}
