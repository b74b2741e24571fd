"""What is merged: folders and the names of their origins -> jobs that are whole, each with its origin."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import origins, seals, stored_jobs
from harness.errors import FileError, UsageError
from harness.verifying import inputs, jobs

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Source:
    """A results folder, and how its origin is called; ``None``: as the folder, or as it was merged before."""

    folder: Path
    name: str | None = None


@dataclass(frozen=True)
class Part:
    """One job to take over: whose it is, where it goes below its origin, the hash of its record, and its seal."""

    origin: str
    target: Path
    folder: Path
    sha256: str
    seal: str
    files: tuple[str, ...]
    inputs: tuple[Path, ...]


def named(texts: Iterable[str]) -> tuple[Source, ...]:
    """Sources from ``FOLDER`` or ``NAME=FOLDER``; a folder that is given twice is taken once.

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
    """Every job of every source, verified to the last byte.

    Args:
        sources: where from.
        progress: told how many of how many jobs are done.

    Raises:
        FileError: a folder cannot be read, or something in it is damaged.
        UsageError: a folder holds no job, or several origins and is to have one name.
    """
    found = [(source, tuple(stored_jobs.result_paths(_folder(source)))) for source in sources]
    total, done = sum(len(paths) for _, paths in found), 0
    taken = {source.name for source in sources if source.name is not None}
    looked: list[tuple[Source, list[jobs.Looked]]] = []
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


def _intact(folder: Path, known: origins.Known) -> jobs.Looked:
    looked = jobs.look(folder, known, str(folder))
    if looked.mismatches:
        raise FileError(
            f"{looked.mismatches[0]}; nothing was written: `harness verify` names all that is wrong there, bring it "
            "back or leave it out"
        )
    return looked


def _all_there(root: Path, whole: Sequence[jobs.Looked]) -> None:
    """Raise FileError where a manifest and the jobs that lie there differ; a part of a suite may come without one."""
    by_folder = {each.folder.absolute(): each for each in whole}
    for suite in sorted({folder.parents[4] for folder in by_folder}):
        for mismatch in inputs.manifest(suite, root, by_folder) if (suite / seals.MANIFEST).exists() else ():
            raise FileError(f"{mismatch}; nothing was written: `harness verify {root}` names all")


def _parts(source: Source, whole: Sequence[jobs.Looked], taken: set[str]) -> Iterator[Part]:
    """The jobs of a source under the names that their origins get; these are added to ``taken``."""
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
            target=stored_jobs.cell_path(spec.cell) / each.job.result.key,
            folder=each.folder,
            sha256=each.sha256,
            seal=each.seal,
            files=(stored_jobs.RESULT, *sorted(each.job.result.files)),
            inputs=tuple(_inputs(each.folder.absolute().parents[4], (spec.qrels_sha256, spec.sample_sha256))),
        )


def _inputs(suite: Path, hashes: Sequence[str]) -> Iterator[Path]:
    """What judges a job, as far as it is there."""
    return (path for path, _ in inputs.files(suite) if path.name.partition(".")[0] in hashes)


def _free(folder: Path, taken: set[str]) -> str:
    """A name that nobody has yet, after the folder's."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-._")[:50] or "results"
    names = (base if number == 1 else f"{base}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)
