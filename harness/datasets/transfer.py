"""A dataset as harness hands it to another machine: whatever it was read from, it is the same there, by every hash.

``corpus.jsonl`` and ``queries.jsonl`` are those of harness' own format.  Judgements are kept as they are:
``judgements.trec``, also of queries that there are not, or ``judgements.answers.json`` with what NLTK needs to look for
answers, in ``nltk_data/``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from harness.datasets import answers, native, prepare
from harness.datasets.answers import Answers
from harness.datasets.corpus import CORPUS
from harness.datasets.records import Dataset, Source
from harness.errors import FileError

TOPICS = "queries.jsonl"
TREC = "judgements.trec"
ANSWERS = "judgements.answers.json"
NLTK = "nltk_data"
_MODEL = "tokenizers/punkt_tab/english"


def entries(dataset: Dataset) -> Iterator[tuple[str, Path | bytes]]:
    """The files of a dataset by their names, in a fixed order.

    Raises:
        UsageError: NLTK's sentence model is needed and not there.
    """
    ending, judgements = dataset.judgements
    yield CORPUS, dataset.corpus.folder / CORPUS
    yield f"judgements.{ending}", judgements
    if dataset.answers:
        yield from _model()
    rows = (json.dumps({"_id": query.query_id, "text": query.text}) + "\n" for query in dataset.queries)
    yield TOPICS, "".join(rows).encode()


def is_shipped(folder: Path) -> bool:
    """Whether a folder holds such a dataset."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return {CORPUS, TOPICS} <= names and (TREC in names) is not (ANSWERS in names)


def read(folder: Path) -> Source:
    """Read a folder that holds such a dataset.

    Raises:
        FileError: something in it is wrong.
        UsageError: NLTK's sentence model is needed and not there.
    """
    documents, queries = native.json_documents(folder / CORPUS), native.json_topics(folder / TOPICS)
    if (folder / TREC).is_file():
        return Source(documents, queries, prepare.judgements(native.trec_rows(folder / TREC)))
    _use(folder / NLTK)
    answers.need_tokenizer()
    return Source(documents, queries, answers=_answers(folder / ANSWERS))


def _answers(path: Path) -> Answers:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        found = {str(query): tuple(map(str, each)) for query, each in raw["answers"].items()}
        languages = {str(query): str(each) for query, each in raw.get("languages", {}).items()}
        rule = raw["rule"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"{path}: no answers of this harness ({error}); ship the dataset again") from error
    if rule != answers.RULE:
        raise FileError(f"{path}: judged by the rule {rule!r}, this harness knows {answers.RULE!r}; use the same one")
    return Answers(found, languages)


def _use(folder: Path) -> None:
    """Let NLTK find its model there; what this machine has of its own comes after it."""
    import nltk.data

    if folder.is_dir() and str(folder) not in nltk.data.path:
        nltk.data.path.insert(0, str(folder))


def _model() -> Iterator[tuple[str, bytes]]:
    """The files of NLTK's sentence model."""
    import nltk.data

    answers.need_tokenizer()
    found = nltk.data.find(_MODEL)
    for name in sorted(("abbrev_types.txt", "collocations.tab", "sent_starters.txt", "ortho_context.tab")):
        with found.join(name).open() as file:
            yield f"{NLTK}/{_MODEL}/{name}", bytes(file.read())
