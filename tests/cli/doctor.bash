#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gradslot doctor: its facts are those of the machine.

# shellcheck source=tests/cli/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

expect 0 doctor
for word in shm rdma 'may be locked' 'Huge pages' 'update kernels' "$(uname -r)" Fork; do
    said "$out" "$word"
done

expect 0 doctor --json
json '.transports.shm.usable == true'
json '.transports.rdma | has("usable") and has("reason") and (.facts | type == "array")'
json '(.transports.rdma.usable | not) == (.transports.rdma.reason != "")'
json ".system.kernel == \"$(uname -r)\""
json ".cpu.usable_cores == $(nproc)"
json ".memory.total == $(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) * 1024))"
json '.cpu.kernels | IN("baseline", "avx2", "avx512")'
json '.huge_pages.size > 0 and .huge_pages.free >= 0'
json '.huge_pages.possible == (.huge_pages.free > 0 or (.huge_pages.transparent_shmem | IN("always", "within_size", "advise", "force")))'
json ".cpu.usable == \"$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)\""
nodes=(/sys/devices/system/node/node[0-9]*)
[[ -e ${nodes[0]} ]] || nodes=()
json ".cpu.nodes | length == ${#nodes[@]}"
for node in "${nodes[@]}"; do
    json ".cpu.nodes | any(.node == ${node##*node} and .cpus == \"$(cat "$node/cpulist")\" and .memory > 0)"
done

# What this process may use, not what there is.
allowed=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)
taskset -c "$allowed" "$gradslot" doctor --json >"$out" 2>"$err" || fail "pinned: status $?"
json ".cpu.usable == \"$allowed\" and .cpu.usable_cores == 1"
json '.fork.safety | IN("unneeded", "enabled", "disabled")'

# The limit on locked memory is this process's own.
status=0
(ulimit -S -l 64 && "$gradslot" doctor --json) >"$out" 2>"$err" || status=$?
[[ $status == 0 ]] || fail "status $status with a low memlock limit"
json '.memory.memlock == 65536'

# Without a device the reason says so.
if [[ ! -e /sys/class/infiniband ]]; then
    expect 0 doctor --json
    json '.transports.rdma.usable == false and (.transports.rdma.reason | length > 10)'
fi

# The kernels follow the environment.
status=0
GRADSLOT_ISA=baseline "$gradslot" doctor --json >"$out" 2>"$err" || status=$?
json '.cpu.kernels == "baseline"'

done_testing
