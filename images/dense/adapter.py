"""A bi-encoder (transformers, PyTorch) over an exact inner-product index (faiss)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness.measure.adapter import Adapter, Corpus, Document
from harness.records import Envelope, Hit, Scalar

_VECTORS = "vectors.faiss"
_IDS = "ids.json"
_META = "meta.json"

# Parameters that vectors depend on: an index made under others answers nonsense.
_SHAPING = ("model", "pooling", "normalise", "document_tokens")

# Batches are cut from runs of this many batches, sorted by length: little padding, and little text held at a time.
_BATCHES_SORTED_TOGETHER = 32


class Dense(Adapter):
    """One vector a document, one a query, all compared.

    Parameters: ``model`` (folder of the assets), ``pooling`` (``mean`` or ``cls``), ``normalise``, ``document_tokens``,
    ``batch_size``; ``query_tokens``.
    """

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        if params["pooling"] not in ("mean", "cls"):
            raise ValueError(f"pooling is {params['pooling']!r}, must be 'mean' or 'cls'")
        self._stages_s: dict[str, float] = {}

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Encode all documents and write vectors, ids and what they were made with."""
        import faiss
        import numpy

        progress(0)
        self._load_encoder()
        ids: list[str] = []
        index = None
        tokens, batch_size = int(self.params["document_tokens"]), int(self.params["batch_size"])
        for run in _runs(corpus, batch_size * _BATCHES_SORTED_TOGETHER):
            texts = [f"{document.title} {document.text}" if document.title else document.text for document in run]
            order = sorted(range(len(run)), key=lambda number: len(texts[number]), reverse=True)
            for start in range(0, len(order), batch_size):
                batch = order[start : start + batch_size]
                vectors = self._encode([texts[number] for number in batch], tokens)
                if index is None:
                    index = faiss.IndexFlatIP(vectors.shape[1])
                index.add(numpy.ascontiguousarray(vectors, dtype=numpy.float32))
                ids.extend(run[number].doc_id for number in batch)
                progress(len(ids))
        if index is None:
            raise ValueError("the corpus is empty")
        faiss.write_index(index, str(index_dir / _VECTORS))
        (index_dir / _IDS).write_text(json.dumps(ids), encoding="utf-8")
        meta = {"documents": len(ids), "dimensions": index.d, **{name: self.params[name] for name in _SHAPING}}
        (index_dir / _META).write_text(json.dumps(meta), encoding="utf-8")

    def load(self, index_dir: Path) -> None:
        """Read weights and vectors.

        Raises:
            ValueError: the index was made with other parameters, or its parts do not fit together.
        """
        import faiss

        meta = json.loads((index_dir / _META).read_text(encoding="utf-8"))
        for name in _SHAPING:
            if meta[name] != self.params[name]:
                raise ValueError(
                    f"the index was made with {name} {meta[name]!r}, the system asks for {self.params[name]!r}"
                )
        self._load_encoder()
        faiss.omp_set_num_threads(self.envelope.cpus)
        self._index = faiss.read_index(str(index_dir / _VECTORS))
        self._ids: list[str] = json.loads((index_dir / _IDS).read_text(encoding="utf-8"))
        if not len(self._ids) == self._index.ntotal == meta["documents"]:
            raise ValueError(
                f"the index has {self._index.ntotal} vectors, {len(self._ids)} ids, {meta['documents']} documents"
            )

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Encode the query and compare it with every document."""
        return self.search_batch([query], k)[0]

    def search_batch(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Hit]]:
        """Encode all queries in one forward pass and compare them with every document in one search."""
        start = time.perf_counter()
        # The vectors come back to the host as numbers, so an accelerator has finished here.
        vectors = self._encode(list(queries), int(self.params["query_tokens"]))
        encoded = time.perf_counter()
        scores, rows = self._index.search(vectors, min(k, len(self._ids)))
        answers = [
            [Hit(self._ids[row], score) for row, score in zip(*ranked, strict=True)]
            for ranked in zip(rows.tolist(), scores.tolist(), strict=True)
        ]
        self._stages_s = {"encode": encoded - start, "retrieve": time.perf_counter() - encoded}
        return answers

    def stages_s(self) -> dict[str, float]:
        """Seconds of the last search or batch: ``encode`` and ``retrieve``."""
        return dict(self._stages_s)

    def threads(self) -> dict[str, int]:
        """What PyTorch, faiss and every BLAS and OpenMP library in this process say.

        The tokeniser is held by ``RAYON_NUM_THREADS`` and cannot be asked.
        """
        import faiss
        import torch
        from threadpoolctl import threadpool_info

        # Several copies of one library may be loaded, each with a pool of its own: the largest counts.
        pools: dict[str, int] = {}
        for pool in threadpool_info():
            pools[pool["prefix"]] = max(int(pool["num_threads"]), pools.get(pool["prefix"], 0))
        return {
            "torch_intraop": torch.get_num_threads(),
            "torch_interop": torch.get_num_interop_threads(),
            "faiss_omp": faiss.omp_get_max_threads(),
            **pools,
        }

    def libraries(self) -> dict[str, str]:
        """Versions of what does the work."""
        return {name: version(name) for name in ("torch", "transformers", "tokenizers", "faiss-cpu", "numpy")}

    def device(self) -> str:
        """``cuda`` when the envelope has a GPU, else ``cpu``."""
        return "cuda" if self.envelope.gpus > 0 else "cpu"

    def close(self) -> None:
        """Let go of weights and vectors."""
        del self._model, self._index

    def _load_encoder(self) -> None:
        """Read tokeniser and weights, and hold every library to the envelope's CPUs.

        Raises:
            RuntimeError: the envelope has a GPU, and PyTorch cannot use one.
        """
        # Before the tokeniser's first use: it reads this once.
        os.environ["RAYON_NUM_THREADS"] = str(self.envelope.cpus)
        import torch
        from transformers import AutoModel, AutoTokenizer

        if self.device() == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(
                f"the envelope has {self.envelope.gpus} GPUs, but torch {torch.__version__} finds no CUDA device"
            )
        torch.set_num_threads(self.envelope.cpus)
        if torch.get_num_interop_threads() != 1:
            torch.set_num_interop_threads(1)
        folder = str(self.assets / str(self.params["model"]))
        self._torch = torch
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._model: Any = AutoModel.from_pretrained(folder, local_files_only=True).to(self.device()).eval()

    def _encode(self, texts: list[str], max_tokens: int) -> Any:
        """One float32 row a text, on the host."""
        torch = self._torch
        batch = self._tokenizer(texts, padding=True, truncation=True, max_length=max_tokens, return_tensors="pt")
        batch = batch.to(self.device())
        with torch.inference_mode():
            states = self._model(**batch).last_hidden_state
            if self.params["pooling"] == "cls":
                vectors = states[:, 0]
            else:
                mask = batch["attention_mask"].unsqueeze(-1).to(states.dtype)
                vectors = (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            if self.params["normalise"]:
                vectors = torch.nn.functional.normalize(vectors, dim=1)
            return vectors.float().cpu().numpy()


ENGINE = Dense


def _runs(corpus: Corpus, size: int) -> Iterator[list[Document]]:
    """The corpus in lists of ``size`` documents; the last may be shorter."""
    run: list[Document] = []
    for document in corpus:
        run.append(document)
        if len(run) == size:
            yield run
            run = []
    if run:
        yield run
