"""Derived figures against what the stored jobs give: rows that are kept in the cache, and reports that were written."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import derived, prices, pricing, rows, tables
from harness.errors import FileError, HarnessError, UsageError
from harness.per_query import PerQuery
from harness.report import as_json
from harness.store import StoredJob
from harness.table import Table
from harness.verifying.mismatch import Mismatch, differences

# What names a row in a report, whatever stands above it.
_NAMES = ("origin", "suite", "system", "dataset", "scenario", "profile", "isolation")
_SENTENCES = ("notes", "price_note", "reasons")
_VERSION = "report_version"


@dataclass(frozen=True)
class Report:
    """A report as it was read: where from, and its content."""

    path: Path
    content: Mapping[str, Any]


def read_report(path: Path) -> Report:
    """Read a report that ``harness report --format json`` wrote.

    Raises:
        FileError: it cannot be read, or is no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"{path}: cannot be read: {error}; give what `harness report --format json` wrote") from error
    if not isinstance(content, dict):
        raise FileError(f"{path}: is no report; give what `harness report --format json` wrote")
    return Report(path, content)


@dataclass
class Recomputed:
    """Rows made again of the jobs that can be read, once for each choice of measures."""

    jobs: Sequence[StoredJob]
    _made: dict[tuple[str, ...], derived.Made] = field(default_factory=dict)

    def measured(self, measures: Sequence[str]) -> derived.Made:
        """The rows, without money, and what they are made of; errors as :func:`harness.rows.measure`."""
        names = tuple(measures)
        if names not in self._made:
            self._made[names] = rows.measure_all(self.jobs, measures=names)
        return self._made[names]

    def kept(self, root: Path, cache: Path) -> Iterator[Mismatch]:
        """Rows that are kept for ``root`` as it is now, and would be shown instead of these."""
        for each in derived.kept(root, cache):
            place, found = f"kept rows {each.path.name}", each.rows
            if found is None:
                yield Mismatch(place, "damaged", "nothing: the next table makes them anew")
                continue
            try:
                again, by_query = self.measured(found.measures)
            except HarnessError as error:
                yield Mismatch(place, f"{len(found.rows)} rows", f"none: {error}")
                continue
            again = derived.priceable(again) if each.for_prices else again
            yield from _compared(place, dataclasses.asdict(found), dataclasses.asdict(again))
            if each.by_query is not None:
                anew = {one.key: one for one in by_query}
                yield from differences(f"{place}: by query", _plain(each.by_query), _plain(anew))

    def against(self, report: Report) -> Iterator[Mismatch]:
        """The figures of a report, made again with its own measures at its own prices.

        Raises:
            UsageError: it is of a kind that cannot be made again here.
        """
        kind = next((name for name in KINDS if name in report.content), None)
        if kind is None:
            known = ", ".join(KINDS)
            raise UsageError(f"{report.path}: is no report that can be made again: none of {known} stands in it")
        yield from KINDS[kind](report, self)


def _report(report: Report, made: Recomputed) -> Iterator[Mismatch]:
    """``harness report --format json``."""
    stored = report.content
    version = stored[_VERSION]
    if type(version) is not int or not 1 <= version <= as_json.REPORT_VERSION:
        raise UsageError(
            f"{report.path}: version {version!r}, this harness reads 1 to {as_json.REPORT_VERSION}; update harness"
        )
    table = _table(report, made)
    again = json.loads(as_json.render(table))
    # What an older version did not have does not contradict it.
    listed = {name: again[name] for name in stored if name in again}
    listed["rows"] = [_as_old(row, stored["rows"]) for row in again["rows"]]
    listed[_VERSION] = version
    if "overhead" in stored:
        listed["overhead"] = [_as_old(each, stored["overhead"]) for each in again["overhead"]]
    yield from _compared(report.path.name, dict(stored), listed)


# How each kind of report is made again, by the key that tells it: a kind that comes later has its line here.
KINDS: dict[str, Callable[[Report, Recomputed], Iterator[Mismatch]]] = {_VERSION: _report}


def _table(report: Report, made: Recomputed) -> Table:
    """The table of the stored jobs as the report had it: its measures, its date, region and term."""
    try:
        content = report.content
        place = f"{content['price_provider']}/{content['price_region']}"
        as_of = datetime.date.fromisoformat(content["price_date"])
        measures = [str(name) for name in content["measures"]]
        term = content.get("price_term")
        if not all(isinstance(row, dict) for row in (*content["rows"], *content.get("overhead", ()))):
            raise TypeError("a row is no object")
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{report.path}: damaged: {error}; give what `harness report --format json` wrote") from error
    snapshot = prices.snapshot(as_of, region=place, term=term)
    return tables.priced(made.measured(measures)[0], pricing.tariff(snapshot))


def _plain(found: Mapping[str, PerQuery]) -> dict[str, Any]:
    """What rows are made of, as plain values by key."""
    return {
        key: {
            "queries": each.query_ids,
            "latency_s": each.latency_s.tolist(),
            "measures": {name: values.tolist() for name, values in each.measures.items()},
            "quantiles_s": each.quantiles_s,
        }
        for key, each in found.items()
    }


def _as_old(row: dict[str, Any], stored: list[dict[str, Any]]) -> dict[str, Any]:
    """A row with the figures that rows had when the report was written."""
    names = {name for each in stored for name in each} or row.keys()
    return {name: value for name, value in row.items() if name in names}


def _compared(place: str, stored: dict[str, Any], follows: dict[str, Any]) -> Iterator[Mismatch]:
    """Everything but rows by its name, and rows by what names them, in whatever order they stand.

    Figures and verdicts are compared, sentences are not: another version may have better ones.
    """
    for name in ("rows", "overhead"):
        listed = [[_without_sentences(row) for row in each.get(name, ())] for each in (stored, follows)]
        yield from _rows(f"{place}: {name}", *listed)
    rest = [{key: each[key] for key in each if key not in ("rows", "overhead", "notes")} for each in (stored, follows)]
    yield from differences(place, *rest)


def _without_sentences(row: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in row.items() if name not in _SENTENCES}
    if isinstance(found := kept.get("findings"), list | tuple):
        kept["findings"] = [{**each, "text": None} if isinstance(each, dict) else each for each in found]
    return kept


def _rows(place: str, stored: list[dict[str, Any]], follows: list[dict[str, Any]]) -> Iterator[Mismatch]:
    there, here = ({_named(row): row for row in listed} for listed in (stored, follows))
    for name in dict.fromkeys((*there, *here)):
        if name not in here:
            yield Mismatch(f"{place}: {name}", "a row", "none: no stored job gives it")
        elif name not in there:
            yield Mismatch(f"{place}: {name}", "no row", "one: its jobs are stored")
        else:
            yield from differences(f"{place}: {name}", there[name], here[name])


def _named(row: dict[str, Any]) -> str:
    """What row it is; enums and their texts are the same here."""
    values = (row.get(name) for name in _NAMES)
    return "/".join(str(getattr(value, "value", value)) for value in values if value is not None)
