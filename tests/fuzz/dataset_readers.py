"""Readers of datasets in each format, plain and compressed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from harness import datasets
from harness.datasets import answers, dureader_questions, native
from harness.datasets.corpus import CORPUS
from tests.datasets import examples
from tests.fuzz.child import LINKED, NAMED, Reader


def _pack(path: Path) -> None:
    """Compress a file, with ``.gz`` or ``.zst`` by the length of its name."""
    content = path.read_bytes()
    if len(path.name) % 2:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content, mtime=0))
    else:
        path.with_name(f"{path.name}.zst").write_bytes(pa.compress(content, "zstd", asbytes=True))
    path.unlink()


def _write_model(folder: Path) -> None:
    """Write a small sentence model of NLTK into a copy's folder."""
    model = folder / "nltk_data" / "tokenizers" / "punkt_tab" / "english"
    model.mkdir(parents=True)
    (model / "abbrev_types.txt").write_text("d.c\ndr\ninc\n", encoding="utf-8")
    for name in ("collocations.tab", "sent_starters.txt", "ortho_context.tab"):
        (model / name).write_text("", encoding="utf-8")


def _use_model(folder: Path) -> None:
    native._use_model(folder / "nltk_data")


def _read(folder: Path, scratch: Path) -> object:
    """Read all that harness reads of a dataset."""
    found = datasets.load(folder / "data", scratch / "cache")
    documents = [document for _, document in zip(range(2000), found.corpus, strict=False)]
    terms = datasets.licence(folder / "data")
    texts = list(found.corpus.texts([documents[0]["_id"]]))
    return documents, texts, found.queries[:2000], found.qrels, found.answers, found.language, found.faults, terms


def _read_with_model(folder: Path, scratch: Path) -> object:
    _use_model(folder)
    return _read(folder, scratch)


def _format(heading: str, files: Iterable[str], packed: bool = False, model: bool = False) -> Reader:
    def make(folder: Path) -> None:
        examples.write(heading, folder / "data")
        (folder / "data" / "dataset.toml").write_text('language = "en"\nlicence = "MIT"\n', encoding="utf-8")
        if model:
            _write_model(folder)
        if packed:
            for path in [path for pattern in files for path in (folder / "data").glob(pattern)]:
                _pack(path)

    patterns = tuple(f"data/{name}{'.*' if packed else ''}" for name in files)
    name = f"{heading} datasets, compressed" if packed else f"{heading} datasets"
    return Reader(name, make, _read_with_model if model else _read, patterns, skips=LINKED)


def _make_copy(folder: Path) -> None:
    """Write the copy of a dataset whose documents are judged by answers, as it goes to other machines."""
    _write_model(folder)
    data = folder / "data"
    data.mkdir()
    documents = [{"_id": f"d{n}", "title": "", "text": f"all about {n}"} for n in range(10)]
    (data / CORPUS).write_text("".join(json.dumps(each) + "\n" for each in documents), encoding="utf-8")
    queries = [{"_id": f"q{n}", "text": f"what is {n}"} for n in range(10)]
    (data / "queries.jsonl").write_text("".join(json.dumps(each) + "\n" for each in queries), encoding="utf-8")
    judged = answers.Answers({f"q{n}": (f"about {n}",) for n in range(10)}, {"q1": "ja"})
    (data / "judgements.answers.json").write_bytes(judged.content)


def _make_licence(folder: Path) -> None:
    examples.write("harness", folder / "data")
    text = 'language = "en"\nlicence = "CC BY 4.0"\nattribution = "Us, 2026"\n'
    (folder / "data" / "dataset.toml").write_text(text, encoding="utf-8")


def _make_questions(folder: Path) -> None:
    page = {"title": "t", "paragraphs": ["all about 1", "sow the seeds"]}
    lines = ({"question_id": n, "question": "q", "documents": [page], "answers": ["sow seeds"]} for n in range(10))
    (folder / "search.dev.json").write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")


def _label(folder: Path, scratch: Path) -> object:
    return dureader_questions.label_questions([folder / "search.dev.json"], scratch / "labelled")


_NATIVE = ("corpus.jsonl", "queries.jsonl", "qrels.trec")
_BEIR = ("corpus.jsonl", "queries.jsonl", "qrels/*.tsv")
_TREC = ("documents*", "topics*", "qrels*")
_MSMARCO = ("collection.tsv", "queries.*.tsv", "qrels.*.tsv")
_XOR = ("*_w100.tsv", "xor_*.jsonl", "queries.tsv")
_DUREADER = ("passage-collection/part-00", "passage-collection/passage2id.map.json", "dev/dev.json")

READERS = (
    _format("harness", _NATIVE),
    _format("harness", _NATIVE, packed=True),
    _format("BEIR", _BEIR),
    _format("TREC", _TREC),
    _format("MS MARCO", _MSMARCO),
    _format("MS MARCO", _MSMARCO, packed=True),
    _format("XOR-TyDi", _XOR, model=True),
    _format("DuReader-retrieval", _DUREADER),
    _format("DuReader-retrieval", _DUREADER, packed=True),
    Reader(
        "copied datasets",
        _make_copy,
        _read_with_model,
        ("data/judgements.answers.json", f"data/{CORPUS}"),
        skips=LINKED,
    ),
    Reader("questions of DuReader 2.0", _make_questions, _label, ("search.dev.json",), skips=NAMED),
    Reader("licences", _make_licence, _read, ("data/dataset.toml",), skips=LINKED),
)
