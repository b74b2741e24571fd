"""Read corpus, queries and judgements from a folder or ir_datasets; draw fixed query samples.

Formats are recognised by their files (:mod:`harness.datasets.formats`); the corpus is streamed into the cache once
(:mod:`harness.datasets.corpus`), at any size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness import extras
from harness.config import absolute_folder, data_root, read_toml, validate
from harness.datasets import formats as _formats
from harness.datasets import ir_datasets, msmarco, xor_tydi
from harness.datasets.corpus import PreparedCorpus, prepare_corpus
from harness.datasets.dataset import Dataset, QuerySample, draw_sample, filter_fields
from harness.datasets.ir_datasets import IrDataset
from harness.datasets.licence import MS_MARCO, XOR_TYDI, DatasetFacts
from harness.datasets.passage_positions import positions_content
from harness.datasets.sizes import SizedDataset, is_made, resized
from harness.errors import FileError, UnknownName, UsageError
from harness.progress import Progress, bar, silent
from harness.results.schema import split_size

__all__ = [
    "CorpusToMake",
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


# A folder, with "#split" after its name if it has several; an id of ir_datasets; or either at another size.
DatasetLocation = Path | IrDataset | SizedDataset


def dataset_name(declared: str) -> str:
    """Return the dataset's name in results: a path's last part, or an id with ``-`` for ``/``."""
    if declared.startswith((".", "/")):
        declared = declared.rstrip("/").rpartition("/")[2]
    return declared.strip("/").replace("/", "-").replace("#", "-")


def find(name: str, beside: Path) -> DatasetLocation:
    """Find a dataset by its path (relative to ``beside``), a shipped dataset's name, or an id of ir_datasets.

    Raises:
        UnknownName: no dataset has this path, name or id.
        UsageError: it has two sizes.
    """
    path = beside / name
    whole, documents = split_size(name)
    if documents is not None and not path.is_dir():
        of = find(whole, beside)
        if isinstance(of, SizedDataset):
            raise UsageError(f"dataset {name}: it has two sizes; name one")
        return SizedDataset(of, documents)
    if name.startswith((".", "/")):
        return path
    shipped = {qrels.parent.name: qrels.parent for qrels in (data_root() / "datasets").glob("*/qrels.trec*")}
    if name in shipped:
        return shipped[name]
    if _split(path)[0].is_dir():
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
    """Return whether a dataset's files are on this machine, complete or not; at any size."""
    whole = _whole(location)
    return ir_datasets.is_fetched(whole) if isinstance(whole, IrDataset) else _split(whole)[0].exists()


@dataclass(frozen=True)
class CorpusToMake:
    """A dataset at another size whose corpus is still to be made; ``whole`` is the dataset as it is."""

    whole: Dataset
    documents: int

    @property
    def corpus_bytes(self) -> int:
        """The rough size of the corpus."""
        corpus = self.whole.corpus
        return max(1, corpus.file_bytes * self.documents // corpus.size)


def to_make(declared: str, beside: Path, cache: Path, load_whole: Callable[[str], Dataset]) -> CorpusToMake | None:
    """Return the corpus that is made for a dataset at another size; ``None``: it has no size, or it is in the cache.

    Args:
        load_whole: loads the dataset, by its name without a size.

    Raises:
        UnknownName, FileError, UsageError: as :func:`load_named`.
    """
    location = find(declared, beside)
    if not isinstance(location, SizedDataset):
        return None
    whole = load_whole(split_size(declared)[0])
    made = is_made(whole, location.documents, absolute_folder(cache))
    return None if made else CorpusToMake(whole, location.documents)


def missing_folder(location: DatasetLocation) -> FileError | None:
    """Return the error of a location whose folder does not exist; ir_datasets may still fetch its own."""
    folder = folder_of(location)
    return None if folder is None else _formats.missing_folder(folder)


def missing_files(location: DatasetLocation) -> FileError | None:
    """Return the error of a location whose folder does not exist or lacks a file; ir_datasets may still fetch its own.

    Nothing is read.
    """
    if (folder := folder_of(location)) is not None:
        try:
            _formats.name_of(folder)
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
    if isinstance(location, SizedDataset):
        return resized(load(location.of, cache, progress), location.documents, cache, progress)
    if isinstance(location, IrDataset):
        name, source, language = location.name, ir_datasets.read(location), ir_datasets.language(location)
        positions = b""
    else:
        path, split = _split(location)
        name, source = location.name.replace("#", "-"), _formats.read(path, split)
        language, positions = _facts(path).language, positions_content(path)
    corpus, qrels = prepare_corpus(source.documents, cache, progress, filter_fields(source.queries)), source.qrels
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


def folder_of(location: DatasetLocation) -> Path | None:
    """Return the folder of a dataset of any split and size; ``None``: it is one of ir_datasets."""
    whole = _whole(location)
    return None if isinstance(whole, IrDataset) else _split(whole)[0]


def _whole(location: DatasetLocation) -> Path | IrDataset:
    return location.of if isinstance(location, SizedDataset) else location


def licence(location: DatasetLocation) -> DatasetFacts:
    """Return a dataset's licence and attribution by its ``dataset.toml``, else by its format.

    Raises:
        FileError: ``dataset.toml`` cannot be read.
    """
    location = _whole(location)
    if isinstance(location, IrDataset):
        return MS_MARCO if location.name.startswith("msmarco") else DatasetFacts()
    folder = _split(location)[0]
    facts = _facts(folder)
    known = {msmarco.FORMAT.name: MS_MARCO, xor_tydi.FORMAT.name: XOR_TYDI}
    return facts if facts.licence else known.get(_formats.name_of(folder), facts)


def _facts(folder: Path) -> DatasetFacts:
    path = folder / _FACTS
    return validate(DatasetFacts, read_toml(path) if path.is_file() else {}, path)


def _split(path: Path) -> tuple[Path, str | None]:
    """Return folder and split of ``folder#split``; a folder may have a ``#`` in its own name."""
    name, mark, split = path.name.rpartition("#")
    return (path.with_name(name), split) if mark and name and not path.is_dir() else (path, None)
