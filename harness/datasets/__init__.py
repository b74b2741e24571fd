"""Read corpus, queries and judgements from a folder or ir_datasets; draw fixed query samples.

Formats are recognised by their files (:mod:`harness.datasets.formats`); the corpus is streamed into the cache once
(:mod:`harness.datasets.corpus`), at any size.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from harness import extras
from harness.config import ConfigModel, absolute_folder, data_root, read_toml, validate
from harness.datasets import formats as _formats
from harness.datasets import ir_datasets, msmarco, xor_tydi
from harness.datasets.corpus import PreparedCorpus, prepare_corpus
from harness.datasets.dataset import Dataset, Language, QuerySample, draw_sample
from harness.datasets.ir_datasets import IrDataset
from harness.datasets.licence import MS_MARCO, XOR_TYDI, Licence
from harness.datasets.passage_positions import positions_content
from harness.errors import FileError, UnknownName
from harness.progress import Progress, bar, silent
from harness.untrusted import ForeignText

__all__ = [
    "Dataset",
    "DatasetLocation",
    "IrDataset",
    "PreparedCorpus",
    "QuerySample",
    "dataset_name",
    "draw_sample",
    "find",
    "licence",
    "load",
    "load_named",
]

_FACTS = "dataset.toml"


class DatasetFacts(ConfigModel):
    """``dataset.toml`` in a dataset's folder."""

    language: Language | None = Field(
        default=None, description="code of the language of documents and queries, e.g. `zh`"
    )
    licence: ForeignText | None = Field(
        default=None, description="licence of the texts; copies that harness generates name it"
    )
    attribution: ForeignText | None = Field(default=None, description="whom to name as the author of the texts")


# A folder, with "#split" after its name if it has several; or an id of ir_datasets.
DatasetLocation = Path | IrDataset


def dataset_name(declared: str) -> str:
    """Return the dataset's name in results: a path's last part, or an id with ``-`` for ``/``."""
    if declared.startswith((".", "/")):
        declared = declared.rstrip("/").rpartition("/")[2]
    return declared.strip("/").replace("/", "-").replace("#", "-")


def find(name: str, beside: Path) -> DatasetLocation:
    """Find a dataset by its path (relative to ``beside``), a shipped dataset's name, or an id of ir_datasets.

    Raises:
        UnknownName: no dataset has this path, name or id.
    """
    path = beside / name
    if name.startswith((".", "/")):
        return path
    shipped = {qrels.parent.name: qrels.parent for qrels in (data_root() / "datasets").glob("*/qrels.trec*")}
    if name in shipped:
        return shipped[name]
    if folder_of(path).is_dir():
        return path
    names = [*shipped, "a folder such as ./my-data"]
    if text := extras.missing("ir_datasets"):
        raise UnknownName("dataset", name, names, text)
    nearest = ir_datasets.nearest(name)
    if isinstance(nearest, IrDataset):
        return nearest
    names.append("an id of ir_datasets such as beir/scifact/test")
    raise UnknownName("dataset", name, [*names, nearest] if nearest else names)


def is_here(location: DatasetLocation) -> bool:
    """Return whether a dataset's files are on this machine, complete or not."""
    return ir_datasets.is_fetched(location) if isinstance(location, IrDataset) else folder_of(location).exists()


def missing_folder(location: DatasetLocation) -> FileError | None:
    """Return the error of a location whose folder does not exist; ir_datasets may still fetch its own."""
    return None if isinstance(location, IrDataset) else _formats.missing_folder(folder_of(location))


def missing_files(location: DatasetLocation) -> FileError | None:
    """Return the error of a location whose folder does not exist or lacks a file; ir_datasets may still fetch its own.

    Nothing is read.
    """
    if not isinstance(location, IrDataset):
        try:
            _formats.name_of(folder_of(location))
        except FileError as error:
            return error
    return None


def load(location: DatasetLocation, cache: Path, progress: Progress = silent) -> Dataset:
    """Read and check a dataset; stream the corpus into the cache once.

    Args:
        location: from :func:`find`.
        cache: holds prepared corpora.
        progress: gets the numbers of prepared documents and of all (0: unknown) while a large corpus is prepared.

    Raises:
        FileError: a file is missing, or a line is wrong: names file, line and fault.
        UsageError: the format needs something else that is missing.
    """
    if isinstance(location, IrDataset):
        name, source, language = location.name, ir_datasets.read(location), ir_datasets.language(location)
        positions = b""
    else:
        path, split = _split(location)
        name, source = location.name.replace("#", "-"), _formats.read(path, split)
        language, positions = _facts(path).language, positions_content(path)
    fields = {name for query in source.queries for name, _ in query.filter}
    corpus, qrels = prepare_corpus(source.documents, cache, progress, fields), source.qrels
    return Dataset(name, corpus, source.queries, qrels.content, source.answers, language, positions, qrels.repeated)


def load_named(declared: str, beside: Path, cache: Path) -> Dataset:
    """Find and load a dataset, with a bar while a large corpus is prepared.

    Raises:
        UnknownName: there is no such dataset.
        FileError, UsageError: as :func:`load`.
    """
    location = find(declared, beside)
    with bar(f"{dataset_name(declared)}: corpus", "documents", line=True) as step:
        return load(location, absolute_folder(cache), step)


def folder_of(location: Path) -> Path:
    """Return the folder of a location with or without a split."""
    return _split(location)[0]


def licence(location: DatasetLocation) -> Licence:
    """Return the licence that a dataset's ``dataset.toml`` states; MS MARCO's and XOR-TyDi's are known.

    Raises:
        FileError: ``dataset.toml`` cannot be read.
    """
    if isinstance(location, IrDataset):
        return MS_MARCO if location.name.startswith("msmarco") else Licence(None)
    folder = folder_of(location)
    form = _formats.name_of(folder)
    if form == msmarco.FORMAT.name:
        return MS_MARCO
    facts = _facts(folder)
    if facts.licence is None and form == xor_tydi.FORMAT.name:
        return XOR_TYDI
    return Licence(facts.licence, facts.attribution)


def _facts(folder: Path) -> DatasetFacts:
    path = folder / _FACTS
    return validate(DatasetFacts, read_toml(path) if path.is_file() else {}, path)


def _split(path: Path) -> tuple[Path, str | None]:
    """Return folder and split of ``folder#split``; a folder may have a ``#`` in its own name."""
    name, mark, split = path.name.rpartition("#")
    return (path.with_name(name), split) if mark and name and not path.is_dir() else (path, None)
