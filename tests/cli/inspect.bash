#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gradslot inspect: of checkpoints, directories of them, and files; sound and not.

# shellcheck source=tests/cli/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
tool=$2
dir=$scratch/dir

for step in 5 6 7; do
    "$tool" make "$dir" $step || fail "no checkpoint"
done
one=$dir/checkpoint-00000002

# ---- a checkpoint
expect 0 inspect "$one"
for text in "$one: sound" 'number    2' 'ssp:3' 'step      6' 'trainers  2' fedcba9876543210 \
    'layer/../w: dense 7x5, adam:lr=0.1,beta1=0.333333333, schedule cosine' '77 updates' \
    'words: table 6x4, adagrad' 'hashed: hashed 1000x4, sgd'; do
    said "$out" "$text"
done
expect 0 inspect "$one/" --stats
said "$out" 'layer/../w  F32   7x5'
expect 0 inspect --json "$one"
json '.kind == "checkpoint" and .sound == true and .reason == null and .format == 1'
json '.number == 2 and .step == 6 and .mode == "ssp" and .staleness == 3 and .trainers == 2'
json '.server == "fedcba9876543210" and (has("checksum") | not) and (has("weights") | not)'
json '.params | map(.name) == ["layer/../w", "words", "hashed"]'
json '.params[0] | .shape == [7, 5] and .optimizer == "adam" and .rate == 0.1 and .updates == 77'
json '.params[0].settings[0] == ["lr", 0.1]'
json ".files[\"weights.safetensors\"].bytes == $(stat -c %s "$one/weights.safetensors")"
expect 0 inspect --json --stats "$one"
json '.weights | length == 3 and (map(.stats.nonfinite) | add) == 0'

# ---- a directory
expect 0 inspect "$dir"
[[ $(grep -c '  sound  ' "$out") == 3 ]] || fail "not three lines"
expect 0 inspect "$dir" --json
json '.kind == "directory" and (.checkpoints | map(.number) == [1, 2, 3] and all(.sound))'

# ---- not sound
truncate -s -1 "$one/state.safetensors"
expect 1 inspect "$one"
said "$out" 'not sound'
said "$out" state.safetensors
said "$out" 'step      6'
expect 1 inspect "$one" --json
json '.sound == false and (.reason | contains("state.safetensors")) and .step == 6'
rm "$dir/checkpoint-00000003/manifest.json"
expect 1 inspect "$dir/checkpoint-00000003" --json
json '.sound == false and (.reason | contains("manifest.json")) and (has("step") | not)'
expect 0 inspect "$dir"
[[ $(grep -c 'not sound' "$out") == 2 ]] || fail "not two unsound ones"
rm -r "$dir/checkpoint-00000001"
expect 1 inspect "$dir" --json
json '.checkpoints | map(.sound) == [false, false]'
rm -r "$dir"/checkpoint-*
expect 1 inspect "$dir"
said "$out" 'there is no checkpoint'

# ---- files
# header JSON: writes it with its length to $scratch/file.
header() {
    local n=${#1} i
    for ((i = 0; i < 8; i++)); do
        printf '%b' "\\x$(printf %02x $((n >> 8 * i & 255)))"
    done
    printf %s "$1"
}
{
    header '{"__metadata__":{"k":"v"},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    printf '\0\0\200\077\0\0\200\177' # 1, infinity
} >"$scratch/file"
expect 0 inspect "$scratch/file" --stats
said "$out" 'k = v'
grep -qE '^  x +F32 +2 +8 +1 +1 +1 +1 +1$' "$out" || fail "no line of x"
expect 0 inspect "$scratch/file" --stats --json
json '.kind == "safetensors" and .sound and .metadata == {"k": "v"}'
json '.tensors[0] == {"name": "x", "dtype": "F32", "shape": [2], "bytes": 8,
    "stats": {"min": 1, "mean": 1, "max": 1, "norm": 1, "nonfinite": 1}}'
{
    header '{"a\u001b[2J":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}'
    printf x
} >"$scratch/file"
expect 0 inspect "$scratch/file"
said "$out" 'a?[2J'
printf x >>"$scratch/file"
expect 1 inspect "$scratch/file"
said "$out" 'not sound'
expect 1 inspect "$scratch/file" --json
json '.sound == false and (.reason | contains("2 bytes"))'
expect 1 inspect "$scratch/none"
said "$err" "$scratch/none"
[[ ! -s $out ]] || fail "an error goes to stdout"
expect 1 inspect ''
printf 'x' >"$scratch/-x"
cd "$scratch"
expect 1 inspect -- -x
said "$out" '-x: not sound'

done_testing
