"""An index made by Anserini's own indexer, from files in its own formats."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.driver.adapter import Document
from jvm import runtime

LUCENE = "lucene"  # folder of the index itself
# Postings that wait for their segment take a quarter of the heap; merging, and what is read, needs the rest.
_OF_HEAP = 4
# Anserini leaves out documents without text, and counts them.
_EMPTY = re.compile(r"empty:\s+([\d,]+)$")
# Lucene's own checker, on an index it can open.
_HOLDS = re.compile(r"; ([\d,]+) documents; [\d,]+ deletions$")
_SEGMENTS = re.compile(r"numSegments=(\d+)")
_CHECK_HEAP_MIB = 64


@dataclass(frozen=True)
class Indexer:
    """Settings of a run of Anserini's indexer.

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

    def build(self, documents: Iterable[Mapping[str, Any]], index_dir: Path) -> int:
        """Make ``index_dir/lucene`` of lines of the collection's files; return how many empty ones it left out."""
        # Beside the index, not in /tmp: what lies there would count as memory.
        staged = index_dir / ".staged"
        staged.mkdir()
        _write(documents, staged, self.cpus)
        left_out = self._run(staged, index_dir)
        shutil.rmtree(staged)
        return left_out

    def build_files(self, files: Sequence[Path], index_dir: Path, staged: Path) -> int:
        """Index files of JSON lines in place; otherwise like :meth:`build`.

        Args:
            staged: a folder for links to them, and nothing else; what an earlier attempt left there is removed.
        """
        for left in (staged, index_dir / LUCENE):
            if left.exists():
                shutil.rmtree(left)
        staged.mkdir()
        for number, path in enumerate(files):
            os.link(path, staged / f"part{number:06d}.jsonl")
        left_out = self._run(staged, index_dir)
        shutil.rmtree(staged)
        return left_out

    def verify(self, index_dir: Path, documents: int) -> None:
        """Open the index, compare each file's checksum and count documents and segments.

        Raises:
            RuntimeError: it cannot be opened, is damaged, or does not hold ``documents``.
        """
        arguments = ["org.apache.lucene.index.CheckIndex", str(index_dir / LUCENE), "-fast"]
        try:
            said = runtime.run(arguments, runtime.options(_CHECK_HEAP_MIB, 1), runtime.jar(self.assets))
        except RuntimeError as error:
            raise RuntimeError(f"the index is damaged: {error}") from error
        held = _last_count(_HOLDS, said)
        if held != documents:
            raise RuntimeError(f"the index holds {held} of {documents} documents")
        segments = _last_count(_SEGMENTS, said)
        if self.force_merge and segments != (1 if documents else 0):
            raise RuntimeError(f"the index has {segments} segments, not one: its merge failed")

    def _run(self, staged: Path, index_dir: Path) -> int:
        arguments = [
            *("io.anserini.index.IndexCollection", "-generator", "DefaultLuceneDocumentGenerator"),
            *("-collection", self.collection, "-input", str(staged), "-index", str(index_dir / LUCENE)),
            *("-threads", str(self.cpus), *self.options),
            # Anserini's own 4 GiB are more than the heap: it would never write a segment before memory is out.
            *("-memoryBuffer", str(max(self.heap_mib // _OF_HEAP, 1))),
            *(["-optimize"] if self.force_merge else []),
        ]
        said = runtime.run(arguments, runtime.options(self.heap_mib, self.cpus), runtime.jar(self.assets))
        return _last_count(_EMPTY, said) or 0


def _last_count(pattern: re.Pattern[str], lines: Sequence[str]) -> int | None:
    """Return the number that the last line with ``pattern`` names."""
    found = [match[1] for line in lines if (match := pattern.search(line))]
    return int(found[-1].replace(",", "")) if found else None


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
