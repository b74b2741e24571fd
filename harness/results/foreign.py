"""Figures of others next to stored results, in ``foreign.json``: quality of models, and points of vector searches.

Nothing of it was measured here.  Tables show a quality in a column of its own, marked ``°``; no mean, rank or score
takes it in.  ``harness import`` writes the file, and :mod:`harness.results.foreign_formats` reads the others' formats.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from harness import filesystem
from harness.config import ConfigModel, validate
from harness.errors import FileError, UsageError
from harness.results import seals
from harness.results.pin_lock import Sha256
from harness.untrusted import parse_json, read_whole, reading, to_json

FILE = "foreign.json"
MARK = "°"
_MOST_BYTES = 32 << 20
_REMEDY = "remove it, and import the files again"

# Names of others become headings and names of columns.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:@+/()=,*%|&-]{0,199}$")]


class ForeignQuality(ConfigModel):
    """A measure of a model that somebody else reports; ``file_sha256`` is the file's that says so."""

    source: Literal["mteb", "hakari"]
    model: Name
    revision: Name | None = None
    task: Name
    dataset_revision: Name | None = None
    split: Name
    subset: Name
    measure: Name
    value: Annotated[float, Field(ge=0, le=1)]
    file_sha256: Sha256

    @property
    def column(self) -> str:
        """The name of its column: ``mteb SciFact nDCG@10``, with subset and split where they are not the usual ones."""
        others = [name for name in (self.subset, self.split) if name not in ("default", "test", *self.task.split("/"))]
        return " ".join((self.source, self.task, *others, self.measure))


def parts_of(column: str) -> tuple[str, str, str]:
    """Return source, task and measure of a column's name."""
    source, *task, measure = column.split(" ")
    return source, " ".join(task), measure


class ForeignPoint(ConfigModel):
    """Recall and queries a second that somebody else reports of a vector search."""

    source: Literal["ann-benchmarks", "vectordbbench"]
    dataset: Name
    system: Name
    setting: Name
    recall: Annotated[float, Field(ge=0, le=1)]
    queries_per_s: Annotated[float, Field(gt=0)]
    file_sha256: Sha256


class ForeignFigures(ConfigModel):
    """Content of ``foreign.json``.

    ``models`` maps a system to ``model@revision``, where its user says so.
    """

    version: Literal[1] = 1
    imported: datetime.date
    models: dict[Name, Name] = Field(default={})
    qualities: tuple[ForeignQuality, ...] = ()
    points: tuple[ForeignPoint, ...] = ()
    # Empty until it is written.
    seal: Sha256 | Literal[""] = ""


def read(results: Path) -> ForeignFigures | None:
    """Read the figures of others in a results folder; ``None``: there are none.

    Raises:
        FileError: the file is damaged, or was changed since harness wrote it.
    """
    path = results / FILE
    if not path.is_file():
        return None
    with reading(path, _REMEDY, fault="damaged", damage=(OSError, ValueError)):
        raw = parse_json(read_whole(path, _MOST_BYTES))
        broken = seals.broken(raw) if isinstance(raw, dict) else None
    if broken is not None:
        raise FileError(f"{path}: {seals.difference_of(broken)}; {_REMEDY}")
    return validate(ForeignFigures, raw, path)


def read_if_whole(results: Path) -> tuple[ForeignFigures | None, tuple[FileError, ...]]:
    """Read the figures of others in a results folder, with the error about a damaged file, which is left out."""
    try:
        return read(results), ()
    except FileError as error:
        return None, (error,)


def write(
    results: Path,
    qualities: Iterable[ForeignQuality],
    points: Iterable[ForeignPoint],
    models: Mapping[str, str],
    today: datetime.date,
) -> ForeignFigures:
    """Add figures of others to a results folder; each replaces one of the same name, and an empty model removes one.

    Raises:
        FileError: the file there is damaged.
        UsageError: the file would be too large to be read.
        StoreError: it cannot be written.
    """
    old = read(results) or ForeignFigures(imported=today)
    known = {(each.column, each.model, each.revision): each for each in (*old.qualities, *qualities)}
    placed = {(each.source, each.dataset, each.system, each.setting): each for each in (*old.points, *points)}
    named = {system: model for system, model in {**old.models, **models}.items() if model}
    record = ForeignFigures(
        imported=today, models=named, qualities=tuple(known.values()), points=tuple(placed.values())
    )
    content = json.loads(record.model_dump_json(exclude_none=True, exclude={"seal"}))
    sealed = {**content, "seal": seals.of(content)}
    text = to_json(sealed, indent=1) + "\n"
    if len(text) > _MOST_BYTES:
        size = f"{len(text) >> 20:,} MiB of figures; the limit is {_MOST_BYTES >> 20} MiB"
        raise UsageError(f"{results / FILE}: {size}; import the folders of your own models alone")
    with filesystem.atomic_write(results / FILE) as partial:
        partial.write_text(text, encoding="utf-8")
    return validate(ForeignFigures, sealed, results / FILE)
