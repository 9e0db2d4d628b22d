# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Builds siw (software iWARP) for the stock kernel, which is configured without it.
# Sourced by prepare.

# siw_packages RELEASE VERSION: all at the kernel's own version, or the module would not load.
siw_packages() {
    local release=$1 version=$2 series=${1%.*}
    printf '%s\n' \
        "linux-headers-$release=$version" \
        "linux-headers-${release%-*}-common=$version" \
        "linux-kbuild-$series=$version" \
        "linux-compiler-gcc-12-x86=$version" \
        "linux-source-$series=$version"
}

# unpack_siw_source DEB DIR: the source package holds one large archive; only one folder
# of it is wanted, and nothing of the rest is written to disk.
unpack_siw_source() {
    local deb=$1 dir=$2
    mkdir -p "$dir"
    dpkg-deb --fsys-tarfile "$deb" |
        tar -xO --wildcards './usr/src/linux-source-*.tar.xz' |
        xz -dc -T 0 |
        tar -x -C "$dir" --strip-components=5 --wildcards 'linux-source-*/drivers/infiniband/sw/siw/*'
}

# build_siw DEB_DIR RELEASE ROOT: puts siw.ko among the modules under ROOT.
build_siw() {
    local debs=$1 release=$2 root=$3 headers deb
    headers=$root/usr/src/linux-headers-$release
    for deb in "$debs"/linux-headers-*.deb "$debs"/linux-kbuild-*.deb "$debs"/linux-compiler-*.deb; do
        dpkg -x "$deb" "$root"
    done
    # The headers' makefile names the place where the package would have been installed.
    sed -i "s,/usr/src/,$root/usr/src/," "$headers/Makefile"
    unpack_siw_source "$(echo "$debs"/linux-source-*.deb)" "$root/siw"
    make -s -j "$(nproc)" -C "$headers" M="$root/siw" CONFIG_RDMA_SIW=m modules >"$root/siw/log" 2>&1 || {
        tail -n 20 "$root/siw/log" >&2
        die "siw did not build"
    }
    # Its debug information is 20 times its code, and a guest loads the file at each boot.
    strip --strip-debug "$root/siw/siw.ko"
    install -D -m 644 "$root/siw/siw.ko" "$root/lib/modules/$release/extra/siw.ko"
    depmod -b "$root" "$release"
}
