"""The harness's own format, and the copy of a dataset that goes to other machines.

The format is BEIR's layout with TREC's qrels: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels.trec``.

A copy has the same hashes as its dataset, in any format.  Its corpus and queries are in this format; its judgements are
kept as they are: ``judgements.trec``, also of unknown queries, or ``judgements.answers.json`` with the sentence model
that NLTK needs to look for answers, in ``nltk_data/``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from harness import extras
from harness.datasets import answers, source
from harness.datasets.answers import Answers
from harness.datasets.corpus import CORPUS
from harness.datasets.dataset import Dataset
from harness.datasets.source import DatasetSource, DocumentStream, Format, SourceDocument
from harness.driver.records import Query
from harness.errors import FileError
from harness.untrusted import parse_json, read_whole, reading

_FILES = (("corpus.jsonl",), ("queries.jsonl",), ("qrels.trec",))
_QUERIES = "queries.jsonl"
_COPIED_QRELS = "judgements.trec"
_COPIED_ANSWERS = "judgements.answers.json"
_NLTK = "nltk_data"
_MODEL = "tokenizers/punkt_tab/english"
# The answers of all questions of XOR-TyDi have less than one MiB.
_MOST_ANSWER_BYTES = 64 << 20
_MODEL_FILES = ("abbrev_types.txt", "collocations.tab", "ortho_context.tab", "sent_starters.txt")


def _read(folder: Path) -> DatasetSource:
    """Read a folder that has all files; raise FileError if a query or judgement is wrong."""
    corpus, queries_file, qrels = (source.find_one(folder, patterns) for patterns in _FILES)
    return source.judged_source(json_documents(corpus), read_json_queries(queries_file), qrels, queries_file)


def json_documents(path: Path) -> DocumentStream:
    """Return a corpus of ``{"_id", "title", "text", "metadata"}`` lines; title and metadata may be missing or null."""
    return DocumentStream(str(path), "jsonl", (path,), lambda: _documents(path))


def _documents(path: Path) -> Iterator[SourceDocument]:
    for place, raw in source.read_json_lines(path):
        title = source.text_field(place, raw, "title") if raw.get("title") is not None else ""
        doc_id, text = source.id_field(place, raw, "_id"), source.text_field(place, raw, "text")
        yield SourceDocument(place, doc_id, title, text, raw.get("metadata"))


def read_json_queries(path: Path) -> tuple[Query, ...]:
    """Read queries of ``{"_id", "text"}`` lines; a ``filter`` names fields and the values that documents must have."""
    return source.filtered_queries(
        (
            place,
            source.id_field(place, raw, "_id"),
            source.text_field(place, raw, "text"),
            tuple(sorted(source.fields_of(place, "filter", raw.get("filter")).items())),
        )
        for place, raw in source.read_json_lines(path)
    )


def copy_files(dataset: Dataset) -> Iterator[tuple[str, Path | bytes]]:
    """Yield the files of a dataset's copy by their names, in a fixed order.

    Raises:
        UsageError: NLTK's sentence model is needed and missing.
    """
    ending, judgements = dataset.judgements
    yield CORPUS, dataset.corpus.folder / CORPUS
    yield f"judgements.{ending}", judgements
    if dataset.answers:
        yield from _model_files()
    yield _QUERIES, "".join(map(query_line, dataset.queries)).encode()


def query_line(query: Query, *, ensure_ascii: bool = True) -> str:
    """Return a query's line of ``queries.jsonl``."""
    more = {"filter": dict(query.filter)} if query.filter else {}
    return json.dumps({"_id": query.query_id, "text": query.text, **more}, ensure_ascii=ensure_ascii) + "\n"


def is_copy(folder: Path) -> bool:
    """Return whether a folder has a dataset's copy."""
    names = {path.name for path in folder.iterdir() if path.is_file()} if folder.is_dir() else set()
    return {CORPUS, _QUERIES} <= names and (_COPIED_QRELS in names) is not (_COPIED_ANSWERS in names)


def read_copy(folder: Path) -> DatasetSource:
    """Read a dataset's copy.

    Raises:
        FileError: a file is wrong.
        UsageError: NLTK's sentence model is needed and missing.
    """
    documents, queries = json_documents(folder / CORPUS), read_json_queries(folder / _QUERIES)
    qrels = folder / _COPIED_QRELS
    if qrels.is_file():
        return source.judged_source(documents, queries, qrels)
    _use_model(folder / _NLTK)
    answers.check_tokenizer()
    return DatasetSource(documents, queries, answers=_read_answers(folder / _COPIED_ANSWERS))


def _read_answers(path: Path) -> Answers:
    damage = (OSError, ValueError, KeyError, TypeError, AttributeError)
    with reading(path, "copy the dataset again", damage=damage):
        raw = parse_json(read_whole(path, _MOST_ANSWER_BYTES))
        by_query = {str(query): tuple(map(str, texts)) for query, texts in raw["answers"].items()}
        languages = {str(query): str(language) for query, language in raw.get("languages", {}).items()}
        rule = raw["rule"]
    if rule != answers.RULE:
        raise FileError(f"{path}: rule {rule!r}, this harness uses {answers.RULE!r}; use the same version")
    return Answers(by_query, languages)


def _use_model(folder: Path) -> None:
    """Make NLTK look for its model in this folder first."""
    extras.require("nltk")
    import nltk.data

    if folder.is_dir() and str(folder) not in nltk.data.path:
        nltk.data.path.insert(0, str(folder))


def _model_files() -> Iterator[tuple[str, bytes]]:
    """Yield the files of NLTK's sentence model."""
    answers.check_tokenizer()
    import nltk.data

    model = nltk.data.find(_MODEL)
    for name in _MODEL_FILES:
        with model.join(name).open() as file:
            yield f"{_NLTK}/{_MODEL}/{name}", bytes(file.read())


FORMAT = Format("harness", _FILES, _read)
