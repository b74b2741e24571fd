"""Check stored results against each other: list what does not follow.

Written reports are not checked: ``harness report`` makes them again from the results.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from harness.analysis import passport, published_measures
from harness.analysis import published as published_tables
from harness.commands import quoted
from harness.errors import FileError, UsageError, counted, listed
from harness.progress import Progress, silent
from harness.report import study
from harness.report.document import Escape, ReportDocument, Section, lines_of
from harness.results import foreign, integrity, origins, pin_lock, reader, seals, suite_record
from harness.results.integrity_samples import Mismatch, Runs, below, differences

# Files of a suite, and next to suites, that hold no figure.
_MARKS = frozenset({seals.MANIFEST, suite_record.FILE, pin_lock.FILE, ".lock"})


@dataclass(frozen=True)
class Verified:
    """Result of a verification: the checked files in words, the mismatches, and notes on what was not checked."""

    looked_at: str
    mismatches: tuple[Mismatch, ...]
    notes: tuple[str, ...] = ()


# The most mismatches that people see first.
_MOST = 20


def verification_document(looked_at: str, mismatches: Sequence[Mismatch], notes: Sequence[str] = ()) -> ReportDocument:
    """Return the report on a verification: each mismatch, what was not checked, then the number of mismatches."""

    def section(escape: Escape, most: int) -> Section:
        lines = [f"fail  {escape(str(mismatch))}" for mismatch in mismatches[:most]]
        lines += [f"{len(mismatches) - most:,} more: --wide"] if len(mismatches) > most else []
        lines += [f"note  {escape(note)}" for note in notes]
        do = "does" if len(mismatches) == 1 else "do"
        total = f"{len(mismatches):,} {do} not follow" if mismatches else "all follows"
        return Section(notes=(*lines, f"{looked_at}: {total}"))

    return ReportDocument(
        sections=lambda escape: (section(escape, len(mismatches)),),
        lines=lambda: lines_of(mismatches, [(name, attrgetter(name)) for name in ("place", "stored", "follows")]),
        content=lambda: {
            "looked_at": looked_at,
            "mismatches": [dataclasses.asdict(each) for each in mismatches],
            "notes": list(notes),
        },
        answer=lambda escape: (section(escape, _MOST),),
        plain=True,
    )


def verify_results(root: Path, progress: Progress = silent) -> Verified:
    """Recompute every checksum and seal, and every fact that follows from others.

    Args:
        root: a results folder, or one of published tables.
        progress: counts the checked jobs.

    Raises:
        UsageError: there is nothing in it.
        FileError: it is not a folder, or a file of published tables is wrong.
    """
    if passport.is_in(root):
        return _passports(root)
    if not root.is_dir():
        raise FileError(f"{root}: no results here; give the folder that holds them")
    if published_tables.is_in(root):
        return Verified("published tables", tuple(check_published(root)))
    jobs, unreadable, others = _find(root)
    suites = sorted({folder.absolute().parents[4] for folder in jobs} | _suites(root))
    if not jobs and not unreadable and not suites:
        raise UsageError(f"{root}: no stored job in it; give the folder that holds results")
    job_origins, runs, checked = origins.JobOrigins(), Runs(), []
    for number, folder in enumerate(jobs, start=1):
        checked.append(integrity.check_job(folder, job_origins, below(root, folder), runs))
        progress(number, len(jobs))
    stray = [Mismatch(published_tables.NAME, "is there", "no such file: this folder has stored jobs")]
    mismatches = [
        *unreadable,
        *(stray if published_tables.stray(root) else ()),
        *(mismatch for job in checked for mismatch in job.mismatches),
    ]
    mismatches += integrity.check_facts_between(checked, root)
    by_folder = {job.folder.absolute(): job for job in checked}
    for suite in suites:
        mismatches += integrity.check_inputs(suite, below(root, suite))
        mismatches += integrity.check_manifest(suite, root, by_folder)
        mismatches += integrity.check_verdicts(suite, root, by_folder)
    mismatches += [*_origins(root, checked), *_foreign(root)]
    readable = tuple(job.job for job in checked if job.job is not None)
    files = sum(len(job.result.files) + 1 for job in readable)
    return Verified(f"{len(jobs):,} jobs, {files:,} files", tuple(mismatches), _notes(root, suites, others))


def _foreign(root: Path) -> Iterator[Mismatch]:
    """Yield the fault of a file with figures of others; whether they are true, nothing here can say."""
    try:
        foreign.read(root)
    except FileError as error:
        yield Mismatch(foreign.FILE, str(error).removeprefix(f"{root / foreign.FILE}: "), "what harness import wrote")


def _passports(root: Path) -> Verified:
    """Check the seals of passports, and say what they can prove."""
    mismatches, keys, entries = [], list[str](), passport.entries(root)
    count = len(entries)
    for path, number, raw in entries:
        if (broken := passport.broken_seal(raw)) is not None:
            mismatches.append(Mismatch(f"{path.name}: entry {number}: seal", *broken))
        else:
            keys.append(passport.read_entry(path, number, raw).harness.hashes.key)
    keys = list(dict.fromkeys(key[:12] for key in keys))
    notes = (
        "a seal proves that nothing changed by accident since the export; a person can seal any figure",
        "no samples are here: `harness verify` recomputes the figures in the results folder that has the key",
        f"the same job, measured anywhere, has the key {listed(keys)}" if keys else "",
    )
    return Verified(f"{counted(count, 'passport')}, the seals alone", tuple(mismatches), tuple(filter(None, notes)))


def _notes(root: Path, suites: Collection[Path], others: Sequence[Path]) -> tuple[str, ...]:
    """Say which files were not checked, or only in part."""
    homes = {suite.parent for suite in suites}
    names = [below(root, path) for path in others if not _is_mark(path.absolute(), root, suites, homes)]
    return (f"not checked: {listed(names)}; {quoted('report')} makes a report again",) if names else ()


def _is_mark(path: Path, root: Path, suites: Collection[Path], homes: Collection[Path]) -> bool:
    """Return whether a file is checked with its suite; in another place the same name says nothing."""
    if path.name == foreign.FILE and path.parent == root.absolute():
        return True
    beside = path.name in (origins.FILE, published_tables.NAME)  # the latter is a mismatch
    return (path.name in _MARKS and path.parent in suites) or (beside and path.parent in homes)


def _find(root: Path) -> tuple[list[Path], list[Mismatch], list[Path]]:
    """Return the folders of jobs, a mismatch for each unreadable folder, and the files that belong to no job."""
    errors: list[FileError] = []
    jobs, others = [], []
    for folder, entries in reader.folders(str(root), errors):
        if reader.is_job(frozenset(entry.name for entry in entries)):
            jobs.append(Path(folder))
        elif Path(folder).absolute().name not in (*seals.INPUT_FOLDERS, reader.VERDICTS):
            loose = (entry for entry in entries if not entry.is_dir(follow_symlinks=False))
            others += [Path(entry.path) for entry in loose]
    unreadable = []
    for error in errors:
        folder, _, why = str(error).rpartition("; ")[0].partition(": ")
        unreadable.append(Mismatch(folder, why, "a folder"))
    return sorted(jobs), unreadable, sorted(others)


def _suites(root: Path) -> set[Path]:
    """Return the suites with a manifest or a record, even if all their jobs are gone."""
    names = (seals.MANIFEST, suite_record.FILE, pin_lock.FILE)
    patterns = (f"{above}{name}" for name in names for above in ("", "*/", "*/*/"))
    return {path.parent.absolute() for pattern in patterns for path in root.glob(pattern)}


def _origins(root: Path, checked: list[integrity.CheckedJob]) -> Iterator[Mismatch]:
    """Yield merged origins whose jobs differ from the recorded ones."""
    by_home: dict[Path, list[integrity.CheckedJob]] = {}
    for job in checked:
        if home := origins.origin_folder(job.folder):
            by_home.setdefault(home, []).append(job)
    for home, jobs in sorted(by_home.items()):
        # A part of an origin's jobs says nothing of the whole.
        if not home.is_relative_to(root.absolute()):
            continue
        place = f"{below(root, home)}/{origins.FILE}"
        try:
            origin = origins.read(home)
        except FileError as error:
            yield Mismatch(place, str(error), "what harness merge wrote")
            continue
        if origin is None:
            continue
        listed = {str(job.folder.absolute().relative_to(home)): job.sha256 or "" for job in jobs}
        if len(listed) != origin.jobs:
            yield Mismatch(f"{place}: jobs", f"{origin.jobs}", f"{len(listed)}, the number of stored jobs")
        if (sha256 := origins.digest(listed)) != origin.sha256:
            yield Mismatch(f"{place}: sha256", origin.sha256, f"{sha256}, the digest of the stored records")


def check_published(root: Path) -> Iterator[Mismatch]:
    """Yield the errata of published tables, and those that are not recorded.

    Raises:
        FileError: a file is missing or wrong; names the file, the line and the column.
    """
    if published_tables.has_measures_alone(root):
        yield from _check_measures(root)
        return
    published = published_tables.read(root)
    known = study.of(published)
    for erratum in published.errata:
        place = f"Table {erratum.table} row {erratum.number} ({erratum.row}): {erratum.kind}"
        yield Mismatch(place, erratum.printed, f"{erratum.follows}; {erratum.evidence}")
    if known is not None:
        recorded, recomputed = (
            {f"{item.table}/{item.number}/{item.kind}": f"{item.printed}; {item.follows}" for item in errata}
            for errata in (published.errata, known.find_errata(published, published.follows()))
        )
        yield from differences(published_tables.ERRATA, recorded, recomputed)


def _check_measures(root: Path) -> Iterator[Mismatch]:
    """Yield findings on the code behind printed measures, and errata."""
    paper = published_measures.read(root)
    for kind, each in paper.about.contradictions:
        place = f"{kind} {each.name} ({', '.join(each.systems) or 'text'})"
        yield Mismatch(place, str(each.printed), f"{each.follows}; {each.evidence}")
