"""A folder of files, or an id of ir_datasets -> corpus, topics, judgements; and fixed query samples by seed.

Formats are recognised by their files (:mod:`harness.datasets.formats`); a corpus is streamed into the cache once
(:mod:`harness.datasets.prepare`), whatever its size.
"""

from __future__ import annotations

from pathlib import Path

from harness.config import data_root
from harness.datasets import formats as _folder
from harness.datasets import ir_datasets
from harness.datasets import prepare as _prepare
from harness.datasets.answers import Answers
from harness.datasets.corpus import Corpus
from harness.datasets.ir_datasets import Registered
from harness.datasets.query_sample import draw
from harness.datasets.records import Dataset, QuerySample
from harness.errors import UnknownName
from harness.progress import Progress, silent

__all__ = [
    "Answers",
    "Corpus",
    "Dataset",
    "Place",
    "Progress",
    "QuerySample",
    "Registered",
    "draw",
    "find",
    "load",
]

# Where a dataset is: a folder, with "#split" behind its name where there are several; or an id of ir_datasets.
Place = Path | Registered


def find(name: str, beside: Path) -> Place:
    """Where a dataset is: a path (relative to ``beside``), the name of a shipped one, or an id of ir_datasets.

    Raises:
        UnknownName: none of them.
    """
    path = beside / name
    if name.startswith((".", "/")):
        return path
    shipped = {found.parent.name: found.parent for found in (data_root() / "datasets").glob("*/qrels.trec*")}
    if name in shipped:
        return shipped[name]
    if _split(path)[0].is_dir():
        return path
    found = ir_datasets.nearest(name)
    if isinstance(found, Registered):
        return found
    known = [*shipped, "a folder such as ./my-data", "an id of ir_datasets such as beir/scifact/test"]
    raise UnknownName("dataset", name, [*known, found] if found else known)


def load(place: Place, cache: Path, progress: Progress = silent) -> Dataset:
    """Read and check a dataset; the corpus is streamed into the cache once.

    Args:
        place: as :func:`find` gives it.
        cache: holds prepared corpora.
        progress: told now and then how many documents are done, and of how many (0: unknown), while a large corpus is
            prepared.

    Raises:
        FileError: a file is missing, or one of its lines is wrong: names file, line and what is wrong.
        UsageError: something else is missing that the format needs.
    """
    if isinstance(place, Registered):
        name, source = place.name, ir_datasets.read(place)
    else:
        path, split = _split(place)
        name, source = place.name.replace("#", "-"), _folder.read(path, split)
    corpus = _prepare.prepare(source.documents, cache, progress)
    return Dataset(name, corpus, source.queries, source.qrels, source.answers)


def _split(path: Path) -> tuple[Path, str | None]:
    """``folder#split`` -> folder and split; a folder may have a ``#`` in its own name."""
    name, mark, split = path.name.rpartition("#")
    return (path.with_name(name), split) if mark and name and not path.is_dir() else (path, None)
