#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gradslot export: which checkpoint, which tensors, and nothing half done.

# shellcheck source=tests/cli/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
tool=$2
dir=$scratch/dir to=$scratch/to/weights.safetensors

mkdir "$scratch/to"
for step in 5 6; do
    "$tool" make "$dir" $step || fail "no checkpoint"
done

# alone: there is nothing but the file in its directory.
alone() {
    [[ $(ls -A "$scratch/to") == "$1" ]] || fail "in the directory: $(ls -A "$scratch/to")"
}

# shown FILTER: of what was exported.
shown() {
    expect 0 inspect --json "$to"
    json "$1"
}

# The newest of a directory, and the one that is named.
expect 0 export "$dir" "$to"
said "$out" "3 tensors of $dir/checkpoint-00000002"
shown '.metadata == {"format": "pt", "gradslot.mode": "ssp", "gradslot.step": "6"}'
json '.tensors | length == 3 and all(.dtype == "F32")'
alone weights.safetensors
expect 0 export "$dir/checkpoint-00000001" "$to" --dtype bf16
shown '.metadata["gradslot.step"] == "5" and (.tensors | all(.dtype == "BF16"))'
alone weights.safetensors
cd "$scratch/to"
expect 0 export ../dir weights.safetensors --dtype=f16
shown '.tensors | all(.dtype == "F16")'

# Some of it.
expect 0 export "$dir" "$to" --only words
shown '.tensors | map(.name) == ["words"]'
expect 0 export "$dir" "$to" --only 'lay*' --only hashed
shown '.tensors | map(.name) | sort == ["hashed", "layer/../w"]'
before=$(sha256sum "$to")
expect 1 export "$dir" "$to" --only words --only nothing
said "$err" "'nothing'"

# What fails leaves the file that is there, and nothing else.
expect 1 export "$scratch/none" "$to"
said "$err" "$scratch/none"
expect 1 export "$dir" "$scratch/none/file"
expect 1 export "$dir" "$scratch/to"
printf x >>"$dir/checkpoint-00000001/weights.safetensors"
expect 1 export "$dir/checkpoint-00000001" "$to"
said "$err" weights.safetensors
status=0
(ulimit -f 0 && trap '' XFSZ && exec "$gradslot" export "$dir" "$to") >/dev/null 2>&1 || status=$?
[[ $status == 1 ]] || fail "status $status with a limit on files"
[[ $(sha256sum "$to") == "$before" ]] || fail "the file was changed"
alone weights.safetensors
[[ $(ls -A "$scratch") == $'dir\nerr\nout\nto' ]] || fail "left behind: $(ls -A "$scratch")"

# An unsound newest one is passed over, loudly.
"$tool" make "$dir" 7 || fail "no checkpoint"
printf x >>"$dir/checkpoint-00000003/state.safetensors"
expect 0 export "$dir" "$to"
said "$err" 'warn checkpoint 3 is not sound'
said "$out" checkpoint-00000002
for n in 1 2; do
    printf x >>"$dir/checkpoint-0000000$n/manifest.json"
done
before=$(sha256sum "$to")
expect 1 export "$dir" "$to"
said "$err" 'none of the 3'
[[ $(sha256sum "$to") == "$before" ]] || fail "the file was changed"

done_testing
