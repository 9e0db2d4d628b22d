#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gradslot demo when a process dies: it says which, exits with 1, and leaves nothing behind.

# shellcheck source=tests/cli/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

# start: a demo that would go on for minutes, under way; sets `demo`.
start() {
    : >"$err" # the last demo's progress must not be taken for this one's
    "$gradslot" demo --trainers 2 --epochs 1000000 >"$out" 2>"$err" </dev/null &
    demo=$!
    within 30 grep -q 'steps/s' "$err"
}

# ended STATUS: the demo ends so, with all it started, within 10 s.
ended() {
    within 10 gone "$demo"
    status=0
    wait "$demo" 2>/dev/null || status=$?
    [[ $status == "$1" ]] || fail "status $status instead of $1"
    within 2 none_left
}

start
kill -9 "$(child_of "$demo" serve)"
ended 1
said "$err" 'the server was killed by signal 9'

start
kill -9 "$(child_of "$demo" demo-trainer)"
ended 1
grep -qE 'trainer [01] was killed by signal 9' "$err" || fail "the dead trainer is not named"

# A server that is asked to stop: its trainers say so.
start
kill -TERM "$(child_of "$demo" serve)"
ended 1

# Ctrl-C, and whatever else ends the demo itself.
start
kill -TERM "$demo"
ended 143

start
kill -INT "$demo"
ended 130

start
kill -9 "$demo"
ended 137

# No device: says what is missing, quickly.
if [[ ! -e /sys/class/infiniband ]]; then
    expect 1 demo --transport rdma
    said "$err" 'no RDMA device'
    expect 1 demo --transport rdma --address 127.0.0.1
fi

done_testing
