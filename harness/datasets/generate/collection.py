"""Writes a generated collection: an ordinary dataset folder, with positions, candidates and the generator's record.

Files are written as documents come.  Equal calls write equal bytes: no file holds a time, a path or a name of its own.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import harness
from harness import filesystem
from harness.commands import quoted
from harness.datasets.dataset import Dataset
from harness.datasets.generate import wordpieces
from harness.datasets.generate.passages import source_facts
from harness.datasets.licence import Licence
from harness.datasets.passage_positions import POSITIONS, RelevantPosition
from harness.driver.records import Query, corpus_line
from harness.errors import FileError, StoreError
from harness.untrusted import one_line, raw_text

GENERATOR = "generator.json"
CANDIDATES = "candidates.trec"
_GZIP_LEVEL = 4  # half the size, at a third of level 9's time
_BUFFER = 1 << 20
NO_LICENCE = "The source's folder names no licence, so this copy must not be passed on."
_FILES = {
    "corpus.jsonl.gz": "one JSON object a line: `_id`, `title`, `text`",
    "queries.jsonl": "one JSON object a line: `_id`, `text`",
    "qrels.trec": "TREC qrels: query, 0, document, grade",
    POSITIONS: "where relevant passages lie: query, document, tokens of bert-base-uncased, characters",
    CANDIDATES: "TREC run: each query's relevant document among others, in random order",
    GENERATOR: "parameters, checksums and counts",
}


@dataclass(frozen=True)
class Provenance:
    """Facts of a generated collection that its files state."""

    kind: str
    seed: int
    parameters: dict[str, Any]
    source: Dataset
    licence: Licence
    relevant_passage: str


@dataclass
class Written:
    """A collection's counts: documents, their tokens (those that were counted), queries, and notes by their text."""

    documents: int = 0
    tokens: int = 0
    queries: int = 0
    notes: dict[str, int] = field(default_factory=dict)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a folder to fill; it becomes ``out`` if the block ends well, else nothing stays.

    Raises:
        FileError: ``out`` exists, or cannot be written.
        StoreError: the disk is full.
    """
    if out.exists() or out.is_symlink():
        raise FileError(f"{out}: exists; remove it, or name another folder with --out")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        staging = filesystem.staging_path(out)
        try:
            staging.mkdir()
            yield staging
            staging.rename(out)
        finally:
            filesystem.remove_tree(staging)
    except OSError as error:
        full = filesystem.reports_full_disk(error.strerror or "")
        kind, remedy = (StoreError, "make room") if full else (FileError, "choose another place")
        raise kind(f"{out}: cannot be written: {error.strerror}; {remedy}") from error


class CollectionWriter:
    """Writes one dataset folder; ``close`` (or the end of the block) completes it."""

    def __init__(self, folder: Path, provenance: Provenance) -> None:
        self.written = Written()
        self._folder, self._provenance = folder, provenance
        self._groups: dict[str, _Group] = {}
        self._stack = ExitStack()

    def __enter__(self) -> CollectionWriter:
        with ExitStack() as stack:
            raw = stack.enter_context((self._folder / "corpus.jsonl.gz").open("wb", buffering=_BUFFER))
            # Neither name nor time in the header: the same documents are the same bytes.
            packed = gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0)
            self._corpus: IO[bytes] = stack.enter_context(cast(IO[bytes], packed))
            names = ("queries.jsonl", "qrels.trec", POSITIONS)
            self._queries, self._qrels, self._positions = (
                stack.enter_context((self._folder / name).open("wb", buffering=_BUFFER)) for name in names
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stack.close()
        if kind is None:
            self._complete()

    def add_document(self, doc_id: str, text: str, tokens: int, title: str = "") -> None:
        """Write a document of a known number of tokens (0: not counted)."""
        self._corpus.write(corpus_line(doc_id, title, text))
        self.written.documents += 1
        self.written.tokens += tokens

    def add_query(self, query: Query) -> None:
        """Write a query."""
        line = json.dumps({"_id": query.query_id, "text": query.text}, ensure_ascii=False)
        self._queries.write(line.encode("utf-8", "replace") + b"\n")
        self.written.queries += 1

    def add_judgement(self, query_id: str, doc_id: str, grade: int = 1) -> None:
        """Write a judgement."""
        self._qrels.write(f"{query_id} 0 {doc_id} {grade}\n".encode())

    def add_position(self, position: RelevantPosition) -> None:
        """Write the place of a relevant passage."""
        self._positions.write(position.to_line())

    def add_candidate(self, group: str, doc_id: str, query_id: str | None, relevant: frozenset[str]) -> None:
        """Keep a document as a candidate of the group's queries.

        Args:
            group: documents that compete, e.g. all of one length.
            doc_id: the document.
            query_id: the query that it answers, if any.
            relevant: ids of the source documents judged relevant for that query; documents that share one never
                compete.
        """
        members = self._groups.setdefault(group, _Group())
        members.docs.append(doc_id)
        members.queries.append(query_id)
        members.relevant.append(relevant)

    def write_candidates(self, number: int, seed: int) -> None:
        """Write each query's document among ``number - 1`` others of its group, in random order; 0: no file."""
        if not number or not self._groups:
            return
        with (self._folder / CANDIDATES).open("wb", buffering=_BUFFER) as run:
            for members in self._groups.values():
                for line in members.run_lines(number, seed):
                    run.write(line)

    def _complete(self) -> None:
        made = self._provenance
        positions = self._folder / POSITIONS
        if not positions.stat().st_size:
            positions.unlink()
        record = json.dumps(self._record(), indent=1, ensure_ascii=False, default=raw_text) + "\n"
        (self._folder / GENERATOR).write_text(record, encoding="utf-8")
        facts = {"language": made.source.language, "licence": one_line(made.licence.text or NO_LICENCE)}
        lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in facts.items() if value]
        (self._folder / "dataset.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (self._folder / "README.md").write_text(self._readme(), encoding="utf-8")

    def _record(self) -> dict[str, Any]:
        made, written = self._provenance, self.written
        return {
            "generator": made.kind,
            "seed": made.seed,
            "parameters": made.parameters,
            "tokenizer": {"name": wordpieces.NAME, "vocabulary_sha256": wordpieces.VOCABULARY_SHA256},
            "source": {**source_facts(made.source), "licence": made.licence.text},
            "relevant_passage": made.relevant_passage,
            "documents": written.documents,
            "queries": written.queries,
            "mean_tokens": round(written.tokens / written.documents, 1) if written.tokens else None,
            "left_out": {reason: count for reason, count in sorted(written.notes.items()) if count},
            "harness": harness.__version__,
        }

    def _readme(self) -> str:
        made, written = self._provenance, self.written
        present = {name: text for name, text in _FILES.items() if (self._folder / name).exists()}
        files = "\n".join(f"| `{name}` | {text} |" for name, text in present.items())
        licence = one_line(made.licence.text or NO_LICENCE)
        named = made.licence.attribution
        attribution = f"**Attribution.** {one_line(named)}\n\n" if named else ""
        return (
            f"# {made.source.name}, `{made.kind}`\n\n"
            f"{written.documents:,} documents, {written.queries:,} queries. Generated: the texts of documents are put "
            f"together from passages of `{made.source.name}`.\n\n"
            f"**Licence.** {licence}\n\n{attribution}"
            f"**Changes.** {quoted('generate', made.kind)} with seed {made.seed} and the parameters in `{GENERATOR}`. "
            f"Relevant: {made.relevant_passage}.\n\n"
            f"| file | content |\n|---|---|\n{files}\n"
        )


@dataclass
class _Group:
    """Documents that compete for the same queries."""

    docs: list[str] = field(default_factory=list)
    queries: list[str | None] = field(default_factory=list)
    relevant: list[frozenset[str]] = field(default_factory=list)

    def run_lines(self, number: int, seed: int) -> Iterator[bytes]:
        """Yield the TREC run lines of each query, in the order of queries."""
        holders: dict[str, list[int]] = {}
        for place, sources in enumerate(self.relevant):
            for source_id in sources:
                holders.setdefault(source_id, []).append(place)
        for place, query_id in enumerate(self.queries):
            if query_id is None:
                continue
            rng = random.Random(f"candidates:{seed}:{query_id}")
            alike = {other for source_id in self.relevant[place] for other in holders[source_id]} | {place}
            others = min(number - 1, len(self.docs) - len(alike))
            chosen = _draw(rng, len(self.docs), others, alike)
            chosen.insert(rng.randrange(others + 1), place)
            lines = [
                f"{query_id} Q0 {self.docs[each]} {rank} {others + 2 - rank} random\n"
                for rank, each in enumerate(chosen, 1)
            ]
            yield "".join(lines).encode()


def _draw(rng: random.Random, size: int, number: int, without: set[int]) -> list[int]:
    """Draw numbers below ``size`` that are not in ``without``, in random order."""
    if 4 * number >= size - len(without):
        return rng.sample([each for each in range(size) if each not in without], number)
    drawn: dict[int, None] = {}
    while len(drawn) < number:
        each = int(rng.random() * size)
        if each not in without:
            drawn[each] = None
    return list(drawn)


# Called with the numbers of documents written and of all.
Step = Callable[[int, int], object]
