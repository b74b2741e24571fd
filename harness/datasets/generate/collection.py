"""Writes a generated collection: an ordinary dataset folder, with positions, candidates and the generator's record.

Files are written as documents come.  Equal calls write equal bytes: no file holds a time, a path or a name of its own.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self, cast

import harness
from harness import filesystem
from harness.commands import quoted
from harness.datasets.dataset import Dataset
from harness.datasets.generate import wordpieces
from harness.datasets.generate.passages import Passage, source_facts
from harness.datasets.licence import DatasetFacts
from harness.datasets.native import query_line
from harness.datasets.passage_positions import POSITIONS, RelevantPosition
from harness.driver.records import Query, Scalar, corpus_line
from harness.errors import FileError, StoreError
from harness.progress import Progress, silent
from harness.untrusted import one_line, raw_text

GENERATOR = "generator.json"
CANDIDATES = "candidates.trec"
_GZIP_LEVEL = 4  # half the size, at a third of level 9's time
_BUFFER = 1 << 20
_STEP = 100
NO_LICENCE = "The source's folder names no licence, so this copy must not be passed on."


@dataclass(frozen=True)
class Provenance:
    """Facts of a generated collection that its files state."""

    kind: str
    seed: int
    parameters: dict[str, Any]
    source: Dataset
    facts: DatasetFacts


@dataclass
class Written:
    """A collection's counts: documents, counted tokens, queries, and notes by their text."""

    documents: int = 0
    tokens: int = 0
    queries: int = 0
    notes: Counter[str] = field(default_factory=Counter)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a folder to fill; the folder becomes ``out`` if the block succeeds; otherwise nothing is left.

    Raises:
        FileError: ``out`` exists, or cannot be written.
        StoreError: the disk is full.
    """
    if out.exists() or out.is_symlink():
        raise FileError(f"{out}: exists; remove it, or name another folder with --out")
    try:
        with filesystem.scratch_folder(out.parent, out.name) as scratch:
            folder = scratch / out.name
            folder.mkdir()
            yield folder
            folder.rename(out)
    except OSError as error:
        full = filesystem.reports_full_disk(error.strerror or "")
        kind, remedy = (StoreError, "make room") if full else (FileError, "choose another place")
        raise kind(f"{out}: cannot be written: {error.strerror}; {remedy}") from error


def write_facts(folder: Path, language: str | None, licence: str, attribution: str | None) -> None:
    """Write a folder's ``dataset.toml``; a missing fact has no line."""
    facts = {"language": language, "licence": licence, "attribution": attribution}
    lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in facts.items() if value)
    (folder / "dataset.toml").write_text("".join(lines), encoding="utf-8")


class DatasetWriter:
    """Writes corpus, queries and judgements of a dataset folder; the end of the block completes them.

    ``progress`` gets the number of documents written, and of all: ``total``, which a caller may set (0: unknown).
    """

    def __init__(self, folder: Path, progress: Progress = silent) -> None:
        self.written = Written()
        self.total = 0
        self._folder, self._progress = folder, progress
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        raw = self._open("corpus.jsonl.gz")
        # Neither name nor time in the header: the same documents are the same bytes.
        packed = gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0)
        self._corpus: IO[bytes] = self._stack.enter_context(cast(IO[bytes], packed))
        self._queries, self._qrels = self._open("queries.jsonl"), self._open("qrels.trec")
        return self

    def _open(self, name: str) -> IO[bytes]:
        return self._stack.enter_context((self._folder / name).open("wb", buffering=_BUFFER))

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def add_document(
        self, doc_id: str, text: str, tokens: int, title: str = "", metadata: Mapping[str, Scalar] | None = None
    ) -> None:
        """Write a document of a known number of tokens (0: not counted)."""
        self._corpus.write(corpus_line(doc_id, title, text, metadata))
        self.written.documents += 1
        self.written.tokens += tokens
        if self.written.documents % _STEP == 0:
            self._progress(self.written.documents, self.total)

    def add_query(self, query: Query) -> None:
        """Write a query."""
        self._queries.write(query_line(query, ensure_ascii=False).encode("utf-8", "replace"))
        self.written.queries += 1

    def add_judgement(self, query_id: str, doc_id: str, grade: int = 1) -> None:
        """Write a judgement."""
        self._qrels.write(f"{query_id} 0 {doc_id} {grade}\n".encode())


class CollectionWriter(DatasetWriter):
    """Writes a generated collection: a dataset folder with positions, candidates and the generator's record."""

    def __init__(self, folder: Path, provenance: Provenance, relevant: str, progress: Progress) -> None:
        super().__init__(folder, progress)
        self._provenance, self._relevant = provenance, relevant
        self._candidates: dict[int | None, list[_Candidate]] = defaultdict(list)

    def __enter__(self) -> Self:
        super().__enter__()
        self._positions = self._open(POSITIONS)
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if error[0] is None:
            self._complete()

    def add_position(self, position: RelevantPosition) -> None:
        """Write the place of a relevant passage."""
        self._positions.write(position.to_line())

    def add_around(
        self,
        doc_id: str,
        query: Query | None,
        passage: Passage,
        around: Sequence[tuple[str, int]],
        place: int,
        depth: float | None,
        target_length: int | None,
    ) -> None:
        """Write a document that holds a passage among other texts, and the query that asks for the passage.

        Args:
            doc_id: id of the document.
            query: ``None`` if no query asks for the passage.
            passage: the passage.
            around: the other texts with their tokens.
            place: number of texts before the passage.
            depth: as in the position.
            target_length: as in the position; documents of one target compete as candidates, because their lengths
                would give the relevant one away.
        """
        texts, counts = [text for text, _ in around], [tokens for _, tokens in around]
        length = passage.tokens + sum(counts)
        self.add_document(doc_id, " ".join([*texts[:place], passage.text, *texts[place:]]), length)
        self._candidates[target_length].append((doc_id, query.query_id if query else None, passage.relevant))
        if query is None:
            return
        token, char = sum(counts[:place]), sum(len(text) + 1 for text in texts[:place])
        ends = token + passage.tokens, char + len(passage.text)
        self.add_query(query)
        self.add_judgement(query.query_id, doc_id)
        self.add_position(
            RelevantPosition(query.query_id, doc_id, token, ends[0], char, ends[1], length, depth, target_length)
        )

    def write_candidates(self, number: int, seed: int) -> None:
        """Write each query's document among ``number - 1`` others of its target length, in random order; 0: no file."""
        if number and self._candidates:
            with (self._folder / CANDIDATES).open("w", buffering=_BUFFER, encoding="utf-8") as run:
                for candidates in self._candidates.values():
                    run.writelines(_run_lines(candidates, number, seed))

    def _complete(self) -> None:
        made = self._provenance
        positions = self._folder / POSITIONS
        if not positions.stat().st_size:
            positions.unlink()
        record = json.dumps(self._record(), indent=1, ensure_ascii=False, default=raw_text) + "\n"
        (self._folder / GENERATOR).write_text(record, encoding="utf-8")
        licence, attribution = one_line(made.facts.licence or NO_LICENCE), one_line(made.facts.attribution or "")
        write_facts(self._folder, made.source.language, licence, attribution)
        (self._folder / "README.md").write_text(self._readme(licence, attribution), encoding="utf-8")

    def _record(self) -> dict[str, Any]:
        made, written = self._provenance, self.written
        return {
            "generator": made.kind,
            "seed": made.seed,
            "parameters": made.parameters,
            "tokenizer": {"name": wordpieces.NAME, "vocabulary_sha256": wordpieces.VOCABULARY_SHA256},
            "source": {**source_facts(made.source), "licence": made.facts.licence},
            "relevant_passage": self._relevant,
            "documents": written.documents,
            "queries": written.queries,
            "mean_tokens": round(written.tokens / written.documents, 1) if written.tokens else None,
            "left_out": {reason: count for reason, count in sorted(written.notes.items()) if count},
            "harness": harness.__version__,
        }

    def _readme(self, licence: str, attribution: str) -> str:
        made, written = self._provenance, self.written
        attributed = f"**Attribution.** {attribution}\n\n" if attribution else ""
        return (
            f"# {made.source.name}, `{made.kind}`\n\n"
            f"{written.documents:,} documents, {written.queries:,} queries. Generated: the texts of documents are put "
            f"together from passages of `{made.source.name}`.\n\n"
            f"**Licence.** {licence}\n\n{attributed}"
            f"**Changes.** {quoted('generate', made.kind)} with seed {made.seed} and the parameters in `{GENERATOR}`. "
            f"Relevant: {self._relevant}.\n"
        )


def _run_lines(candidates: Sequence[_Candidate], number: int, seed: int) -> Iterator[str]:
    """Yield the TREC run lines of each query's candidates; documents that share a relevant source never compete."""
    holders: dict[str, list[int]] = defaultdict(list)
    for place, (_, _, relevant) in enumerate(candidates):
        for source_id in relevant:
            holders[source_id].append(place)
    for place, (_, query_id, relevant) in enumerate(candidates):
        if query_id is None:
            continue
        rng = random.Random(f"candidates:{seed}:{query_id}")
        alike = {other for source_id in relevant for other in holders[source_id]} | {place}
        others = min(number - 1, len(candidates) - len(alike))
        chosen = _draw(rng, len(candidates), others, alike)
        chosen.insert(rng.randrange(others + 1), place)
        for rank, index in enumerate(chosen, 1):
            yield f"{query_id} Q0 {candidates[index][0]} {rank} {others + 2 - rank} random\n"


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


# A document, the query that it answers (if any), and the source documents judged relevant for that query.
_Candidate = tuple[str, str | None, frozenset[str]]
