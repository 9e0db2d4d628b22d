# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Makes the initramfs: busybox, the modules and guest/init. Sourced by prepare.

# make_initramfs MODULES INIT SCRATCH OUT: left uncompressed, as the guest is slow to
# decompress and the host's page cache holds it.
make_initramfs() {
    local modules=$1 init=$2 root=$3 out=$4
    mkdir -p "$root"/{bin,dev,host,proc,sys}
    cp -r "$modules" "$root/modules"
    cp "$(command -v busybox)" "$root/bin/busybox"
    install -m 755 "$init" "$root/init"
    (cd "$root" && find . | cpio --quiet -o -H newc -R 0:0) >"$out"
}
