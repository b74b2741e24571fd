"""An index made by Anserini's own indexer, from files in its own formats."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.measure.adapter import Document
from jvm import runtime

LUCENE = "lucene"  # folder of the index itself


def build(
    documents: Iterable[Mapping[str, Any]],
    index_dir: Path,
    *,
    collection: str,
    more: Sequence[str],
    force_merge: bool,
    assets: Path,
    heap_mib: int,
    cpus: int,
) -> None:
    """Make ``index_dir/lucene`` of documents in the JSON of an Anserini collection.

    Args:
        documents: what a line of such a collection's file holds: ``id`` and ``contents``, or ``id`` and ``vector``.
        collection: Anserini's class, e.g. ``JsonCollection``.
        more: further arguments of Anserini's indexer.
        force_merge: merge all segments into one.
    """
    # Beside the index, not in /tmp: what lies there would count as memory.
    staged = index_dir / ".staged"
    staged.mkdir()
    _stage(documents, staged, cpus)
    arguments = [
        *("io.anserini.index.IndexCollection", "-collection", collection, "-input", str(staged)),
        *("-index", str(index_dir / LUCENE), "-generator", "DefaultLuceneDocumentGenerator", "-threads", str(cpus)),
        *more,
        *(["-optimize"] if force_merge else []),
    ]
    runtime.run(arguments, runtime.options(heap_mib, cpus), runtime.jar(assets))
    shutil.rmtree(staged)


def full_text(document: Document) -> str:
    """Title and text as one."""
    return f"{document.title} {document.text}" if document.title else document.text


def _stage(documents: Iterable[Mapping[str, Any]], folder: Path, parts: int) -> None:
    """Write the documents as JSON lines, in ``parts`` files: the indexer gives each thread whole files."""
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context((folder / f"part{part}.jsonl").open("w", encoding="utf-8")) for part in range(parts)
        ]
        for number, document in enumerate(documents):
            json.dump(document, files[number % parts])
            files[number % parts].write("\n")
