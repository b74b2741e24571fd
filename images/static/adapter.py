"""Static token embeddings: a text's vector is the mean of its tokens' vectors; the nearest are found exactly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy
from index_files import built_with, doc_ids
from model2vec import StaticModel
from tokenizers import Tokenizer

from harness.driver.adapter import Adapter, Corpus, Document
from harness.driver.records import Envelope, Hit, Scalar

_PARAMS = ("document_tokens", "query_tokens")
_VECTORS = "vectors.npy"
_CHUNK = 1024  # documents that are encoded at once


class _Embeddings(StaticModel):
    """model2vec's embeddings, which know how many seconds their tokeniser has taken, and its last tokens."""

    tokenised_s = 0.0
    tokens = 0

    def tokenize(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the token ids of texts; ``encode`` calls it."""
        start = time.perf_counter()
        found: list[list[int]] = super().tokenize(sentences)
        self.tokenised_s += time.perf_counter() - start
        self.tokens = sum(map(len, found))
        return found


class Static(Adapter):
    """model2vec's embeddings and tokeniser, normalised vectors, exact inner product by NumPy.

    Parameters: ``document_tokens`` (build) and ``query_tokens``: the longest text in tokens.

    Raises:
        ValueError: a parameter is unknown or wrong.
    """

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        if unknown := sorted(params.keys() - set(_PARAMS)):
            raise ValueError(f"unknown parameter {unknown[0]!r}; this engine reads {', '.join(_PARAMS)}")
        for name in _PARAMS:
            if isinstance(self.params[name], bool) or not isinstance(self.params[name], int) or self.params[name] < 1:
                raise ValueError(f"{name} is {self.params[name]!r}, must be a whole number, at least 1")
        self._stages_s: dict[str, float] = {}
        self._folder = assets / "static"

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Encode the corpus, chunk by chunk, into one file of vectors.

        Raises:
            ValueError: the corpus is empty.
        """
        if not len(corpus):
            raise ValueError("the corpus has no documents")
        progress(0)
        model, ids, documents, done = self._read(), list[str](), iter(corpus), 0
        rows = numpy.lib.format.open_memmap(
            index_dir / _VECTORS, mode="w+", dtype="<f4", shape=(len(corpus), model.dim)
        )
        while chunk := list(islice(documents, _CHUNK)):
            rows[done : done + len(chunk)] = self._encode(model, map(_text, chunk), "document_tokens")
            ids += [document.doc_id for document in chunk]
            progress(done := done + len(chunk))
        rows.flush()
        doc_ids.write(index_dir, ids)
        built_with.write(index_dir, self._facts())

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:
        """Count vectors and ids."""
        found = len(doc_ids.Ids(index_dir)), len(numpy.load(index_dir / _VECTORS, mmap_mode="r"))
        if set(found) != {len(corpus)}:
            raise ValueError(f"the index has {found[0]} ids and {found[1]} vectors, the corpus {len(corpus)}")

    def load(self, index_dir: Path) -> None:
        """Read the embeddings and the ids; map the vectors.

        Raises:
            ValueError: the index is of other parameters or embeddings, or damaged.
        """
        built_with.check(index_dir, self._facts())
        self._model = self._read()
        self._vectors: Any = numpy.asarray(numpy.load(index_dir / _VECTORS, mmap_mode="r"))
        self._ids = doc_ids.Ids(index_dir)
        if self._vectors.shape != (len(self._ids), self._model.dim):
            raise ValueError(f"the index has vectors of shape {self._vectors.shape}, {len(self._ids)} ids")

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Encode the query and find the nearest documents."""
        return self.search_batch([query], k)[0]

    def search_batch(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Hit]]:
        """Encode all queries, compare them with all documents, and rank; a query without known tokens finds nothing."""
        start, before_s = time.perf_counter(), self._model.tokenised_s
        vectors = self._encode(self._model, queries, "query_tokens")
        encoded, tokenise_s = time.perf_counter(), self._model.tokenised_s - before_s
        # One product a query: the scores of a batch then equal those of single queries to the last bit.
        answers = [self._nearest(vector, min(k, len(self._ids))) if vector.any() else [] for vector in vectors]
        self._stages_s = {
            "tokenise": tokenise_s,
            "encode": encoded - start - tokenise_s,
            "retrieve": time.perf_counter() - encoded,
        }
        return answers

    def stages_s(self) -> dict[str, float]:
        """Return the seconds of the last call: ``tokenise``, ``encode``, ``retrieve``."""
        return dict(self._stages_s)

    def counts(self) -> dict[str, int]:
        """Return the ``parameters`` of the embeddings, and the ``flop`` of the last mean: an addition a dimension."""
        return {"flop": self._model.tokens * self._model.dim, "parameters": int(self._model.embedding.size)}

    def threads(self) -> dict[str, int]:
        """Return NumPy's BLAS threads; the tokeniser is held by ``RAYON_NUM_THREADS`` and cannot be asked."""
        from threadpoolctl import threadpool_info

        return {pool["prefix"]: int(pool["num_threads"]) for pool in threadpool_info()}

    def libraries(self) -> dict[str, str]:
        """Return the versions of what does the work."""
        return {name: version(name) for name in ("model2vec", "numpy", "tokenizers")}

    def close(self) -> None:
        """Let go of embeddings and vectors."""
        del self._model, self._vectors, self._ids

    def _nearest(self, vector: Any, k: int) -> list[Hit]:
        """Return the k highest inner products; of equal ones the earlier document is first."""
        scores = self._vectors @ vector
        if k < len(scores):
            # All that equal the k-th score stay, so that the order alone decides between them.
            (rows,) = numpy.nonzero(scores >= numpy.partition(scores, -k)[-k])
        else:
            rows = numpy.arange(len(scores))
        rows = rows[numpy.argsort(-scores[rows], kind="stable")[:k]]
        return [Hit(self._ids[row], score) for row, score in zip(rows.tolist(), scores[rows].tolist(), strict=True)]

    def _encode(self, model: _Embeddings, texts: Iterable[str], limit: str) -> Any:
        # The tokeniser takes no half of a surrogate pair.
        whole = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        found = model.encode(whole, max_length=self.params[limit], use_multiprocessing=False)
        return found.astype(numpy.float32)

    def _read(self) -> _Embeddings:
        embeddings = numpy.load(self._folder / "embeddings.npy")
        return _Embeddings(embeddings, Tokenizer.from_file(str(self._folder / "tokenizer.json")), normalize=True)

    def _facts(self) -> dict[str, Scalar]:
        made = (self._folder / "sha256").read_text()
        built = {"embeddings_sha256": made, "document_tokens": self.params["document_tokens"]}
        return {"engine": "static", **self.libraries(), **built}


def _text(document: Document) -> str:
    return f"{document.title} {document.text}" if document.title else document.text


ENGINE = Static
