"""An index made by Anserini's own indexer, from files in its own formats."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.measure.adapter import Document
from jvm import runtime

LUCENE = "lucene"  # folder of the index itself
# Postings that wait for their segment take a quarter of the heap; merging, and what is read, needs the rest.
_OF_HEAP = 4


@dataclass(frozen=True)
class Indexer:
    """How Anserini's indexer is run.

    Attributes:
        collection: Anserini's class, e.g. ``JsonCollection``.
        options: further arguments of Anserini's indexer.
        force_merge: merge all segments into one.
        assets: folder that has the jar.
        heap_mib: of the JVM.
        cpus: threads; each takes whole files.
    """

    collection: str
    options: Sequence[str]
    force_merge: bool
    assets: Path
    heap_mib: int
    cpus: int

    def build(self, documents: Iterable[Mapping[str, Any]], index_dir: Path) -> None:
        """Make ``index_dir/lucene`` of documents as a line of the collection's files holds them."""
        # Beside the index, not in /tmp: what lies there would count as memory.
        staged = index_dir / ".staged"
        staged.mkdir()
        _write(documents, staged, self.cpus)
        self._run(staged, index_dir)
        shutil.rmtree(staged)

    def build_files(self, files: Sequence[Path], index_dir: Path, staged: Path) -> None:
        """Make ``index_dir/lucene`` of files of JSON lines, each left where it is.

        Args:
            staged: a folder for links to them, and nothing else; what an earlier attempt left there is removed.
        """
        for left in (staged, index_dir / LUCENE):
            if left.exists():
                shutil.rmtree(left)
        staged.mkdir()
        for number, path in enumerate(files):
            os.link(path, staged / f"part{number:06d}.jsonl")
        self._run(staged, index_dir)
        shutil.rmtree(staged)

    def _run(self, staged: Path, index_dir: Path) -> None:
        arguments = [
            *("io.anserini.index.IndexCollection", "-generator", "DefaultLuceneDocumentGenerator"),
            *("-collection", self.collection, "-input", str(staged), "-index", str(index_dir / LUCENE)),
            *("-threads", str(self.cpus), *self.options),
            # Anserini's own 4 GiB are more than the heap: it would never write a segment before memory is out.
            *("-memoryBuffer", str(max(self.heap_mib // _OF_HEAP, 1))),
            *(["-optimize"] if self.force_merge else []),
        ]
        runtime.run(arguments, runtime.options(self.heap_mib, self.cpus), runtime.jar(self.assets))


def full_text(document: Document) -> str:
    """Title and text as one."""
    return f"{document.title} {document.text}" if document.title else document.text


def _write(documents: Iterable[Mapping[str, Any]], folder: Path, parts: int) -> None:
    """Write the documents as JSON lines, in ``parts`` files."""
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context((folder / f"part{part}.jsonl").open("w", encoding="utf-8")) for part in range(parts)
        ]
        for number, document in enumerate(documents):
            json.dump(document, files[number % parts])
            files[number % parts].write("\n")
