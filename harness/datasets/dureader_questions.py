"""Make a collection from the questions of DuReader 2.0, as DuReader-retrieval was made (Qiu et al. 2022, section 2.2).

A line of its files has a question, the pages that a search engine found for it with their paragraphs, and answers that
people wrote.  :mod:`harness.datasets.span_labels` has the rules.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from harness import filesystem, stats
from harness.datasets import source, span_labels
from harness.datasets.generate.collection import DatasetWriter, new_folder, write_facts
from harness.driver.records import Query
from harness.errors import FileError, UsageError
from harness.progress import Progress, silent

RECORD = "labels.json"


@dataclass(frozen=True)
class LabelRule:
    """Rule by which passages are cut and labelled; the defaults are the paper's."""

    threshold: float = span_labels.THRESHOLD
    characters: int = span_labels.CHARACTERS
    titles: bool = False


DEFAULT_RULE = LabelRule()


@dataclass
class LabelledCollection:
    """Counts of a collection: ``relevant`` by query, characters of each passage, and passages that repeat another.

    A finished one has a relevant passage.
    """

    relevant: dict[str, int] = field(default_factory=dict)
    lengths: list[int] = field(default_factory=list)
    repeated: int = 0
    unanswered: int = 0

    def facts(self) -> dict[str, Any]:
        """Return the counts as they are stored; lengths are in characters."""
        judged = [count for count in self.relevant.values() if count]
        return {
            "passages": len(self.lengths),
            "repeated_passages": self.repeated,
            "median_length": stats.median(self.lengths),
            "mean_length": round(statistics.fmean(self.lengths), 1),
            "queries": len(self.relevant),
            "queries_without_answer": self.unanswered,
            "queries_with_relevant": len(judged),
            "relevant_per_query": round(statistics.fmean(judged), 2),
        }


# A page: its title and its paragraphs.
_Page = tuple[str, tuple[str, ...]]


class _Question(NamedTuple):
    place: str
    query: Query
    answers: tuple[str, ...]
    pages: tuple[_Page, ...]


def label_questions(
    files: Sequence[Path], out: Path, rule: LabelRule = DEFAULT_RULE, progress: Progress = silent
) -> LabelledCollection:
    """Write a dataset folder from files of DuReader 2.0; the same files write the same bytes.

    Equal passages become one document, named after the first question with this passage.  Only positive labels become
    judgements.  Other passages stay unjudged, because the labels miss relevant passages.

    Args:
        files: JSON lines, plain or compressed.
        out: a folder that does not exist yet; an interrupted call leaves nothing of it.
        rule: how to cut and label.
        progress: gets the number of questions read.

    Raises:
        FileError: a file is missing, or a line is wrong; names file and line.
        UsageError: no answer makes any passage relevant.
    """
    with new_folder(out) as folder:
        labelled = _write(_questions(files), folder, rule, progress)
        if not any(labelled.relevant.values()):
            names = ", ".join(path.name for path in files)
            raise UsageError(f"{names}: no answer makes a passage relevant; name files with answers, e.g. dev or train")
        _describe(folder, files, rule, labelled)
    return labelled


def _write(questions: Iterator[_Question], folder: Path, rule: LabelRule, progress: Progress) -> LabelledCollection:
    labelled = LabelledCollection()
    named: dict[bytes, str] = {}  # the id of each text, by its hash: eight million texts are too many to keep
    with DatasetWriter(folder) as writer:
        for number, question in enumerate(questions, start=1):
            query_id = question.query.query_id
            if query_id in labelled.relevant:
                raise FileError(f"{question.place}: question {query_id!r} comes twice; remove one")
            relevant: dict[str, None] = {}
            for passage_id, title, text, is_relevant in _passages(question, rule):
                doc_id = named.setdefault(hashlib.sha256(f"{title}\0{text}".encode()).digest(), passage_id)
                if doc_id == passage_id:
                    writer.add_document(doc_id, text, 0, title)
                    labelled.lengths.append(len(text))
                else:
                    labelled.repeated += 1
                if is_relevant:
                    relevant[doc_id] = None
            labelled.relevant[query_id] = len(relevant)
            labelled.unanswered += not question.answers
            writer.add_query(question.query)
            for doc_id in relevant:
                writer.add_judgement(query_id, doc_id)
            progress(number)
    return labelled


def _questions(files: Sequence[Path]) -> Iterator[_Question]:
    for path in files:
        for place, raw in source.read_json_lines(path):
            query_id = source.id_field(place, raw, "question_id")
            source.check_id(place, query_id)
            text = source.encodable(source.text_field(place, raw, "question"))
            pages = []
            for page in source.list_field(place, raw, "documents", dict):
                title = source.text_field(place, page, "title") if page.get("title") is not None else ""
                paragraphs = map(source.encodable, source.list_field(place, page, "paragraphs", str))
                pages.append((source.encodable(title), tuple(filter(str.strip, paragraphs))))
            answers = tuple(source.list_field(place, raw, "answers", str, []))
            yield _Question(place, Query(query_id, text), answers, tuple(pages))


def _passages(question: _Question, rule: LabelRule) -> Iterator[tuple[str, str, str, bool]]:
    """Yield id, title and text of a question's passages, and whether they are relevant.

    Paragraphs are labelled before they are joined.
    """
    answers = [tokens for tokens in map(span_labels.split, question.answers) if tokens]
    for page_number, (title, paragraphs) in enumerate(question.pages):
        positive = [span_labels.is_positive(text, answers, rule.threshold) for text in paragraphs]
        for number, places in enumerate(span_labels.join_paragraphs(paragraphs, rule.characters)):
            text = span_labels.join_texts([paragraphs[place] for place in places])
            passage_id = f"{question.query.query_id}-{page_number}-{number}"
            yield passage_id, title if rule.titles else "", text, any(positive[place] for place in places)


def _describe(folder: Path, files: Sequence[Path], rule: LabelRule, labelled: LabelledCollection) -> None:
    facts = labelled.facts()
    sources = {path.name: filesystem.sha256(path) for path in files}
    record = {"rule": asdict(rule), "sources": sources, **facts}
    (folder / RECORD).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    attribution = (
        "Wei He et al.: *DuReader: a Chinese Machine Reading Comprehension Dataset from Real-world Applications*, ACL "
        "workshop on Machine Reading for Question Answering, 2018."
    )
    write_facts(folder, "zh", "Apache License 2.0 (DuReader 2.0)", attribution)
    titles = "the page's title" if rule.titles else "no title"
    (folder / "README.md").write_text(
        "# Passages of DuReader 2.0, labelled by answers\n\n"
        f"{facts['passages']:,} passages with {titles}, {facts['queries']:,} questions, of which "
        f"{facts['queries_with_relevant']:,} have a relevant passage.\n\n"
        "**Licence.** Apache License 2.0 (DuReader 2.0). The pages' own authors are not known.\n\n"
        f"**Attribution.** {attribution}\n\n"
        f"**Changes.** Paragraphs were joined to passages of {rule.characters} characters. A passage is relevant if "
        f"the F1 of a span of one of its paragraphs and an answer is above {rule.threshold:g} (Qiu et al. 2022, "
        f"Algorithm 1). `{RECORD}` has the parameters, checksums and counts.\n",
        encoding="utf-8",
    )
