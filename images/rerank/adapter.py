"""Encoder rerankers: a cross-encoder over windows of stored token ids."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import parameters
import scorers
import texts
from encoder.config import read_config
from index_files import built_with
from pairs import Layout, Work

from harness.driver.adapter import Corpus, Document, Reranker
from harness.driver.records import Envelope, Scalar

_ENGINE = "rerank"
_FORMAT = 1  # of what lies in an index's folder


class Rerank(Reranker):
    """Scores a query and each given document together; documents are stored as token ids.

    Parameters: see ``parameters.py``.

    Raises:
        ValueError: a parameter is unknown or wrong.
    """

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        self._all = parameters.complete(params)
        self._folder = assets / str(self._all["model"])
        self._stages_s: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._scorer: Any = None  # none while an index is built

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Tokenise all documents; no model runs.

        Raises:
            ValueError: the corpus is empty.
            BadCheckpoint: the tokeniser is not the checkpoint's.
        """
        os.environ["RAYON_NUM_THREADS"] = str(self.envelope.cpus)  # read once, at the tokeniser's first use
        tokens = scorers.tokeniser(self._folder)
        progress(0)
        facts = self._facts(tokens)
        limit = int(self._all["document_tokens"])
        documents = texts.write(corpus, index_dir, tokens, self._text, limit, progress)
        built_with.write(index_dir, {**facts, "documents": documents})

    def load(self, index_dir: Path) -> None:
        """Read weights, and map the stored documents.

        Raises:
            ValueError: the index is of another engine or version, was made with other parameters or another
                tokeniser, or is damaged.
            BadCheckpoint: the weights are not what the parameters say.
        """
        os.environ["RAYON_NUM_THREADS"] = str(self.envelope.cpus)
        self._tokens = scorers.tokeniser(self._folder)
        built_with.check(index_dir, self._facts(self._tokens))
        self._store = texts.TokenIds(index_dir, self._tokens)
        self._declared = read_config(self._folder)
        form = self._tokens.pair_form()
        if self._declared.kind.marks:
            form = replace(form, first_type=1, second_type=0)  # global attention: [CLS], query, [SEP]
        # Where padding takes part in the interaction, its vectors are those of the code that did so: token 1.
        filler = 1 if self._all["interaction_padding"] == "s3" else self._tokens.pad_id
        self._layout = Layout(
            form,
            filler,
            parameters.rule(self._all),
            int(self._all["query_tokens"]),
            int(self._all["document_tokens"]),
            self._declared.max_tokens,
            self._all["pad_windows"] == "s3",
            int(self._all["batch_tokens"]) or parameters.BATCH_TOKENS[self.device()],
            self._declared.padded,
            self._declared.alike,
        )
        self._scorer = scorers.load(self._folder, self._all, self.envelope.cpus, self.device())
        # The first call of a backend allocates what later ones use.
        self.score("", [self._store.ids[0]])

    def score(self, query: str, doc_ids: Sequence[str]) -> Sequence[float]:
        """Score the documents in micro-batches of like length.

        Raises:
            ValueError: the index has no such document.
        """
        start = time.perf_counter()
        documents = self._store(doc_ids)
        fetched = time.perf_counter()
        asked = self._tokens.many_ids([query], self._layout.query_tokens)[0]
        apart = self._layout.apart(asked) if self._scorer.apart and documents else None
        parts = self._layout.micro_batches(None if self._scorer.apart else asked, documents)
        tokenised = time.perf_counter()
        found, head_s = self._scorer.run(parts, apart)
        scored = time.perf_counter()
        scores = [0.0] * len(documents)
        for part, each in zip(parts, found, strict=True):
            for number, score in zip(part.documents, each.tolist(), strict=True):
                scores[number] = score
        end = time.perf_counter()
        self._stages_s = {
            "fetch": fetched - start,
            "tokenise": tokenised - fetched,
            "score": scored - tokenised - head_s,
            "aggregate": head_s + end - scored,
        }
        work = Work(self._declared, pairs=len(documents))
        for part in [*parts, *([apart] if apart else [])]:
            work.add(part.batch)
        self._counts = {**work.counts(), "parameters": self._scorer.parameters}
        return scores

    def doc_ids(self) -> Sequence[str]:
        """Return the ids of all documents in the index."""
        return [self._store.ids[row] for row in range(len(self._store.ids))]

    def stages_s(self) -> dict[str, float]:
        """Return the seconds of the last scoring: ``fetch``, ``tokenise``, ``score``, ``aggregate``."""
        return dict(self._stages_s)

    def counts(self) -> dict[str, int]:
        """Return the work of the last scoring (see :class:`pairs.Work`), and the model's ``parameters``."""
        return dict(self._counts)

    def threads(self) -> dict[str, int]:
        """Return the thread counts of the backend and every BLAS and OpenMP library in this process."""
        from threadpoolctl import threadpool_info

        # Several copies of one library may be loaded, each with a pool of its own: the largest counts.
        pools: dict[str, int] = {}
        for pool in threadpool_info():
            pools[pool["prefix"]] = max(int(pool["num_threads"]), pools.get(pool["prefix"], 0))
        return {**(self._scorer.threads() if self._scorer else {}), **pools}

    def libraries(self) -> dict[str, str]:
        """Return the versions of the libraries that do the work."""
        used = self._scorer.libraries() if self._scorer else {}
        return {**used, "tokenizers": version("tokenizers"), "numpy": version("numpy")}

    def device(self) -> str:
        """Return ``cuda`` when the envelope has a GPU, else ``cpu``."""
        return "cuda" if self.envelope.gpus > 0 else "cpu"

    def close(self) -> None:
        """Release weights and the mapped documents."""
        del self._scorer, self._store

    def _text(self, document: Document) -> str:
        if not document.title or self._all["title"] == "drop":
            return document.text
        return f"{document.title}{self._all['title_separator']}{document.text}"

    def _facts(self, tokens: Any) -> dict[str, Scalar]:
        """Return all facts that an index depends on."""
        shaping = {name: self._all[name] for name in parameters.SHAPING}
        return {
            "engine": _ENGINE,
            "format": _FORMAT,
            "tokeniser_sha256": texts.tokeniser_sha256(tokens),
            **shaping,
        }


ENGINE = Rerank
