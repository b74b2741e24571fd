"""Datasets that ir_datasets knows, by their ids: downloaded where they are not there yet, and streamed.

What ir_datasets says comes over as it is; of a document's fields, ``title`` and ``text`` (or ``body``) are taken, else
its default text.
"""

from __future__ import annotations

import difflib
import logging
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from harness.datasets import corpus, prepare
from harness.datasets.records import Document, Documents, Source
from harness.errors import FileError, UsageError
from harness.records import digest

_Item = TypeVar("_Item")
# What downloading and reading raise; ir_datasets lets through what its libraries do.  EOFError: it would have asked
# for a password where nobody answers.
_WRONG = (
    *(OSError, RuntimeError, ValueError, KeyError, AttributeError, AssertionError, EOFError, ImportError, SyntaxError),
    *(zlib.error, zipfile.BadZipFile, tarfile.TarError),
)


@dataclass(frozen=True)
class Registered:
    """A dataset's id in ir_datasets, e.g. ``beir/scifact/test``."""

    id: str

    @property
    def name(self) -> str:
        """What results call it."""
        return self.id.replace("/", "-")


def nearest(name: str) -> Registered | str | None:
    """The dataset of that id, else the id that is most like it, if any is."""
    import ir_datasets

    try:
        ir_datasets.registry[name]
    except KeyError:
        pass
    else:
        return Registered(name)
    near = difflib.get_close_matches(name, list(ir_datasets.registry), n=1)
    return near[0] if near else None


def read(registered: Registered) -> Source:
    """Queries and judgements; documents as they are asked for.

    Raises:
        FileError: ir_datasets could not get or read something.
        UsageError: the id names a part without documents, queries or judgements.
    """
    import ir_datasets

    logging.getLogger("ir_datasets").addFilter(_unless_told_below)
    dataset = ir_datasets.load(registered.id)
    for what in ("docs", "queries", "qrels"):
        if not getattr(dataset, f"has_{what}")():
            raise UsageError(f"{registered.id}: ir_datasets has no {what} for it; name a part that has them")
    place = f"{registered.id} (ir_datasets)"
    topics = _all(registered, lambda: [(place, item.query_id, _query(item)) for item in dataset.queries_iter()])
    rows = _all(
        registered,
        lambda: [(place, item.query_id, item.doc_id, str(item.relevance)) for item in dataset.qrels_iter()],
    )
    corpus_id = ir_datasets.docs_parent_id(registered.id)
    # ir_datasets checks what it downloads, but not what somebody laid there.  Its files are all in the folder of the
    # id's first part, for some collections beside those of others; the first document sees to it that they are there.
    _all(registered, lambda: next(dataset.docs_iter(), None))
    folder = ir_datasets.util.home_path().resolve() / corpus_id.split("/")[0]
    kind = digest(["ir_datasets", corpus_id, ir_datasets.__version__, str(folder), corpus.state(folder)])
    documents = Documents(
        f"{corpus_id} (ir_datasets)",
        kind,
        (),
        lambda: _documents(registered),
        lambda: ir_datasets.util.count_hint(corpus_id)() or 0,
    )
    return Source(documents, prepare.topics(topics), prepare.judgements(rows))


def _unless_told_below(record: logging.LogRecord) -> bool:
    """What fails is told once, by the error that ends it; how a download goes is ir_datasets' own to say."""
    return not record.getMessage().lower().startswith(("download error", "download failed"))


def _documents(registered: Registered) -> Iterator[Document]:
    import ir_datasets

    items = ir_datasets.load(registered.id).docs_iter()
    number = 0
    while True:
        item = _all(registered, lambda: next(items, None))
        if item is None:
            return
        number += 1
        text = _field(item, "text", "body")
        # The default text may have the title in it.
        title = (_field(item, "title") or "") if text is not None else ""
        yield Document(f"{registered.id}: document {number}", item.doc_id, title, _text(item) if text is None else text)


def _field(item: Any, *names: str) -> str | None:
    """The first of these fields that is there, if it is text."""
    value = next((getattr(item, name) for name in names if hasattr(item, name)), None)
    return value if isinstance(value, str) else None


def _text(item: Any) -> str:
    return str(item.default_text())


def _query(item: Any) -> str:
    text = _field(item, "text")
    return _text(item) if text is None else text


def _all(registered: Registered, fetch: Callable[[], _Item]) -> _Item:
    try:
        return fetch()
    except UsageError:
        raise
    except _WRONG as error:
        first = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
        raise FileError(
            f"{registered.id}: ir_datasets could not get it: {first}; connect this machine, or lay its files where"
            " ir_datasets looks for them (IR_DATASETS_HOME, by default ~/.ir_datasets)"
        ) from error
