"""Check stored jobs and a suite's inputs, manifest and verdicts by checksums and recomputation."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import filesystem, untrusted
from harness.driver import envelope
from harness.driver.records import Outcome, digest
from harness.errors import FileError, HarnessError
from harness.results import integrity_samples, integrity_updates, origins, pin_lock, reader, seals, suite_record
from harness.results.integrity_samples import Mismatch, Runs, as_text, below, differences
from harness.results.origins import JobOrigins
from harness.results.reader import StoredJob
from harness.results.schema import CLOCK_SLACK_S
from harness.untrusted import read_start, reason_of

_MAX_VERDICT_BYTES = 16 << 20


@dataclass(frozen=True)
class CheckedJob:
    """A job as far as it can be read, with its mismatches; ``sha256``: of its record."""

    folder: Path
    job: StoredJob | None
    mismatches: tuple[Mismatch, ...]
    sha256: str | None = None


def check_job(folder: Path, job_origins: JobOrigins, place: str, runs: Runs | None = None) -> CheckedJob:
    """Recompute everything that follows from a job's own files; a damaged file is a mismatch, never an error.

    Args:
        folder: the job's folder.
        job_origins: reads its origin.
        place: names the folder.
        runs: checks runs, and samples too; ``None``: only the record, the files' hashes and places are checked.
    """
    path = folder / reader.RESULT
    if not os.path.lexists(path):
        return CheckedJob(folder, None, (Mismatch(place, "files of a job", f"{reader.RESULT} beside them"),))
    try:
        result = reader.read_result(path)
        content = path.read_bytes()  # the record is correct, so it can be read again
        raw = json.loads(content)
        seal = seals.broken(raw)
        job = StoredJob(folder, result, job_origins.of_job(folder))
    except (HarnessError, OSError, ValueError) as error:
        return CheckedJob(folder, None, (Mismatch(f"{place}/{reader.RESULT}", _damaged(error), "a readable result"),))
    mismatches = [*_check_place(job, raw["spec"], place), *_check_files(job, place), *_check_record(job, place)]
    if seal:
        mismatches.append(Mismatch(f"{place}/{reader.RESULT}: seal", as_text(seal[0]), f"{seal[1]}, of what it says"))
    damaged = {mismatch.place for mismatch in mismatches}
    checks: dict[str, Callable[[StoredJob], Iterator[Mismatch]]] = {}
    if runs is not None:
        checks = {
            reader.SAMPLES: integrity_samples.check,
            reader.RUN: runs.check,
            reader.FIRST_STAGE: runs.check_first_stage,
            reader.UPDATED_RUN: runs.check_updated,
            reader.UPDATES: integrity_updates.check,
        }
    for name, check in checks.items():
        # Checking another file than the stored one would prove nothing.
        if f"{place}/{name}" not in damaged:
            mismatches += _run_check(name, check, job, place)
    return CheckedJob(folder, job, tuple(mismatches), hashlib.sha256(content).hexdigest())


def _run_check(
    name: str, check: Callable[[StoredJob], Iterator[Mismatch]], job: StoredJob, place: str
) -> Iterator[Mismatch]:
    """Yield a check's mismatches, including unreadable files."""
    try:
        for mismatch in check(job):
            yield replace(mismatch, place=f"{place}/{mismatch.place}")
    # Our readers raise HarnessError, pyarrow raises the others.
    except (HarnessError, OSError, ValueError, KeyError, TypeError) as error:
        yield Mismatch(f"{place}/{name}", _damaged(error), "what can be read")


def _check_place(job: StoredJob, spec: object, place: str) -> Iterator[Mismatch]:
    """Compare the key with the hash of the spec, and the folder with the cell."""
    key = digest(spec)[:16]
    if job.result.key != key:
        yield Mismatch(f"{place}/{reader.RESULT}: key", job.result.key, f"{key}, the hash of its spec")
    actual, expected = job.folder.absolute().parts, reader.cell_path(job.result.spec.cell) / job.result.key
    if actual[-len(expected.parts) :] != expected.parts:
        yield Mismatch(f"{place}: folder", str(Path(*actual[-6:])), f"{expected}, as its spec says")


def _check_record(job: StoredJob, place: str) -> Iterator[Mismatch]:
    """Compare fields of the record that repeat or bound each other."""
    result, where = job.result, f"{place}/{reader.RESULT}"
    ok, spec, index = result.outcome is Outcome.OK, result.spec, result.index
    measured, seen, sweep = result.measured, result.observed, result.provenance.sweep
    if index and index.resumed_s is not None and not 0 <= index.resumed_s <= index.build_s:
        yield Mismatch(f"{where}: index.resumed_s", f"{index.resumed_s}", f"0 to {index.build_s}")
    if ok and measured and measured.effective is not None:
        cpuset = seen.placement.cpuset if seen.placement else None
        for wrong in envelope.mismatches(spec.envelope, measured.effective, result.isolation.enforced, cpuset):
            yield Mismatch(f"{where}: measured.effective", wrong, "the limits of spec.envelope: the job ended ok")
    if ok and seen.exit_code not in (None, 0):
        yield Mismatch(f"{where}: observed.exit_code", f"{seen.exit_code}", "0: the job ended ok")
    if ok != (result.detail is None):
        follows = "a reason" if not ok else "no reason"
        yield Mismatch(f"{where}: detail", as_text(result.detail), f"{follows}: the job ended {result.outcome.value}")
    if seen.oom_kills and result.outcome is not Outcome.OOM:
        yield Mismatch(f"{where}: observed.oom_kills", f"{seen.oom_kills}", f"0: the job ended {result.outcome.value}")
    load_s = measured.load_s if measured else None
    if ok and load_s is not None and not 0 <= load_s <= result.wall_s + CLOCK_SLACK_S:
        yield Mismatch(f"{where}: measured.load_s", f"{load_s}", f"0 to {result.wall_s}, by wall_s")
    memory, peak = seen.memory, max(seen.memory.peak_anon_by_phase_bytes.values(), default=0)
    if memory.peak_anon_bytes is not None and peak > memory.peak_anon_bytes:
        follows = f"at least {peak}, by peak_anon_by_phase_bytes"
        yield Mismatch(f"{where}: observed.memory.peak_anon_bytes", f"{memory.peak_anon_bytes}", follows)
    for name, value in sweep.params.items() if sweep else ():
        if (planned := spec.params.get(name)) != value:
            yield Mismatch(
                f"{where}: provenance.sweep.params.{name}", as_text(value), f"{as_text(planned)}, by spec.params"
            )


def check_facts_between(checked: Sequence[CheckedJob], root: Path) -> Iterator[Mismatch]:
    """Compare the statements of several jobs about one corpus and one index."""
    stored: dict[tuple[str, str], tuple[int, Path]] = {}
    for job, folder in ((item.job, item.folder) for item in checked if item.job is not None):
        result, index = job.result, job.result.index
        facts = [("provenance.corpus_documents", result.spec.corpus_sha256, result.provenance.corpus_documents)]
        facts += [("index.index_bytes", index.content_sha256, index.index_bytes)] if index else []
        for name, sha256, number in facts:
            if number is None:
                continue
            other, first = stored.setdefault((name, sha256), (number, folder))
            if other != number:
                place = f"{below(root, folder)}/{reader.RESULT}: {name}"
                yield Mismatch(place, f"{number}", f"{other}, as {below(root, first)} says")


def _check_files(job: StoredJob, place: str) -> Iterator[Mismatch]:
    """Check that the record names all other files of its folder, each with its hash."""
    names = {entry.name for entry in filesystem.without_litter(job.folder.iterdir())} - {reader.RESULT}
    for name in sorted(names - job.result.files.keys()):
        yield Mismatch(f"{place}/{name}", "is there", f"no such file: {reader.RESULT} does not name it")
    for name, sha256 in sorted(job.result.files.items()):
        if Path(name).name != name:
            yield Mismatch(f"{place}/{reader.RESULT}: files", as_text(name), "names of files beside it")
            continue
        yield from _check_sha256(job.folder / name, f"{place}/{name}", sha256, f"its {reader.RESULT}")


def _check_sha256(path: Path, place: str, sha256: str, source: str, *, packed: bool = False) -> Iterator[Mismatch]:
    """Compare a file's content with the hash that a source names."""
    try:
        actual = untrusted.sha256(path, packed=packed)
    except (OSError, EOFError, zlib.error) as error:
        yield Mismatch(place, _damaged(error), f"a file of sha256 {sha256}")
    else:
        yield from _check_hash(place, actual, sha256, source)


def _check_hash(place: str, actual: str, sha256: str, source: str) -> Iterator[Mismatch]:
    if actual != sha256:
        yield Mismatch(place, f"sha256 {actual}", f"{sha256}, by {source}")


def _damaged(error: Exception) -> str:
    """Return an error's text without the remedy."""
    if isinstance(error, FileError):
        return str(error).rpartition("; ")[0] or str(error)
    return f"cannot be read: {as_text(reason_of(error))}"


def check_inputs(suite: Path, place: str) -> Iterator[Mismatch]:
    """Find input files whose content does not match the hash in their name."""
    for name, path in seals.input_files(suite).items():
        packed = seals.INPUT_FOLDERS[path.parent.name]
        yield from _check_sha256(path, f"{place}/{name}", path.name.partition(".")[0], "its name", packed=packed)


def check_manifest(suite: Path, root: Path, jobs: Mapping[Path, CheckedJob]) -> Iterator[Mismatch]:
    """Compare a suite's manifest with its jobs and files.

    Args:
        suite: its folder, absolute.
        root: base of printed paths; only jobs below it are checked.
        jobs: the jobs found, by their folders.
    """
    place, top = below(root, suite / seals.MANIFEST), root.absolute()
    present = {folder: checked.job for folder, checked in jobs.items() if folder.is_relative_to(suite)}
    try:
        sealed = seals.read(suite)
        fault = "no such file" if sealed is None else None
    except (OSError, ValueError) as error:
        sealed, fault = None, f"cannot be read: {reason_of(error)}"
    if sealed is None:
        yield Mismatch(place, str(fault), f"a list of the jobs of {suite.name}")
        return
    yield from _check_sealed_files(suite, root, sealed)
    listed = {suite / folder: seal for folder, seal in sealed.items() if not seals.names_file(folder)}
    for folder, seal in listed.items():
        # A run that ends meanwhile stores jobs that the folder listing missed.
        if folder not in present:
            if folder.is_relative_to(top) and not _exists(folder):
                follows = f"a job, by {seals.MANIFEST}; bring it back or strike it there"
                yield Mismatch(below(root, folder), "gone", follows)
        elif (job := present[folder]) is not None and job.result.seal not in (seal, None):
            yield Mismatch(below(root, folder), f"sealed {job.result.seal}", f"{seal}, by {seals.MANIFEST}")
    for folder in sorted(present.keys() - listed.keys()):
        if present[folder] is not None:
            yield Mismatch(below(root, folder), "is there", f"no such job: {seals.MANIFEST} does not list it")


def _check_sealed_files(suite: Path, root: Path, sealed: Mapping[str, str]) -> Iterator[Mismatch]:
    """Compare a suite's files with its manifest; :func:`check_inputs` compares inputs with their names."""
    listed = {name: sha256 for name, sha256 in sealed.items() if seals.names_file(name)}
    present = _suite_files(suite)
    for name, sha256 in listed.items():
        place = below(root, present.get(name, suite / name))
        if name not in present:
            yield Mismatch(place, "gone", f"a file, by {seals.MANIFEST}; bring it back, or run its suite again")
        elif name.partition("/")[0] in seals.INPUT_FOLDERS:
            yield from _check_hash(place, present[name].name.partition(".")[0], sha256, seals.MANIFEST)
        else:
            yield from _check_sha256(present[name], place, sha256, seals.MANIFEST)
    for name in sorted(present.keys() - listed.keys()) if listed else ():
        yield Mismatch(below(root, present[name]), "is there", f"no such file: {seals.MANIFEST} does not list it")


def _suite_files(suite: Path) -> dict[str, Path]:
    """Return a suite's files that reports use in addition to jobs, by their names in the manifest."""
    others = {name: suite / name for name in (suite_record.FILE, pin_lock.FILE)}
    others[seals.ORIGIN] = suite.parent / origins.FILE
    return {name: path for name, path in others.items() if os.path.lexists(path)} | seals.input_files(suite)


def _exists(job: Path) -> bool:
    try:
        return (job / reader.RESULT).exists()
    except OSError:  # an impossible file name
        return False


def check_verdicts(suite: Path, root: Path, jobs: Mapping[Path, CheckedJob]) -> Iterator[Mismatch]:
    """Check each verdict below ``root``; arguments as for :func:`check_manifest`."""
    for path in sorted(suite.glob(f"*/*/{reader.VERDICTS}/*.json")):
        if not path.is_relative_to(root.absolute()):
            continue
        place = below(root, path)
        try:
            raw = json.loads(read_start(path, _MAX_VERDICT_BYTES))
            if seal := seals.broken(raw):
                yield Mismatch(f"{place}: seal", as_text(seal[0]), f"{seal[1]}, of what it says")
            yield from _check_evidence(raw, place, suite, jobs)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            yield Mismatch(place, f"cannot be read: {reason_of(error)}", "a verdict")


def _check_evidence(
    raw: Mapping[str, Any], place: str, suite: Path, jobs: Mapping[Path, CheckedJob]
) -> Iterator[Mismatch]:
    """Compare the figures in a verdict with its jobs."""
    unconstrained = raw["unconstrained"]
    others = [*unconstrained["jobs"], *unconstrained["left_out"]]
    yield from differences(f"{place}: jobs", raw["jobs"], len(raw["evidence"]) + len(others))
    for folder in others:
        if not _exists(suite.parent / folder):
            yield Mismatch(f"{place}: unconstrained", as_text(folder), "a job that is there")
    for number, evidence in enumerate(raw["evidence"], start=1):
        folder = suite.parent / evidence["job"]
        if not _exists(folder):
            yield Mismatch(f"{place}: evidence {number}", as_text(evidence["job"]), "a job that is there")
        elif (checked := jobs.get(folder)) and checked.job is not None:
            result = checked.job.result
            follows = {
                "limit_bytes": result.spec.envelope.memory_bytes,
                "outcome": result.outcome.value,
                "peak_anon_bytes": result.observed.memory.peak_anon_bytes,
                "major_faults": result.observed.counters.major_faults,
            }
            yield from differences(f"{place}: evidence {number}", {name: evidence[name] for name in follows}, follows)
