"""Read datasets of ir_datasets by their ids; it downloads missing files.

Queries and judgements are taken unchanged; of a document's fields, ``title`` and ``text`` (or ``body``), else its
default text.  ``ID#FIELD`` takes another field of the queries, such as a TREC topic's ``description``.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from harness import errors
from harness.datasets.corpus import folder_state
from harness.datasets.source import DatasetSource, DocumentStream, SourceDocument, collect_qrels, collect_queries
from harness.driver.records import digest
from harness.errors import FileError, UsageError

_Item = TypeVar("_Item")
# Errors of downloads and readers: ir_datasets passes on its libraries' errors.  EOFError: it asked for a password on
# a closed input.
_IR_DATASETS_ERRORS = (
    *(OSError, RuntimeError, ValueError, KeyError, AttributeError, AssertionError, EOFError, ImportError, SyntaxError),
    *(zlib.error, zipfile.BadZipFile, tarfile.TarError),
)


@dataclass(frozen=True)
class IrDataset:
    """Id of a dataset in ir_datasets, e.g. ``beir/scifact/test``, and the field of its queries (None: their text)."""

    id: str
    query_field: str | None = None

    @property
    def name(self) -> str:
        """Name in results."""
        return "-".join((self.id.replace("/", "-"), *filter(None, [self.query_field])))


def nearest(name: str) -> IrDataset | str | None:
    """Return the dataset of that ``ID`` or ``ID#FIELD``, else the most similar id, if there is one.

    Raises:
        UsageError: the user has no home folder, without which ir_datasets cannot be imported.
    """
    try:
        Path.home()
    except RuntimeError:
        raise UsageError(f"dataset {name}: ir_datasets needs a home folder, and this user has none; set HOME") from None
    import ir_datasets

    name, _, query_field = name.partition("#")
    with contextlib.suppress(KeyError):
        ir_datasets.registry[name]
        return IrDataset(name, query_field or None)
    return errors.nearest(name, ir_datasets.registry)


def read(dataset: IrDataset) -> DatasetSource:
    """Read queries and judgements; documents are streamed later.

    Raises:
        FileError: ir_datasets could not get or read a file.
        UsageError: the id names a part without documents, queries or judgements, or its queries lack the field.
    """
    import ir_datasets

    logging.getLogger("ir_datasets").addFilter(_is_no_download_error)
    loaded = ir_datasets.load(dataset.id)
    for part in ("docs", "queries", "qrels"):
        if not getattr(loaded, f"has_{part}")():
            raise UsageError(f"{dataset.id}: ir_datasets has no {part} for it; name a part that has them")
    place = f"{dataset.id} (ir_datasets)"
    topics = _fetch(dataset, lambda: [(place, item.query_id, _query(dataset, item)) for item in loaded.queries_iter()])
    judged = _fetch(dataset, lambda: list(loaded.qrels_iter()))
    rows = [(place, item.query_id, item.doc_id, str(item.relevance)) for item in judged]
    corpus_id = ir_datasets.docs_parent_id(dataset.id)
    # ir_datasets checks its downloads, but not files that a user put in its folder.  All are in the folder of the id's
    # first part, sometimes with other collections; fetching the first document ensures that they exist.
    _fetch(dataset, lambda: next(loaded.docs_iter(), None))
    folder = ir_datasets.util.home_path().resolve() / corpus_id.split("/")[0]
    kind = digest(["ir_datasets", corpus_id, ir_datasets.__version__, str(folder), folder_state(folder)])
    label, count = f"{corpus_id} (ir_datasets)", ir_datasets.util.count_hint(corpus_id)
    documents = DocumentStream(label, kind, (), lambda: _documents(dataset), lambda: count() or 0)
    return DatasetSource(documents, collect_queries(topics), collect_qrels(rows))


# ir_datasets writes it before it fetches anything.
_MARK = "irds_version.txt"


def is_fetched(dataset: IrDataset) -> bool:
    """Return whether ir_datasets has fetched files of a dataset's collection."""
    import ir_datasets

    folder = ir_datasets.util.home_path() / dataset.id.split("/")[0]
    return any(path.is_file() and path.name != _MARK for path in folder.rglob("*"))


def language(dataset: IrDataset) -> str | None:
    """Return the code of the documents' language, if ir_datasets knows it."""
    import ir_datasets

    code = ir_datasets.load(dataset.id).docs_lang()
    return str(code) if code else None


def _is_no_download_error(record: logging.LogRecord) -> bool:
    """Return False for messages of failed downloads: the error that follows reports them."""
    return not record.getMessage().lower().startswith(("download error", "download failed"))


def _documents(dataset: IrDataset) -> Iterator[SourceDocument]:
    import ir_datasets

    items = ir_datasets.load(dataset.id).docs_iter()
    for number in itertools.count(1):
        item = _fetch(dataset, lambda: next(items, None))
        if item is None:
            return
        # The default text may include the title.
        title = "" if _field(item, "text", "body") is None else _field(item, "title") or ""
        yield SourceDocument(f"{dataset.id}: document {number}", item.doc_id, title, _text(item, "text", "body"))


def _query(dataset: IrDataset, item: Any) -> str:
    if dataset.query_field is None:
        return _text(item, "text")
    text = _field(item, dataset.query_field)
    if text is None:
        texts = [name for name in item._fields if name != "query_id" and _field(item, name) is not None]
        raise UsageError(
            f"{dataset.id}: its queries have no text {dataset.query_field!r}; after '#' write one of {', '.join(texts)}"
        )
    return " ".join(text.split())


def _field(item: Any, *names: str) -> str | None:
    """Return the first of these fields that exists, if it is text."""
    value = next((getattr(item, name) for name in names if hasattr(item, name)), None)
    return value if isinstance(value, str) else None


def _text(item: Any, *names: str) -> str:
    """Return the first of these fields that exists, if it is text; else the default text."""
    text = _field(item, *names)
    return str(item.default_text()) if text is None else text


def _fetch(dataset: IrDataset, fetch: Callable[[], _Item]) -> _Item:
    try:
        return fetch()
    except UsageError:
        raise
    except _IR_DATASETS_ERRORS as error:
        first = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
        remedy = "connect this machine, or put its files into IR_DATASETS_HOME"
        raise FileError(f"{dataset.id}: ir_datasets could not get it: {first}; {remedy}") from error
