"""XOR-TyDi's retrieval task: questions in many languages, English passages, answers instead of judgements.

``*_w100.tsv`` is Wikipedia as DPR cuts it (``id text title``, tabs between, quoted as CSV), ``xor_*.jsonl`` the
questions with their answers as published.  The queries are the questions as translated into English beforehand:
``*_q.jsonl`` (the same lines with translated questions, as published for the baselines) or ``queries.tsv``
(``id<tab>text``).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.datasets import answers, source
from harness.datasets.answers import Answers
from harness.datasets.source import DatasetSource, DocumentStream, Format, SourceDocument
from harness.errors import FileError

_COLLECTION = ("*_w100.tsv",)
_QUESTIONS = ("xor_*.jsonl",)
_TRANSLATED = ("queries.tsv", "*_q.jsonl")
_MAX_CHARACTERS = 1 << 24  # of a passage


def _splits(folder: Path) -> dict[str, Path]:
    """Return the files of questions by their names, e.g. ``xor_dev_retrieve_eng_span_v1_1``."""
    named = {source.plain_name(path).removesuffix(".jsonl"): path for path in source.find_files(folder, _QUESTIONS)}
    return {name: path for name, path in named.items() if not name.endswith("_q")}


def _read(folder: Path, split: str) -> DatasetSource:
    """Read a folder that has all files.

    Raises:
        FileError: a line is wrong, or a question has no translation.
        UsageError: NLTK's sentence model is missing.
    """
    answers.check_tokenizer()
    collection = source.find_one(folder, _COLLECTION)
    english = _translations(folder)
    topics: list[tuple[str, str, str]] = []
    by_query: dict[str, tuple[str, ...]] = {}
    languages: dict[str, str] = {}
    for place, raw in source.read_json_lines(_splits(folder)[split]):
        query_id = source.id_field(place, raw, "id")
        if query_id not in english:
            raise FileError(f"{place}: question {query_id!r} has no translation in {' or '.join(_TRANSLATED)}; add it")
        topics.append((place, query_id, english[query_id]))
        texts = _answers(place, raw)
        if texts:
            by_query[query_id] = texts
            if "lang" in raw:
                languages[query_id] = _language(place, raw)
    documents = DocumentStream(str(collection), "dpr", (collection,), lambda: _documents(collection))
    return DatasetSource(documents, source.collect_queries(topics), answers=Answers(by_query, languages))


def _translations(folder: Path) -> dict[str, str]:
    english: dict[str, str] = {}
    for path in source.find_files(folder, _TRANSLATED):
        if path.name.startswith("queries"):
            rows = ((place, query_id, text) for place, (query_id, text) in source.read_columns(path, ["id text"]))
        else:
            rows = (
                (place, source.id_field(place, raw, "id"), source.text_field(place, raw, "question"))
                for place, raw in source.read_json_lines(path)
            )
        for place, query_id, text in rows:
            if english.setdefault(query_id, text) != text:
                raise FileError(f"{place}: question {query_id!r} has two translations; keep one of them")
    return english


def _language(place: str, raw: dict[str, Any]) -> str:
    language = source.text_field(place, raw, "lang")
    if not language or " " in language or not language.isprintable():
        raise FileError(f"{place}: key 'lang' is {language!r}; write a code such as 'ja'")
    return language


def _answers(place: str, raw: dict[str, Any]) -> tuple[str, ...]:
    """Return the answers that a text can hold; a question without any (the test set's) is not judged."""
    texts = source.list_field(place, raw, "answers", str, [])
    if "" in texts:
        raise FileError(f"{place}: an empty answer, which every text holds; remove it")
    return answers.searchable_answers(map(source.encodable, texts))


def _documents(path: Path) -> Iterator[SourceDocument]:
    """Yield passages as DPR reads them: by CSV's rules, without a first line that names the columns."""
    csv.field_size_limit(_MAX_CHARACTERS)
    # A quoted passage may span several lines, so csv counts them.
    rows = csv.reader((line for _, line in source.read_lines(path)), delimiter="\t")
    try:
        for fields in rows:
            if fields[:1] == ["id"] or not fields:
                continue
            place = f"{path}: line {rows.line_num}"
            if len(fields) != 3:
                raise FileError(f"{place}: {len(fields)} fields between tabs, expected 'id text title'; correct it")
            if any("\t" in field for field in fields):
                raise FileError(f"{place}: a quote before this line swallows whole lines; close it or double it")
            doc_id, text, title = fields
            yield SourceDocument(place, doc_id, title, text)
    except csv.Error as error:
        raise FileError(f"{path}: line {rows.line_num}: not CSV; correct its quotes") from error


FORMAT = Format("XOR-TyDi", (_COLLECTION, _QUESTIONS, _TRANSLATED), _read, _splits)
