"""Check stored results, cached rows and written reports against each other: list what does not follow."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from harness.analysis import leaderboard, published_measures, row_cache, row_pricing
from harness.analysis import published as published_tables
from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.leaderboard import Bound, LeaderboardQuery
from harness.analysis.published import Published
from harness.analysis.row_cache import RowSet
from harness.analysis.rows import build_rows
from harness.analysis.table import Table
from harness.errors import FileError, HarnessError, UsageError, counted
from harness.evaluation.per_query import PerQuery
from harness.pricing import prices, token_prices
from harness.pricing.instances import TypeChoice
from harness.pricing.prices import Snapshot
from harness.progress import Progress, silent
from harness.report import study, writers
from harness.report.document import Escape, ReportDocument, Section, lines_of
from harness.report.leaderboard import LEADERBOARD_VERSION, leaderboard_document
from harness.report.main_table import REPORT_VERSION, table_document
from harness.report.study import Study
from harness.results import integrity, origins, reader, seals
from harness.results.integrity_samples import Mismatch, Runs, below, differences
from harness.untrusted import parse_json, reading

# What names a row in a report, whatever stands above it.
_NAMES = ("origin", "suite", "system", "dataset", "scenario", "profile", "isolation")
# Lists of rows, with what else names one there; and what in a row is a sentence.
_ROW_LISTS: dict[str, tuple[str, ...]] = {"rows": (), "overhead": ("key",), "left_out": ("key",)}
_SENTENCES = ("notes", "price_note", "reasons", "reason")

# Recomputes unpriced rows, and their values by query, by some measures.
Recompute = Callable[[tuple[str, ...]], RowSet]
_WROTE = "`harness report` or `harness leaderboard` wrote with --format json"


@dataclass(frozen=True)
class Verified:
    """Result of a verification: the checked files in words, and the mismatches."""

    looked_at: str
    mismatches: tuple[Mismatch, ...]


# The most mismatches that people see first.
_MOST = 20


def verification_document(looked_at: str, mismatches: Sequence[Mismatch]) -> ReportDocument:
    """Return the report on a verification: each mismatch, then their number."""

    def section(escape: Escape, most: int) -> Section:
        lines = [f"fail  {escape(str(mismatch))}" for mismatch in mismatches[:most]]
        lines += [f"{len(mismatches) - most:,} more: --wide"] if len(mismatches) > most else []
        total = f"{len(mismatches):,} do not follow" if mismatches else "all follows"
        return Section(notes=(*lines, f"{looked_at}: {total}"))

    return ReportDocument(
        sections=lambda escape: (section(escape, len(mismatches)),),
        lines=lambda: lines_of(mismatches, [(name, attrgetter(name)) for name in ("place", "stored", "follows")]),
        content=lambda: {"looked_at": looked_at, "mismatches": [dataclasses.asdict(each) for each in mismatches]},
        answer=lambda escape: (section(escape, _MOST),),
        plain=True,
    )


def verify_results(root: Path, *, cache: Path, against: Path | None = None, progress: Progress = silent) -> Verified:
    """Recompute every checksum, every fact that follows from others, and every derived figure that is kept.

    Args:
        root: a results folder, or one of published tables.
        cache: where derived rows are kept.
        against: a report (JSON) whose figures are to follow from these results too.
        progress: counts the checked jobs.

    Raises:
        UsageError: there is nothing in it, or ``against`` is no report that is known here.
        FileError: it is no folder, or ``against`` cannot be read.
    """
    if not root.is_dir():
        raise FileError(f"{root}: no results here; give the folder that holds them")
    reported = None if against is None else read_report(against)
    if published_tables.is_in(root):
        return Verified("published tables", tuple(check_published(root, reported)))
    folders, unreadable = _folders(root)
    suites = sorted({folder.absolute().parents[4] for folder in folders} | _suites(root))
    if not folders and not unreadable and not suites:
        raise UsageError(f"{root}: no stored job in it; give the folder that holds results")
    job_origins, runs, checked = origins.JobOrigins(), Runs(), []
    for number, folder in enumerate(folders, start=1):
        checked.append(integrity.check_job(folder, job_origins, below(root, folder), runs))
        progress(number, len(folders))
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
    mismatches += _origins(root, checked)
    readable = tuple(job.job for job in checked if job.job is not None)
    recompute = functools.cache(lambda measures: build_rows(readable, JobEvaluator(measures)))
    mismatches += check_cache(root, cache, recompute)
    if reported is not None:
        mismatches += check_report(reported, recompute)
    files = sum(len(job.result.files) + 1 for job in readable)
    return Verified(f"{len(folders):,} jobs, {files:,} files", tuple(mismatches))


def _folders(root: Path) -> tuple[list[Path], list[Mismatch]]:
    """Return the folders of jobs or of their remains, and a mismatch for each unreadable folder."""
    errors: list[FileError] = []
    folders = [
        Path(folder)
        for folder, entries in reader.folders(str(root), errors)
        if reader.is_job(frozenset(entry.name for entry in entries))
    ]
    unreadable = []
    for error in errors:
        folder, _, why = str(error).rpartition("; ")[0].partition(": ")
        unreadable.append(Mismatch(folder, why, "a folder"))
    return sorted(folders), unreadable


def _suites(root: Path) -> set[Path]:
    """Return the suites with a manifest, even if all their jobs are gone."""
    patterns = (seals.MANIFEST, f"*/{seals.MANIFEST}", f"*/*/{seals.MANIFEST}")
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
            yield Mismatch(f"{place}: sha256", origin.sha256, f"{sha256}, that of the stored records")


def check_published(root: Path, reported: WrittenReport | None) -> Iterator[Mismatch]:
    """Yield the errata, those that are not recorded, and the figures of a report that do not follow.

    Raises:
        FileError: a file is missing or wrong; names the file, the line and the column.
        UsageError: the report is of a kind that cannot be made again.
    """
    if published_measures.holds(root):
        yield from _check_measures(root, reported)
        return
    published = published_tables.read(root)
    follows, known = published.follows(), study.of(published)
    for erratum in published.errata:
        place = f"Table {erratum.table} row {erratum.number} ({erratum.row}): {erratum.kind}"
        yield Mismatch(place, erratum.printed, f"{erratum.follows}; {erratum.evidence}")
    if known is not None:
        recorded, recomputed = (
            {f"{item.table}/{item.number}/{item.kind}": f"{item.printed}; {item.follows}" for item in errata}
            for errata in (published.errata, known.find_errata(published, follows))
        )
        yield from differences(published_tables.ERRATA, recorded, recomputed)
    if reported is None:
        return
    if "published" in reported.content and known is not None:
        yield from _paper(reported, known, published, follows)
    else:
        # Published rows have their own measures, whatever is asked for.
        yield from check_report(reported, lambda _: RowSet(published_tables.published_table(published, follows)))


def _check_measures(root: Path, reported: WrittenReport | None) -> Iterator[Mismatch]:
    """Yield findings on the code behind printed measures, gains that do not follow, and figures of a report."""
    paper = published_measures.read(root)
    for finding in paper.about.findings:
        place = f"finding {finding.name} ({', '.join(finding.systems)})"
        yield Mismatch(place, finding.printed, f"{finding.follows}; {finding.evidence}")
    for system, printed, follows in paper.wrong_gains():
        yield Mismatch(f"gain of {system}", f"{printed} %", follows)
    if reported is not None:
        yield from check_report(reported, lambda _: RowSet(published_measures.measures_table(paper)))


def _paper(reported: WrittenReport, known: Study, published: Published, follows: Snapshot) -> Iterator[Mismatch]:
    """Yield the differences from the report of published tables, made again."""
    market = reported.content.get("prices")
    with reading(reported.path, "make it again", fault="damaged", damage=(KeyError, TypeError, ValueError)):
        if not isinstance(market, Mapping):
            raise ValueError("no prices in it")
        now = prices.snapshot(datetime.date.fromisoformat(market["now"]), region=market["region"], term=market["term"])
    again = json.loads(known.render_paper(published, follows, now, "json"))
    yield from differences(reported.path.name, dict(reported.content), again)


@dataclass(frozen=True)
class WrittenReport:
    """Report read from a file."""

    path: Path
    content: Mapping[str, Any]


def read_report(path: Path) -> WrittenReport:
    """Read a report.

    Raises:
        FileError: it cannot be read, or is no JSON object.
    """
    with reading(path, f"give what {_WROTE}", damage=(OSError, ValueError)):
        content = parse_json(path.read_bytes())
    if not isinstance(content, dict):
        raise FileError(f"{path}: is no report; give what {_WROTE}")
    return WrittenReport(path, content)


def check_report(report: WrittenReport, recompute: Recompute) -> list[Mismatch]:
    """Return the figures of a report that do not follow from the rows.

    Raises:
        UsageError: it is of a kind or version that cannot be made again here.
        FileError: it is damaged.
    """
    kind = next((name for name in KINDS if name in report.content), None)
    if kind is None:
        raise UsageError(f"{report.path}: is no report that can be made again; give what {_WROTE}")
    newest, make = KINDS[kind]
    version = report.content[kind]
    if type(version) is not int or version != newest:
        raise UsageError(f"{report.path}: version {version!r}, this harness reads {newest}; update harness")
    # A key is missing, or its value is of another type than any report's.
    wrong = (KeyError, TypeError, ValueError, AttributeError)
    with reading(report.path, f"give what {_WROTE}", fault="damaged", damage=wrong):
        again = json.loads(writers.write_json(make(report.content, recompute)))
        return list(compare_rows(report.path.name, report.content, again))


def _report(stored: Mapping[str, Any], recompute: Recompute) -> ReportDocument:
    """Make ``harness report --format json`` again."""
    market = {name.removeprefix("price_"): value for name, value in stored.items()}
    return table_document(_table(tuple(str(name) for name in stored["measures"]), market, recompute))


def _leaderboard(stored: Mapping[str, Any], recompute: Recompute) -> ReportDocument:
    """Make ``harness leaderboard --format json`` again."""
    measure = str(stored["measure"])
    query = LeaderboardQuery(
        dataset=stored["dataset"],
        measure=measure,
        weights=dict(stored["weights"]),
        mode=stored["mode"],
        amrs={name: rate["value"] for name, rate in stored["amrs"].items() if rate["status"] == "given"},
        bounds=tuple(Bound(**bound) for bound in stored["bounds"]),
        rank_by=stored["rank_by"],
        front=tuple(stored["front_axes"]),
        **stored["asked"],
    )
    table = _table((measure,), stored["prices"], recompute)
    return leaderboard_document(leaderboard.build(table, recompute((measure,)).per_query, query))


# How each kind of report is made again, by the key that tells it, with its version.
KINDS: dict[str, tuple[int, Callable[[Mapping[str, Any], Recompute], ReportDocument]]] = {
    "report_version": (REPORT_VERSION, _report),
    "leaderboard_version": (LEADERBOARD_VERSION, _leaderboard),
}


def _table(measures: tuple[str, ...], market: Mapping[str, Any], recompute: Recompute) -> Table:
    """Return the table at the prices that a report names; ValueError: it names them wrongly."""
    as_of = datetime.date.fromisoformat(market["date"])
    snapshot = prices.snapshot(as_of, region=f"{market['provider']}/{market['region']}", term=market.get("term"))
    choice = TypeChoice(market["architecture"], market["generation"])
    date = market.get("tokens_date")
    tokens = token_prices.snapshot(datetime.date.fromisoformat(date)) if date else None
    return row_pricing.price(recompute(measures).table, row_pricing.tariff(snapshot, choice=choice, tokens=tokens))


def check_cache(root: Path, cache: Path, recompute: Recompute) -> Iterator[Mismatch]:
    """Yield the cached rows of ``root`` that differ from recomputed rows."""
    for cached in row_cache.cached_files(root, cache):
        place, table = f"kept rows {cached.path.name}", cached.table
        if table is None:
            yield Mismatch(place, "damaged", "nothing: the next table computes them again")
            continue
        try:
            again = recompute(table.measures)
        except HarnessError as error:
            yield Mismatch(place, counted(len(table.rows), "row"), f"none: {error}")
            continue
        yield from compare_rows(place, dataclasses.asdict(table), dataclasses.asdict(again.table))
        if cached.per_query is not None:
            by_query = _plain_values(cached.per_query), _plain_values(again.per_query)
            yield from differences(f"{place}: by query", *by_query)


def _plain_values(found: Mapping[str, PerQuery]) -> dict[str, Any]:
    """Return per-query values as plain values by key."""
    return {
        key: {
            "queries": each.query_ids,
            "latency_s": each.latency_s.tolist(),
            "measures": {name: values.tolist() for name, values in each.measures.items()},
            "quantiles_s": each.quantiles_s,
        }
        for key, each in found.items()
    }


def compare_rows(place: str, stored: Mapping[str, Any], follows: Mapping[str, Any]) -> Iterator[Mismatch]:
    """Yield differences between two reports; rows are matched by name, in any order.

    Figures and verdicts are compared, sentences are not: another version may have better ones.
    """
    for name, more in _ROW_LISTS.items():
        there, here = (
            {_row_name(row, more): _without_sentences(row) for row in each.get(name, ())} for each in (stored, follows)
        )
        yield from _compare_row_sets(f"{place}: {name}", there, here)
    rest = [
        {key: each[key] for key in each if key not in (*_ROW_LISTS, "notes", "unreadable")}
        for each in (stored, follows)
    ]
    yield from differences(place, *rest)


def _without_sentences(row: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in row.items() if name not in _SENTENCES}
    if isinstance(found := kept.get("findings"), list | tuple):
        kept["findings"] = [{**each, "text": None} if isinstance(each, dict) else each for each in found]
    return kept


def _compare_row_sets(place: str, there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[Mismatch]:
    for name in dict.fromkeys((*there, *here)):
        if name not in here:
            yield Mismatch(f"{place}: {name}", "a row", "none: no stored job gives it")
        elif name not in there:
            yield Mismatch(f"{place}: {name}", "no row", "one: its jobs are stored")
        else:
            yield from differences(f"{place}: {name}", there[name], here[name])


def _row_name(row: dict[str, Any], more: Sequence[str]) -> str:
    """Return a row's name; enums count as their texts."""
    values = (row.get(name) for name in (*_NAMES, *more))
    return "/".join(str(getattr(value, "value", value)) for value in values if value is not None)
