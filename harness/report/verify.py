"""A results folder -> all that does not follow in it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.analysis import published as published_tables
from harness.analysis.cell_cache import Made
from harness.analysis.published import Published
from harness.errors import FileError, UsageError
from harness.pricing import prices
from harness.pricing.prices import Snapshot
from harness.report import kept_reports, study, verify_reports
from harness.report.study import Study
from harness.report.verify_reports import Report
from harness.results import integrity, origins, reader, seals
from harness.results import integrity as single
from harness.results.integrity_samples import Mismatch, Runs, below, differences
from harness.results.reader import StoredJob

# MERGED harness.report.verify: Stored results against themselves: what does not follow from what is stored, place by
# place.


__all__ = ["Mismatch", "Verified", "verify"]

# MERGED harness.report.verify: Published tables: what in them does not follow is known as errata; reports of them
# can be made again.


def look(root: Path, reported: Report | None) -> Iterator[Mismatch]:
    """Yield the errata, those that are not recorded, and the figures of a report that do not follow.

    Raises:
        FileError: a file is missing or wrong; names the file, the line and the column.
        UsageError: the report is of a kind that cannot be made again.
    """
    published = published_tables.read(root)
    follows, known = published.follows(), study.of(published)
    for erratum in published.errata:
        place = f"Table {erratum.table} row {erratum.number} ({erratum.row}): {erratum.kind}"
        yield Mismatch(place, erratum.printed, f"{erratum.follows}; {erratum.evidence}")
    if known is not None:
        recorded, found = (
            {f"{item.table}/{item.number}/{item.kind}": f"{item.printed}; {item.follows}" for item in errata}
            for errata in (published.errata, known.find_errata(published, follows))
        )
        yield from differences(published_tables.ERRATA, recorded, found)
    if reported is None:
        return
    if "published" in reported.content and known is not None:
        yield from _paper(reported, known, published, follows)
    else:
        # Published rows have their own measures, whatever is asked for.
        yield from verify_reports.against(
            reported, lambda _: Made(published_tables.measurements(published, follows), ())
        )


def _paper(reported: Report, known: Study, published: Published, follows: Snapshot) -> Iterator[Mismatch]:
    """What ``harness report`` writes of such a folder."""
    asked = reported.content.get("prices")
    try:
        if not isinstance(asked, Mapping):
            raise TypeError("no prices in it")
        as_of, region, term = datetime.date.fromisoformat(asked["now"]), asked["region"], asked["term"]
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{reported.path}: damaged: {error}; make it again") from error
    now = prices.snapshot(as_of, region=region, term=term)
    again = json.loads(known.render_paper(published, follows, now, "json"))
    yield from differences(reported.path.name, dict(reported.content), again)


# Told how many of how many jobs are done.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Verified:
    """What was looked at, in words, and what does not follow."""

    looked_at: str
    mismatches: tuple[Mismatch, ...]


def verify(
    root: Path, *, cache: Path, against: Path | None = None, progress: Progress = lambda _done, _total: None
) -> Verified:
    """Recompute every checksum, every fact that follows from others, and every derived figure that is kept.

    Args:
        root: a results folder, or one of published tables.
        cache: where derived rows are kept.
        against: a report (JSON) whose figures are to follow from these results too.
        progress: told of each job.

    Raises:
        UsageError: there is nothing in it, or ``against`` is no report that is known here.
        FileError: it is no folder, or ``against`` cannot be read.
    """
    if not root.is_dir():
        raise FileError(f"{root}: no results here; give the folder that holds them")
    reported = None if against is None else verify_reports.read(against)
    if published_tables.is_in(root):
        return Verified("published tables", tuple(look(root, reported)))
    folders = tuple(_folders(root))
    unreadable = [each for each in folders if isinstance(each, Mismatch)]
    places = sorted(each for each in folders if isinstance(each, Path))
    suites = sorted({folder.absolute().parents[4] for folder in places} | _listed(root))
    if not places and not unreadable and not suites:
        raise UsageError(f"{root}: no stored job in it; give the folder that holds results")
    known, runs, looked = origins.Known(), Runs(), []
    for number, folder in enumerate(places, start=1):
        looked.append(single.check_jobs(folder, known, below(root, folder), runs))
        progress(number, len(places))
    found = [*unreadable, *(mismatch for each in looked for mismatch in each.mismatches)]
    found += single.between(looked, root)
    by_folder = {each.folder.absolute(): each for each in looked}
    for suite in suites:
        found += integrity.check_inputs(suite, below(root, suite))
        found += integrity.manifest(suite, root, by_folder)
        found += integrity.verdicts(suite, root, by_folder)
    found += _origins(root, looked)
    readable = tuple(each.job for each in looked if each.job is not None)
    measured = kept_reports.Recomputed(readable)
    found += kept_reports.look(root, cache, measured)
    if reported is not None:
        found += verify_reports.against(reported, measured)
    return Verified(_counted(readable, places), tuple(found))


def _counted(readable: tuple[StoredJob, ...], places: list[Path]) -> str:
    files = sum(len(job.result.files) + 1 for job in readable)
    return f"{len(places):,} jobs, {files:,} files"


def _folders(root: Path) -> Iterator[Path | Mismatch]:
    """Folders of jobs, or of what is left of one; what cannot be looked into is said, and the rest goes on."""
    wrong: list[FileError] = []
    for place, entries in reader.folders(str(root), wrong):
        if single.is_one(frozenset(entry.name for entry in entries)):
            yield Path(place)
    for error in wrong:
        folder, _, why = str(error).rpartition("; ")[0].partition(": ")
        yield Mismatch(folder, why, "a folder")


def _listed(root: Path) -> set[Path]:
    """Suites with a manifest: all their jobs may be gone."""
    patterns = (seals.MANIFEST, f"*/{seals.MANIFEST}", f"*/*/{seals.MANIFEST}")
    return {path.parent.absolute() for pattern in patterns for path in root.glob(pattern)}


def _origins(root: Path, looked: list[single.Looked]) -> Iterator[Mismatch]:
    """What was merged is what still lies there."""
    by_home: dict[Path, list[single.Looked]] = {}
    for each in looked:
        if home := origins.home(each.folder):
            by_home.setdefault(home, []).append(each)
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
        listed = {str(each.folder.absolute().relative_to(home)): each.sha256 or "" for each in jobs}
        if len(listed) != origin.jobs:
            yield Mismatch(f"{place}: jobs", f"{origin.jobs}", f"{len(listed)}, as many as lie there")
        if (sha256 := origins.digest(listed)) != origin.sha256:
            yield Mismatch(f"{place}: sha256", origin.sha256, f"{sha256}, that of the records that lie there")
