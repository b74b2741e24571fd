"""A paper's tables, read from CSV: every figure keeps its digits; a wrong cell is one line that says where."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from harness import config
from harness.analysis.published import sources
from harness.analysis.published.rounding import Printed
from harness.analysis.published.sources import About, Dataset
from harness.errors import FileError
from harness.pricing import prices
from harness.pricing.cost import GIB
from harness.pricing.prices import Snapshot
from harness.untrusted import read_whole


def _printed(text: str | None) -> Printed:
    if text is None:
        raise ValueError("is empty; write the figure as the paper prints it")
    return Printed(text)


def _count(text: str | None) -> int:
    if text is None or not re.fullmatch("[0-9]{1,6}", text, flags=re.ASCII):
        raise ValueError(f"{text or ''!r} is no whole number; write one")
    return int(text)


def _text(text: str | None) -> str:
    if text is None:
        raise ValueError("is empty; write the name")
    return text


def _or_none(check: Callable[[str | None], Any]) -> Callable[[str | None], Any]:
    return lambda text: None if text is None else check(text)


Figure = Annotated[Printed, BeforeValidator(_printed)]
MaybeFigure = Annotated[Printed | None, BeforeValidator(_or_none(_printed))]
Count = Annotated[int, BeforeValidator(_count)]
MaybeCount = Annotated[int | None, BeforeValidator(_or_none(_count))]
Name = Annotated[str, BeforeValidator(_text)]


class Line(BaseModel):
    """Base of a table's rows.  Its fields are the columns, in their order."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Reported(Line):
    """Table 1: what other papers report, each on its own machine."""

    system: Name
    reference: Name
    gpu: MaybeCount
    cpu: MaybeCount
    ram_gib: MaybeFigure
    mrr_at_10: Figure
    latency_ms: MaybeFigure
    index_gib: MaybeFigure


@dataclass(frozen=True)
class Hardware:
    """What a system was given, or is said to need."""

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
        """Whether ``other`` has at least as much of everything."""
        return self.gpus <= other.gpus and self.cpus <= other.cpus and self.memory_gib <= other.memory_gib

    def __str__(self) -> str:
        """As sentences name it."""
        gpus = f"{self.gpus} GPU, " if self.gpus else ""
        return f"{gpus}{self.cpus} CPU, {self.memory_gib} GiB"


class Placed(Line):
    """A system on a machine."""

    system: Name
    gpu: Count
    cpu: Count
    ram_gib: Figure
    instance_type: Name

    @property
    def hardware(self) -> Hardware:
        """What the system was given, or is said to need."""
        return Hardware(self.gpu, self.cpu, int(self.ram_gib.value))


class Viable(Placed):
    """Table 2: the smallest machine that a system is said to need, and what a million queries cost there."""

    cost_usd_per_million: Figure


class Timed(Placed):
    """Tables 3a and 3b: a system measured in an envelope."""

    latency_ms: Figure
    cost_usd_per_million: Figure


class Accuracy(Line):
    """Table 3c: what a system is worth on a dataset, per cent."""

    system: Name
    dataset: Name
    mrr_at_10: Figure
    success_at_10: Figure


class Scored(Line):
    """Table 4: Dynascores with their rank."""

    rank: Count
    system: Name
    hardware: Name
    dynascore: Figure


@dataclass(frozen=True)
class Published:
    """All tables of a paper.  ``table3`` and ``table4`` are by dataset name, as ``about.datasets`` writes it."""

    folder: Path
    about: About
    table1: tuple[Reported, ...]
    table2: tuple[Viable, ...]
    table3: dict[str, tuple[Timed, ...]]
    table3c: tuple[Accuracy, ...]
    table4: dict[str, tuple[Scored, ...]]

    def follows(self) -> Snapshot:
        """The prices that the paper's costs follow; UsageError if there are none such."""
        wanted = self.about.prices
        return prices.snapshot(wanted.as_of, region=f"{wanted.provider}/{wanted.region}", term=wanted.term)

    def accuracy(self, system: str, dataset: Dataset) -> Accuracy | None:
        """A system's line of Table 3c."""
        found = (line for line in self.table3c if (line.system, line.dataset) == (system, dataset.label))
        return next(found, None)

    def latency_of(self, line: Viable | Timed) -> tuple[Printed, Reported | None]:
        """The latency that a cost is made of, and the row of Table 1 that it is from (Table 3 has its own).

        Raises:
            FileError: ``published.toml`` names no row of Table 1 for it, or one without latency.
        """
        if isinstance(line, Timed):
            return line.latency_ms, None
        toml = self.folder / sources.NAME
        source = next((each for each in self.about.table2 if each.system == line.system), None)
        if source is None:
            raise FileError(f"{toml}: no [[table2]] says whose latency {line.system!r} has; add one")
        for row in self.table1:
            if (row.system, row.reference) == (source.of, source.reference) and row.latency_ms is not None:
                return row.latency_ms, row
        raise FileError(
            f"{toml}: [[table2]] {line.system!r}: Table 1 has no latency of {source.of!r}, {source.reference!r};"
            " name one of its rows"
        )


Model = TypeVar("Model", bound=Line)
_MOST_BYTES = 8 << 20


def read(folder: Path) -> Published:
    """Read a folder of published tables.

    Raises:
        FileError: a file is missing or wrong; names the file, the line and the column.
    """
    known = sources.read(folder)

    def table(model: type[Model], name: str) -> tuple[Model, ...]:
        return _lines(model, folder / name, known.decimals)

    return Published(
        folder=folder,
        about=known,
        table1=table(Reported, known.files.table1),
        table2=table(Viable, known.files.table2),
        table3={each.name: table(Timed, each.table3_file) for each in known.datasets},
        table3c=table(Accuracy, known.files.table3c),
        table4={each.name: table(Scored, each.table4_file) for each in known.datasets},
    )


def _lines(model: type[Model], path: Path, decimals: dict[str, int]) -> tuple[Model, ...]:
    if not os.path.lexists(path):
        raise FileError(f"{path}: no such file; {sources.NAME} names it")
    try:
        content = read_whole(path, _MOST_BYTES)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}; bring the file back") from error
    found = []
    for place, cells in config.csv_rows(path, ",".join(model.model_fields), content):
        try:
            line = model.model_validate({column: text or None for column, text in cells.items()})
        except ValidationError as error:
            first = error.errors()[0]
            message = first["msg"].removeprefix("Value error, ")
            raise FileError(f"{place}: {first['loc'][0]}: {message}") from error
        for column in model.model_fields:
            _check_digits(place, column, getattr(line, column), decimals)
        found.append(line)
    if not found:
        raise FileError(f"{path}: holds no row; bring the file back")
    return tuple(found)


def _check_digits(place: str, column: str, cell: object, decimals: dict[str, int]) -> None:
    """The printed digits decide what a figure may stand for, so none may be lost or made up."""
    if not isinstance(cell, Printed):
        return
    if column not in decimals:
        raise FileError(f"{place}: {column}: [decimals] of {sources.NAME} does not say how it is rounded; add it there")
    if cell.decimals != decimals[column]:
        raise FileError(
            f"{place}: {column}: {cell.text!r} has {cell.decimals} digits behind the point, but the paper prints"
            f" {decimals[column]}; write it as printed"
        )
