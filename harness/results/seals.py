"""Seals: a digest in each stored record, and a manifest of a suite's jobs and files, which reveal edits.

``result.json`` and verdicts hold the digest of all their other fields.  ``<suite>/manifest.txt`` lists each job with
its seal, and the suite's other files (``suite.json``, ``pins.json``, qrels, samples, ``origin.toml``) with the
SHA-256 of their content, so that lost files are named.  A person can forge both; an accident cannot.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import filesystem
from harness.driver.records import digest
from harness.results import origins, pin_lock, suite_record
from harness.untrusted import read_start, to_json

MANIFEST = "manifest.txt"
# The origin file of merged results as a manifest names it, one folder above.
ORIGIN = f"../{origins.FILE}"
# More than honest manifests have: a line is some 150 bytes.
MOST_BYTES = 64 << 20
_MOST_LINE_BYTES = 16 << 10
# Folders of a suite with files named by their content's hash, and whether the content is compressed.
INPUT_FOLDERS = {"qrels": True, "samples": False}
_SEAL = "seal"
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")
# A job's folder has five levels.
_RECORDS = "|".join(map(re.escape, (suite_record.FILE, pin_lock.FILE, ORIGIN)))
_FILE = re.compile(rf"{_RECORDS}|(?:{'|'.join(INPUT_FOLDERS)})/[^/]+")


def over(record: Any) -> str:
    """Return the seal for a record before it is stored."""
    return of(json.loads(to_json(record)))


def of(raw: Mapping[str, Any]) -> str:
    """Return the digest of a record's canonical text without its seal.

    Raises:
        ValueError: the record holds a value that JSON cannot express.
    """
    return digest({name: value for name, value in raw.items() if name != _SEAL})


def difference_of(broken: tuple[str, str]) -> str:
    """Say how a stored seal and the seal by the content differ."""
    return f"its seal is {broken[0][:12]}, and its content gives {broken[1][:12]}"


def broken(raw: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the stored and the computed seal if they differ; raises ValueError as :func:`of` does."""
    stored, follows = raw.get(_SEAL), of(raw)
    return None if stored == follows else ("no seal" if stored is None else str(stored), follows)


def read(suite: Path) -> dict[str, str] | None:
    """Read a suite's manifest: each job's seal, and each file's SHA-256, by its path below the suite's folder.

    ``None``: the manifest is missing.

    Raises:
        OSError: it cannot be read, or is not a regular file.
        ValueError: a line is damaged, or the file is too large for a manifest.
    """
    try:
        content = read_start(suite / MANIFEST, MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(content) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES >> 20} MiB")
    jobs = {}
    # A full disk may have cut the last line: its job is not listed.
    whole = content[: content.rfind(b"\n") + 1].decode("utf-8")
    for number, line in enumerate(whole.split("\n")[:-1], start=1):
        if not (entry := _LINE.fullmatch(line)):
            raise ValueError(f"line {number} is not a seal and a path")
        # The last line of a path counts: a job that was moved away can be measured again.
        jobs[entry[2]] = entry[1]
    return jobs


def input_files(suite: Path) -> dict[str, Path]:
    """Return a suite's qrels and query samples by their names in its manifest."""
    folders = (suite / name for name in INPUT_FOLDERS if (suite / name).is_dir())
    paths = (path for folder in folders for path in filesystem.without_litter(sorted(folder.iterdir())))
    return {path.relative_to(suite).as_posix(): path for path in paths}


def names_file(path: str) -> bool:
    """Return whether a manifest's path names a file of the suite; other paths name jobs."""
    return _FILE.fullmatch(path) is not None


def text(sealed: Mapping[str, str]) -> str:
    """Return the content of a manifest."""
    return "".join(f"{seal}  {path}\n" for path, seal in sealed.items())


def append(suite: Path, path: str, seal: str) -> None:
    """Add a line to a suite's manifest on disk, completely or not at all, replacing a cut line; raises OSError."""
    line = text({path: seal}).encode("utf-8")
    with (suite / MANIFEST).open("a+b", buffering=0) as file:
        size = file.tell()
        file.seek(max(0, size - _MOST_LINE_BYTES))
        tail = file.read()
        if cut := len(tail) - (tail.rfind(b"\n") + 1):
            size -= cut
            file.truncate(size)
        written = file.write(line)
        if written != len(line):
            file.truncate(size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file.fileno())
