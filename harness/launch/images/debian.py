"""Debian packages of shared code (``images/shared/<folder>/packages-<architecture>.lock``), fetched on the host.

Each line of a lock pins a file of Debian's archive: sha256, ``name=version``, path.  ``scripts/lock-base`` writes it.
An image's build gets the files as ``packages/<folder>/debs/`` and unpacks them; it installs nothing, without network.

    cache/debs/<key>/             the packages of one lock
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from harness import child_process, filesystem
from harness.containment import is_plain_name
from harness.errors import FileError, ImageError
from harness.launch.images import registry
from harness.untrusted import decode, one_line, read_whole, reading

log = logging.getLogger(__name__)

ARCHIVE = "http://deb.debian.org/debian"
SNAPSHOT = "https://snapshot.debian.org/archive/debian"
_VARIABLE = "HARNESS_DEBIAN_MIRROR"
_LINE = re.compile(r"([0-9a-f]{64}) ([a-z0-9][a-z0-9+.-]+=[A-Za-z0-9.+~:-]+) (pool/[A-Za-z0-9.+~_/-]+\.deb)")
_DAY = re.compile(r"# Debian .* on ([0-9]{8}T[0-9]{6}Z),")
_MAX_BYTES = 4 << 20


@dataclass(frozen=True)
class Package:
    """A file of Debian's archive.  ``name`` holds the version, ``path`` is the file's place in the archive."""

    sha256: str
    name: str
    path: str

    @property
    def file(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]


def read(lock: Path) -> tuple[list[Package], str | None]:
    """Return the packages that a lock pins, and the day of the archive that had all of them, if the lock names it.

    Raises:
        FileError: the lock cannot be read, or a line is not a pinned package; names the line.
    """
    with reading(lock, "bring the file back"):
        text = decode(read_whole(lock, _MAX_BYTES), lock)
    packages = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None or not is_plain_name(found[3]):
            raise FileError(
                f"{lock}:{number}: {one_line(line, 80)!r} is not a pinned package of Debian; write a line like"
                " '<sha256> libc6=2.41-12 pool/main/g/glibc/libc6_2.41-12_amd64.deb', or run scripts/lock-base"
            )
        packages.append(Package(*found.groups()))
    day = _DAY.match(text)
    return packages, day[1] if day else None


def fetch(lock: Path, cache: Path) -> Path:
    """Download the packages of a lock; return the folder that holds only them.

    A mirror is asked for what those before it lack: the one in ``HARNESS_DEBIAN_MIRROR`` alone, or else the one that
    this host's apt uses, Debian's own, and Debian's own as it was on the lock's day.

    Raises:
        FileError: the lock holds something else than pinned packages.
        ImageError: no mirror has a package with the pinned content.
        StoreError: the disk is full.
    """
    packages, day = read(lock)
    folder = cache / "debs" / filesystem.sha256(lock)[:16]
    with filesystem.cache_lock(cache, f"debs-{folder.name}"):
        if folder.is_dir():
            return folder
        log.info(f"downloading the Debian packages of {lock.parent.name}")
        with filesystem.fresh_folder(folder) as fresh:
            missing, reasons = packages, list[str]()
            for mirror in _mirrors(day):
                missing, reason = _from_mirror(mirror, missing, fresh)
                if not missing:
                    break
                reasons.append(f"{urlsplit(mirror).hostname} {reason}")
            if missing:
                names = ", ".join(package.name for package in missing[:3]) + (", ..." if len(missing) > 3 else "")
                raise ImageError(
                    f"the Debian packages of {lock.parent.name!r}: no mirror has {names} as {lock.name} pins it:"
                    f" {'; '.join(reasons)}; set {_VARIABLE} to a mirror that has them, say a day of {SNAPSHOT}"
                )
    return folder


def _mirrors(day: str | None) -> list[str]:
    """Return the addresses of mirrors to ask, in their order."""
    if given := os.environ.get(_VARIABLE):
        return [given]
    return list(dict.fromkeys([*_of_apt(), ARCHIVE, *([f"{SNAPSHOT}/{day}"] if day else [])]))


def _of_apt() -> list[str]:
    """Return the mirror of Debian that this host's apt uses, if it has one that HTTP reaches."""
    if shutil.which("apt-get") is None:
        return []
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian", "Label: Debian"]
    listed = child_process.run(command, *child_process.NETWORK).stdout.splitlines()
    return [line.rstrip("/") for line in listed[:1] if urlsplit(line).scheme in ("http", "https")]


def _from_mirror(mirror: str, packages: list[Package], folder: Path) -> tuple[list[Package], str]:
    """Download packages from one mirror; return those that it lacks, and the reason."""
    lacking, reason = list[Package](), ""
    for place, package in enumerate(packages):
        url = f"{mirror.rstrip('/')}/{quote(package.path)}"
        failure = registry.download_url(url, package.sha256, folder / package.file)
        if failure is None:
            continue
        lacking.append(package)
        reason = failure
        if failure.startswith(registry.SILENT):
            return [*lacking, *packages[place + 1 :]], reason
    return lacking, reason
