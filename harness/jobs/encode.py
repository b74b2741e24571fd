"""Encode texts: build a dense system's exact index of them in its container, and read the vectors from the index.

So an encoder has the envelope and isolation of any index build, and does not run again if a run built the index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness import datasets, filesystem
from harness.datasets import native
from harness.datasets.corpus import PreparedCorpus, prepare_corpus
from harness.driver.records import Envelope, Outcome, Scalar, digest
from harness.errors import FileError, JobError, UsageError, counted
from harness.evaluation import embeddings, judged_runs
from harness.evaluation.embeddings import Embeddings, Vectors
from harness.evaluation.judged_runs import JudgedRuns
from harness.jobs import environment, indexes
from harness.jobs.plan import index_key
from harness.launch.base import Launcher, Limits
from harness.launch.images.systems import System
from harness.progress import task
from harness.untrusted import open_regular, parse_json, read_whole, reason_of

ENGINE = "dense"
KIND = "flat"
# As np.save writes it.  np.load would take the memory that any header declares, and fail in its own ways.
_ARRAY_HEADER_BYTES = 128
_ARRAY_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..{'descr': '<i8', 'fortran_order': False, 'shape': \(([0-9]{1,18}),\), } *\n", re.DOTALL
)
DOCUMENT, QUERY = "document", "query"
_FACTS_BYTES = 1 << 20
_MOST_ID_BYTES = 1024  # 256 characters


@dataclass(frozen=True)
class TextSet:
    """Texts to encode: the texts of ``corpus`` with these ids (``None``: all), called ``name`` in messages."""

    name: str
    corpus: PreparedCorpus
    role: str
    ids: frozenset[str] | None


@dataclass(frozen=True)
class VectorFile:
    """File of vectors, and the number of texts added to it."""

    path: Path
    content: Embeddings
    added: int


def check_exact_index(system: System) -> None:
    """Refuse a system that does not keep its vectors as they are.

    Raises:
        UsageError: its engine has no single vectors, or its index changes them.
    """
    if system.engine != ENGINE:
        raise UsageError(
            f"{system.name} has the engine {system.engine!r}; name a system of 'dense', with one vector a text"
        )
    kind = system.params.get("index", KIND)
    if kind != KIND:
        raise UsageError(
            f"{system.name} keeps its vectors in an index {kind!r}, which changes them; name a system with an exact"
            f" index ({KIND!r})"
        )


def needed(runs: Iterable[JudgedRuns], depth: int, corpus: PreparedCorpus, name: str) -> frozenset[str]:
    """Return every judged document of a collection, and of each query the first ``depth`` hits and unjudged hits.

    Raises:
        UsageError: no run is over the collection.
    """
    chosen = [judged for judged in runs if judged.corpus_sha256 in (None, corpus.sha256)]
    if not chosen:
        raise UsageError(f"no stored run searches the documents of {name}; run a suite over it first, or pass --all")
    documents: set[str] = set()
    for judged in chosen:
        for query, grades in judged.qrels.items():
            documents.update(grades if query in judged.queries else ())
        for run in judged.runs.values():
            for query, ranked in run.rankings.items():
                grades = judged.qrels.get(query, {})
                documents.update(ranked[:depth])
                documents.update([document for document in ranked if document not in grades][:depth])
    return frozenset(documents)


def texts_of(queries: Mapping[str, str], cache: Path) -> PreparedCorpus:
    """Prepare queries as a small corpus in the cache.

    Raises:
        FileError: there are none.
    """
    with filesystem.temporary_folder("texts") as folder:
        path = folder / "texts.jsonl"
        # As ASCII, which can hold a lone surrogate; the corpus replaces it.
        lines = (json.dumps({"_id": name, "text": text}) for name, text in queries.items())
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return prepare_corpus(native.json_documents(path), cache)


@dataclass(frozen=True)
class TextSelection:
    """The texts to encode: a dataset's texts that stored runs need, or the queries of a file."""

    dataset: str | None
    texts: Path | None
    role: str | None
    depth: int
    everything: bool

    def read(self, cache: Path, stored_runs: Callable[[], Iterable[JudgedRuns]]) -> TextSet:
        """Read the texts.

        Raises:
            UsageError: not exactly one of a dataset and a file is named.
        """
        if (self.dataset is None) == (self.texts is None):
            raise UsageError("name a DATASET or a file with --texts, one of the two")
        if self.texts is not None:
            corpus = texts_of(judged_runs.read_queries(self.texts), cache)
            return TextSet(self.texts.name, corpus, self.role or QUERY, None)
        dataset = datasets.load(datasets.find(str(self.dataset), Path.cwd()), cache)
        if self.role == QUERY:
            queries = {query.query_id: query.text for query in dataset.queries}
            return TextSet(f"the queries of {dataset.name}", texts_of(queries, cache), QUERY, None)
        ids = None if self.everything else needed(stored_runs(), self.depth, dataset.corpus, dataset.name)
        return TextSet(dataset.name, dataset.corpus, DOCUMENT, ids)


def as_documents(system: System) -> System:
    """Return the system with its query encoder as document encoder.

    Raises:
        UsageError: it has none.
    """
    params = system.params
    model = params.get("query_model", params.get("model", ""))
    head = params.get("query_head", params.get("head", params.get("pooling")))
    if not model or head is None or "query_tokens" not in params:
        raise UsageError(f"{system.name} has no query encoder; name another system, or --role document")
    changed: dict[str, Scalar] = {
        "document_model": model,
        "document_head": head,
        "document_tokens": params["query_tokens"],
        "document_backend": params.get("backend", "torch"),
        "document_prefix": params.get("query_prefix", ""),
        "document_segment": params.get("query_segment", 0),
    }
    return system.model_copy(update={"build_params": {**system.build_params, **changed}})


def encode(
    system: System,
    texts: TextSet,
    into: Callable[[Embeddings], Path],
    launcher: Launcher,
    cache: Path,
    envelope: Envelope | None = None,
) -> VectorFile:
    """Encode texts into a file, in addition to the vectors that it holds already.

    Args:
        into: returns the file's path, given empty embeddings of the system.
        envelope: by default the envelope of index builds.

    Raises:
        ImageError: the image cannot be built.
        JobError: the index cannot be built, or is damaged.
        UsageError: an id names no text.
        FileError: the file holds other vectors.
    """
    index = read_flat_index(_built(system, texts, launcher, cache, envelope))
    empty = Embeddings(
        (),
        np.zeros((0, index.dimensions), np.float32),
        system.name,
        index.checkpoint_sha256,
        texts.role,
        texts.corpus.sha256,
        index.made_with,
    )
    path = into(empty)
    before = _before(path, empty)
    stored_ids = before.ids if before else ()
    if before and texts.ids is not None and not before.missing(texts.ids):
        return VectorFile(path, before, 0)
    requested = None if texts.ids is None else {*texts.ids, *stored_ids}
    ids, vectors = index.take(requested)
    missing = sorted(requested - set(ids)) if requested is not None else []
    if missing:
        fault = f"the runs have {counted(len(missing), 'id')} without a text, e.g. {missing[0]!r}"
        raise UsageError(f"{texts.name}: {fault}; they search another collection")
    encoded = replace(empty, ids=ids, vectors=vectors)
    path.parent.mkdir(parents=True, exist_ok=True)
    embeddings.write(path, encoded)
    return VectorFile(path, encoded, len(ids) - len(stored_ids))


def _before(path: Path, empty: Embeddings) -> Embeddings | None:
    """Read the vectors that the file has already.

    Raises:
        FileError: they come from other texts, another encoder or another role.
    """
    if not path.exists():
        return None
    stored = embeddings.read(path)
    for name in ("checkpoint_sha256", "role", "source", "made_with"):
        if getattr(stored, name) != getattr(empty, name):
            what = f"{name} {getattr(stored, name)[:16]!r}, not {getattr(empty, name)[:16]!r}"
            raise FileError(f"{path}: holds vectors of {what}; name another file, or remove this one")
    return stored


def _built(system: System, texts: TextSet, launcher: Launcher, cache: Path, envelope: Envelope | None) -> Path:
    """Return the index folder, from the cache or built now."""
    able = system.for_job("build", gpus=envelope.gpus if envelope else 0)
    builder = as_documents(able) if texts.role == QUERY else able
    launcher.check()
    with task(f"{system.name}: image"):
        # The image is the system's own: it has both encoders.
        image = launcher.prepare(able)
    key = index_key(builder, image.recipe, texts.corpus.sha256)
    index = indexes.find(cache, key)
    if index is None:
        launcher.sweep()
        filesystem.remove_all_leftovers(cache)
        prepared, title = replace(image, system=builder), f"vectors of {texts.name}"
        host = environment.read(launcher.engine_version())
        index = indexes.build(
            launcher,
            prepared,
            texts.corpus,
            key,
            title,
            cache,
            envelope=envelope,
            limits=Limits(),
            environment=host,
        )
    return index.folder


@dataclass(frozen=True)
class FlatIndex:
    """Exact index of the engine ``dense``, from an untrusted image; ``made_with`` hashes what decides a vector."""

    folder: Path
    documents: int
    dimensions: int
    checkpoint_sha256: str
    made_with: str

    def take(self, requested: set[str] | None) -> tuple[tuple[str, ...], Vectors]:
        """Return ids and vectors of these texts (``None``: all) that it has, in index order.

        Raises:
            JobError: the index is damaged, or a vector of it is not finite.
        """
        try:
            chosen = [(row, name) for row, name in enumerate(self._ids()) if requested is None or name in requested]
            rows = [row for row, _ in chosen]
            with open_regular(self.folder / "vectors.f32") as file:
                shape = (self.documents, self.dimensions)
                vectors = np.array(np.memmap(file, dtype="<f4", mode="r", shape=shape)[rows], dtype=np.float32)
        except (OSError, ValueError) as error:
            raise _damaged(self.folder, reason_of(error)) from error
        if not np.isfinite(vectors).all():
            raise _damaged(self.folder, "a vector is not finite")
        return tuple(name for _, name in chosen), vectors

    def _ids(self) -> Iterator[str]:
        with open_regular(self.folder / "ids.npy") as file:
            header = _ARRAY_HEADER.match(file.read(_ARRAY_HEADER_BYTES))
            if header is None:
                raise ValueError("ids.npy is not an array of 64-bit integers")
            file.seek(header.end())
            ends = np.frombuffer(file.read(8 * self.documents), dtype="<i8")
        if not len(ends) == int(header[1]) == self.documents:
            raise ValueError(f"{int(header[1])} ids for {self.documents} vectors")
        start = 0
        with open_regular(self.folder / "ids.bin") as file:
            for end in ends.tolist():
                if not start <= end <= start + _MOST_ID_BYTES:
                    raise ValueError(f"an id from byte {start} to {end}")
                yield file.read(end - start).decode("utf-8")
                start = end


def read_flat_index(folder: Path) -> FlatIndex:
    """Read the facts of an exact index.

    Raises:
        JobError: it is damaged, or of another kind.
    """
    try:
        facts: dict[str, Any] = parse_json(read_whole(folder / "built-with.json", _FACTS_BYTES))
        if (facts["engine"], facts["index"]) != (ENGINE, KIND):
            raise ValueError(f"an index {facts['index']!r} of {facts['engine']!r}")
        made_with = digest({name: value for name, value in facts.items() if name != "documents"})
        documents, dimensions = int(facts["documents"]), int(facts["dimensions"])
        index = FlatIndex(folder, documents, dimensions, str(facts["checkpoint_sha256"]), made_with)
        with open_regular(folder / "vectors.f32") as file:
            size = file.seek(0, 2)
        if documents < 1 or dimensions < 1 or size != 4 * documents * dimensions:
            raise ValueError(f"{size} bytes for {documents} vectors of {dimensions}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, reason_of(error)) from error
    return index


def _damaged(folder: Path, why: str) -> JobError:
    text = f"{folder}: the vectors of this index cannot be read ({why}); remove its folder, and it is built again"
    return JobError(Outcome.BAD_OUTPUT, text)
