"""Published tables of measures alone: no latency, no hardware, no cost.

``published.toml`` says which column of which CSV file is which measure on which dataset, which systems are baselines of
which (``firstp``), and where the code behind a figure differs from the text (``findings``).  Tables with costs are read
by :mod:`harness.analysis.published`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from pydantic import Field

from harness import config
from harness.analysis.published import NAME, NOT_JUDGED, is_in
from harness.analysis.table import Row, Table, Validity
from harness.config import ConfigModel, read_toml, validate
from harness.errors import FileError
from harness.records import Isolation, Outcome
from harness.stats import Estimate
from harness.untrusted import ForeignText, read_whole, reading

# The study of long documents that ships with harness.
LONG_DOCUMENTS = config.data_root() / "results" / "published" / "boytsov2025"
NO_LATENCY = "the paper prints no latency"
SYSTEM = "system"
_MAX_BYTES = 8 << 20
_PRINTED = re.compile(r"[+-]?[0-9]{0,9}\.[0-9]{1,6}|[+-]?[0-9]{1,9}", flags=re.ASCII)


class MeasureColumn(ConfigModel):
    """A column: measure, dataset, candidates a query (``depth``); with a ``short`` header it is on the first screen."""

    dataset: str
    measure: str
    header: str
    short: str = ""
    depth: int = Field(default=100, gt=0)


class MeasureTable(ConfigModel):
    """One table; ``gain`` names the column of printed gains over FirstP, per cent."""

    number: str
    file: str
    title: ForeignText
    columns: dict[str, MeasureColumn] = Field(min_length=1)
    gain: str | None = None


class CodeFinding(ConfigModel):
    """A difference between text and code, in all rows that ``systems`` (globs) name in ``tables`` (none: all)."""

    name: str
    systems: tuple[str, ...] = Field(min_length=1)
    tables: tuple[str, ...] = ()
    printed: ForeignText
    follows: ForeignText
    evidence: ForeignText

    def touches(self, table: str, system: str) -> bool:
        """Return whether it concerns a row."""
        here = not self.tables or table in self.tables
        return here and any(fnmatch.fnmatchcase(system, pattern) for pattern in self.systems)

    def __str__(self) -> str:
        return f"finding {self.name}: printed: {self.printed}; but {self.follows}; {self.evidence}"


class RunTimeStatements(ConfigModel):
    """Statements of a text on a figure of run times that prints no numbers: one point, and the least factor."""

    statements: tuple[str, ...] = Field(min_length=1)
    remark: str
    system: str
    slower: float = Field(gt=0)
    gain_percent: float
    least_slower: float = Field(gt=0)


class MeasuresPaper(ConfigModel):
    """The content of ``published.toml``."""

    name: str
    title: ForeignText
    authors: tuple[ForeignText, ...] = Field(min_length=1)
    venue: ForeignText
    year: int
    pages: ForeignText
    url: ForeignText
    arxiv: ForeignText
    licence: ForeignText
    licence_remark: ForeignText
    left_out: tuple[str, ...] = ()
    figure3: RunTimeStatements | None = None
    tables: tuple[MeasureTable, ...] = Field(min_length=1)
    firstp: dict[str, str] = Field(default_factory=dict)
    findings: tuple[CodeFinding, ...] = ()

    def citation(self) -> str:
        """Cite the paper in one line."""
        return f"{self.authors[0]} et al. {self.year}. {self.title}. {self.venue}, pages {self.pages}. {self.url}"


@dataclass(frozen=True)
class PublishedMeasures:
    """A paper and the printed cells of its tables: by table number, in order, the cells of a system by column."""

    folder: Path
    about: MeasuresPaper
    lines: dict[str, tuple[dict[str, str], ...]]

    def findings(self, table: str, system: str) -> list[CodeFinding]:
        """Return the findings that concern a row."""
        return [finding for finding in self.about.findings if finding.touches(table, system)]

    def printed_gains(self) -> dict[str, float]:
        """Return the printed gain over FirstP of each system that has one, per cent."""
        return {
            line[SYSTEM]: float(line[table.gain])
            for table in self.about.tables
            if table.gain is not None
            for line in self.lines[table.number]
            if line[table.gain]
        }

    def wrong_gains(self) -> Iterator[tuple[str, str, str]]:
        """Yield system, printed gain and what follows, where the mean relative gain over FirstP is another.

        A printed figure stands for all that round to it, so the mean is an interval.
        """
        for table in self.about.tables:
            by_system = {line[SYSTEM]: line for line in self.lines[table.number]}
            for line in self.lines[table.number] if table.gain else ():
                printed, first = line[table.gain or ""], by_system.get(self.about.firstp.get(line[SYSTEM], ""))
                if not printed:
                    continue
                if first is None:
                    yield line[SYSTEM], printed, "no FirstP is named in [firstp]"
                    continue
                low, high = _mean_gain(line, first, table.columns)
                if not low - _half(printed) <= Fraction(printed) <= high + _half(printed):
                    yield line[SYSTEM], printed, f"{float(low):+.2f} to {float(high):+.2f}"


def _half(printed: str) -> Fraction:
    """Return half a unit of the last printed digit."""
    return Fraction(1, 2 * 10 ** len(printed.partition(".")[2]))


def _mean_gain(
    line: dict[str, str], first: dict[str, str], columns: dict[str, MeasureColumn]
) -> tuple[Fraction, Fraction]:
    """Return the least and the largest mean of relative gains, per cent, that the rounded figures allow."""
    pairs = [(line[name], first[name]) for name in columns if line[name] and first[name]]
    ends = []
    for sign in (-1, 1):
        ratios = [(Fraction(a) + sign * _half(a)) / (Fraction(b) - sign * _half(b)) - 1 for a, b in pairs]
        ends.append(100 * sum(ratios, Fraction()) / max(1, len(ratios)))
    return ends[0], ends[1]


def holds(folder: Path) -> bool:
    """Return whether a folder holds tables of measures alone, which ``published.toml`` lists as ``tables``.

    Raises:
        FileError: ``published.toml`` is no TOML.
    """
    return is_in(folder) and "tables" in read_toml(folder / NAME, links=False)


def read(folder: Path) -> PublishedMeasures:
    """Read a folder of published measures.

    Raises:
        FileError: a file is missing or wrong, or ``firstp`` or a finding names a system that no table has.
    """
    about = validate(MeasuresPaper, read_toml(folder / NAME, links=False), folder / NAME)
    lines = {table.number: tuple(_lines(folder / table.file, table)) for table in about.tables}
    paper = PublishedMeasures(folder, about, lines)
    rows = [(number, line[SYSTEM]) for number, held in lines.items() for line in held]
    systems = {system for _, system in rows}
    for name in (*about.firstp, *about.firstp.values()):
        if name not in systems:
            raise FileError(f"{folder / NAME}: [firstp] names {name!r}, which no table has; correct the name")
    for finding in about.findings:
        if not any(finding.touches(*row) for row in rows):
            raise FileError(f"{folder / NAME}: finding {finding.name} concerns no row; correct `systems` or `tables`")
    return paper


def _lines(path: Path, table: MeasureTable) -> Iterator[dict[str, str]]:
    header = ",".join((SYSTEM, *table.columns, *([table.gain] if table.gain else [])))
    with reading(path, "bring the file back"):
        content = read_whole(path, _MAX_BYTES)
    for place, cells in config.csv_rows(path, header, content):
        if not cells[SYSTEM]:
            raise FileError(f"{place}: system is empty; name it as the paper does")
        for column, text in cells.items():
            if column != SYSTEM and text and not _PRINTED.fullmatch(text):
                raise FileError(f"{place}: {column}: {text!r} is no printed number; write digits and one point")
        yield cells


def measures_table(paper: PublishedMeasures) -> Table:
    """Turn the tables into rows, one for each system and dataset, with findings as notes; no row has a cost.

    Table 1 is the suite of the paper's name, each other table the suite ``<name>-table<number>``.
    """
    columns = [column for table in paper.about.tables for column in table.columns.values()]
    rows = tuple(row for table in paper.about.tables for row in _rows(paper, table))
    # Every measure is printed to three digits behind the point.
    measures = tuple(dict.fromkeys(column.measure for column in columns))
    return Table(rows, measures, rounded_to=dict.fromkeys(measures, 0.001))


def _rows(paper: PublishedMeasures, table: MeasureTable) -> Iterator[Row]:
    name = paper.about.name
    suite = name if table is paper.about.tables[0] else f"{name}-table{table.number}"
    unknown = Estimate(None, reason=NO_LATENCY)
    for number, line in enumerate(paper.lines[table.number], start=1):
        system = line[SYSTEM]
        first = paper.about.firstp.get(system)
        notes = (NOT_JUDGED, *([f"its FirstP is {first}"] if first else []))
        for column_name, column in table.columns.items():
            if not line[column_name]:
                continue
            key = f"{name}/table{table.number}/{number}/{column_name}"
            yield Row(
                suite=suite,
                system=system,
                dataset=column.dataset,
                scenario="single_stream",
                profile="not-printed",
                isolation=Isolation.PUBLISHED,
                outcome=Outcome.OK,
                validity=Validity.UNKNOWN,
                key=key,
                cpus=0,
                memory_limit_bytes=0,
                gpus=0,
                k=column.depth,
                measures={column.measure: Estimate(float(line[column_name]))},
                latency_mean_s=unknown,
                p50_s=unknown,
                p95_s=unknown,
                p99_s=unknown,
                throughput_qps=unknown,
                keys=(key,),
                notes=(*notes, *map(str, paper.findings(table.number, system))),
            )
