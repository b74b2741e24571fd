"""Reports that were written, made again at their own prices and measures, figure by figure."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.analysis import leaderboard, results_folder, row_pricing
from harness.analysis.leaderboard import Bound, LeaderboardQuery
from harness.analysis.table import Table
from harness.errors import FileError, UsageError
from harness.pricing import prices
from harness.report import csv_json
from harness.report import leaderboard as leaderboard_report
from harness.report.kept_reports import Measured, compared
from harness.results.integrity_samples import Mismatch
from harness.untrusted import parse_json

_WROTE = "`harness report` or `harness leaderboard` wrote with --format json"


@dataclass(frozen=True)
class Report:
    """A report as it was read: where from, and its content."""

    path: Path
    content: Mapping[str, Any]

    @property
    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """Its rows.

        Raises:
            TypeError: they are none.
        """
        found = tuple(self.content["rows"])
        if not all(isinstance(row, dict) for row in (*found, *self.content.get("overhead", ()))):
            raise TypeError("a row is no object")
        return found


def read(path: Path) -> Report:
    """Read a report.

    Raises:
        FileError: it cannot be read, or is no JSON object.
    """
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be read: {error}; give what {_WROTE}") from error
    if not isinstance(content, dict):
        raise FileError(f"{path}: is no report; give what {_WROTE}")
    return Report(path, content)


def against(report: Report, measured: Measured) -> Iterator[Mismatch]:
    """The figures of a report that do not follow from these rows.

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
    try:
        again = make(report, measured)
    # A key is missing, or its value is of another type than any report's.
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{report.path}: damaged: {type(error).__name__} {error}; give what {_WROTE}") from error
    return compared(report.path.name, report.content, again)


def _report(report: Report, measured: Measured) -> dict[str, Any]:
    """``harness report --format json``."""
    stored = report.content
    table = _table(
        [str(name) for name in stored["measures"]],
        {name.removeprefix("price_"): value for name, value in stored.items()},
        measured,
    )
    again: dict[str, Any] = json.loads(csv_json.render_json(table))
    return again


def _leaderboard(report: Report, measured: Measured) -> dict[str, Any]:
    """``harness leaderboard --format json``."""
    stored, measure = report.content, str(report.content["measure"])
    asked = LeaderboardQuery(
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
    table = _table([measure], stored["prices"], measured)
    found = {each.key: each for each in measured([measure])[1]}
    again: dict[str, Any] = json.loads(leaderboard_report.as_json(leaderboard.build(table, found, asked)))
    return again


# How each kind of report is made again, by the key that tells it, with its version.
KINDS: dict[str, tuple[int, Callable[[Report, Measured], dict[str, Any]]]] = {
    "report_version": (csv_json.REPORT_VERSION, _report),
    "leaderboard_version": (leaderboard_report.LEADERBOARD_VERSION, _leaderboard),
}


def _table(measures: Sequence[str], market: Mapping[str, Any], measured: Measured) -> Table:
    """The table of these rows at the prices that a report names; ValueError: it does not say them rightly."""
    as_of = datetime.date.fromisoformat(market["date"])
    snapshot = prices.snapshot(as_of, region=f"{market['provider']}/{market['region']}", term=market.get("term"))
    return results_folder.priced(measured(measures)[0], row_pricing.tariff(snapshot))
