"""Published tables that hold measures only, without latency, hardware or cost.

``published.toml`` maps the columns of the CSV files to measures and datasets, and names each system's baseline
(``firstp``, ``over``), differences between code and text (``findings``), and contradictions within the print
(``errata``).  A cell holds the printed figure, the marks of significance and the gain: ``0.416a (+5.5%)``.  An empty
cell is a dash in the print; ``?`` is a figure that our copy does not show.  Tables with costs are read by
:mod:`harness.analysis.published`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, model_validator

from harness import config
from harness.analysis import axes
from harness.analysis.published import NAME, NOT_JUDGED, Paper, csv_lines, is_in
from harness.analysis.table import Latency, Row, Table, Validity
from harness.config import ConfigModel, read_toml, validate
from harness.driver.records import Outcome
from harness.errors import FileError
from harness.estimate import Estimate
from harness.results.isolation import PUBLISHED
from harness.untrusted import ForeignText

NO_LATENCY = "the paper prints no latency"
SYSTEM = "system"
# A printed figure that our copy does not show.
LOST = "?"
_FIGURE = r"[+-]?(?:[0-9]{0,9}\.[0-9]{1,6}|[0-9]{1,9})"
_PRINTED = re.compile(_FIGURE, flags=re.ASCII)
_CELL = re.compile(rf"({_FIGURE})([a-z]{{0,4}})(?: \(({_FIGURE})%\))?", flags=re.ASCII)


@dataclass(frozen=True)
class PrintedCell:
    """A printed figure, its marks of significance, and the printed gain over its baseline in per cent."""

    figure: str
    marks: str = ""
    gain: str = ""

    @classmethod
    def parse(cls, text: str) -> PrintedCell | None:
        """Parse ``0.416a (+5.5%)``; ``None``: a dash, or a lost figure."""
        match = _CELL.fullmatch(text)
        return None if match is None else cls(match[1], match[2], match[3] or "")


class MeasureColumn(ConfigModel):
    """A column: measure, dataset, candidates per query (``depth``); ``short``: its header on the first screen."""

    dataset: str
    measure: str
    header: str
    short: str = ""
    depth: int = Field(default=100, gt=0)


class MeasureTable(ConfigModel):
    """One table.

    ``columns`` hold measures, ``facts`` (headers by column) all other cells as printed; ``key`` is the first column.
    ``source``: the table's origin, if not the paper.  ``gain`` names the column of mean gains in per cent.  ``over``:
    the baseline of a system's gains in this table, if not its FirstP. ``marks``: the meaning of each mark of
    significance.
    """

    number: str
    file: str
    title: ForeignText
    source: ForeignText | None = None
    key: str = SYSTEM
    columns: dict[str, MeasureColumn] = Field(default_factory=dict)
    facts: dict[str, ForeignText] = Field(default_factory=dict)
    gain: str | None = None
    over: dict[str, str] = Field(default_factory=dict)
    marks: dict[str, ForeignText] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_columns(self) -> MeasureTable:
        if not self.columns and not self.facts:
            raise ValueError("neither columns nor facts; name the columns of its file")
        return self

    @property
    def header(self) -> tuple[str, ...]:
        """The columns of its file."""
        return (self.key, *self.columns, *self.facts, *([self.gain] if self.gain else []))

    @property
    def name(self) -> str:
        """Its name in the paper, such as ``Table 4``, or the place of figures outside tables."""
        return f"Table {self.number}" if self.number[:1].isdigit() else self.number.capitalize()

    def cells(self, line: Mapping[str, str]) -> dict[str, PrintedCell]:
        """Return the figures of a line by column, without dashes and lost figures."""
        return {name: cell for name in self.columns if (cell := PrintedCell.parse(line[name])) is not None}


class Contradiction(ConfigModel):
    """A contradiction between text and code, or within the print, about the rows that ``systems`` (globs) match.

    ``tables``: their numbers; empty: all.  Without ``systems`` it is about the text.
    """

    name: str
    systems: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    printed: ForeignText
    follows: ForeignText
    evidence: ForeignText

    def touches(self, table: str, system: str) -> bool:
        """Return whether it concerns a row."""
        here = not self.tables or table in self.tables
        return here and any(fnmatch.fnmatchcase(system, pattern) for pattern in self.systems)

    def __str__(self) -> str:
        return f"{self.name}: printed: {self.printed}; but {self.follows}; {self.evidence}"


class PositionHistogram(ConfigModel):
    """Numbers of relevant passages by where they start, in bins of 256 tokens of bert-base-uncased.

    Passages beyond the last bin count in ``total`` alone.
    """

    name: str
    counts: tuple[int, ...] = Field(min_length=1)
    total: int = Field(gt=0)

    def share_before(self, bins: int) -> float:
        """Return the share of passages that start before this bin."""
        return sum(self.counts[:bins]) / self.total


class RunTimeStatements(ConfigModel):
    """Statements about a figure of run times without printed numbers: one point, and the least factor."""

    statements: tuple[str, ...] = Field(min_length=1)
    remark: str
    system: str
    slower: float = Field(gt=0)
    gain_percent: float
    least_slower: float = Field(gt=0)


class MeasuresPaper(Paper):
    """The content of ``published.toml``."""

    arxiv: ForeignText
    left_out: tuple[str, ...] = ()
    figure3: RunTimeStatements | None = None
    histograms: tuple[PositionHistogram, ...] = ()
    histograms_source: ForeignText | None = None
    tables: tuple[MeasureTable, ...] = Field(min_length=1)
    firstp: dict[str, str] = Field(default_factory=dict)
    findings: tuple[Contradiction, ...] = ()
    errata: tuple[Contradiction, ...] = ()

    @property
    def contradictions(self) -> tuple[tuple[str, Contradiction], ...]:
        """All findings and errata, each after its kind."""
        return (*(("finding", each) for each in self.findings), *(("erratum", each) for each in self.errata))


@dataclass(frozen=True)
class PublishedMeasures:
    """A paper and its printed cells: by table number, the cells of each system by column, in order."""

    folder: Path
    about: MeasuresPaper
    lines: dict[str, tuple[dict[str, str], ...]]

    def contradictions(self, table: str, system: str) -> list[tuple[str, Contradiction]]:
        """Return the findings and errata about a row, each after its kind."""
        return [(kind, each) for kind, each in self.about.contradictions if each.touches(table, system)]

    def baseline(self, table: MeasureTable, system: str) -> str | None:
        """Return the baseline of a row's printed gains."""
        return table.over.get(system, self.about.firstp.get(system))

    def printed_gains(self) -> dict[str, float]:
        """Return the printed mean gain over FirstP of each system that has one, per cent, in the first such table."""
        for table in self.about.tables:
            if (gain := table.gain) is not None:
                return {line[table.key]: float(line[gain]) for line in self.lines[table.number] if line[gain]}
        return {}


def read(folder: Path) -> PublishedMeasures:
    """Read a folder of published measures.

    Raises:
        FileError: a file is missing or wrong, or a baseline, a finding or an erratum names a system that is not in the
        tables.
    """
    about = validate(MeasuresPaper, read_toml(folder / NAME, links=False), folder / NAME)
    lines = {table.number: tuple(_lines(folder / table.file, table)) for table in about.tables}
    paper = PublishedMeasures(folder, about, lines)
    rows = [(table.number, line[table.key]) for table in about.tables for line in lines[table.number]]
    systems = {system for _, system in rows}
    for where, pairs in (
        ("firstp", about.firstp),
        *((f"tables {each.number}, over", each.over) for each in about.tables),
    ):
        for name in (*pairs, *pairs.values()):
            if name not in systems:
                raise FileError(f"{folder / NAME}: [{where}] names {name!r}, which no table has; correct the name")
    for kind, each in about.contradictions:
        if each.systems and not any(each.touches(*row) for row in rows):
            raise FileError(f"{folder / NAME}: {kind} {each.name} concerns no row; correct `systems` or `tables`")
    return paper


def long_documents() -> PublishedMeasures:
    """Read the shipped paper on long documents: it states run times (``figure3``) and has ``histograms`` of positions.

    Raises:
        FileError: there is no such paper, or a file of it is wrong.
    """
    for folder in map(config.published_folder().joinpath, config.published_names()):
        if is_in(folder) and {"figure3", "histograms"} <= read_toml(folder / NAME, links=False).keys():
            return read(folder)
    raise FileError(f"{config.published_folder()}: no paper on long documents is here; bring its folder back")


def _lines(path: Path, table: MeasureTable) -> Iterator[dict[str, str]]:
    names: set[str] = set()
    for place, cells in csv_lines(path, table.header):
        name = cells[table.key]
        if not name:
            raise FileError(f"{place}: {table.key} is empty; name it as the paper does")
        if name in names:
            raise FileError(f"{place}: {name!r} has a row already; give each row a name of its own")
        names.add(name)
        for column, text in cells.items():
            if column in table.columns and text not in ("", LOST) and PrintedCell.parse(text) is None:
                raise FileError(f"{place}: {column}: {text!r} is not a printed figure; write it as 0.416a (+5.5%)")
            if column == table.gain and text and not _PRINTED.fullmatch(text):
                raise FileError(f"{place}: {column}: {text!r} is not a printed number; write digits and one point")
        yield cells


def measures_table(paper: PublishedMeasures) -> Table:
    """Turn the tables into rows, one for each system and dataset, with findings as notes and without costs.

    The suite of Table 1 has the paper's name; the others are ``<name>-table<number>``.
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
        cells = table.cells(line)
        for dataset, names in axes.grouped(cells, lambda column: table.columns[column].dataset).items():
            key = f"{name}/table{table.number}/{number}/{names[0]}"
            yield Row(
                suite=suite,
                system=line[table.key],
                dataset=dataset,
                scenario="single_stream",
                profile="not-printed",
                isolation=PUBLISHED,
                outcome=Outcome.OK,
                validity=Validity.UNKNOWN,
                key=key,
                cpus=0,
                memory_limit_bytes=0,
                gpus=0,
                k=table.columns[names[0]].depth,
                measures={table.columns[column].measure: Estimate(float(cells[column].figure)) for column in names},
                latency=Latency(mean_s=unknown, p50_s=unknown, p95_s=unknown, p99_s=unknown),
                throughput_qps=unknown,
                keys=(key,),
                notes=tuple(_notes(paper, table, line[table.key], {column: cells[column] for column in names})),
            )


def _notes(
    paper: PublishedMeasures, table: MeasureTable, system: str, cells: Mapping[str, PrintedCell]
) -> Iterator[str]:
    yield NOT_JUDGED
    if (first := paper.about.firstp.get(system)) is not None:
        yield f"its FirstP is {first}"
    for column, cell in cells.items():
        said = [f"{cell.gain} % over {paper.baseline(table, system)}"] if cell.gain else []
        said += [str(table.marks.get(mark, f"mark {mark}")) for mark in cell.marks]
        if said:
            yield f"printed with {table.columns[column].measure}: {'; '.join(said)}"
    yield from (f"{kind} {each}" for kind, each in paper.contradictions(table.number, system))
