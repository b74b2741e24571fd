"""A dataset: corpus, queries and judgements; and fixed samples of its queries."""

from __future__ import annotations

import hashlib
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

from pydantic import BeforeValidator, Field

from harness.datasets.answers import Answers
from harness.datasets.corpus import PreparedCorpus
from harness.driver.records import Query, digest
from harness.errors import FileError, HarnessError, counted
from harness.results.schema import ANSWER_DEPTHS, JUDGED_HITS, DataFault, FaultKind
from harness.untrusted import ForeignText

# At most one in five queries warms up where each of them could be timed.
_WARMUP_DIVISOR = 5


def _primary(tag: object) -> object:
    """Return the language of a tag such as ``en-US`` or ``zh_Hant_TW``, without script and region."""
    return re.split("[-_]", tag)[0].lower() if isinstance(tag, str) and _TAG.fullmatch(tag) else tag


_OTHER_FORM = ": some differ in Unicode normalisation only (NFC, NFD)"
_TAG = re.compile("[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{1,8})*")
# ISO 639: "en", "zh".
Language = Annotated[str, BeforeValidator(_primary), Field(pattern=r"^[a-z]{2,3}$")]


def filter_fields(queries: Iterable[Query]) -> set[str]:
    """Return the fields that queries filter on."""
    return {name for query in queries for name, _ in query.filter}


@dataclass(frozen=True)
class Dataset:
    """Corpus, queries and judgements under one name.

    ``qrels`` is the text of a TREC qrels file.  A dataset with ``answers`` has no list of relevant documents:
    :meth:`judge` looks for an answer in each retrieved document.  ``language``: a code, where the dataset states one.
    ``positions``: the content of ``positions.jsonl``, empty without one.  ``repeated``: documents of judgements that
    repeat an earlier one.
    """

    name: str
    corpus: PreparedCorpus
    queries: tuple[Query, ...]
    qrels: bytes
    answers: Answers | None = None
    language: str | None = None
    positions: bytes = b""
    repeated: tuple[str, ...] = ()

    @cached_property
    def qrels_sha256(self) -> str:
        """Hash of the judgements."""
        return hashlib.sha256(self.judgements[1]).hexdigest()

    @property
    def judgements(self) -> tuple[str, bytes]:
        """Suffix and content of the file of judgements in a results folder."""
        return ("answers.json", self.answers.content) if self.answers else ("trec", self.qrels)

    def graded(self) -> Iterator[tuple[str, str, int]]:
        """Yield query, document and grade of each judgement."""
        for line in self.qrels.decode("utf-8").splitlines():
            query, _, document, grade = line.split(" ")
            yield query, document, int(grade)

    @cached_property
    def judged(self) -> frozenset[str]:
        """Ids of the queries that can be judged."""
        return frozenset(self.answers.by_query if self.answers else (query for query, _, _ in self.graded()))

    @cached_property
    def faults(self) -> tuple[DataFault, ...]:
        """Empty documents, blank queries, repeated judgements, and judgements of unknown documents and queries.

        Raises:
            HarnessError: the corpus has none of the judged documents.
        """
        pairs = [(query, document) for query, document, _ in self.graded()]
        unknown = self.corpus.unknown({document for _, document in pairs})
        asked = {query.query_id for query in self.queries}
        other_form = self._in_other_form(unknown)
        if unknown and len(unknown) == len({document for _, document in pairs}):
            raise HarnessError(
                f"dataset {self.name}: none of {len(unknown):,} judged documents is in the corpus; qrels name"
                f" {pairs[0][1]!r}, the corpus has "
                f"{next(iter(self.corpus))['_id']!r}{_OTHER_FORM if other_form else ''}; give both the same ids"
            )
        blank = [query.query_id for query in self.queries if not query.text.strip()]
        found = (
            (FaultKind.BLANK_QUERIES, blank, len(self.queries)),
            (FaultKind.UNKNOWN_DOCUMENTS, [document for _, document in pairs if document in unknown], len(pairs)),
            (FaultKind.REPEATED_JUDGEMENTS, self.repeated, len(pairs) + len(self.repeated)),
            (FaultKind.OTHER_UNICODE_FORM, [document for _, document in pairs if document in other_form], len(pairs)),
            (FaultKind.UNKNOWN_QUERIES, [query for query, _ in pairs if query not in asked], len(pairs)),
        )
        empty = DataFault(FaultKind.EMPTY_DOCUMENTS, self.corpus.empty, self.corpus.size)
        others = (DataFault(kind, len(ids), total, ForeignText(ids[0])) for kind, ids, total in found if ids)
        return (*([empty] if empty.count else []), *others)

    def _in_other_form(self, unknown: set[str]) -> set[str]:
        """Return the unknown documents that the corpus has in another Unicode normalisation."""
        forms = {
            form: name
            for name in unknown
            if not name.isascii()
            for form in (unicodedata.normalize("NFC", name), unicodedata.normalize("NFD", name))
            if form != name
        }
        lacking = self.corpus.unknown(set(forms)) if forms else set()
        return {name for form, name in forms.items() if form not in lacking}

    def judge(self, run: bytes) -> dict[str, bytes] | None:
        """Judge the hits of a TREC run by their texts; return ``None`` if there are qrels.

        Returns:
            The files that a job keeps: TREC qrels of exactly the run's hits, and the depths of answers.
        """
        if self.answers is None:
            return None
        texts = self.corpus.texts
        return {JUDGED_HITS: self.answers.judge(run, texts), ANSWER_DEPTHS: self.answers.depths(run, texts)}


@dataclass(frozen=True)
class QuerySample:
    """Queries of a measurement: ``sample`` is timed, except for the queries that ``warmup`` shares.

    The queries of ``sample`` are judged, except for those that :func:`draw_sample` added without judgements.
    """

    sample: tuple[Query, ...]
    warmup: tuple[Query, ...]

    @property
    def timed(self) -> tuple[Query, ...]:
        """Queries of the sample that do not warm up."""
        warm = frozenset(self.warmup)
        return tuple(query for query in self.sample if query not in warm)

    @property
    def held_out(self) -> frozenset[str]:
        """Ids of the queries that warm up and are judged, never timed."""
        return frozenset(query.query_id for query in frozenset(self.sample) & frozenset(self.warmup))

    @cached_property
    def sample_sha256(self) -> str:
        """Hash of the sample."""
        return digest(list(self.sample))

    @cached_property
    def warmup_sha256(self) -> str:
        """Hash of the warm-up queries."""
        return digest(list(self.warmup))


def draw_sample(dataset: Dataset, size: int, warmup: int, seed: int, *, unjudged: bool = False) -> QuerySample:
    """Draw a fixed sample of at most ``size`` judged queries, and at most ``warmup`` queries to warm up with.

    Queries outside the sample warm up.  If they are fewer than a fifth of the sample, queries of the sample fill the
    gap; these are judged and never timed.  Titles of documents cannot warm up: a just-in-time compiler would compile
    other code for them.

    Args:
        dataset: has the queries.
        size: most queries of the sample.
        warmup: most queries that warm up.
        seed: chooses both.
        unjudged: queries without judgements, except for those that warm up, follow where fewer than ``size`` are
            judged; at most a fifth of all queries then warms up.

    Raises:
        HarnessError: no query has a judgement, or queries without answers would follow in a dataset with answers.
        FileError: no query is left to warm up with.
    """
    judged = dataset.judged
    eligible = sorted((query for query in dataset.queries if query.query_id in judged), key=lambda q: q.query_id)
    if not eligible:
        asked, known = dataset.queries[:1], sorted(judged)[:1]
        examples = f"queries have {asked[0].query_id!r}, judgements {known[0]!r}; " if asked and known else ""
        raise HarnessError(f"dataset {dataset.name}: no query has a judgement; {examples}give both the same ids")
    shuffled = random.Random(f"sample:{seed}").sample(eligible, len(eligible))
    drawn = shuffled[:size]
    ids, texts = {query.query_id for query in drawn}, Counter(query.text for query in drawn)
    rest = sorted((query for query in dataset.queries if query.query_id not in ids), key=lambda query: query.query_id)
    others = [query for query in rest if query.text not in texts]
    if fills := unjudged and len(drawn) < size:
        warmup = min(warmup, max((len(drawn) + len(others)) // _WARMUP_DIVISOR, 1))
    warm = random.Random(f"warmup:{seed}").sample(others, min(warmup, len(others)))
    missing = min(warmup, max(len(drawn) // _WARMUP_DIVISOR, 1)) - len(warm)
    if missing > 0 and len(drawn) > 1:
        # Never a text that is timed too: an answer cached during warm-up would make it fast.
        warm += [query for query in drawn if texts[query.text] == 1][:missing]
    if fills:  # every judged query is drawn, so the rest has no judgements
        warmed = {query.text for query in warm}
        left = [query for query in rest if query.text not in warmed]
        if left and dataset.answers:  # only hits are judged there, and a query without answers would count 0
            raise HarnessError(
                f"dataset {dataset.name}: queries without answers would count 0 in its measures; leave out"
                f" protocol.unjudged (--unjudged), or ask for at most {counted(len(drawn), 'query')}"
            )
        drawn += random.Random(f"unjudged:{seed}").sample(left, min(size - len(drawn), len(left)))
    if not warm or len(set(drawn) - set(warm)) == 0:
        remedy = "add queries with other texts, judged or not"
        raise FileError(f"dataset {dataset.name}: {len(drawn)} queries leave none to warm up with; {remedy}")
    counts = dataset.corpus.matching({query.filter for query in (*drawn, *warm) if query.filter})
    counted_of = {query: replace(query, matching=counts[query.filter]) for query in {*drawn, *warm} if query.filter}
    drawn = sorted((counted_of.get(query, query) for query in drawn), key=lambda query: query.query_id)
    return QuerySample(tuple(drawn), tuple(counted_of.get(query, query) for query in warm))
