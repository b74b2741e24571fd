"""Read corpus, queries and judgements from a folder or ir_datasets; draw fixed query samples.

Formats are recognised by their files (:mod:`harness.datasets.formats`); the corpus is streamed into the cache once
(:mod:`harness.datasets.corpus`), whatever its size.
"""

from __future__ import annotations

from pathlib import Path

from harness.config import data_root
from harness.datasets import formats as _formats
from harness.datasets import ir_datasets
from harness.datasets.corpus import PreparedCorpus, prepare_corpus
from harness.datasets.dataset import Dataset, QuerySample, draw_sample
from harness.datasets.ir_datasets import IrDataset
from harness.errors import UnknownName
from harness.progress import Progress, silent

__all__ = ["Dataset", "DatasetLocation", "IrDataset", "PreparedCorpus", "QuerySample", "draw_sample", "find", "load"]

# A folder, with "#split" after its name if it has several; or an id of ir_datasets.
DatasetLocation = Path | IrDataset


def find(name: str, beside: Path) -> DatasetLocation:
    """Find a dataset by its path (relative to ``beside``), the name of a shipped one, or an id of ir_datasets.

    Raises:
        UnknownName: it is none of them.
    """
    path = beside / name
    if name.startswith((".", "/")):
        return path
    shipped = {qrels.parent.name: qrels.parent for qrels in (data_root() / "datasets").glob("*/qrels.trec*")}
    if name in shipped:
        return shipped[name]
    if _split(path)[0].is_dir():
        return path
    nearest = ir_datasets.nearest(name)
    if isinstance(nearest, IrDataset):
        return nearest
    names = [*shipped, "a folder such as ./my-data", "an id of ir_datasets such as beir/scifact/test"]
    raise UnknownName("dataset", name, [*names, nearest] if nearest else names)


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
        name, source = location.name, ir_datasets.read(location)
    else:
        path, split = _split(location)
        name, source = location.name.replace("#", "-"), _formats.read(path, split)
    corpus = prepare_corpus(source.documents, cache, progress)
    return Dataset(name, corpus, source.queries, source.qrels, source.answers)


def _split(path: Path) -> tuple[Path, str | None]:
    """Return folder and split of ``folder#split``; a folder may have a ``#`` in its own name."""
    name, mark, split = path.name.rpartition("#")
    return (path.with_name(name), split) if mark and name and not path.is_dir() else (path, None)
