# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What every script of the harness shares: its messages, its cache's place and
# the check of the host's packages. Sourced, not run.

export LC_ALL=C

# Statuses of the harness itself, beside the guest command's own.
readonly STATUS_USAGE=2
readonly STATUS_TIMEOUT=124
readonly STATUS_BROKEN=125

# A boot takes seconds; on a loaded machine it may take ten times that, never more.
# shellcheck disable=SC2034 # for those that source this.
readonly BOOT_SECONDS=60

say() {
    printf 'softroce: %s\n' "$*" >&2
}

die() {
    say "$*"
    exit "$STATUS_BROKEN"
}

usage_error() {
    say "$* (see --help)"
    exit "$STATUS_USAGE"
}

# The comment block at a script's head is its help, so that the two can't differ.
print_help() {
    sed -n '3,/^$/ { s/^# \{0,1\}//; p; }' "$1"
}

cache_root() {
    local cache=${GRADSLOT_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/gradslot}
    printf '%s/softroce\n' "$cache"
}

# check_packages FILE: names every missing package at once, so that one install mends it.
check_packages() {
    local wanted missing
    wanted=$(sed '/^#/d; /^$/d' "$1" | sort)
    # shellcheck disable=SC2016,SC2086 # dpkg's own fields; one name a word.
    missing=$(comm -23 <(printf '%s\n' "$wanted") <(
        dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null |
            sed -n 's/^installed //p' | sort -u
    ) | tr '\n' ' ')
    [[ -z $missing ]] || die "missing packages; run: apt-get install --no-install-recommends $missing"
}

# shell_quote WORD…: the words as one line that any POSIX shell reads back.
shell_quote() {
    local word
    for word in "$@"; do
        printf "'%s' " "${word//\'/\'\\\'\'}"
    done
}

# shell_assign NAME=VALUE…: the same as assignments, one a line.
shell_assign() {
    local pair
    for pair in "$@"; do
        printf '%s=%s\n' "${pair%%=*}" "$(shell_quote "${pair#*=}")"
    done
}

shell_export() {
    shell_assign "$@" | sed 's/^/export /'
}
