"""LLM rerankers: RankGPT's listwise ranking, the likelihood of the query, and a judgement of each document."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import parameters
from index_files import built_with
from llm import listwise, prompts, texts
from llm.local import LocalModel, PromptWork
from llm.transport import RECORDING, Replay, Transport

from harness.driver.adapter import Corpus, Reranker
from harness.driver.records import Envelope, Scalar

_FACTS: dict[str, Scalar] = {"engine": "llm-rerank", "format": 1}


class LlmRerank(Reranker):
    """Orders documents by an LLM's answers, by how likely it finds the query after each, or by what it judges of each.

    Parameters: see ``parameters.py``.

    Raises:
        ValueError: a parameter is unknown or wrong.
    """

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        self._all = parameters.complete(params)
        self._words = parameters.passage_words(self._all)
        self._model: LocalModel | None = None
        self._stages_s: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Store all texts, uncut; no model runs.

        Raises:
            ValueError: the corpus is empty.
        """
        progress(0)
        documents = texts.write(corpus, index_dir, progress)
        built_with.write(index_dir, {**_FACTS, "documents": documents})

    def load(self, index_dir: Path) -> None:
        """Map the texts; read the weights or the recording.

        Raises:
            ValueError: the index is of another engine or version, or damaged; the weights or the recording are not
                what the parameters say.
        """
        built_with.check(index_dir, _FACTS)
        self._passages = texts.Passages(index_dir)
        name = str(self._all["model"])
        if self._all["transport"] == "replay":
            recording = self.assets / str(self._all["recording"]) / RECORDING
            self._transport: Transport = Replay(recording, name, int(self._all["max_new_tokens"]))
            return
        os.environ["RAYON_NUM_THREADS"] = str(self.envelope.cpus)  # read once, at the tokeniser's first use
        self._model = LocalModel(
            self.assets / name,
            dtype=str(self._all["dtype"]),
            threads=self.envelope.cpus,
            device=self.device(),
            max_new_tokens=int(self._all["max_new_tokens"]),
        )
        self._transport = self._model
        # The first call allocates what later ones use.
        self._model.likelihoods(self._model.tokens.prompts([prompts.before_query("a")], "b"), 1)

    def score(self, query: str, doc_ids: Sequence[str]) -> Sequence[float]:
        """Score the documents, which are given best first; RankGPT's scores are negative ranks.

        Raises:
            ValueError: the index has no such document, a prompt does not fit the model, or the recording has no answer.
        """
        start = time.perf_counter()
        passages = self._passages(doc_ids)
        fetch_s = time.perf_counter() - start
        methods = {"rankgpt": self._listwise, "query_likelihood": self._likelihood, "judgement": self._judgement}
        scores, tokenise_s = methods[self._all["method"]](query, passages)
        whole_s = time.perf_counter() - start
        self._stages_s = {"fetch": fetch_s, "tokenise": tokenise_s, "score": whole_s - fetch_s - tokenise_s}
        return scores

    def doc_ids(self) -> Sequence[str]:
        """Return the ids of all documents in the index."""
        return [self._passages.ids[row] for row in range(len(self._passages.ids))]

    def stages_s(self) -> dict[str, float]:
        """Return the seconds of the last scoring: ``fetch``, ``tokenise``, ``score``."""
        return dict(self._stages_s)

    def counts(self) -> dict[str, int]:
        """Return the work of the last scoring, and the ``parameters`` of a model that runs here.

        ``provider_ms`` is the time that the provider of a recorded model took, which is not measured here.
        """
        return {**self._counts, **({"parameters": self._model.parameters} if self._model else {})}

    def threads(self) -> dict[str, int]:
        """Return the thread counts of PyTorch and of every BLAS and OpenMP library in this process."""
        from threadpoolctl import threadpool_info

        # Several copies of one library may be loaded, each with a pool of its own: the largest counts.
        pools: dict[str, int] = {"python": 1}
        for pool in threadpool_info():
            pools[pool["prefix"]] = max(int(pool["num_threads"]), pools.get(pool["prefix"], 0))
        return {**(self._model.threads() if self._model else {}), **pools}

    def libraries(self) -> dict[str, str]:
        """Return the versions of the libraries that do the work, or the recorded model."""
        if self._model:
            return self._model.libraries()
        return {"replay": f"{self._all['model']}, recorded; the provider's latency is not measured here"}

    def device(self) -> str:
        """Return ``cuda`` when the envelope has a GPU and a model runs here, else ``cpu``."""
        return "cuda" if self.envelope.gpus > 0 and self._all["transport"] == "local" else "cpu"

    def close(self) -> None:
        """Release the weights and the mapped texts."""
        self._model = None
        del self._passages, self._transport

    def _likelihood(self, query: str, passages: Sequence[str]) -> tuple[list[float], float]:
        """Return the mean log-likelihood of the query after each passage, and the seconds of tokenising."""
        assert self._model is not None
        start = time.perf_counter()
        before = [prompts.before_query(prompts.cut(passage, self._words)) for passage in passages]
        asked = self._model.tokens.prompts(before, query)
        tokenise_s = time.perf_counter() - start
        scores, work = self._model.likelihoods(asked, int(self._all["batch_tokens"]))
        self._count(work, len(passages))
        return scores, tokenise_s

    def _judgement(self, query: str, passages: Sequence[str]) -> tuple[list[float], float]:
        """Return the logit of the answer 1 less that of 0 for each passage, and the seconds of tokenising."""
        assert self._model is not None
        start = time.perf_counter()
        tokens = self._model.tokens
        asked = [tokens.chat(prompts.judgement(query, prompts.cut(passage, self._words))) for passage in passages]
        answers = tokens.token("1"), tokens.token("0")
        tokenise_s = time.perf_counter() - start
        scores, work = self._model.judgements(asked, answers, int(self._all["batch_tokens"]))
        self._count(work, len(passages))
        return scores, tokenise_s

    def _count(self, work: PromptWork, pairs: int) -> None:
        self._counts = {
            "pairs": pairs,
            "windows": pairs,
            "calls": work.calls,
            "prompt_tokens": work.tokens,
            "completion_tokens": 0,
            "tokens": work.tokens,
            "padded_tokens": work.padded_tokens,
            "flop": work.flop,
        }

    def _listwise(self, query: str, passages: Sequence[str]) -> tuple[list[float], float]:
        """Return the negative rank of each passage, and the seconds of tokenising."""
        ranked = listwise.rank(
            self._transport,
            query,
            passages,
            window=int(self._all["window"]),
            step=int(self._all["step"]),
            passage_words=self._words,
        )
        answers = ranked.completions
        prompt_tokens = sum(answer.prompt_tokens for answer in answers)
        completion_tokens = sum(answer.completion_tokens for answer in answers)
        self._counts = {
            "pairs": len(passages),
            "windows": len(answers),
            "calls": len(answers),
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "tokens": prompt_tokens + completion_tokens,
        }
        if self._model:
            # One conversation at a time is never padded.
            self._counts["padded_tokens"] = self._counts["tokens"]
            self._counts["flop"] = sum(answer.flop for answer in answers)
        else:
            self._counts["provider_ms"] = round(1000 * sum(answer.provider_s for answer in answers))
        return ranked.scores(), sum(answer.tokenise_s for answer in answers)


ENGINE = LlmRerank
