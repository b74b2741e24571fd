"""Closed-loop scenarios: warm-up, trials and repeats, each query sent after the answer to the one before.

``single_stream``: one query at a time.  ``offline``: batches.  The open loop is in :mod:`harness.driver.server`.
"""

from __future__ import annotations

import gc
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from statistics import fmean, median
from time import perf_counter_ns  # by name: see output.py

from harness.driver.adapter import Adapter, BadAnswer, check_hits
from harness.driver.output import REPEAT_TRIAL, WARMUP_TRIAL, Output
from harness.driver.procfs import CompilerClock
from harness.driver.records import JobSpec, Measurement, Query, most_first_stage


def trial_order(sample: Sequence[Query], seed: int, trial: int) -> list[Query]:
    """Return the sample in a trial's order, which depends on the seed and the trial.

    In one order for all trials, cache effects of its neighbour would hit the same query every time.
    """
    order = list(sample)
    random.Random(f"{seed}:{trial}").shuffle(order)
    return order


def pause_collector() -> None:
    """Switch garbage collection off; the driver then collects between queries.

    What load left is never garbage: frozen, no collection walks it again.
    """
    gc.collect()
    gc.freeze()
    gc.disable()


def least_hits(spec: JobSpec) -> int:
    """Return the fewest hits that an answer to a query without a filter may have; an update takes documents away."""
    moved = len(spec.updates.documents) if spec.updates else 0
    return 0 if spec.fewer_hits_ok else max(0, min(spec.k, spec.corpus_size - moved))


class Pace:
    """The least time between the starts of two queries, which several threads keep together.

    The first query waits too, because the job before this one may have sent its last query just now.  ``held`` counts
    the queries that had to wait.
    """

    def __init__(self, max_qps: float) -> None:
        self._gap_ns = round(1e9 / max_qps)
        self._next_ns = perf_counter_ns() + self._gap_ns
        self._turn = threading.Lock()
        self.held = 0

    def wait(self) -> None:
        """Sleep until the next query may start."""
        with self._turn:
            self.held += perf_counter_ns() < self._next_ns
            while (left_ns := self._next_ns - perf_counter_ns()) > 0:
                time.sleep(left_ns / 1e9)
            self._next_ns = perf_counter_ns() + self._gap_ns

    def each(self, queries: Iterable[Query]) -> Iterator[Query]:
        """Yield each query when it may start."""
        for query in queries:
            self.wait()
            yield query


class QueryRunner:
    """Sends queries, checks and writes the answers; the clock runs around the system's call alone."""

    def __init__(self, adapter: Adapter, spec: JobSpec, out: Output) -> None:
        self.adapter = adapter
        self.spec = spec
        self.out = out
        self.pace = None if spec.max_qps is None else Pace(spec.max_qps)
        self._min_hits = least_hits(spec)
        self._batches: dict[int, int] = {}
        self._warmed: set[str] = set()

    def one_by_one(self, trial: int, queries: Sequence[Query]) -> int:
        """Send each query once, one at a time; return the nanoseconds of all answers."""
        # Outside: attribute look-ups are ours.
        clock, k, out = perf_counter_ns, self.spec.k, self.out
        total_ns = 0
        for query in queries if self.pace is None else self.pace.each(queries):  # outside: a limited rate sleeps here
            text, search = query.text, self.search_of(query)
            clock()  # outside: our own work since the last query has pushed the clock's code out of the CPU's caches
            start = clock()
            answer = search(text, k)  # inside: query text in, ranked ids and scores out, and nothing else
            latency_ns = clock() - start
            # Outside: checking, writing and collecting garbage are the harness's work, not the system's.
            work = {**self.counts(), **self.first_stage(trial, query)}
            hits = self.hits_of(trial, query, answer)
            out.write_sample(trial, query.query_id, latency_ns, self.stages_ns(), hits, **work)
            total_ns += latency_ns
            del answer
            gc.collect()
        return total_ns

    def search_of(self, query: Query) -> Callable[[str, int], object]:
        """Return the adapter's verb for a query, with its filter if it has one."""
        return partial(self.adapter.search_filtered, wanted=query.filter) if query.filter else self.adapter.search

    def in_batches(self, trial: int, queries: Sequence[Query]) -> int:
        """Send the queries in batches of the spec's size; return the nanoseconds of all batches.

        Each query has the latency of its batch, because no answer comes sooner.

        Raises:
            BadAnswer: a batch's answers are not one for each of its queries.
        """
        clock, search_batch, k = perf_counter_ns, self.adapter.search_batch, self.spec.k
        size = self.spec.scenario_params.batch_size or 1
        total_ns = 0
        for first in range(0, len(queries), size):
            batch = queries[first : first + size]
            texts = [query.text for query in batch]
            if any(query.filter for query in batch):
                raise ValueError("a batch takes no filters; measure filtered queries in another scenario")
            clock()  # outside, as above
            start = clock()
            answers = search_batch(texts, k)  # inside: all texts in, all ranked lists out
            latency_ns = clock() - start
            if type(answers) not in (list, tuple) or len(answers) != len(batch):
                found = f"{len(answers)} answers" if isinstance(answers, Sequence) else type(answers).__name__
                raise BadAnswer(f"search_batch returned {found} for {len(batch)} queries, not a list of one for each")
            # Asked query by query, the adapter knows its last query's stages alone.
            stages_ns = self.stages_ns() if self.adapter.shares_batches() else {}
            number = self._batches.get(trial, 0)
            self._batches[trial] = number + 1
            for query, answer in zip(batch, answers, strict=True):
                hits = self.hits_of(trial, query, answer)
                self.out.write_sample(trial, query.query_id, latency_ns, stages_ns, hits, batch=number)
            total_ns += latency_ns
            del answers
            gc.collect()
        return total_ns

    def stages_ns(self) -> dict[str, int]:
        """Return the stages of the last search, in nanoseconds."""
        return {name: round(seconds * 1e9) for name, seconds in self.adapter.stages_s().items()}

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the counts of the last search as a sample has them; none where the adapter counts nothing."""
        counts = self.adapter.counts()
        return {"counts": counts} if counts else {}

    def first_stage(self, trial: int, query: Query) -> dict[str, list[tuple[str, float]]]:
        """Return what the second stage of the last search was given, as a query's first sample has it.

        Raises:
            BadAnswer: that ranking breaks the contract.
        """
        first = trial == self.spec.first_trial or (trial == WARMUP_TRIAL and query.query_id not in self._warmed)
        given = self.adapter.first_stage() if first else []
        return {"first_stage": check_hits(given, most_first_stage(self.spec), 0)} if given else {}

    def hits_of(self, trial: int, query: Query, answer: object) -> list[tuple[str, float]]:
        """Check an answer against the contract, and return its hits.

        Warm-up repeats its queries thousands of times: their hits are written once.

        Raises:
            BadAnswer: the answer breaks the contract.
        """
        # How many documents a filter leaves, the host alone knows.
        hits = check_hits(answer, self.spec.k, 0 if query.filter else self._min_hits)
        if trial == WARMUP_TRIAL:
            hits = [] if query.query_id in self._warmed else hits
            self._warmed.add(query.query_id)
        return hits


# Work, in nanoseconds, that must be level.
WORK_NS = 1_500_000_000
# This many queries replace that work if they take microseconds: a just-in-time compiler counts calls.
ENOUGH_QUERIES = 10_000
# Number of parts of a stretch to compare, each of at least one pass.
PARTS = 3
# Maximum excess of the slowest part over the fastest.
STEADY = 0.10
# Parts that fall one after the other by more than this in total are on a slope.
SLOPE = 0.02
# Maximum share of compiler threads in a stretch.
COMPILING = 0.02
# A system that is not steady after this much work is measured, and called unsteady.
MAX_NS = 60_000_000_000
# A check after each short pass would accept agreement by chance sooner or later.
_BETWEEN_CHECKS_NS = WORK_NS // 10


def warm_up(
    run_pass: Callable[[], int], queries: int, max_queries: int, compiled_ns: Callable[[], int] = lambda: 0
) -> tuple[int, bool | None]:
    """Pass over the warm-up queries until they are steady.

    Args:
        run_pass: passes over the same warm-up queries once; returns the nanoseconds of their answers.
        queries: number of queries in a pass.
        max_queries: queries to send at most; one pass runs in any case.  Two passes alone are compared.
        compiled_ns: CPU time of compiler threads so far, in nanoseconds.

    Returns:
        The last pass's nanoseconds, and ``True`` if the level became steady (``None``: one pass only).
    """
    passes = max(1, max_queries // max(1, queries))
    levels: list[int] = []
    compiled = [compiled_ns()]
    total = checked = 0
    while True:
        levels.append(run_pass())
        compiled.append(compiled_ns())
        total += levels[-1]
        last = len(levels) >= passes or (len(levels) >= PARTS and total >= MAX_NS)
        if not last and (len(levels) < PARTS or total - checked < _BETWEEN_CHECKS_NS):
            continue
        checked = total
        level: Callable[[Sequence[int]], float] = fmean
        count = _stretch(levels)
        if count is None and last:
            # Less work than a stretch: judge all passes but the coldest third.  The median, because one interruption
            # is long beside such short passes.
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


# Waits for the queries of a number (see ``planned_queries``): no code in the container knows them earlier.
QuerySource = Callable[[int], Sequence[Query]]
# Passes over queries under a trial's number; returns the nanoseconds of their answers.
Pass = Callable[[int, Sequence[Query]], int]


def planned_queries(spec: JobSpec, number: int) -> list[Query]:
    """Return the queries of a stretch in their order: 0 is the warm-up, then the trials, then the repeats."""
    if number == 0:
        return list(spec.warmup)
    if number > spec.trials and not spec.probes:
        return repeat_queries(spec)
    return trial_order(spec.sample, spec.seed, spec.first_trial + number - 1)


def repeat_queries(spec: JobSpec) -> list[Query]:
    """Return the queries that are sent twice in a row after the trials."""
    return trial_order(spec.sample, spec.seed, REPEAT_TRIAL)[: spec.repeats]


def run_warmup(ask: Pass, spec: JobSpec, out: Output, compiled_ns: CompilerClock, measured: Measurement[str]) -> int:
    """Run the warm-up phase; return the last pass's nanoseconds (see :func:`warm_up`)."""
    pause_collector()
    queries, most = len(spec.warmup), spec.warmup_cap if spec.warmup else 0
    with out.phase("warmup", queries):
        level_ns, measured.warmup_steady = warm_up(lambda: ask(WARMUP_TRIAL, spec.warmup), queries, most, compiled_ns)
    return level_ns


def closed_loop(adapter: Adapter, spec: JobSpec, out: Output, hand: QuerySource, measured: Measurement[str]) -> None:
    """Warm up, run the trials query by query or in batches, then repeat some queries."""
    runner, compiled_ns = QueryRunner(adapter, spec, out), CompilerClock()
    ask = runner.in_batches if spec.scenario == "offline" else runner.one_by_one
    run_warmup(ask, spec, out, compiled_ns, measured)
    compiled_s = 0.0
    for number in range(spec.trials):
        trial, queries = spec.first_trial + number, hand(number + 1)
        pause_collector()  # walk what warm-up left, and the queries, once and not after each query
        before_ns = compiled_ns()
        with out.phase(f"trial-{trial}", len(queries)) as phase:
            phase.claimed_ns = ask(trial, queries)
        compiled_s += (compiled_ns() - before_ns) / 1e9
    if spec.repeats and spec.scenario == "single_stream":
        again = hand(spec.trials + 1)
        # After the trials, which a cache that the repeats fill can no longer make faster.
        with out.phase("repeat", 2 * len(again)):
            for query in again:
                runner.one_by_one(REPEAT_TRIAL, (query, query))
    measured.compiled_s = compiled_s if compiled_ns.seen else None
