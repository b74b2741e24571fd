"""Jobs of several origins -> one folder, whole or absent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness import leftovers, origins, seals
from harness.errors import FileError, HarnessError, StoreError, UsageError
from harness.merging.sources import Part, Progress, Source, gather
from harness.origins import Origin
from harness.untrusted import MOST_FILE_BYTES, read_whole
from harness.verifying import inputs

# Target below an origin's folder -> the job that goes there.
_Jobs = dict[Path, Part]


@dataclass(frozen=True)
class Merged:
    """What lies in the folder now; ``new`` is false where it lay there before."""

    origins: tuple[Origin, ...]
    new: bool


def merge(sources: Sequence[Source], out: Path, *, progress: Progress = lambda _done, _total: None) -> Merged:
    """Put results side by side; every checksum is verified before anything is written.

    Files are linked where the disk allows it, and copied elsewhere.  The folder is made beside ``out`` and renamed into
    place: a process that dies leaves no ``out``.

    Args:
        sources: where from; folders that were merged before keep their origins.
        out: the folder to make.  One that holds this very merge is left as it is.
        progress: told of each job that is verified.

    Raises:
        UsageError: two sources have different jobs of one key under one name, or ``out`` lies within a source.
        FileError: something is damaged, or ``out`` holds something else.
        StoreError: it cannot be written.
    """
    for source in sources:
        if out.resolve().is_relative_to(source.folder.resolve()) and out.resolve() != source.folder.resolve():
            raise UsageError(f"{out}: lies within {source.folder}, which is to be merged; name another -o")
    by_origin: dict[str, _Jobs] = {}
    for part in gather(sources, progress):
        _add(by_origin.setdefault(part.origin, {}), part)
    wanted = tuple(_origin(name, jobs) for name, jobs in sorted(by_origin.items()))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        _check_is(out, wanted)
        return Merged(wanted, new=False)
    _check_inputs(by_origin)
    try:
        with leftovers.scratch(out.absolute().parent, out.name) as scratch:
            whole = scratch / "merged"
            for origin in wanted:
                _write(whole / origin.name, by_origin[origin.name], origin)
            whole.replace(out)
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {error.strerror or error}; name another -o") from error
    return Merged(wanted, new=True)


def _add(jobs: _Jobs, part: Part) -> None:
    """Take a job once; another one under its name is somebody else's."""
    there = jobs.setdefault(part.target, part)
    if there.sha256 != part.sha256:
        raise UsageError(
            f"{part.target}: {there.folder} and {part.folder} are different jobs of one key under the origin "
            f"{part.origin!r}; keep them apart: give one of the two folders another NAME=FOLDER"
        )


def _origin(name: str, jobs: Mapping[Path, Part]) -> Origin:
    return Origin(
        name=name, jobs=len(jobs), sha256=origins.digest({str(target): part.sha256 for target, part in jobs.items()})
    )


def _check_is(out: Path, wanted: Sequence[Origin]) -> None:
    """Whether a folder holds exactly this merge."""
    found = []
    if out.is_dir():
        for folder in sorted(out.iterdir()):
            with suppress(HarnessError):
                found.append(origins.read(folder))
    if found != list(wanted):
        raise FileError(
            f"{out}: is there already and is not what these sources make; name another -o (a merged folder can be "
            "merged again, its origins keep their names)"
        )


def _check_inputs(by_origin: Mapping[str, _Jobs]) -> None:
    """Judgements and samples are what their names say; FileError."""
    needed = {path for jobs in by_origin.values() for part in jobs.values() for path in part.inputs}
    for suite in sorted({path.parent.parent for path in needed}):
        for mismatch in inputs.look(suite, str(suite)):
            if Path(mismatch.place) in needed:
                raise FileError(f"{mismatch}; nothing was written: bring it back or leave its folder out")


def _write(folder: Path, jobs: _Jobs, origin: Origin) -> None:
    for target, part in jobs.items():
        (folder / target).mkdir(parents=True)
        for name in part.files:
            _take(part.folder / name, folder / target / name)
        for path in part.inputs:
            kept = folder / target.parts[0] / path.parent.name / path.name
            if not kept.exists():
                kept.parent.mkdir(exist_ok=True)
                _take(path, kept)
    for suite in sorted({target.parts[0] for target in jobs}):
        listed = {
            str(target.relative_to(suite)): part.seal
            for target, part in sorted(jobs.items())
            if target.parts[0] == suite
        }
        (folder / suite / seals.MANIFEST).write_text(seals.text(listed), encoding="utf-8")
    (folder / origins.FILE).write_text(origins.text(origin), encoding="utf-8")


def _take(source: Path, target: Path) -> None:
    """Link a file, which nobody ever writes to again; copy it where the disk has no such links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        content = read_whole(source, MOST_FILE_BYTES)
        target.write_bytes(content)
        if hashlib.sha256(target.read_bytes()).digest() != hashlib.sha256(content).digest():
            raise StoreError(f"{target}: does not read back as it was written; see to the disk") from None
