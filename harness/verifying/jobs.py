"""One stored job: its record, its files by checksum, its place, and the facts in it that follow from others."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import attempts, origins, seals, stored_jobs
from harness.errors import FileError, HarnessError
from harness.measure import envelope
from harness.records import Outcome, digest
from harness.stored_jobs import StoredJob
from harness.untrusted import sha256_of
from harness.verifying import samples
from harness.verifying.mismatch import Mismatch, below, shown
from harness.verifying.runs import Runs

_FILES = frozenset({stored_jobs.SAMPLES, stored_jobs.RUN, stored_jobs.LOG})


@dataclass(frozen=True)
class Looked:
    """A job as far as it can be read, and what in it does not follow; ``sha256`` and ``seal`` are its record's."""

    folder: Path
    job: StoredJob | None
    mismatches: tuple[Mismatch, ...]
    sha256: str | None = None
    seal: str | None = None


def is_one(names: frozenset[str]) -> bool:
    """Whether files of these names are a stored job's, or what is left of one."""
    return stored_jobs.RESULT in names or bool(names & _FILES)


def look(folder: Path, known: origins.Known, place: str, runs: Runs | None = None) -> Looked:
    """Recompute whatever can be of the job that lies there; damaged files are mismatches, never errors.

    Args:
        folder: the job's.
        known: says whose it is.
        place: names the folder.
        runs: checks runs, and samples are checked too; ``None``: the record, files' hashes and places are enough.
    """
    path = folder / stored_jobs.RESULT
    if not os.path.lexists(path):
        return Looked(folder, None, (Mismatch(place, "files of a job", f"{stored_jobs.RESULT} beside them"),))
    try:
        result = stored_jobs.read_result(path)
        content = path.read_bytes()  # it is as it should be, so it can be read again
        raw = json.loads(content)
        seal = seals.broken(raw)
        job = StoredJob(folder, result, known.of_job(folder))
        attempts.started(job)
    except (HarnessError, OSError, ValueError) as error:
        return Looked(folder, None, (Mismatch(f"{place}/{stored_jobs.RESULT}", _damaged(error), "a readable result"),))
    found = [*_place(job, raw["spec"], place), *_files(job, place), *_said_twice(job, place)]
    if seal:
        found.append(Mismatch(f"{place}/{stored_jobs.RESULT}: seal", shown(seal[0]), f"{seal[1]}, of what it says"))
    damaged = {mismatch.place for mismatch in found}
    checks: dict[str, samples.Check] = (
        {} if runs is None else {stored_jobs.SAMPLES: samples.check, stored_jobs.RUN: runs.check}
    )
    for name, check in checks.items():
        # What is said of the content of a file that is not the one that was stored says nothing.
        if f"{place}/{name}" not in damaged:
            found += _guarded(name, job, place, check)
    return Looked(folder, job, tuple(found), hashlib.sha256(content).hexdigest(), result.seal)


def _guarded(name: str, job: StoredJob, place: str, check: samples.Check) -> list[Mismatch]:
    """What a check finds; what it cannot read is a finding too."""
    found = []
    try:
        for what, stored, follows in check(job):
            found.append(Mismatch(f"{place}/{what}", stored, follows))
    # HarnessError: what our readers say; the others are pyarrow's.
    except (HarnessError, OSError, ValueError, KeyError, TypeError) as error:
        found.append(Mismatch(f"{place}/{name}", _damaged(error), "what can be read"))
    return found


def _place(job: StoredJob, spec: object, place: str) -> Iterator[Mismatch]:
    """The key is the hash of the spec as it was written, of whatever version; and the folder says what was measured."""
    key = digest(spec)[:16]
    if job.result.key != key:
        yield Mismatch(f"{place}/{stored_jobs.RESULT}: key", job.result.key, f"{key}, the hash of its spec")
    lies, belongs = job.folder.absolute(), stored_jobs.cell_path(job.result.spec.cell) / job.result.key
    if lies.parts[-len(belongs.parts) :] != belongs.parts:
        yield Mismatch(f"{place}: folder", str(Path(*lies.parts[-6:])), f"{belongs}, as its spec says")
    index = job.result.index
    if index and index.resumed_s is not None and not 0 <= index.resumed_s <= index.build_s:
        yield Mismatch(f"{place}/{stored_jobs.RESULT}: index.resumed_s", f"{index.resumed_s}", f"0 to {index.build_s}")


def _said_twice(job: StoredJob, place: str) -> Iterator[Mismatch]:
    """Compare fields of the record that say the same thing, or bound each other."""
    result, where = job.result, f"{place}/{stored_jobs.RESULT}"
    ok, spec, memory = result.outcome is Outcome.OK, result.spec, result.memory
    if ok and result.effective is not None:
        cpuset = result.placement.cpuset if result.placement else None
        for wrong in envelope.mismatches(spec.envelope, result.effective, spec.isolation, cpuset):
            yield Mismatch(f"{where}: effective", wrong, "the limits of spec.envelope: the job ended ok")
    if ok and result.exit_code not in (None, 0):
        yield Mismatch(f"{where}: exit_code", f"{result.exit_code}", "0: the job ended ok")
    if ok != (result.detail is None):
        yield Mismatch(f"{where}: detail", shown(result.detail), f"what belongs to outcome {result.outcome.value}")
    if result.oom_kills and result.outcome is not Outcome.OOM:
        yield Mismatch(f"{where}: oom_kills", f"{result.oom_kills}", f"0: the job ended {result.outcome.value}")
    if ok and result.load_s is not None and not 0 <= result.load_s <= result.wall_s + samples.CLOCK_SLACK_S:
        yield Mismatch(f"{where}: load_s", f"{result.load_s}", f"0 to {result.wall_s}, by wall_s")
    phases = memory.peak_anon_by_phase_bytes.values()
    if phases and memory.peak_anon_bytes is not None and max(phases) > memory.peak_anon_bytes:
        follows = f"at least {max(phases)}, by peak_anon_by_phase_bytes"
        yield Mismatch(f"{where}: memory.peak_anon_bytes", f"{memory.peak_anon_bytes}", follows)


def between(looked: Sequence[Looked], root: Path) -> Iterator[Mismatch]:
    """Compare what several jobs say of one corpus, and of one index."""
    said: dict[tuple[str, str], tuple[int, Path]] = {}
    for each in looked:
        if each.job is None:
            continue
        result, index = each.job.result, each.job.result.index
        facts = [("corpus_documents", result.spec.corpus_sha256, result.corpus_documents)]
        facts += [("index.index_bytes", index.content_sha256, index.index_bytes)] if index else []
        for name, sha256, number in facts:
            if number is None:
                continue
            other, folder = said.setdefault((name, sha256), (number, each.folder))
            if other != number:
                place = f"{below(root, each.folder)}/{stored_jobs.RESULT}: {name}"
                yield Mismatch(place, f"{number}", f"{other}, as {below(root, folder)} says")


def _files(job: StoredJob, place: str) -> Iterator[Mismatch]:
    """The files beside the record are those that it names, to the last byte."""
    names = {entry.name for entry in job.folder.iterdir()} - {stored_jobs.RESULT}
    for name in sorted(names - job.result.files.keys()):
        yield Mismatch(f"{place}/{name}", "is there", f"no such file: {stored_jobs.RESULT} does not name it")
    for name, sha256 in sorted(job.result.files.items()):
        if Path(name).name != name:
            yield Mismatch(f"{place}/{stored_jobs.RESULT}: files", shown(name), "names of files beside it")
            continue
        try:
            actual = sha256_of(job.folder / name)
        except OSError as error:
            yield Mismatch(f"{place}/{name}", _damaged(error), f"a file of sha256 {sha256}")
            continue
        if actual != sha256:
            yield Mismatch(f"{place}/{name}", f"sha256 {actual}", f"{sha256}, by its {stored_jobs.RESULT}")


def _damaged(error: Exception) -> str:
    """An error in short: without the remedy that our own end in."""
    if isinstance(error, FileError):
        return str(error).rpartition("; ")[0] or str(error)
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"cannot be read: {shown(' '.join(text.split()))}"
