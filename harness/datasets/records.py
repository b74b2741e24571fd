"""What a format's reader gives, and what all callers get."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from harness.datasets.answers import Answers
from harness.datasets.corpus import Corpus
from harness.records import Query, digest
from harness.results.schema import ANSWER_DEPTHS, JUDGED_HITS


class Document(NamedTuple):
    """One document as its file has it; ``place`` names file and line for errors."""

    place: str
    doc_id: str
    title: str
    text: str


@dataclass(frozen=True)
class Documents:
    """A corpus as it lies there, to be streamed.

    ``label`` names it in errors; ``kind``, which says how they are read, and the ``files`` name its content; ``read``
    streams it anew at each call; ``total`` says how many documents there are (0: unknown), and may have to read for it.
    """

    label: str
    kind: str
    files: tuple[Path, ...]
    read: Callable[[], Iterator[Document]]
    total: Callable[[], int] = lambda: 0


@dataclass(frozen=True)
class Source:
    """A dataset as a format's reader found it.  Judged by ``qrels``, or by ``answers`` where there are some."""

    documents: Documents
    queries: tuple[Query, ...]
    qrels: bytes = b""
    answers: Answers | None = None


@dataclass(frozen=True)
class Dataset:
    """Corpus, topics and judgements under one name.

    ``qrels`` is the text of a TREC qrels file.  A dataset that has ``answers`` instead has no list of relevant
    documents: :meth:`judge` looks for an answer in each document that was retrieved.
    """

    name: str
    corpus: Corpus
    queries: tuple[Query, ...]
    qrels: bytes
    answers: Answers | None = None

    @property
    def qrels_sha256(self) -> str:
        """Names the judgements."""
        return hashlib.sha256(self.judgements[1]).hexdigest()

    @property
    def judgements(self) -> tuple[str, bytes]:
        """What is kept beside the results: a file's ending, and its content."""
        return ("answers.json", self.answers.content) if self.answers else ("trec", self.qrels)

    @property
    def judged(self) -> frozenset[str]:
        """Ids of the queries that can be judged."""
        if self.answers:
            return frozenset(self.answers.by_query)
        return frozenset(line.split(maxsplit=1)[0] for line in self.qrels.decode("utf-8").splitlines())

    def unknown_judged(self) -> tuple[tuple[str, str], ...]:
        """Query and document of each judgement of a document that the corpus does not have; none of answers."""
        pairs = [(fields[0], fields[2]) for fields in map(str.split, self.qrels.decode("utf-8").splitlines())]
        unknown = self.corpus.unknown({document for _, document in pairs})
        return tuple(pair for pair in pairs if pair[1] in unknown)

    def judge(self, run: bytes) -> dict[str, bytes] | None:
        """Judge the hits of a run by their texts; ``None``: there are qrels.

        Args:
            run: a TREC run.

        Returns:
            The files that a job keeps of it: the text of a TREC qrels file that holds exactly the run's hits, and
            how deep the answers stand.
        """
        if self.answers is None:
            return None
        texts = self.corpus.texts
        return {JUDGED_HITS: self.answers.judge(run, texts), ANSWER_DEPTHS: self.answers.depths(run, texts)}


@dataclass(frozen=True)
class QuerySample:
    """The queries of a measurement: ``sample`` is judged, and timed but for the queries that ``warmup`` shares."""

    sample: tuple[Query, ...]
    warmup: tuple[Query, ...]

    @property
    def timed(self) -> tuple[Query, ...]:
        """The queries of the sample that do not warm up."""
        warm = frozenset(self.warmup)
        return tuple(query for query in self.sample if query not in warm)

    @property
    def held_out(self) -> frozenset[str]:
        """Ids of the queries that warm up and are judged, never timed."""
        return frozenset(query.query_id for query in frozenset(self.sample) & frozenset(self.warmup))

    @property
    def sample_sha256(self) -> str:
        """Names the sample."""
        return digest([asdict(query) for query in self.sample])

    @property
    def warmup_sha256(self) -> str:
        """Names the warm-up queries."""
        return digest([asdict(query) for query in self.warmup])
