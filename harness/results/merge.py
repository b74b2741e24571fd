"""Merge results of several people or machines into one folder, each under its origin's name."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import filesystem
from harness.commands import quoted
from harness.errors import FileError, StoreError, UsageError
from harness.progress import Progress, silent
from harness.results import integrity, origins, pin_lock, reader, seals, suite_record
from harness.results.origins import JobOrigins, Origin
from harness.results.pin_lock import PinLock
from harness.results.reader import StoredJob
from harness.untrusted import MAX_FILE_BYTES, read_whole, reason_of


@dataclass(frozen=True)
class Source:
    """A results folder and its origin's name; ``None``: the folder's name, or the name from an earlier merge."""

    folder: Path
    name: str | None = None


# Target below an origin's folder -> the job that goes there, and the hash of its record.
_Jobs = dict[Path, tuple[StoredJob, str]]


def parse_sources(texts: Iterable[str]) -> tuple[Source, ...]:
    """Parse sources (``FOLDER`` or ``NAME=FOLDER``); a repeated folder counts once.

    Raises:
        UsageError: a name is not valid for an origin.
    """
    sources: dict[tuple[Path, str | None], Source] = {}
    for text in texts:
        name, mark, rest = text.partition("=")
        # A folder's own name may contain the sign.
        source = Source(Path(rest), name) if mark and not Path(text).is_dir() else Source(Path(text))
        if source.name is not None and not origins.is_valid_name(source.name):
            raise UsageError(f"{text!r}: {name!r} {origins.NAME_FAULT}")
        sources.setdefault((source.folder.resolve(), source.name), source)
    return tuple(sources.values())


def merge(sources: Sequence[Source], out: Path, *, progress: Progress = silent) -> tuple[Origin, ...]:
    """Merge results; every checksum is verified before anything is written.

    Files are linked if the disk allows it, else copied.  The folder is written next to ``out`` and renamed, so that a
    dying process leaves no ``out``.

    Args:
        sources: the folders to merge; folders from an earlier merge keep their origins.
        out: the new folder.
        progress: called with the numbers of verified jobs and of all jobs.

    Returns:
        The origins of the merged folder.

    Raises:
        UsageError: a folder has no job; two sources have different jobs of one key under one name; a source with a name
            has several origins; or ``out`` is a folder within a source.
        FileError: a source is damaged, or ``out`` holds files.
        StoreError: ``out`` cannot be written.
    """
    for source in sources:
        if out.resolve().is_relative_to(source.folder.resolve()) and out.resolve() != source.folder.resolve():
            raise UsageError(f"{out}: is a folder within {source.folder}, which is to be merged; name another -o")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileError(f"{out}: exists already and holds files; name another -o")
    by_origin: dict[str, _Jobs] = {}
    for name, job, sha256 in _read_sources(sources, progress):
        jobs, target = by_origin.setdefault(name, {}), reader.cell_path(job.result.spec.cell) / job.result.key
        other, other_sha256 = jobs.setdefault(target, (job, sha256))
        if other_sha256 != sha256:
            folders = f"{other.folder} and {job.folder}"
            raise UsageError(f"{folders} are different jobs of one key under {name!r}; name one of them NAME=FOLDER")
    merged_origins = tuple(
        Origin(name=name, jobs=len(jobs), sha256=origins.digest({str(at): sha256 for at, (_, sha256) in jobs.items()}))
        for name, jobs in sorted(by_origin.items())
    )
    _check_inputs(by_origin)
    for jobs in by_origin.values():
        _locks(jobs)  # this fails before anything is written
    try:
        with filesystem.scratch_folder(out.absolute().parent, out.name) as scratch:
            whole = scratch / "merged"
            for origin in merged_origins:
                _write(whole / origin.name, by_origin[origin.name], origin)
            whole.replace(out)
    except OSError as error:
        raise StoreError(f"{out}: cannot be written: {reason_of(error)}; name another -o") from error
    return merged_origins


def _read_sources(sources: Sequence[Source], progress: Progress) -> Iterator[tuple[str, StoredJob, str]]:
    """Yield every job of every source with its origin's name and its record's hash, after verifying all bytes."""
    for source in sources:
        if not source.folder.is_dir():
            there = "is a file" if source.folder.exists() else "does not exist"
            raise FileError(f"{source.folder}: {there}; give a folder that holds results, or NAME=FOLDER")
    paths = {source: sorted(reader.result_paths(source.folder)) for source in sources}
    total, done = sum(map(len, paths.values())), 0
    by_source: dict[Source, list[tuple[StoredJob, str]]] = {}
    for source in sources:
        if not paths[source]:
            raise UsageError(f"{source.folder}: holds no stored job; leave it out, or give a folder of results")
        job_origins, checked = JobOrigins(), []
        for path in paths[source]:
            checked.append(integrity.check_job(path.parent, job_origins, str(path.parent)))
            for mismatch in checked[-1].mismatches:
                raise FileError(f"{mismatch}; nothing was written: {quoted('verify', source.folder)} names all")
            done += 1
            progress(done, total)
        _check_manifests(source.folder, checked)
        by_source[source] = [(item.job, item.sha256) for item in checked if item.job and item.sha256]
    taken = {source.name for source in sources if source.name is not None}
    taken |= {job.origin for jobs in by_source.values() for job, _ in jobs if job.origin}
    for source, jobs in by_source.items():
        earlier = {job.origin for job, _ in jobs}
        if source.name is not None and len(earlier) > 1:
            listed = ", ".join(sorted(name or "jobs of no origin" for name in earlier))
            given = f"{source.name}={source.folder}"
            raise UsageError(
                f"{given}: holds several origins ({listed}), which keep their names; remove {source.name}="
            )
        name = source.name or _free_name(source.folder, taken)
        if None in earlier:
            taken.add(name)
        yield from ((source.name or job.origin or name, job, sha256) for job, sha256 in jobs)


def _check_manifests(root: Path, checked: Sequence[integrity.CheckedJob]) -> None:
    """Raise FileError if a manifest and the present jobs differ; a part of a suite may lack a manifest."""
    by_folder = {item.folder.absolute(): item for item in checked}
    for suite in sorted({folder.parents[4] for folder in by_folder}):
        for mismatch in integrity.check_manifest(suite, root, by_folder) if (suite / seals.MANIFEST).exists() else ():
            raise FileError(f"{mismatch}; nothing was written: {quoted('verify', root)} names all")


def _free_name(folder: Path, taken: set[str]) -> str:
    """Return a free name, derived from the folder's."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-._")[:50] or "results"
    names = (base if number == 1 else f"{base}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


def _check_inputs(by_origin: Mapping[str, _Jobs]) -> None:
    """Raise FileError unless qrels and samples have the hashes in their names."""
    needed = {path for jobs in by_origin.values() for job, _ in jobs.values() for path in _inputs(job)}
    for suite in sorted({path.parent.parent for path in needed}):
        for mismatch in integrity.check_inputs(suite, str(suite)):
            if Path(mismatch.place) in needed:
                raise FileError(f"{mismatch}; nothing was written: bring it back or leave its folder out")


def _inputs(job: StoredJob) -> tuple[Path, ...]:
    """Return the qrels, sample and positions files of a job that exist."""
    spec, suite = job.result.spec, job.suite_folder
    positions = suite_record.read_positions_path(suite, spec.cell.dataset)
    names = (spec.qrels_sha256, spec.sample_sha256)
    files = seals.input_files(suite).values()
    return tuple(path for path in files if path == positions or path.name.partition(".")[0] in names)


def _write(folder: Path, jobs: _Jobs, origin: Origin) -> None:
    listed: dict[str, dict[str, str]] = {}
    for target, (job, _) in sorted(jobs.items()):
        result, suite = job.result, target.parts[0]
        listed.setdefault(suite, {})[str(target.relative_to(suite))] = str(result.seal)
        (folder / target).mkdir(parents=True)
        for name in (reader.RESULT, *result.files):
            _take(job.folder / name, folder / target / name)
        for path in _inputs(job):
            kept = folder / suite / path.parent.name / path.name
            if not kept.exists():
                kept.parent.mkdir(exist_ok=True)
                _take(path, kept)
                listed[suite][f"{path.parent.name}/{path.name}"] = path.name.partition(".")[0]
        record, kept = job.suite_folder / suite_record.FILE, folder / suite / suite_record.FILE
        if record.is_file() and not kept.exists():
            content = read_whole(record, suite_record.MOST_BYTES)
            kept.write_bytes(content)  # a run may change the source
            listed[suite][suite_record.FILE] = hashlib.sha256(content).hexdigest()
    for suite, lock in _locks(jobs).items():
        content = pin_lock.content(lock)
        (folder / suite / pin_lock.FILE).write_bytes(content)
        listed[suite][pin_lock.FILE] = hashlib.sha256(content).hexdigest()
    about = origins.text(origin).encode("utf-8")
    for suite, sealed in listed.items():
        sealed[seals.ORIGIN] = hashlib.sha256(about).hexdigest()
        (folder / suite / seals.MANIFEST).write_text(seals.text(sealed), encoding="utf-8")
    (folder / origins.FILE).write_bytes(about)


def _locks(jobs: _Jobs) -> dict[str, PinLock]:
    """Return the pins at first use of each suite, from all folders of its jobs.

    Raises:
        UsageError: two folders have different pins of one system.
        FileError: one is damaged.
    """
    locks: dict[str, PinLock] = {}
    folders = {job.suite_folder: target.parts[0] for target, (job, _) in jobs.items()}
    for folder, suite in sorted(folders.items()):
        joined = locks.get(suite, PinLock()).joined(pin_lock.read(folder))
        if joined is None:
            path = folder / pin_lock.FILE
            raise UsageError(f"{path}: pins other bytes than another folder of this origin; name one NAME=FOLDER")
        locks[suite] = joined
    return {suite: lock for suite, lock in locks.items() if lock.systems}


def _take(source: Path, target: Path) -> None:
    """Link a file, because it never changes; copy it if the disk has no hard links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        content = read_whole(source, MAX_FILE_BYTES)
        target.write_bytes(content)
        if target.read_bytes() != content:
            raise StoreError(f"{target}: does not read back as it was written; see to the disk") from None
