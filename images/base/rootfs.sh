#!/usr/bin/env bash
# Bootstraps a minimal Debian and writes it as a tar: rootfs.sh SUITE ARCHITECTURE PACKAGE[,PACKAGE...] WORK_FOLDER TAR_FILE
# Needs root and mmdebstrap, and for an architecture that is not the host's an emulator that the kernel knows of.  The Debian mirror is the one that the host's apt uses, else Debian's own.
set -euo pipefail

suite=$1 architecture=$2 packages=$3 work=$4 tar_file=$5
root=$work/rootfs

mirror=
if command -v apt-get >/dev/null; then
    # "grep" fails when the host is no Debian of this suite: then mmdebstrap takes its default mirror.
    # shellcheck disable=SC2016 # apt-get itself fills in that placeholder
    mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $suite" "Origin: Debian" 2>/dev/null |
        grep -m1 . || true)
fi
# Without the hook apt would merge /usr with a package that needs all of Perl.  harness has checked that the architecture runs
# here; mmdebstrap would want arch-test for that.
mmdebstrap --skip=check/qemu --mode=root --format=directory --variant=minbase --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --architectures="$architecture" --include="$packages" "$suite" "$root" ${mirror:+"$mirror"}

mkdir -p "$root/opt/harness"
chroot "$root" dpkg-query -W >"$root/opt/harness/base-packages.txt"

# All times are fixed below: bytecode that is checked against its source's would be stale, and each process would compile
# what it imports anew.
stdlib=$(chroot "$root" python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
chroot "$root" python3 -m compileall -q -f --invalidation-mode unchecked-hash "$stdlib"

# Nothing of this is read at run time; licences (copyright files) stay.
find "$root/usr/share/doc" -type f ! -name copyright -delete
find "$root/usr/share/doc" -type d -empty -delete
rm -rf "$root"/usr/share/{man,info,locale,lintian} "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* \
    "$root"/var/log/* "$root"/var/cache/debconf/*-old "$root"/var/lib/dpkg/*-old

# The linker's memory of which files it saw where (inodes, times); ldconfig makes it anew when it runs.
rm -f "$root/var/cache/ldconfig/aux-cache"

# The host's resolver, name and mirror (its address may hold a password) say where the image was made, not what is in it.
rm -f "$root/etc/resolv.conf" "$root/etc/hostname" "$root/etc/apt/sources.list"

# Sorted names and fixed times: the same packages give the same tar.
tar --sort=name --mtime=@0 --numeric-owner --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*' \
    -C "$root" -cf "$tar_file" .
