"""Package locks of engines: exact versions with hashes, and nothing else that pip would act on.

A requirements file may also hold URLs, paths and pip's options, with which pip builds a stranger's code on the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from harness.errors import FileError
from harness.untrusted import decode, one_line, read_whole, reading

# A package's name and version, as PEP 508 and PEP 440 write them.
NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
VERSION = r"[A-Za-z0-9](?:[A-Za-z0-9.!+_-]*[A-Za-z0-9])?"
_EXTRAS = rf"(?:\[{NAME}(?:, ?{NAME})*\])?"
# Without a hyphen: what follows one is an option for pip.
_MARKER = r"(?: ?; ?[A-Za-z0-9_ .'\"()<>=!]+?)?"
_LINE = re.compile(rf"({NAME}{_EXTRAS}=={VERSION}{_MARKER})((?: --hash=sha256:[0-9a-f]{{64}})+)")
_MAX_BYTES = 4 << 20


def read(path: Path) -> str:
    """Return a package lock as a file for pip: each requirement with its hashes on one line.

    Raises:
        FileError: the file cannot be read, or a line is not a pinned package; names the line.
    """
    with reading(path, "bring the file back"):
        text = decode(read_whole(path, _MAX_BYTES), path)
    requirements = []
    for number, line in _logical_lines(text):
        if not (match := _LINE.fullmatch(line)):
            raise FileError(
                f"{path}:{number}: {one_line(line, 80)!r} is not a pinned package; a lock may hold only lines like"
                " 'name==version --hash=sha256:...' (`uv pip compile --generate-hashes` writes them)"
            )
        requirements.append(match[0])
    return "".join(f"{line}\n" for line in requirements)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that says something, joined with the lines that continue it, and its number."""
    start, joined = 0, ""
    for number, line in enumerate([*text.split("\n"), ""], 1):  # the last ends what a line before it continues
        content = re.sub("(^| )#.*", "", line.strip(" \t\r"))
        start = start if joined else number
        joined += f" {content.removesuffix(chr(92))}"
        if content.endswith("\\"):
            continue
        if words := joined.strip(" "):
            yield start, re.sub(" +", " ", words)
        joined = ""
