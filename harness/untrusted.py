"""Reading what an untrusted job wrote: regular files only, never through a link, never more than makes sense."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from harness.measure.output import MAX_PROBES
from harness.records import JobSpec

_HIT_BYTES = 2048  # an id of 256 characters, escaped, and a score
_SAMPLE_BYTES = 4096
_FREE_BYTES = 16 << 20


def most_line_bytes(spec: JobSpec) -> int:
    """The longest honest line of ``samples.jsonl``."""
    return _SAMPLE_BYTES + spec.k * _HIT_BYTES


def most_samples(spec: JobSpec) -> int:
    """Queries that a job of this spec may ask, warm-up included."""
    return max(len(spec.warmup), spec.warmup_cap) + most_trials(spec) * len(spec.sample) + 2 * spec.repeats


def most_trials(spec: JobSpec) -> int:
    """Trials that a job of this spec may run; the ``server`` scenario's search ends when it ends."""
    return MAX_PROBES if spec.scenario == "server" else spec.trials


def most_output_bytes(spec: JobSpec) -> int:
    """What a job of this spec can honestly leave in ``out/``, generously."""
    return _FREE_BYTES + most_samples(spec) * most_line_bytes(spec)


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading.

    Raises:
        OSError: it is missing, a symbolic link, or no regular file (a pipe would block us).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no regular file")
    return os.fdopen(descriptor, "rb")


def lines_of(file: BinaryIO, longest: int) -> Iterator[bytes]:
    """Lines of at most ``longest`` bytes; a longer one comes cut, without its newline, and is the last."""
    while line := file.readline(longest):
        yield line
        if not line.endswith(b"\n"):
            return


def read_regular(path: Path, limit: int) -> bytes:
    """At most ``limit`` bytes of a regular file; OSError as :func:`open_regular`."""
    with open_regular(path) as file:
        return file.read(limit)


def plain(text: str) -> str:
    """Foreign text as one short line that no terminal obeys."""
    line = " ".join(text[:1000].split())[:500]
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)
