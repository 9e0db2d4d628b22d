#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gradslot serve: READY, how it ends, and what it can't listen on.

# shellcheck source=tests/cli/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

name=cli-serve-$$

# start ARGUMENT…: a server in the background, READY; sets `server`.
start() {
    : >"$out" # the last server's READY must not be taken for this one's
    "$gradslot" serve "$@" >"$out" 2>"$err" </dev/null &
    server=$!
    within 20 ready
}

ready() {
    grep -q '^READY ' "$out" || {
        gone "$server" && fail "the server ended before it was ready"
        return 1
    }
}

# stop SIGNAL: it must end with status 0, soon.
stop() {
    kill "-$1" "$server"
    within 5 gone "$server"
    status=0
    wait "$server" || status=$?
    [[ $status == 0 ]] || fail "after SIG$1 the status is $status"
}

for signal in TERM INT; do
    start --listen "shm:$name"
    [[ $(cat "$out") == "READY shm:$name" ]] || fail "not the READY line"
    stop "$signal"
done

# Several listeners, each with its URI, in order.
start --listen "shm:$name-a" --listen "shm:$name-b" --trainers 3 --mode async --workers 0 \
    --spin 0 --block-size 64K --slots 1 --max-memory 64M
[[ $(cat "$out") == "READY shm:$name-a shm:$name-b" ]] || fail "not the READY line"
stop TERM

# Pinned: each poller and worker to one CPU, in turn; nothing else is. And lists that are none.
read -ra cpus < <(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status | tr ',-' ' ')
first=${cpus[0]} last=${cpus[-1]}
# pinned CPU: how many of the server's threads may use that one alone.
pinned() {
    cat /proc/"$server"/task/*/status | grep -c "^Cpus_allowed_list:[[:space:]]*$1\$" || true
}
start --listen "shm:$name" --cpus "$first" --pollers 2 --workers 1
if [[ $first != "$last" ]]; then
    [[ $(pinned "$first") == 3 ]] || fail "$(pinned "$first") of 3 threads are pinned"
fi
stop TERM
if [[ $first != "$last" ]]; then
    start --listen "shm:$name" --cpus "$last,$first" --pollers 2 --workers 1
    [[ $(pinned "$last") == 2 && $(pinned "$first") == 1 ]] ||
        fail "$(pinned "$last") and $(pinned "$first") threads are pinned, not 2 and 1"
    stop TERM
    # What this process may not use.
    status=0
    taskset -c "$first" timeout 20 "$gradslot" serve --listen "shm:$name" --cpus "$last" \
        >"$out" 2>"$err" </dev/null || status=$?
    [[ $status == 1 ]] || fail "status $status with a CPU that it may not use"
    said "$err" "CPUs: $last does not exist, or this process may not use it; it may use $first"
fi
long=$(seq -s , 0 5000)
for list in x -1 +1 ' 1' 1, ,1 1,,2 0- 0--1 3-1 0-0-0 0,0 0x0 1.5 '0 ' 1023 1024 0-1024 99999999999999999999 \
    "$long" $'0\n' '%s%n'; do
    expect 1 serve --listen "shm:$name" --cpus "$list"
    said "$err" CPUs
done
expect 2 serve --listen "shm:$name" --cpus ''
expect 2 serve --listen "shm:$name" --huge-pages some
said "$err" 'auto, off or require'
start --listen "shm:$name" --huge-pages off --exit-when-done
OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=1 "$gradslot" demo-trainer --uri "shm:$name" \
    --trainers 1 --epochs 1 >"$scratch/trainer" 2>&1 || fail "the trainer: $(cat "$scratch/trainer")"
within 5 gone "$server"
wait "$server" || fail "huge pages off: status $?"
said "$err" 'weights in 4 KiB pages'
# The machine has them or not: a parameter of 8 MiB, and how it ends.
status=0
"$gradslot" bench step --size 8M --iters 2 --rounds 1 --duration 0 \
    --huge-pages require >"$out" 2>"$err" || status=$?
possible=$("$gradslot" doctor --json | jq .huge_pages.possible)
if [[ $status == 0 && $possible != true ]]; then
    fail "huge pages are required, there are none, and it went on"
fi
if [[ $status != 0 ]]; then
    said "$err" 'huge pages are required'
    said "$err" vm.nr_hugepages
fi

# Bounded staleness. When trainers leave it says how old their gradients were.
start --listen "shm:$name" --mode ssp:3 --exit-when-done
OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=1 "$gradslot" demo-trainer --uri "shm:$name" \
    --trainers 1 --mode ssp:3 --epochs 1 >"$scratch/trainer" 2>&1 ||
    fail "the trainer: $(cat "$scratch/trainer")"
within 5 gone "$server"
wait "$server" || fail "ssp: status $?"
said "$err" "trainer 0"
grep -q "demo trainer 0.*: gradients' age: mean 0.0, at most 0 updates" "$err" || fail "no age"
said "$err" "all trainers: gradients' age: mean 0.0, at most 0 updates"

# Checkpoints: on SIGUSR1, every so many steps, and at SIGTERM, which waits for the step. The same
# command line goes on from the newest.
saves=(--listen "shm:$name" --checkpoint-dir "$scratch/saves" --keep 2)
train() {
    OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=1 "$gradslot" demo-trainer --uri "shm:$name" \
        --trainers 1 --epochs "$1" >"$scratch/trainer" 2>&1
}
logged() {
    grep -q "$1" "$err"
}
start "${saves[@]}"
said "$err" "holds no checkpoint"
train 100 &
within 20 logged 'training over'
kill -USR1 "$server"
within 20 logged 'checkpoint 1 of step'
stop TERM
within 20 none_left
logged 'checkpoint 2 of step' || fail "no last checkpoint"
[[ $(find "$scratch/saves" -name 'checkpoint-*' -printf '%f ') == *checkpoint-0000000[12]* ]] ||
    fail "no checkpoints"
start "${saves[@]}" --checkpoint-every 2
train 1 || fail "the trainer: $(cat "$scratch/trainer")"
said "$err" "restoring checkpoint 2 (sync mode, step"
within 20 logged 'checkpoint 3 of step'
stop INT
kept=$(find "$scratch/saves" -name 'checkpoint-*' | wc -l)
[[ $kept == 2 ]] || fail "$kept checkpoints are kept"
# Anew, when it is told to; and what can't be restored, or written, is said at once.
start "${saves[@]}" --restore none
! logged restoring || fail "restored"
stop TERM
expect 1 serve --listen "shm:$name" --restore /nowhere
said "$err" /nowhere
expect 1 serve --listen "shm:$name" --checkpoint-dir /nowhere/saves
said "$err" "/nowhere/saves: can't be made"
expect 2 serve --listen "shm:$name" --checkpoint-every 5x
said "$err" 5x
expect 1 serve --listen "shm:$name" --checkpoint-every 5
said "$err" directory
expect 1 serve --listen "shm:$name" --mode async --checkpoint-dir "$scratch/saves" --checkpoint-every 5
said "$err" async

# A name that is taken is refused, and named; the first server goes on. Afterwards it is free.
start --listen "shm:$name"
first=$server
expect 1 serve --listen "shm:$name"
said "$err" "$name"
! gone "$first" || fail "the first server is gone"
server=$first
stop TERM

# A server that was killed does not keep its name.
start --listen "shm:$name"
kill -9 "$server"
wait "$server" 2>/dev/null || true
start --listen "shm:$name"
stop TERM

# What is not a URI is quoted.
expect 1 serve --listen nonsense
said "$err" nonsense
expect 1 serve --listen 'shm:no/slashes'
said "$err" 'no/slashes'
expect 1 serve --listen "shm:$name" --listen "shm:$name"

# Nine listeners are one too many.
many=()
for i in 1 2 3 4 5 6 7 8 9; do
    many+=(--listen "shm:$name-$i")
done
expect 2 serve "${many[@]}"
said "$err" "shm:$name-9"

# Keys: none where other machines can come, and files that others can read.
key=$scratch/key
expect 1 serve --listen rdma://10.0.0.1:0
said "$err" 'no key'
said "$err" 'chmod 600'
said "$err" '--insecure'
expect 1 serve --listen "shm:$name" --key-file "$scratch/none"
said "$err" 'No such file'
head -c 32 /dev/urandom >"$key"
chmod 644 "$key"
expect 1 serve --listen "shm:$name" --key-file "$key"
said "$err" 'mode 0644'
chmod 600 "$key"
start --listen "shm:$name" --key-file "$key"
stop TERM

# Without a device: which, and what would help.
if [[ ! -e /sys/class/infiniband ]]; then
    expect 1 serve --listen rdma://127.0.0.1:0
    said "$err" rdma
fi

done_testing
