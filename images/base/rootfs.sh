#!/usr/bin/env bash
# Bootstraps a minimal Debian and writes it as a tar: rootfs.sh SUITE ARCHITECTURE LOCK WORK_FOLDER TAR_FILE
# LOCK holds a line "sha256 name=version path" for each package: these files alone are installed, whatever a mirror has today.
# Needs root and mmdebstrap, and for an architecture that is not the host's an emulator that the kernel knows of.
#
#   HARNESS_DEBIAN_MIRROR   the only mirror to ask, say https://snapshot.debian.org/archive/debian/20261124T000000Z
set -euo pipefail

suite=$1 architecture=$2 lock=$3 work=$4 tar_file=$5
root=$work/rootfs debs=$work/debs
mkdir -p "$debs"

mirrors=("${HARNESS_DEBIAN_MIRROR:-}")
if [[ -z ${mirrors[0]} ]]; then
    # The one that this host's apt uses, Debian's own, and how that was when the lock was made.
    # shellcheck disable=SC2016 # apt-get itself fills in that placeholder
    mapfile -t mirrors < <(apt-get indextargets --format '$(REPO_URI)' "Codename: $suite" "Origin: Debian" 2>/dev/null | head -n 1)
    mirrors+=(http://deb.debian.org/debian)
    mirrors+=("https://snapshot.debian.org/archive/debian/$(sed -n '1s/.* on \([0-9TZ]*\),.*/\1/p' "$lock")")
fi

# apt's own downloader has this host's proxies and certificates, and checks each file's hash.
for mirror in "${mirrors[@]}"; do
    missing=()
    while read -r sha256 _ path; do
        [[ $sha256 == "#" || -s $debs/${path##*/} ]] || missing+=("${mirror%/}/$path" "$debs/${path##*/}" "SHA256:$sha256")
    done <"$lock"
    ((${#missing[@]})) || break
    /usr/lib/apt/apt-helper -qq -o APT::Sandbox::User=root download-file "${missing[@]}" || echo "not all from $mirror"
done
while read -r sha256 name path; do
    [[ $sha256 == "#" ]] && continue
    if ! sha256sum --check --status 2>/dev/null <<<"$sha256  $debs/${path##*/}"; then
        echo "no mirror has $name as ${lock##*/} pins it; set HARNESS_DEBIAN_MIRROR to a snapshot, or run scripts/lock-base" >&2
        exit 1
    fi
    dpkg-deb --field "$debs/${path##*/}"
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "${path##*/}" "$(stat -c %s "$debs/${path##*/}")" "$sha256"
done <"$lock" >"$debs/Packages"
# mmdebstrap looks for essential packages in the suite of this name alone.
printf 'Codename: %s\nSHA256:\n %s %s Packages\n' "$suite" "$(sha256sum <"$debs/Packages" | cut -d ' ' -f 1)" \
    "$(stat -c %s "$debs/Packages")" >"$debs/Release"

# Trusted: each file's hash was checked above.  Without the hook apt would merge /usr with a package that needs all of Perl.
# harness has checked that the architecture runs here; mmdebstrap would want arch-test for that.
packages=$(awk '!/^#/ { print $2 }' "$lock")
mmdebstrap --skip=check/qemu --mode=root --format=directory --variant=minbase --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --architectures="$architecture" --include="${packages//$'\n'/,}" "$suite" "$root" "deb [trusted=yes] copy:$debs ./"

# shellcheck disable=SC2016 # dpkg-query itself fills these in
if ! diff <(sort <<<"$packages") <(chroot "$root" dpkg-query -W -f '${Package}=${Version}\n' | sort); then
    echo "the root holds other packages than ${lock##*/} (above)" >&2
    exit 1
fi
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
