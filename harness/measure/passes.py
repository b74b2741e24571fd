"""One pass over some queries under the clock, and what is kept of each answer."""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence
from time import perf_counter_ns  # by name: see output.py

from harness.measure.adapter import Adapter
from harness.measure.answers import BadAnswer, check
from harness.measure.output import WARMUP_TRIAL, Output
from harness.records import JobSpec, Query


def trial_order(sample: Sequence[Query], seed: int, trial: int) -> list[Query]:
    """The sample in this trial's own order: fixed by the seed, another one each trial.

    One order for all trials would let a neighbour's cache effect hit the same query every time.
    """
    order = list(sample)
    random.Random(f"{seed}:{trial}").shuffle(order)
    return order


def rest_collector() -> None:
    """Switch garbage collection off: from here on it runs between queries, by hand.

    What load left behind is never garbage; frozen, no collection walks it again.
    """
    gc.collect()
    gc.freeze()
    gc.disable()


class Asker:
    """Asks queries, checks and writes down the answers; the clock runs around the system's own call alone."""

    def __init__(self, adapter: Adapter, spec: JobSpec, out: Output) -> None:
        self._adapter = adapter
        self._spec = spec
        self._out = out
        self._fewest = 0 if spec.fewer_hits_ok else min(spec.k, spec.corpus_size)
        self._batches: dict[int, int] = {}
        self._warmed: set[str] = set()

    def one_by_one(self, trial: int, queries: Sequence[Query]) -> int:
        """Ask each query once, one at a time; return the nanoseconds that all took."""
        # Outside: attribute look-ups are ours.
        clock, search, k = perf_counter_ns, self._adapter.search, self._spec.k
        total_ns = 0
        for query in queries:
            text = query.text
            clock()  # outside: our own work since the last query has pushed the clock's code out of the CPU's caches
            start = clock()
            answer = search(text, k)  # inside: query text in, ranked ids and scores out, and nothing else
            latency_ns = clock() - start
            # Outside: checking, writing and collecting garbage are the harness's work, not the system's.
            self.keep(trial, query, latency_ns, answer, self.stages_ns())
            total_ns += latency_ns
            del answer
            gc.collect()
        return total_ns

    def in_batches(self, trial: int, queries: Sequence[Query]) -> int:
        """Ask the queries in batches of the spec's size; return the nanoseconds that all batches took.

        Each query's latency is its whole batch's: none has its answer sooner.

        Raises:
            BadAnswer: a batch's answers are not one for each of its queries.
        """
        clock, search_batch, k = perf_counter_ns, self._adapter.search_batch, self._spec.k
        size = self._spec.scenario_params.batch_size or 1
        total_ns = 0
        for first in range(0, len(queries), size):
            batch = queries[first : first + size]
            texts = [query.text for query in batch]
            clock()  # outside, as above
            start = clock()
            answers = search_batch(texts, k)  # inside: all texts in, all ranked lists out
            latency_ns = clock() - start
            if type(answers) not in (list, tuple) or len(answers) != len(batch):
                found = f"{len(answers)} answers" if isinstance(answers, Sequence) else type(answers).__name__
                raise BadAnswer(f"search_batch returned {found} for {len(batch)} queries, not a list of one for each")
            stages_ns, number = self.stages_ns(), self._batches.get(trial, 0)
            self._batches[trial] = number + 1
            for query, answer in zip(batch, answers, strict=True):
                self.keep(trial, query, latency_ns, answer, stages_ns, batch=number)
            total_ns += latency_ns
            del answers
            gc.collect()
        return total_ns

    def stages_ns(self) -> dict[str, int]:
        """What the adapter says of its last search."""
        return {name: round(seconds * 1e9) for name, seconds in self._adapter.stages_s().items()}

    def keep(
        self, trial: int, query: Query, latency_ns: int, answer: object, stages_ns: dict[str, int], **extra: int
    ) -> None:
        """Check an answer and write its sample; BadAnswer where it breaks the contract.

        Warm-up repeats its queries thousands of times: their hits are written once.
        """
        hits = check(answer, self._spec.k, self._fewest)
        if trial == WARMUP_TRIAL:
            hits = [] if query.query_id in self._warmed else hits
            self._warmed.add(query.query_id)
        self._out.sample(trial, query.query_id, latency_ns, stages_ns, hits, **extra)
