# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Fetches the distribution's stock kernel and lays out what a guest needs of it:
#   vmlinux            the kernel, already decompressed
#   modules/*.ko       the modules, flat
#   modules/GROUP      a group's modules in the order in which they load
# Sourced by prepare.

# newest_kernel: the release of the kernel that the metapackage stands for.
newest_kernel() {
    apt-cache depends linux-image-amd64 2>/dev/null |
        sed -n 's/^ *Depends: linux-image-\([0-9].*\)$/\1/p' | head -n 1
}

# package_version NAME: the version that apt would download.
package_version() {
    apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p'
}

update_lists() {
    say "updating the package lists"
    apt-get -q update >&2 || die "apt-get update failed (as root?)"
}

# download DIR PACKAGE…
download() {
    local dir=$1
    shift
    # The sandbox user can't write to a private folder, and apt warns of it.
    (cd "$dir" && apt-get -q -o APT::Sandbox::User=root download "$@" >&2)
}

# decompress_kernel VMLINUZ: a guest would need seconds of emulation to do this at
# each boot; the host does it once. The header's fields are those of the Linux/x86 boot protocol.
decompress_kernel() {
    local image=$1 setup_sectors offset length
    setup_sectors=$(od -An -t u1 -j $((0x1f1)) -N 1 "$image")
    offset=$(od -An -t u4 -j $((0x248)) -N 4 "$image")
    length=$(od -An -t u4 -j $((0x24c)) -N 4 "$image")
    offset=$((offset + (setup_sectors + 1) * 512))
    # The last 4 bytes are the plain size, no part of the xz stream.
    tail -c +$((offset + 1)) "$image" | head -c $((length - 4)) | xz -dc
}

# module_group DIR RELEASE OUT GROUP MODULE…: copies the modules and their dependencies.
module_group() {
    local root=$1 release=$2 out=$3 group=$4 module file
    shift 4
    for module in "$@"; do
        modprobe -d "$root" -S "$release" --show-depends "$module"
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
        while read -r file; do
            cp "$file" "$out/"
            printf '%s\n' "${file##*/}"
        done >"$out/$group"
}

# unpack_kernel DEB_DIR RELEASE ROOT OUT
unpack_kernel() {
    local debs=$1 release=$2 root=$3 out=$4
    dpkg -x "$debs/linux-image-${release}"_*.deb "$root"
    decompress_kernel "$root/boot/vmlinuz-$release" >"$out/vmlinux"
}

# collect_modules RELEASE ROOT OUT: the groups that guest/init loads.
collect_modules() {
    local release=$1 root=$2 out=$3
    mkdir -p "$out"
    module_group "$root" "$release" "$out" base virtio_pci 9p 9pnet_virtio virtio_console
    module_group "$root" "$release" "$out" single dummy
    module_group "$root" "$release" "$out" pair virtio_net sch_netem
    # Without crc32_generic a link of type rxe is refused with "No such file or directory".
    module_group "$root" "$release" "$out" rxe crc32_generic rdma_rxe rdma_ucm
    module_group "$root" "$release" "$out" siw siw rdma_ucm
}
