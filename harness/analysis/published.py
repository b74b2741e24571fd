"""Published tables as a source of rows: printed figures, and reasons for missing ones.

A folder of them holds ``published.toml``, one CSV file a table, and ``errata.csv`` where contradictions were found.
A paper prints means and no samples, so every figure that needs samples is missing with that reason.
"""

from __future__ import annotations

import datetime
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harness import config
from harness.analysis.table import IndexFigures, Latency, PublishedRates, Row, Table, Validity
from harness.config import ConfigModel, read_toml, validate
from harness.driver.records import Outcome
from harness.errors import FileError, counted
from harness.estimate import Estimate
from harness.pricing import prices
from harness.pricing.cost import GIB
from harness.pricing.instances import Instance
from harness.pricing.prices import Snapshot
from harness.results import reader
from harness.results.isolation import PUBLISHED
from harness.untrusted import ForeignText, mistake, read_whole, reading

NAME = "published.toml"
ERRATA = "errata.csv"
NO_SAMPLES = "no samples: the paper prints the mean alone"
NOT_JUDGED = "published, not measured here: the paper prints no samples, so nothing of the run can be judged"
# Measures, each with its column.
MEASURES = {"RR@10": "mrr_at_10", "Success@10": "success_at_10"}
_MAX_BYTES = 8 << 20
_PRINTED = re.compile(r"[0-9]{1,9}(\.([0-9]{1,6}))?", flags=re.ASCII)


class PriceList(ConfigModel):
    """The price list behind the paper's costs."""

    provider: str
    region: str
    term: str
    as_of: datetime.date


class PrintedProtocol(ConfigModel):
    """The protocol behind the latencies of Table 3."""

    warmup_queries: int = Field(ge=0)
    queries: int = Field(gt=0)
    trials: int = Field(gt=0)
    scenario: str
    k: int = Field(gt=0)


class TableFiles(ConfigModel):
    """File names of the tables that cover all datasets."""

    table1: str
    table2: str
    table3c: str
    table5: str
    table6: str
    settings: str


class ScoreTable(ConfigModel):
    """A table of Dynascores: its number, its weights, and ``again``, the number of its second print."""

    number: str
    again: str = ""
    file: str
    weights: dict[str, float] = Field(min_length=1)


class PaperDataset(ConfigModel):
    """One dataset: its name here and in the paper, its part of Table 3, its tables of scores.

    ``amrs``: the exchange rates behind its scores (units of each metric per point of accuracy).  ``measured_as``: its
    names in results of our own suites.  ``systems``: the shipped system for a printed name, unless it is the printed
    name in lower case.
    """

    name: str
    label: str
    table3: str
    table3_file: str
    scores: tuple[ScoreTable, ...] = Field(min_length=1)
    amrs: dict[str, float] = Field(default_factory=dict)
    measured_as: tuple[str, ...] = ()
    systems: dict[str, str] = Field(default_factory=dict)

    def shipped(self, printed: str) -> str:
        """Return the shipped system that repeats a printed one."""
        return self.systems.get(printed, printed.lower())


class LatencySource(ConfigModel):
    """A row of Table 1 that Table 2 takes its latency from, with its name in Table 3 and the shipped systems."""

    system: str
    of: str
    reference: str
    table3: str | None = None
    systems: tuple[str, ...] = ()


class Paper(ConfigModel):
    """Bibliographic data of a paper, from ``published.toml``."""

    name: str
    title: ForeignText
    authors: tuple[ForeignText, ...] = Field(min_length=1)
    venue: ForeignText
    year: int
    pages: ForeignText | None = None
    url: ForeignText
    licence: ForeignText
    licence_remark: ForeignText

    @property
    def cited(self) -> str:
        """The authors' last names and the year, such as ``Santhanam et al. 2023``."""
        return self._by([author.last_word for author in self.authors])

    def citation(self) -> str:
        """Cite the paper in one line."""
        pages = f", pages {self.pages}" if self.pages else ""
        return f"{self._by(self.authors)}. {self.title}. {self.venue}{pages}. {self.url}"

    def citation_lines(self) -> tuple[str, str]:
        """Return the citation, and the licence with its source."""
        return self.citation(), f"Licence of the figures: {self.licence} ({self.licence_remark})"

    def _by(self, names: Sequence[object]) -> str:
        who = " and ".join(map(str, names)) if len(names) < 3 else f"{names[0]} et al."
        return f"{who} {self.year}"


class About(Paper):
    """The content of ``published.toml``."""

    doi: ForeignText
    prices: PriceList
    protocol: PrintedProtocol
    decimals: dict[str, int]
    units: dict[str, str]
    files: TableFiles
    datasets: tuple[PaperDataset, ...] = Field(min_length=1)
    table2: tuple[LatencySource, ...]
    table2_remark: ForeignText  # what its figures are, for people
    one_thread: tuple[ForeignText, ...] = ()  # references in Table 1 that measured on one CPU thread


@dataclass(frozen=True)
class Printed:
    """A printed number, which represents every number that rounds to it."""

    text: str

    def __post_init__(self) -> None:
        if not _PRINTED.fullmatch(self.text):
            raise ValueError(f"{self.text!r} is not a number as papers print them; write digits and at most one point")

    def __str__(self) -> str:
        return self.text

    @property
    def decimals(self) -> int:
        """Digits behind the point."""
        return len(self.text.partition(".")[2])

    @property
    def value(self) -> Fraction:
        """The printed number, exactly."""
        return Fraction(self.text)


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", text, flags=re.ASCII):
        raise ValueError(f"{text!r} is not a whole number; write one")
    return int(text)


Figure = Annotated[Printed, BeforeValidator(Printed)]
Count = Annotated[int, BeforeValidator(_count)]


class TableLine(BaseModel):
    """The base of a table's rows: fields are the columns in order, and empty cells are ``None``."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, defer_build=True)


Model = TypeVar("Model", bound=TableLine)


class Reported(TableLine):
    """Row of Table 1: a figure from another paper, measured on its own machine."""

    system: str
    reference: str
    gpu: Count | None = None
    cpu: Count | None = None
    ram_gib: Figure | None = None
    mrr_at_10: Figure
    latency_ms: Figure | None = None
    index_gib: Figure | None = None


@dataclass(frozen=True)
class Hardware:
    """The GPUs, CPUs and memory that a system had or needs."""

    gpus: int
    cpus: int
    memory_gib: int

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes."""
        return self.memory_gib * GIB

    @property
    def profile(self) -> str:
        """The hardware profile's name, as ``instance_profiles/hardware.toml`` writes it."""
        return f"{f'gpu{self.gpus}-' if self.gpus else ''}cpu{self.cpus}-mem{self.memory_gib}"

    def within(self, other: Hardware) -> bool:
        """Return whether ``other`` has at least as many GPUs, CPUs and bytes."""
        return self.gpus <= other.gpus and self.cpus <= other.cpus and self.memory_gib <= other.memory_gib

    def __str__(self) -> str:
        gpus = f"{self.gpus} GPU, " if self.gpus else ""
        return f"{gpus}{self.cpus} CPU, {self.memory_gib} GiB"


class MachineLine(TableLine):
    """The base of a row that names a machine."""

    system: str
    gpu: Count
    cpu: Count
    ram_gib: Figure
    instance_type: str

    @property
    def hardware(self) -> Hardware:
        """The GPUs, CPUs and memory that the system had, or needs according to the paper."""
        return Hardware(self.gpu, self.cpu, int(self.ram_gib.value))


class Viable(MachineLine):
    """Row of Table 2: a system's smallest machine, and its cost there."""

    cost_usd_per_million: Figure


class TimedSystem(MachineLine):
    """Row of Table 3a or 3b: a system measured in an envelope."""

    latency_ms: Figure
    cost_usd_per_million: Figure


class Accuracy(TableLine):
    """Row of Table 3c: a system's accuracy on a dataset, per cent."""

    system: str
    dataset: str
    mrr_at_10: Figure
    success_at_10: Figure


class Scored(TableLine):
    """Row of Table 4, 7 or 8: a Dynascore with its rank."""

    rank: Count
    system: str
    hardware: str
    dynascore: Figure


class Erratum(TableLine):
    """A contradiction: the printed text, the text that follows from other figures, and the evidence.

    ``number`` counts the rows of the table from 1; ``row`` names it.
    """

    kind: str
    table: str
    number: Count
    row: str
    printed: str
    follows: str
    evidence: str


@dataclass(frozen=True)
class Published:
    """All tables of a paper: ``table3`` by a dataset's name, ``scores`` by a table's number."""

    folder: Path
    about: About
    table1: tuple[Reported, ...]
    table2: tuple[Viable, ...]
    table3: dict[str, tuple[TimedSystem, ...]]
    table3c: tuple[Accuracy, ...]
    scores: dict[str, tuple[Scored, ...]]
    errata: tuple[Erratum, ...]

    def follows(self) -> Snapshot:
        """Return the prices behind the paper's costs; raise UsageError if harness has no such snapshot."""
        printed = self.about.prices
        return prices.snapshot(printed.as_of, region=f"{printed.provider}/{printed.region}", term=printed.term)

    def table(self, model: type[Model], file: str) -> tuple[Model, ...]:
        """Read a further table of the paper; errors as :func:`read`."""
        return _lines(model, self.folder / file, self.about.decimals)

    def lines(self) -> list[tuple[str, int, Viable | TimedSystem]]:
        """List the rows of Tables 2 and 3 with table number and row number."""
        tables: dict[str, Sequence[Viable | TimedSystem]] = {"2": self.table2}
        tables |= {dataset.table3: self.table3[dataset.name] for dataset in self.about.datasets}
        return [(table, number, line) for table, lines in tables.items() for number, line in enumerate(lines, 1)]

    def accuracy(self, system: str, dataset: PaperDataset) -> Accuracy | None:
        """Return a system's line of Table 3c."""
        lines = (line for line in self.table3c if (line.system, line.dataset) == (system, dataset.label))
        return next(lines, None)

    def latency_of(self, line: Viable | TimedSystem) -> tuple[Printed, Reported | None]:
        """Return the latency behind a cost, and its row of Table 1, if any.

        Raises:
            FileError: ``published.toml`` names a row of Table 1 without latency for it, or does not name a row.
        """
        if isinstance(line, TimedSystem):
            return line.latency_ms, None
        toml = self.folder / NAME
        source = next((source for source in self.about.table2 if source.system == line.system), None)
        if source is None:
            raise FileError(f"{toml}: no [[table2]] says whose latency {line.system!r} has; add one")
        for row in self.table1:
            if (row.system, row.reference) == (source.of, source.reference) and row.latency_ms is not None:
                return row.latency_ms, row
        raise FileError(
            f"{toml}: [[table2]] {line.system!r}: Table 1 has no latency of {source.of!r}, {source.reference!r};"
            " name one of its rows"
        )

    def instance(self, line: Viable | TimedSystem, snapshot: Snapshot) -> Instance:
        """Return the facts of a row's instance type; raise FileError if ``snapshot`` has no price for it."""
        if line.instance_type not in snapshot.by_type:
            raise FileError(
                f"{self.folder}: {line.system!r} names instance type {line.instance_type!r}, which has no price in"
                f" {snapshot}; correct the type, or name another date"
            )
        return snapshot.by_type[line.instance_type][0]


def is_in(folder: Path) -> bool:
    """Return whether a folder holds ``published.toml`` (even a broken one) and does not hold stored jobs."""
    return os.path.lexists(folder / NAME) and not _holds_jobs(folder)


def stray(folder: Path) -> tuple[FileError, ...]:
    """Return the error about a ``published.toml`` in a folder of stored jobs; the jobs are shown."""
    if os.path.lexists(folder / NAME) and _holds_jobs(folder):
        return (FileError(f"{folder / NAME}: is in a folder of stored jobs; move it to a folder of its own"),)
    return ()


def _holds_jobs(folder: Path) -> bool:
    return next(reader.result_paths(folder, []), None) is not None


def read(folder: Path) -> Published:
    """Read a folder of published tables.

    Raises:
        FileError: a file is missing or wrong; the message names the file, the line and the column.
    """
    about = validate(About, read_toml(folder / NAME, links=False), folder / NAME)

    def table(model: type[Model], name: str) -> tuple[Model, ...]:
        return _lines(model, folder / name, about.decimals)

    return Published(
        folder=folder,
        about=about,
        table1=table(Reported, about.files.table1),
        table2=table(Viable, about.files.table2),
        table3={dataset.name: table(TimedSystem, dataset.table3_file) for dataset in about.datasets},
        table3c=table(Accuracy, about.files.table3c),
        scores={each.number: table(Scored, each.file) for dataset in about.datasets for each in dataset.scores},
        errata=table(Erratum, ERRATA) if os.path.lexists(folder / ERRATA) else (),
    )


def shipped() -> Iterator[Published]:
    """Yield the papers with costs that ship with harness.

    Raises:
        FileError: a file of a paper is wrong.
    """
    for folder in map(config.published_folder().joinpath, config.published_names()):
        if is_in(folder) and not has_measures_alone(folder):
            yield read(folder)


def has_measures_alone(folder: Path) -> bool:
    """Return whether a folder holds tables of measures alone, which ``published.toml`` lists as ``tables``.

    Raises:
        FileError: ``published.toml`` is not TOML.
    """
    return is_in(folder) and "tables" in read_toml(folder / NAME, links=False)


def minimum_viable(system: str, gpus: int) -> tuple[Viable, str] | None:
    """Return the first row of a shipped Table 2 for a system of harness, with or without GPUs, and its source.

    Raises:
        FileError: a file of a paper is wrong.
    """
    for paper in shipped():
        names = {source.system for source in paper.about.table2 if system in source.systems}
        for line in paper.table2:
            if line.system in names and bool(line.gpu) == bool(gpus):
                return line, f"Table 2: {paper.about.cited}, {paper.about.table2_remark}."
    return None


def csv_lines(path: Path, columns: Iterable[str]) -> Iterator[tuple[str, config.CsvRow]]:
    """Yield the rows of a table's file, each with its place; raise FileError if it is missing or not such a table."""
    if not os.path.lexists(path):
        raise FileError(f"{path}: no such file; {NAME} names it")
    with reading(path, "bring the file back"):
        content = read_whole(path, _MAX_BYTES)
    yield from config.csv_rows(path, ",".join(columns), content)


def _lines(model: type[Model], path: Path, decimals: dict[str, int]) -> tuple[Model, ...]:
    lines = []
    for place, cells in csv_lines(path, model.model_fields):
        try:
            line = model.model_validate({column: text for column, text in cells.items() if text})
        except ValidationError as error:
            raise FileError(
                f"{place}: {mistake(error).replace('is missing; add it', 'is empty; write it as the paper prints it')}"
            ) from error
        for column, cell in line:
            if isinstance(cell, Printed):
                _check_digits(f"{place}: {column}", cell, decimals.get(column))
        lines.append(line)
    if not lines:
        raise FileError(f"{path}: holds no row; bring the file back")
    return tuple(lines)


def _check_digits(cell: str, figure: Printed, decimals: int | None) -> None:
    """Raise FileError if a figure has fewer or more digits than printed."""
    if decimals is None:
        raise FileError(f"{cell}: [decimals] of {NAME} does not say how it is rounded; add it there")
    if figure.decimals != decimals:
        raise FileError(
            f"{cell}: {figure.text!r} has {figure.decimals} digits behind the point, but the paper prints"
            f" {decimals}; write it as printed"
        )


def published_table(published: Published, follows: Snapshot) -> Table:
    """Turn Tables 2 and 3 into rows without prices, with errata as notes.

    The suite of Table 3 has the paper's name.  Table 2 is the suite ``<name>-table2``, because its latencies were not
    measured on the machines that price them.  Measures are fractions (0.187); the paper prints per cent (18.7).

    Args:
        published: the tables.
        follows: the prices behind the paper's costs, with the facts of the instance types.

    Raises:
        FileError: a row names an instance type without a price there.
    """
    notes: dict[tuple[str, int], list[str]] = defaultdict(list)
    for erratum in published.errata:
        text = f"erratum ({erratum.kind}): {erratum.printed}; {erratum.follows}; {erratum.evidence}"
        notes[erratum.table, erratum.number].append(text)
    rows = [
        _row(published, table, number, line, follows, notes[table, number]) for table, number, line in published.lines()
    ]
    digits = {name: published.about.decimals[column] for name, column in MEASURES.items()}  # of a per cent
    rounded_to = {name: float(Fraction(1, 100 * 10**places)) for name, places in digits.items()}
    return Table(tuple(rows), tuple(MEASURES), rounded_to=rounded_to, rates=_rates(published.about))


def _rates(about: About) -> tuple[PublishedRates, ...]:
    """Return the exchange rates of each dataset's scores, for Table 3 and the first measure."""
    measure = next(iter(MEASURES))
    return tuple(
        PublishedRates(
            f"{about.cited}, Table {dataset.scores[0].number}", dataset.name, about.name, measure, dataset.amrs
        )
        for dataset in about.datasets
        if dataset.amrs
    )


def _row(
    published: Published, table: str, number: int, line: Viable | TimedSystem, follows: Snapshot, errata: Sequence[str]
) -> Row:
    """Build the row for a line of Table 3, or of Table 2 with the figures of Table 1."""
    about, instance = published.about, published.instance(line, follows)
    latency, reported = published.latency_of(line)
    dataset = next((dataset for dataset in about.datasets if dataset.table3 == table), about.datasets[0])
    accuracy = reported or published.accuracy(line.system, dataset)
    printed = {name: getattr(accuracy, column, None) for name, column in MEASURES.items()}
    absent = Estimate(None, reason=f"Table {'1' if reported else '3c'} does not have it")
    unknown = Estimate(None, reason=NO_SAMPLES)
    key = f"{about.name}/table{table}/{number}"
    index_gib = reported.index_gib if reported else None
    return Row(
        suite=f"{about.name}-table2" if reported else about.name,
        system=line.system,
        dataset=dataset.name,
        scenario=about.protocol.scenario,
        profile=line.hardware.profile,
        isolation=PUBLISHED,
        outcome=Outcome.OK,
        validity=Validity.UNKNOWN,
        key=key,
        cpus=line.cpu,
        memory_limit_bytes=line.hardware.memory_bytes,
        gpus=line.gpu,
        k=about.protocol.k,
        published_type=line.instance_type,
        gpu_memory_bytes=instance.gpu_memory_bytes if line.gpu else None,
        queries=None if reported else about.protocol.queries,
        trials=None if reported else about.protocol.trials,
        measures={
            name: Estimate(float(Fraction(percent.value, 100))) if percent else absent
            for name, percent in printed.items()
        },
        latency=Latency(
            mean_s=Estimate(float(latency.value / 1000)),
            p50_s=unknown,
            p95_s=unknown,
            p99_s=unknown,
            at_most_s=dict.fromkeys(("p50", "p95", "p99"), unknown),
        ),
        throughput_qps=unknown,
        index=IndexFigures(size_bytes=int(index_gib.value) * GIB if index_gib else None),
        keys=(key,),
        notes=(NOT_JUDGED, *([_other_machine(reported)] if reported else []), *errata),
    )


def _other_machine(reported: Reported) -> str:
    on = "" if reported.cpu is None else f", on a machine with {counted(reported.cpu, 'CPU')}"
    return f"the latency was not measured on this type: Table 1 has it from {reported.reference}{on}"
