"""Texts -> vectors: a dense system builds an exact index of them in its container, and the vectors are read from that.

So an encoder runs in the same envelope, and as closed in, as for any index; and where the index was built already, for
a run, nothing runs at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness import filesystem
from harness.datasets import native, prepare
from harness.datasets.corpus import Corpus
from harness.errors import FileError, JobError, UsageError
from harness.evaluation import embeddings
from harness.evaluation.embeddings import Embeddings, Vectors
from harness.evaluation.judged_runs import JudgedRuns
from harness.jobs import indexes
from harness.jobs.plan import index_key
from harness.launch import host
from harness.launch.base import Launcher, Limits
from harness.launch.images.catalog import System
from harness.progress import task
from harness.records import Envelope, Outcome, Scalar, digest
from harness.untrusted import open_regular, read_start

# MERGED harness.jobs.encode: The vectors of an exact index, as the engine ``dense`` keeps them.


ENGINE = "dense"
KIND = "flat"
_FACTS_BYTES = 1 << 20
# They say how much there is, not what a vector is.
_OF_SIZE = ("documents",)


@dataclass(frozen=True)
class FlatIndex:
    """``documents`` vectors of ``dimensions``; ``made_with`` names all that decides a vector besides its text."""

    folder: Path
    documents: int
    dimensions: int
    checkpoint_sha256: str
    made_with: str

    def take(self, wanted: Collection[str] | None) -> tuple[tuple[str, ...], Vectors]:
        """Ids and vectors of these texts as far as they are there, in the order of the index; ``None``: of all.

        Raises:
            JobError: the index is damaged, or a vector of it is not finite.
        """
        try:
            known = None if wanted is None else set(wanted)
            rows, ids = [], []
            for row, name in enumerate(self._ids()):
                if known is None or name in known:
                    rows.append(row)
                    ids.append(name)
            with open_regular(self.folder / "vectors.f32") as file:
                shape = (self.documents, self.dimensions)
                vectors = np.array(np.memmap(file, dtype="<f4", mode="r", shape=shape)[rows], dtype=np.float32)
        except (OSError, ValueError) as error:
            raise _damaged(self.folder, error) from error
        if not np.isfinite(vectors).all():
            raise _damaged(self.folder, "a vector is not finite")
        return tuple(ids), vectors

    def _ids(self) -> Iterator[str]:
        with open_regular(self.folder / "ids.npy") as file:
            ends: Any = np.load(file, allow_pickle=False)
        if ends.shape != (self.documents,):
            raise ValueError(f"{ends.shape} ids for {self.documents} vectors")
        start = 0
        with open_regular(self.folder / "ids.bin") as file:
            for end in ends.tolist():
                yield file.read(max(end - start, 0)).decode("utf-8")
                start = end


def read_flat_index(folder: Path) -> FlatIndex:
    """What an index says of itself.

    Raises:
        JobError: it is damaged, or of another kind.
    """
    try:
        told: dict[str, Any] = json.loads(read_start(folder / "built-with.json", _FACTS_BYTES))
        if (told["engine"], told["index"]) != (ENGINE, KIND):
            raise ValueError(f"an index {told['index']!r} of {told['engine']!r}")
        found = FlatIndex(
            folder,
            int(told["documents"]),
            int(told["dimensions"]),
            str(told["checkpoint_sha256"]),
            digest({name: value for name, value in told.items() if name not in _OF_SIZE}),
        )
        with open_regular(folder / "vectors.f32") as file:
            size = file.seek(0, 2)
        if found.documents < 1 or found.dimensions < 1 or size != 4 * found.documents * found.dimensions:
            raise ValueError(f"{size} bytes for {found.documents} vectors of {found.dimensions}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from error
    return found


def _damaged(folder: Path, why: object) -> JobError:
    said = f"{folder}: no vectors can be read from this index ({why}); remove its folder, and it is built again"
    return JobError(Outcome.BAD_OUTPUT, said)


DOCUMENT, QUERY = "document", "query"


@dataclass(frozen=True)
class TextSet:
    """What is to be encoded: the texts of ``corpus`` with these ids (``None``: all), called ``name`` for people."""

    name: str
    corpus: Corpus
    role: str
    ids: frozenset[str] | None


@dataclass(frozen=True)
class VectorFile:
    """Where the vectors are, and how many texts were added to those that had been there."""

    path: Path
    found: Embeddings
    added: int


@dataclass(frozen=True)
class EncodingSetup:
    """With what, and where, an index is built; no ``envelope``: that of index builds where a suite names none."""

    launcher: Launcher
    cache: Path
    limits: Limits
    envelope: Envelope | None = None


def check_exact_index(system: System) -> None:
    """Whether a system keeps its vectors as they are.

    Raises:
        UsageError: it does not.
    """
    if system.engine != ENGINE:
        raise UsageError(f"{system.name} is of the engine {system.engine!r}: one vector a text is what 'dense' makes")
    kind = system.params.get("index", KIND)
    if kind != KIND:
        raise UsageError(
            f"{system.name} keeps its vectors in an index {kind!r}, which changes them; name a system with an exact"
            f" one ({KIND!r})"
        )


def needed(runs: Iterable[JudgedRuns], depth: int) -> frozenset[str]:
    """Every judged document, of each query the first ``depth`` hits, and as many that are not judged."""
    found: set[str] = set()
    for each in runs:
        for query, grades in each.qrels.items():
            found.update(grades if query in each.queries else ())
        for run in each.runs.values():
            for query, ranked in run.rankings.items():
                grades = each.qrels.get(query, {})
                found.update(ranked[:depth])
                found.update([name for name in ranked if name not in grades][:depth])
    return frozenset(found)


def texts_of(queries: Mapping[str, str], cache: Path) -> Corpus:
    """Queries as a small corpus in the cache.

    Raises:
        FileError: there are none.
    """
    with filesystem.temporary_folder("texts") as folder:
        path = folder / "texts.jsonl"
        # As ASCII, which holds half a character too: the corpus has a mark in its place.
        lines = (json.dumps({"_id": name, "text": text}) for name, text in queries.items())
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return prepare.prepare(native.json_documents(path), cache)


def as_documents(system: System) -> System:
    """The same system with its query encoder in the place of its document encoder.

    Raises:
        UsageError: it has none.
    """
    params = system.params
    model = params.get("query_model", params.get("model", ""))
    head = params.get("query_head", params.get("head", params.get("pooling")))
    if not model or head is None or "query_tokens" not in params:
        raise UsageError(f"{system.name} has no encoder of queries; name another system, or --role document")
    changed: dict[str, Scalar] = {
        "document_model": model,
        "document_head": head,
        "document_tokens": params["query_tokens"],
        "document_backend": params.get("backend", "torch"),
        "document_prefix": params.get("query_prefix", ""),
        "document_segment": params.get("query_segment", 0),
    }
    return system.model_copy(update={"build_params": {**system.build_params, **changed}})


def encode(system: System, texts: TextSet, into: Callable[[Embeddings], Path], bench: EncodingSetup) -> VectorFile:
    """Vectors of these texts, kept beside those of the same file that were made before.

    Args:
        system: the encoder.
        texts: what is wanted.
        into: says which file they are kept in.
        bench: see :class:`EncodingSetup`.

    Raises:
        ImageError: its image cannot be made.
        JobError: the index cannot be built, or is damaged.
        UsageError: a text is not there.
        FileError: the file that is there holds something else.
    """
    check_exact_index(system)
    index = read_flat_index(_built(system, texts, bench))
    empty = Embeddings(
        (), _nothing(index), system.name, index.checkpoint_sha256, texts.role, texts.corpus.sha256, index.made_with
    )
    path = into(empty)
    before = _before(path, empty)
    have = before.ids if before else ()
    if before and texts.ids is not None and not before.missing(texts.ids):
        return VectorFile(path, before, 0)
    wanted = None if texts.ids is None else {*texts.ids, *have}
    ids, vectors = index.take(wanted)
    lacking = sorted(wanted - set(ids)) if wanted is not None else []
    if lacking:
        raise UsageError(
            f"{texts.name}: {len(lacking)} ids are of no text in it, e.g. {lacking[0]!r}; the runs are of another"
            " collection"
        )
    found = replace(empty, ids=ids, vectors=vectors)
    path.parent.mkdir(parents=True, exist_ok=True)
    embeddings.write(path, found)
    return VectorFile(path, found, len(ids) - len(have))


def _nothing(index: FlatIndex) -> embeddings.Vectors:
    import numpy as np

    return np.zeros((0, index.dimensions), dtype=np.float32)


def _before(path: Path, asked: Embeddings) -> Embeddings | None:
    """What is in the file.

    Raises:
        FileError: that is of other texts, another encoder or another role.
    """
    if not path.exists():
        return None
    found = embeddings.read(path)
    for name in ("checkpoint_sha256", "role", "source", "made_with"):
        if getattr(found, name) != getattr(asked, name):
            what = f"{name} {getattr(found, name)[:16]!r}, not {getattr(asked, name)[:16]!r}"
            raise FileError(f"{path}: holds vectors of {what}; name another file, or remove this one")
    return found


def _built(system: System, texts: TextSet, bench: EncodingSetup) -> Path:
    """The index' folder: from the cache, else built."""
    chosen = bench.envelope or indexes.build_envelope(host.cpus(), host.memory_bytes())
    builder = (as_documents(system) if texts.role == QUERY else system).on(chosen.gpus)
    launcher = bench.launcher
    launcher.check()
    with task(f"{system.name}: image"):
        # The image is the system's own: it has both encoders, whichever is asked for.
        image = launcher.prepare(system.on(chosen.gpus))
    prepared = replace(image, system=builder)
    key = index_key(builder, image.digest, texts.corpus.sha256)
    found = indexes.find(bench.cache, key)
    if found is not None:
        return found.folder
    cannot = launcher.cannot(chosen)
    if cannot:
        raise JobError(Outcome.NOT_APPLICABLE, f"{cannot}; choose another --profile")
    launcher.sweep()
    filesystem.remove_all_leftovers(bench.cache)
    with task(f"{system.name}: vectors of {texts.name}") as watcher:
        made = indexes.build(
            launcher,
            prepared,
            texts.corpus,
            key,
            envelope=chosen,
            limits=bench.limits,
            cache=bench.cache,
            progress=watcher,
        )
    return made.folder


def of_runs(found: Collection[JudgedRuns], corpus: Corpus, name: str) -> Iterator[JudgedRuns]:
    """Those of one collection.

    Raises:
        UsageError: there are none.
    """
    ours = [each for each in found if each.corpus_sha256 in (None, corpus.sha256)]
    if not ours:
        raise UsageError(f"no stored run is over the documents of {name}; run a suite over it first, or ask for --all")
    yield from ours
