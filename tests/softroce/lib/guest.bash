# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Boots one guest, streams its command's output, watches over it and cleans up. Sourced by run.
#
# Only pair gives the options --link, --loss and --control: two guests on one cable, whose
# commands it starts and stops.
#
# 1. qemu is the only process that outlives a call; it dies with this shell, however that ends.
# 2. All files of a run are in one temporary folder, removed at exit.

device=rxe timeout=120 memory=2048 cpus=2 share='' memlock=unlimited tsc='' show_console=0
variables=() command=()
link='' loss=0 control=''
work='' qemu='' output=''

parse_guest_options() {
    while (($#)); do
        case $1 in
        --help) print_help "$0" && exit 0 ;;
        --console) show_console=1 && shift && continue ;;
        --) shift && break ;;
        --device | --timeout | --mem | --cpus | --share | --memlock | --tsc | --env | --link | --loss | --control)
            (($# > 1)) || usage_error "$1 needs a value"
            ;;
        *) usage_error "unknown argument: $1" ;;
        esac
        case $1 in
        --device) device=$2 ;;
        --timeout) timeout=$2 ;;
        --mem) memory=$2 ;;
        --cpus) cpus=$2 ;;
        --share) share=$2 ;;
        --memlock) memlock=$2 ;;
        --tsc) tsc=$2 ;;
        --env) variables+=("$2") ;;
        --link) link=$2 ;;
        --loss) loss=$2 ;;
        --control) control=$2 ;;
        esac
        shift 2
    done
    command=("$@")
    check_guest_options
}

check_guest_options() {
    local variable
    [[ $device == rxe || $device == siw ]] || usage_error "--device is rxe or siw, not '$device'"
    [[ $timeout =~ ^[1-9][0-9]*$ ]] || usage_error "--timeout is a number of seconds, not '$timeout'"
    [[ $memory =~ ^[1-9][0-9]*$ ]] || usage_error "--mem is a number of MiB, not '$memory'"
    [[ $cpus =~ ^[1-8]$ ]] || usage_error "--cpus is 1 to 8, not '$cpus'"
    [[ $memlock =~ ^(unlimited|[0-9]+)$ ]] || usage_error "--memlock is a number of KiB, not '$memlock'"
    [[ $loss =~ ^[0-9]+(\.[0-9]+)?$ ]] || usage_error "--loss is a percentage, not '$loss'"
    [[ -z $share || -d $share ]] || usage_error "--share: no such folder: $share"
    [[ -z $tsc || $tsc =~ ^[1-9][0-9]*$ ]] || usage_error "--tsc is a number of kHz, not '$tsc'"
    for variable in "${variables[@]}"; do
        [[ $variable =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || usage_error "--env is NAME=VALUE, not '$variable'"
    done
    ((${#command[@]})) || usage_error "no command"
}

readonly SERVER_MAC=52:54:00:78:00:01 CLIENT_MAC=52:54:00:78:00:02

# network_settings: who this guest is, and whom it can reach.
network_settings() {
    case $link in
    '')
        shell_assign NET=single HOSTS=$'10.77.0.1 rdma-host\nfd77::1 rdma-host6'
        shell_export RDMA_ADDR=10.77.0.1 RDMA_ADDR6=fd77::1
        return
        ;;
    server:*)
        shell_assign PEER_MAC="$CLIENT_MAC"
        shell_export RDMA_ADDR=10.78.0.1 RDMA_ADDR6=fd78::1
        shell_export RDMA_PEER=10.78.0.2 RDMA_PEER6=fd78::2
        ;;
    client:*)
        shell_assign PEER_MAC="$SERVER_MAC"
        shell_export RDMA_ADDR=10.78.0.2 RDMA_ADDR6=fd78::2
        shell_export RDMA_PEER=10.78.0.1 RDMA_PEER6=fd78::1
        ;;
    esac
    shell_assign NET=pair \
        HOSTS=$'10.78.0.1 rdma-server\nfd78::1 rdma-server6\n10.78.0.2 rdma-client\nfd78::2 rdma-client6'
}

# write_settings: what guest/init reads, and the command that it runs.
write_settings() {
    {
        network_settings
        shell_assign CPUS="$cpus" LOSS="$loss" MEMLOCK="$memlock" CONTROL="${control:+1}" HOST_SHARE="$share" \
            PROJECT="$(cd "$here/../.." && pwd -P)" DIRECTORY="$(pwd -P)"
        shell_export GUEST_SHARE=/run/share RDMA_KIND="$device" RDMA_DEV="${device}0"
    } >"$work/settings"
    {
        shell_export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            HOME=/root TMPDIR=/tmp LANG=C.UTF-8 "${variables[@]}"
        printf 'cd %s\nexec %s\n' "$(shell_quote "$(pwd -P)")" "$(shell_quote "${command[@]}")"
    } >"$work/command"
}

# device_arguments: fills $devices with what only some guests have.
device_arguments() {
    devices=()
    if [[ -n $link ]]; then
        local path=${link#*:} role=on mac=$SERVER_MAC
        [[ $link == server:* ]] || role=off mac=$CLIENT_MAC
        # A Unix socket: a port would have to be guessed free.
        devices+=(-netdev "stream,id=link,server=$role,addr.type=unix,addr.path=$path"
            -device "virtio-net-pci,netdev=link,host_mtu=9000,mac=$mac,romfile=")
    fi
    if [[ -n $control ]]; then
        devices+=(-chardev "pipe,id=control,path=$control"
            -device virtserialport,chardev=control,name=control)
    fi
}

# The kernel's tests of its own cryptography and tracing would take a third of the boot. It
# boots on one processor, and guest/init adds the others: where the host's are busy, emulated
# processors that wait for one another take twice as long.
readonly KERNEL_ARGUMENTS="console=ttyS0 loglevel=4 panic=-1 mitigations=off nokaslr maxcpus=1 cryptomgr.notests \
initcall_blacklist=init_kprobe_trace,load_system_certificate_list,crypto_kdf108_init"

# await_link: a client whose server does not listen yet would start with a dead cable.
await_link() {
    [[ $link == client:* ]] || return 0
    local tries=0
    # 00010000 is the flag of a listening socket.
    until grep -q " 00010000 .* ${link#*:}\$" /proc/net/unix; do
        ((++tries < 20 * BOOT_SECONDS)) || die "the other guest did not start"
        sleep 0.05
    done
}

# start_qemu BOOT: statuses are then read from $status_port; the output goes to descriptor 3.
start_qemu() {
    local boot=$1 devices
    device_arguments
    exec {status_port}< <(
        exec setpriv --pdeathsig KILL qemu-system-x86_64 \
            -machine q35,vmport=off -accel tcg,thread=multi -cpu max,la57=off -smp "$cpus" -m "$memory" \
            -nodefaults -no-user-config -display none -no-reboot -net none \
            -kernel "$boot/vmlinux" -initrd "$boot/initrd" \
            -append "$KERNEL_ARGUMENTS ${tsc:+tsc=reliable tsc_early_khz=$tsc} softroce=$work" \
            -serial "file:$work/console" \
            -virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap" \
            -virtfs "local,path=$share,mount_tag=share,security_model=none,multidevs=remap" \
            -device virtio-serial-pci \
            -chardev file,id=output,path=/dev/fd/3 -device virtserialport,chardev=output,name=output \
            -chardev file,id=status,path=/dev/fd/4 -device virtserialport,chardev=status,name=status \
            "${devices[@]}" </dev/null 4>&1 >"$work/qemu" 2>&1
    )
    qemu=$!
}

stop_guest() {
    if [[ -n $qemu ]]; then
        kill -KILL "$qemu" 2>/dev/null || true
        wait "$qemu" 2>/dev/null || true
    fi
    [[ -z $work ]] || rm -rf "$work"
}

# finish_output: closes our end, and waits until all that the command printed is out.
finish_output() {
    kill -KILL "$qemu" 2>/dev/null || true
    exec 3>&-
    wait "$output" || true
}

show_console() {
    say "the last lines of the guest's console:"
    tail -n 25 "$work/console" "$work/qemu" 2>/dev/null | sed 's/^/    /' >&2
}

# next_status SECONDS: the guest's next word in $word and its argument in $detail.
# 124 when the time is over, 125 when the guest is gone.
next_status() {
    local seconds=$1 result=0
    read -r -t "$seconds" -u "$status_port" word detail || result=$?
    ((result == 0)) && return
    ((result > 128)) && return "$STATUS_TIMEOUT"
    return "$STATUS_BROKEN"
}

watch_guest() {
    local word='' detail='' result=0
    next_status "$BOOT_SECONDS" || result=$?
    if ((result)) || [[ $word != up ]]; then
        show_console
        die "the guest did not come up: ${detail:-no word from it}"
    fi
    next_status "$timeout" || result=$?
    finish_output
    case $result in
    0) ((show_console)) && show_console ;;
    "$STATUS_TIMEOUT") show_console && say "timeout: the command was not done after $timeout s" ;;
    *) show_console && die "the guest died while the command ran" ;;
    esac
    return $((result ? result : detail))
}

guest_run() {
    local boot
    boot=$("$here/prepare")
    trap stop_guest EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    work=$(mktemp -d "${TMPDIR:-/tmp}/softroce.XXXXXX")
    work=$(cd "$work" && pwd -P)
    if [[ -z $share ]]; then
        share=$work/share
        mkdir "$share"
    fi
    share=$(cd "$share" && pwd -P)
    write_settings
    await_link
    exec 3> >(exec cat)
    output=$!
    start_qemu "$boot"
    watch_guest
}
