"""How queries reach the system in a closed loop: the next is asked when the one before is answered.

``single_stream``: one query at a time.  ``offline``: batches.  The open loop is in :mod:`harness.driver.server`.
"""

from __future__ import annotations

import gc
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from time import perf_counter_ns  # by name: see output.py

from harness.driver.adapter import Adapter
from harness.driver.compilers import CompilerClock
from harness.driver.hits import BadAnswer, check
from harness.driver.output import REPEAT_TRIAL, WARMUP_TRIAL, Output
from harness.records import JobSpec, Probe, Query

# MERGED harness.driver.scenarios: One pass over some queries under the clock, and what is kept of each answer.


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
        clock, search, k, out = perf_counter_ns, self._adapter.search, self._spec.k, self._out
        total_ns = 0
        for query in queries:
            text = query.text
            clock()  # outside: our own work since the last query has pushed the clock's code out of the CPU's caches
            start = clock()
            answer = search(text, k)  # inside: query text in, ranked ids and scores out, and nothing else
            latency_ns = clock() - start
            # Outside: checking, writing and collecting garbage are the harness's work, not the system's.
            out.write_sample(trial, query.query_id, latency_ns, self.stages_ns(), self.hits_of(trial, query, answer))
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
                hits = self.hits_of(trial, query, answer)
                self._out.write_sample(trial, query.query_id, latency_ns, stages_ns, hits, batch=number)
            total_ns += latency_ns
            del answers
            gc.collect()
        return total_ns

    def stages_ns(self) -> dict[str, int]:
        """What the adapter says of its last search."""
        return {name: round(seconds * 1e9) for name, seconds in self._adapter.stages_s().items()}

    def hits_of(self, trial: int, query: Query, answer: object) -> list[tuple[str, float]]:
        """Check an answer against the contract, and return its hits.

        Warm-up repeats its queries thousands of times: their hits are written once.

        Raises:
            BadAnswer: the answer breaks the contract.
        """
        hits = check(answer, self._spec.k, self._fewest)
        if trial == WARMUP_TRIAL:
            hits = [] if query.query_id in self._warmed else hits
            self._warmed.add(query.query_id)
        return hits


# MERGED harness.driver.scenarios: When is a system warm?  Passes over the same queries, until a stretch of work is
# level and nothing compiles.


# Work that has to be level.
WORK_NS = 1_500_000_000
# Where queries take microseconds, so many stand in for that work: a just-in-time compiler counts calls.
ENOUGH_QUERIES = 10_000
# The stretch is compared in so many parts; it has at least one pass for each.
PARTS = 3
# The slowest part takes at most this much more than the fastest.
STEADY = 0.10
# Parts that fall one after the other by more than this in all are on a slope, however gentle.
SLOPE = 0.02
# Compiler threads may take this share of the stretch.
COMPILING = 0.02
# A system that is not steady after so much work is measured all the same, and called unsteady.
MOST_NS = 60_000_000_000
# Looking again after each short pass would accept a chance agreement sooner or later.
_BETWEEN_LOOKS_NS = WORK_NS // 10


def warm_up(
    ask: Callable[[], int], queries: int, most: int, compiled_ns: Callable[[], int] = lambda: 0
) -> tuple[int, bool | None]:
    """Pass over the warm-up queries until they are steady.

    Args:
        ask: passes over all warm-up queries once; returns the nanoseconds that they took.  The same queries each
            time: others would be slower or faster by themselves.
        queries: how many a pass asks.
        most: queries that may be asked; one pass is made in any case.  Two passes alone are compared with each other.
        compiled_ns: CPU time of compiler threads so far, in nanoseconds.

    Returns:
        The last pass's nanoseconds, and whether the level became steady (``None``: one pass only).
    """
    passes = max(1, most // max(1, queries))
    levels: list[int] = []
    compiled = [compiled_ns()]
    total = looked = 0
    while True:
        levels.append(ask())
        compiled.append(compiled_ns())
        total += levels[-1]
        last = len(levels) >= passes or (len(levels) >= PARTS and total >= MOST_NS)
        if not last and (len(levels) < PARTS or total - looked < _BETWEEN_LOOKS_NS):
            continue
        looked = total
        level: Callable[[Sequence[int]], float] = fmean
        count = _stretch(levels)
        if count is None and last:
            # Less work than a stretch: judge what there is, without the coldest third.  One interruption is long beside
            # so short passes.
            count, level = max(min(PARTS, len(levels)), len(levels) * 2 // 3), median
        if count is None:
            continue
        stretch = levels[-count:]
        quiet = compiled[-1] - compiled[-1 - count] <= COMPILING * sum(stretch)
        enough = total >= WORK_NS or len(levels) * queries >= ENOUGH_QUERIES
        settled = enough and quiet and steady(stretch, level)
        if settled or last:
            return levels[-1], settled if len(levels) > 1 else None


def steady(stretch: Sequence[int], level: Callable[[Sequence[int]], float] = fmean) -> bool:
    """Return whether the parts of a stretch (nanoseconds of each pass, in order) agree and do not fall."""
    parts = min(PARTS, len(stretch))
    edges = [len(stretch) * part // parts for part in range(parts + 1)]
    levels = [level(stretch[low:high]) for low, high in itertools.pairwise(edges)]
    if max(levels) > (1 + STEADY) * min(levels):
        return False
    # Two passes show no slope.
    return parts < PARTS or not (levels[0] > levels[1] > levels[2] and levels[0] > (1 + SLOPE) * levels[2])


def _stretch(levels: Sequence[int]) -> int | None:
    """Return how many of the last passes hold ``WORK_NS`` of work; ``None`` where all together do not."""
    work = 0
    for count, level in enumerate(reversed(levels), 1):
        work += level
        if work >= WORK_NS and count >= PARTS:
            return count
    return None


# Waits for the queries of a number (see ``handed``): nobody in the container knows them before.
Hand = Callable[[int], Sequence[Query]]
# One pass over queries under a trial's number; says the nanoseconds that it took.
Pass = Callable[[int, Sequence[Query]], int]


@dataclass(frozen=True)
class Done:
    """What a scenario says besides its samples; the names are those of ``Measurement``."""

    warmup_steady: bool | None
    probes: tuple[Probe, ...] = ()
    rate_qps: float | None = None
    compiled_s: float | None = None


def handed(spec: JobSpec, number: int) -> list[Query]:
    """Return the queries of a stretch in their order: 0 is the warm-up, then the trials, then the repeats."""
    if number == 0:
        return list(spec.warmup)
    if number > spec.trials and spec.scenario != "server":
        return repeated(spec)
    return trial_order(spec.sample, spec.seed, spec.first_trial + number - 1)


def repeated(spec: JobSpec) -> list[Query]:
    """The queries that are asked twice in a row after the trials."""
    return trial_order(spec.sample, spec.seed, REPEAT_TRIAL)[: spec.repeats]


def warmed(ask: Pass, spec: JobSpec, out: Output, compiled_ns: CompilerClock) -> tuple[int, bool | None]:
    """Run the warm-up phase: the last pass's nanoseconds, and whether it became steady."""
    rest_collector()
    queries = len(spec.warmup)
    with out.phase("warmup", queries):
        return warm_up(lambda: ask(WARMUP_TRIAL, spec.warmup), queries, spec.warmup_cap if queries else 0, compiled_ns)


def closed_loop(adapter: Adapter, spec: JobSpec, out: Output, hand: Hand | None = None) -> Done:
    """Warm up, run the trials query by query or in batches, then repeat some queries."""
    asker, hand, compiled_ns = Asker(adapter, spec, out), hand or partial(handed, spec), CompilerClock()
    ask = asker.in_batches if spec.scenario == "offline" else asker.one_by_one
    _, steady = warmed(ask, spec, out, compiled_ns)
    compiled_s = 0.0
    for number in range(spec.trials):
        rest_collector()  # what warm-up left is walked here once, not after each query
        trial, queries = spec.first_trial + number, hand(number + 1)
        before_ns = compiled_ns()
        with out.phase(f"trial-{trial}", len(queries)) as phase:
            phase.claimed_ns = ask(trial, queries)
        compiled_s += (compiled_ns() - before_ns) / 1e9
    if spec.repeats and spec.scenario == "single_stream":
        again = hand(spec.trials + 1)
        # After the trials: a cache that these questions fill can make no trial faster.
        with out.phase("repeat", 2 * len(again)):
            for query in again:
                asker.one_by_one(REPEAT_TRIAL, (query, query))
    return Done(steady, compiled_s=compiled_s if compiled_ns.seen else None)
