"""Copy a jar without the native libraries and debug files of platforms that this image never runs on.

Usage: slim_jar.py SOURCE_FOLDER TARGET_FOLDER (every .jar of the one is written to the other)
"""

from __future__ import annotations

import os
import platform
import re
import struct
import sys
import zipfile
from pathlib import Path

# Native files are dropped, unless their path names Linux on this machine (each project has its own spelling).
NATIVE = re.compile(r"\.(so|dll|dylib|jnilib|pdb)$|\.dSYM/", re.IGNORECASE)
# Where a local header holds the lengths of its name and its extra field; and the flag that sizes come after the data.
_NAME_LENGTHS, _SIZES_FOLLOW = 26, 0x08
_TIME = 315532800  # 1980-01-01
NAMES = {"x86_64": "x64|x86_64|amd64", "aarch64": "arm64|aarch64|aarch_64"}


def ours(machine: str) -> re.Pattern[str]:
    """Return the path part of native files for Linux on this machine."""
    return re.compile(rf"(^|/)linux[-/]({NAMES[machine]})/", re.IGNORECASE)


def slim(source: Path, target: Path) -> None:
    """Copy the jar ``source`` to ``target``, entry by entry in the same order, with foreign natives left out.

    Entries stay compressed as they are: compressing 64 MB again takes nine seconds.
    """
    native = ours(platform.machine())
    with zipfile.ZipFile(source) as old, source.open("rb") as packed, zipfile.ZipFile(target, "w") as new:
        assert new.fp is not None, "it was just opened"
        for entry in old.infolist():
            if NATIVE.search(entry.filename) and not native.search(entry.filename):
                continue
            packed.seek(entry.header_offset + _NAME_LENGTHS)
            packed.seek(sum(struct.unpack("<HH", packed.read(4))), os.SEEK_CUR)
            entry.flag_bits &= ~_SIZES_FOLLOW
            entry.header_offset = new.fp.tell()
            new.fp.write(entry.FileHeader() + packed.read(entry.compress_size))
            new.filelist.append(entry)
        new.start_dir = new.fp.tell()
    # The JVM's class archive records the jar's time; Docker's cache may mix copies of one jar that was made twice.
    os.utime(target, (_TIME, _TIME))


if __name__ == "__main__":
    for jar in sorted(Path(sys.argv[1]).glob("*.jar")):
        slim(jar, Path(sys.argv[2]) / jar.name)
