"""Merge results of several people or machines into one folder, each under the name of its origin."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness import filesystem
from harness.errors import FileError, HarnessError, StoreError, UsageError
from harness.progress import Progress, silent
from harness.results import integrity, origins, reader, seals
from harness.results.origins import Origin
from harness.untrusted import MAX_FILE_BYTES, read_whole


@dataclass(frozen=True)
class Source:
    """A results folder and the name of its origin; ``None``: the folder's name, or that of an earlier merge."""

    folder: Path
    name: str | None = None


@dataclass(frozen=True)
class Part:
    """One job to merge: its origin, its place below it, its files, and the hash and seal of its record."""

    origin: str
    target: Path
    folder: Path
    sha256: str
    seal: str
    files: tuple[str, ...]
    inputs: tuple[Path, ...]


def named(texts: Iterable[str]) -> tuple[Source, ...]:
    """Parse sources (``FOLDER`` or ``NAME=FOLDER``); a folder given twice counts once.

    Raises:
        UsageError: an origin cannot have such a name.
    """
    found: dict[tuple[Path, str | None], Source] = {}
    for text in texts:
        name, mark, rest = text.partition("=")
        # A folder may have such a sign in its own name.
        source = Source(Path(rest), name) if mark and not Path(text).is_dir() else Source(Path(text))
        if source.name is not None and not origins.valid(source.name):
            raise UsageError(f"{text!r}: {name!r} is no name of an origin; write letters, digits, '.', '_' and '-'")
        found.setdefault((source.folder.resolve(), source.name), source)
    return tuple(found.values())


def gather(sources: Sequence[Source], progress: Progress) -> list[Part]:
    """Return every job of every source, verified to the last byte.

    Raises:
        FileError: a folder cannot be read, or something in it is damaged.
        UsageError: a folder holds no job, or several origins and is to have one name.
    """
    found = [(source, tuple(reader.result_paths(_folder(source)))) for source in sources]
    total, done = sum(len(paths) for _, paths in found), 0
    taken = {source.name for source in sources if source.name is not None}
    looked: list[tuple[Source, list[integrity.CheckedJob]]] = []
    for source, paths in found:
        if not paths:
            raise UsageError(
                f"{source.folder}: no stored job in it; leave it out, or give the folder that holds results"
            )
        known, whole = origins.Known(), []
        for path in sorted(paths):
            whole.append(_intact(path.parent, known))
            done += 1
            progress(done, total)
        _all_there(source.folder, whole)
        looked.append((source, whole))
        taken |= {each.job.origin for each in whole if each.job is not None and each.job.origin is not None}
    parts: list[Part] = []
    for source, whole in looked:
        parts += _parts(source, whole, taken)
    return parts


def _folder(source: Source) -> Path:
    if not source.folder.is_dir():
        raise FileError(f"{source.folder}: no such folder; give one that holds results, or NAME=FOLDER")
    return source.folder


def _intact(folder: Path, known: origins.Known) -> integrity.CheckedJob:
    looked = integrity.check_jobs(folder, known, str(folder))
    if looked.mismatches:
        raise FileError(
            f"{looked.mismatches[0]}; nothing was written: `harness verify` names all that is wrong there, bring it "
            "back or leave it out"
        )
    return looked


def _all_there(root: Path, whole: Sequence[integrity.CheckedJob]) -> None:
    """Raise FileError where a manifest and the jobs that lie there differ; a part of a suite may come without one."""
    by_folder = {each.folder.absolute(): each for each in whole}
    for suite in sorted({folder.parents[4] for folder in by_folder}):
        for mismatch in integrity.manifest(suite, root, by_folder) if (suite / seals.MANIFEST).exists() else ():
            raise FileError(f"{mismatch}; nothing was written: `harness verify {root}` names all")


def _parts(source: Source, whole: Sequence[integrity.CheckedJob], taken: set[str]) -> Iterator[Part]:
    """Return a source's jobs under the names of their origins, which are added to ``taken``."""
    before = {each.job.origin for each in whole if each.job is not None}
    if source.name is not None and len(before) > 1:
        listed = ", ".join(sorted(name or "jobs of no origin" for name in before))
        raise UsageError(
            f"{source.name}={source.folder}: holds several origins ({listed}), which keep their names; give it without "
            "a name, or one of its folders with one"
        )
    name = source.name
    if name is None and None in before:
        name = _free(source.folder, taken)
        taken.add(name)
    for each in whole:
        assert each.job is not None and each.sha256 is not None and each.seal is not None, "it is intact"
        origin = source.name or each.job.origin or name
        assert origin is not None
        spec = each.job.result.spec
        yield Part(
            origin=origin,
            target=reader.cell_path(spec.cell) / each.job.result.key,
            folder=each.folder,
            sha256=each.sha256,
            seal=each.seal,
            files=(reader.RESULT, *sorted(each.job.result.files)),
            inputs=tuple(_inputs(each.folder.absolute().parents[4], (spec.qrels_sha256, spec.sample_sha256))),
        )


def _inputs(suite: Path, hashes: Sequence[str]) -> Iterator[Path]:
    """Return the qrels and sample files of a job that exist."""
    return (path for path, _ in integrity.files(suite) if path.name.partition(".")[0] in hashes)


def _free(folder: Path, taken: set[str]) -> str:
    """Return a free name, made from the folder's."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-._")[:50] or "results"
    names = (base if number == 1 else f"{base}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


# Target below an origin's folder -> the job that goes there.
_Jobs = dict[Path, Part]


@dataclass(frozen=True)
class Merged:
    """The origins in the merged folder; ``new`` is false if it existed before."""

    origins: tuple[Origin, ...]
    new: bool


def merge(sources: Sequence[Source], out: Path, *, progress: Progress = silent) -> Merged:
    """Merge results; every checksum is verified before anything is written.

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
        with filesystem.scratch_folder(out.absolute().parent, out.name) as scratch:
            whole = scratch / "merged"
            for origin in wanted:
                _write(whole / origin.name, by_origin[origin.name], origin)
            whole.replace(out)
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {error.strerror or error}; name another -o") from error
    return Merged(wanted, new=True)


def _add(jobs: _Jobs, part: Part) -> None:
    """Add a job once; refuse another job of its key."""
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
    """Raise FileError unless a folder holds exactly this merge."""
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
    """Raise FileError unless qrels and samples have the hashes in their names."""
    needed = {path for jobs in by_origin.values() for part in jobs.values() for path in part.inputs}
    for suite in sorted({path.parent.parent for path in needed}):
        for mismatch in integrity.check_inputs(suite, str(suite)):
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
    """Link a file, which never changes; copy it where the disk has no such links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        content = read_whole(source, MAX_FILE_BYTES)
        target.write_bytes(content)
        if hashlib.sha256(target.read_bytes()).digest() != hashlib.sha256(content).digest():
            raise StoreError(f"{target}: does not read back as it was written; see to the disk") from None
