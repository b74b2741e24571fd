"""Copy a jar without the native libraries and debug files of platforms that images never run on.

Usage: slim_jar.py SOURCE_FOLDER TARGET_FOLDER (every .jar of the one is written to the other)
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

# Any native file goes, unless a part of its path names Linux on x86-64 (each project spells that its own way).
NATIVE = re.compile(r"\.(so|dll|dylib|jnilib|pdb)$|\.dSYM/", re.IGNORECASE)
OURS = re.compile(r"(^|/)(linux-x64|linux-x86_64|linux/x86_64|linux/amd64)/", re.IGNORECASE)


def slim(source: Path, target: Path) -> None:
    """Copy the jar ``source`` to ``target``, entry by entry in the same order, with foreign natives left out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            if NATIVE.search(entry.filename) and not OURS.search(entry.filename):
                continue
            new.writestr(entry, old.read(entry))


if __name__ == "__main__":
    for jar in sorted(Path(sys.argv[1]).glob("*.jar")):
        slim(jar, Path(sys.argv[2]) / jar.name)
