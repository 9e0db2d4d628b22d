#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gradslot words: vectors through tables by rows, the same as in one process.

# shellcheck source=tests/cli/lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

# The whole Bible, once round.
expect 0 words --json --epochs 1
json '.checksums_equal == true and .weights_checksum == .single_process_checksum'
json '.weights_checksum | test("^[0-9a-f]{16}$")'
json '.untrained_auc == 0.5 and .heldout_auc > 0.68 and .heldout_auc < 1'
json '.heldout_loss < 0.65 * .untrained_loss and .heldout_pairs > 10000'
json '.steps > 100 and .steps_per_s > 0 and .words_per_s > 0 and .seconds > 0'
json '.trainers == 2 and .mode == "sync" and .transport == "shm" and .seed == 1'
json '.vocabulary > 4000 and .dim == 64'
json '.near | length > 5 and all(length == 9)'
json '.near | map(select(.[0] == "god"))[0] | index("lord") != null'

# A book of it for the rest.
text=$scratch/text
bible -f Ps1:1-Ps150:6 </dev/null | sed 's/^[^ ]* //' >"$text"
small=(words --json --text "$text" --min-count 3 --dim 32 --batch 240)

for trainers in 1 3; do
    expect 0 "${small[@]}" --trainers "$trainers"
    json ".checksums_equal and .trainers == $trainers and .heldout_auc > 0.6"
done
three=$(jq -r .weights_checksum "$out")
for threads in '--workers 0' '--workers 3 --pollers 2'; do
    # shellcheck disable=SC2086
    expect 0 "${small[@]}" --trainers 3 $threads
    [[ $(jq -r .weights_checksum "$out") == "$three" ]] || fail "$threads changes the vectors"
done

# Rules and types: other vectors, but the same ones with and without a server.
for other in '--optimizer sgd:lr=0.02' '--grad-dtype bf16' '--grad-dtype f16' '--seed 2' \
    '--optimizer adagrad:lr=0.15,clip_norm=20,clip_global_norm=20' \
    '--optimizer rowwise_adagrad:lr=0.15,initial_accumulator=1'; do
    # shellcheck disable=SC2086
    expect 0 "${small[@]}" --trainers 3 $other
    json '.checksums_equal and .heldout_auc > 0.5'
    [[ $(jq -r .weights_checksum "$out") != "$three" ]] || fail "$other makes no difference"
done

# Asynchronous: other bits, as good a model.
for mode in async ssp:1 ssp:8; do
    expect 0 "${small[@]}" --mode "$mode" --trainers 3
    json ".heldout_auc > 0.6 and .mode == \"$mode\""
done

# For people: the result on stdout, the progress on stderr. Words that the text lacks are left out.
expect 0 "${small[@]:0:1}" "${small[@]:2}" --trainers 3 --near lord,xyzzy,soul
said "$out" "$three"
said "$out" 'the same'
grep -qE '^lord  ' "$out" || fail "no words near 'lord'"
grep -qE '^soul  ' "$out" || fail "no words near 'soul'"
! grep -q xyzzy "$out" || fail "there is no xyzzy"
grep -qE 'step [0-9]+/[0-9]+ +loss' "$err" || fail "no progress on stderr"

# What goes wrong is said once by each that it happens to.
expect 1 words --text "$scratch/no-such-text"
said "$err" "$scratch/no-such-text"
printf 'a few words\n' >"$text"
expect 1 words --text "$text"
said "$err" 'times'
expect 1 "${small[@]}" --text "$scratch"
expect 2 words --trainers 40 --batch 39
said "$err" '40 trainers'
expect 2 words --address 10.0.0.1
said "$err" 10.0.0.1

done_testing
