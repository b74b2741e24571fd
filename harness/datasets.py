"""A folder of files -> corpus, topics, qrels; and fixed query samples by seed.

A dataset folder holds ``corpus.jsonl`` (``{"_id", "title", "text"}`` a line), ``queries.jsonl``
(``{"_id", "text"}``) and ``qrels.trec`` (``query 0 document grade``), each plain or ``.gz``: BEIR's layout
with TREC's judgements.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, cast

from harness import leftovers
from harness.catalog import data_root
from harness.errors import FileError, UnknownName
from harness.measure.answers import MAX_ID_CHARS
from harness.records import Query, digest

_FORMAT = 1  # of the prepared corpus; a change makes all of them again


@dataclass(frozen=True)
class Corpus:
    """Documents made ready for jobs: ``folder/corpus.jsonl`` and ``folder/ids.txt``, one id a line."""

    folder: Path
    size: int
    sha256: str

    def unknown(self, doc_ids: set[str]) -> set[str]:
        """Those ids that no document has.  Streams: the corpus' ids are never held whole."""
        missing = set(doc_ids)
        with (self.folder / "ids.txt").open(encoding="utf-8") as lines:
            for line in lines:
                missing.discard(line.rstrip("\n"))
                if not missing:
                    break
        return missing


@dataclass(frozen=True)
class Dataset:
    """Corpus, topics and qrels under one name.  ``qrels`` is the text of a TREC qrels file."""

    name: str
    corpus: Corpus
    queries: tuple[Query, ...]
    qrels: bytes

    @property
    def qrels_sha256(self) -> str:
        """Names the judgements."""
        return hashlib.sha256(self.qrels).hexdigest()


@dataclass(frozen=True)
class QuerySample:
    """The queries of a measurement; warm-up queries are never timed ones."""

    sample: tuple[Query, ...]
    warmup: tuple[Query, ...]

    @property
    def sample_sha256(self) -> str:
        """Names the sample."""
        return digest([asdict(query) for query in self.sample])

    @property
    def warmup_sha256(self) -> str:
        """Names the warm-up queries."""
        return digest([asdict(query) for query in self.warmup])


def find(name: str, beside: Path) -> Path:
    """The folder of a dataset: a path (relative to ``beside``), or the name of a shipped one.

    Raises:
        UnknownName: neither.
    """
    if "/" in name or name.startswith("."):
        return beside / name
    shipped = {path.parent.name: path.parent for path in (data_root() / "datasets").glob("*/qrels.trec*")}
    if name not in shipped:
        raise UnknownName("dataset", name, [*shipped, "a folder such as ./my-data"])
    return shipped[name]


def load(folder: Path, cache: Path) -> Dataset:
    """Read and check a dataset; the corpus is streamed into the cache once.

    Raises:
        FileError: a file is missing, or one of its lines is wrong: names file, line and what is wrong.
    """
    queries_path = _file(folder, "queries.jsonl")
    queries: dict[str, Query] = {}
    for number, raw in _json_lines(queries_path):
        # A lone surrogate cannot be written as UTF-8; the corpus is treated alike.
        text = _text(queries_path, number, raw, "text").encode("utf-8", "replace").decode("utf-8")
        query = Query(_text(queries_path, number, raw, "_id"), text)
        _check_id(queries_path, number, query.query_id, query.query_id in queries)
        queries[query.query_id] = query
    qrels = _qrels(_file(folder, "qrels.trec"), set(queries))
    corpus = _prepare(_file(folder, "corpus.jsonl"), cache)
    return Dataset(folder.name, corpus, tuple(queries.values()), qrels)


def draw(dataset: Dataset, size: int, warmup: int, seed: int) -> QuerySample:
    """A fixed sample of at most ``size`` judged queries, and warm-up queries from outside of it.

    Warm-up queries are the topics that were not drawn; where those do not suffice, titles of documents (or the
    first words of their texts).

    Raises:
        FileError: no query has a judgement, or there are too few texts to warm up with.
    """
    judged = {line.split(maxsplit=1)[0] for line in dataset.qrels.decode("utf-8").splitlines()}
    eligible = sorted((query for query in dataset.queries if query.query_id in judged), key=lambda q: q.query_id)
    if not eligible:
        raise FileError(f"dataset {dataset.name}: no query has a judgement; add some to its qrels.trec")
    shuffled = random.Random(f"sample:{seed}").sample(eligible, len(eligible))
    sample = sorted(shuffled[:size], key=lambda query: query.query_id)
    drawn = {query.query_id for query in sample}
    texts = {query.text for query in sample}
    others = (query for query in dataset.queries if query.query_id not in drawn and query.text not in texts)
    rest = sorted(others, key=lambda query: query.query_id)
    warm = random.Random(f"warmup:{seed}").sample(rest, min(warmup, len(rest)))
    if len(warm) < warmup:
        warm += _titles(dataset.corpus, warmup - len(warm), seed, texts)
    if len(warm) < warmup:
        raise FileError(
            f"dataset {dataset.name}: {len(warm)} warm-up queries outside the sample, {warmup} are wanted; add queries"
            " without judgements, or lower protocol.warmup_queries or protocol.sample_size"
        )
    return QuerySample(tuple(sample), tuple(warm))


def _titles(corpus: Corpus, count: int, seed: int, taken: set[str]) -> list[Query]:
    """Titles of documents chosen by seed, as queries; a reservoir, so that the corpus is only streamed."""
    chooser = random.Random(f"titles:{seed}")
    kept: list[Query] = []
    seen = 0
    for _, raw in _json_lines(corpus.folder / "corpus.jsonl"):
        text = (raw["title"] or " ".join(raw["text"].split()[:12])).strip()
        if not text or text in taken:
            continue
        seen += 1
        query = Query(f"title:{raw['_id']}", text)
        if len(kept) < count:
            kept.append(query)
        elif (place := chooser.randrange(seen)) < count:
            kept[place] = query
    return kept


def _prepare(path: Path, cache: Path) -> Corpus:
    """Check the corpus and write it where jobs can read it; done once for each content."""
    source = hashlib.sha256(f"{_FORMAT}".encode())
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            source.update(chunk)
    folder = cache / "corpora" / source.hexdigest()[:24]
    if not folder.is_dir():
        partial = leftovers.in_the_making(folder)
        partial.mkdir(parents=True)
        try:
            _write_corpus(path, partial)
            for made in partial.iterdir():
                made.chmod(0o644)  # a job's user must read it
            partial.chmod(0o755)
            if not folder.is_dir():  # another run was faster
                partial.rename(folder)
        finally:
            leftovers.remove(partial)
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    return Corpus(folder, facts["size"], facts["sha256"])


def _write_corpus(path: Path, folder: Path) -> None:
    content, seen = hashlib.sha256(), set()
    with (folder / "corpus.jsonl").open("wb") as corpus, (folder / "ids.txt").open("w", encoding="utf-8") as ids:
        for number, raw in _json_lines(path):
            doc_id, text = _text(path, number, raw, "_id"), _text(path, number, raw, "text")
            title = _text(path, number, raw, "title") if raw.get("title") is not None else ""
            _check_id(path, number, doc_id, doc_id in seen)
            seen.add(doc_id)
            document = {"_id": doc_id, "title": title, "text": text}
            line = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
            content.update(line)
            corpus.write(line)
            ids.write(doc_id + "\n")
    if not seen:
        raise FileError(f"{path}: no documents in it; give one JSON object a line")
    facts = {"size": len(seen), "sha256": content.hexdigest()}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


def _qrels(path: Path, query_ids: set[str]) -> bytes:
    lines, seen = [], set()
    with _open(path) as file:
        for number, raw in enumerate(_lines(path, file), 1):
            fields = raw.split()
            if not fields:
                continue
            if len(fields) != 4:
                raise FileError(f"{path}: line {number}: {len(fields)} fields, expected 'query 0 document grade'")
            if not re.fullmatch(r"-?[0-9]+", fields[3]):
                raise FileError(f"{path}: line {number}: grade {fields[3]!r} is no whole number")
            if fields[0] not in query_ids:
                raise FileError(f"{path}: line {number}: query {fields[0]!r} is not in queries.jsonl")
            if (fields[0], fields[2]) in seen:
                raise FileError(f"{path}: line {number}: document {fields[2]!r} is judged twice for {fields[0]!r}")
            seen.add((fields[0], fields[2]))
            lines.append(" ".join(fields))
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def _file(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise FileError(f"{folder / name}: no such file (nor {name}.gz); a dataset needs corpus, queries and qrels")


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _lines(path: Path, file: IO[bytes]) -> Iterator[str]:
    number = 0
    try:
        for line in file:
            number += 1
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except (UnicodeDecodeError, EOFError, OSError, zlib.error) as error:
        raise FileError(f"{path}: line {number}: cannot be read: {error}") from error


def _json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with _open(path) as file:
        for number, line in enumerate(_lines(path, file), 1):
            if not line.strip():
                continue
            try:
                raw = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise FileError(f"{path}: line {number}: not valid JSON: {error}") from error
            if not isinstance(raw, dict):
                raise FileError(f"{path}: line {number}: {type(raw).__name__}, expected an object")
            yield number, raw


def _text(path: Path, number: int, raw: dict[str, Any], key: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str):
        what = "is missing" if value is None else f"is {type(value).__name__}, expected text"
        raise FileError(f"{path}: line {number}: key '{key}' {what}")
    return value


def _check_id(path: Path, number: int, value: str, known: bool) -> None:
    if known:
        raise FileError(f"{path}: line {number}: id {value!r} comes twice")
    if not 0 < len(value) <= MAX_ID_CHARS or not value.isprintable() or " " in value:
        raise FileError(f"{path}: line {number}: id {value!r} must be 1 to {MAX_ID_CHARS} characters with no blanks")
