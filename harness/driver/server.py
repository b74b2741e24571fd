"""Scenarios whose queries overlap.

``server``: queries arrive on schedule, ready or not (open loop).  A closed loop hides a stall, because no query arrives
meanwhile.  Here latency counts from the scheduled arrival, so every query that waited shows it.

``offline``, of a service: as many queries at once as there are connections, for more and more connections.
"""

from __future__ import annotations

import gc
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from time import perf_counter_ns  # by name: see output.py

from harness.driver.adapter import Adapter, QueryFailed
from harness.driver.output import ERROR, TIMED_OUT, Output
from harness.driver.procfs import CompilerClock
from harness.driver.rate_search import ServedQuery, Unreachable, arrivals_ns, highest_rate, judge_probe, out_of_reach
from harness.driver.records import MAX_PROBES, JobSpec, Measurement, Probe, Query
from harness.driver.scenarios import QueryRunner, QuerySource, pause_collector, run_warmup

_MAX_STREAMS = 1024
# Twice the connections are worth it from this ratio of throughputs on.
_FASTER = 1.05
# The limit of the rate, not the service, decides from this share of queries on that had to wait for their turn.
_HELD = 0.5
# The kernel wakes a sleeper tens of microseconds late: yield for the last stretch.
_SLEEP_SHORT_NS = 200_000
# The host stops a job that is silent for longer than one query may take.
_REPORT_NS = 1_000_000_000
# Time for the threads to start before the first arrival.
_LEAD_NS = 2_000_000


def server(adapter: Adapter, spec: JobSpec, out: Output, hand: QuerySource, measured: Measurement[str]) -> None:
    """Warm up one query at a time, then search the highest rate that meets the target.

    Each tried rate is a probe, numbered and stored like a trial.
    """
    streams = streams_of(adapter)
    runner, compiled_ns = QueryRunner(adapter, spec, out), CompilerClock()
    level_ns = run_warmup(runner.one_by_one, spec, out, compiled_ns, measured)
    service_qps = streams * len(spec.warmup) * 1e9 / max(1, level_ns) if spec.warmup else 1.0
    probes: list[Probe] = []
    compiled_s = 0.0

    def probe(rate_qps: float, check: bool) -> bool:
        nonlocal compiled_s
        pause_collector()
        trial, queries = spec.first_trial + len(probes), hand(len(probes) + 1)
        before_ns = compiled_ns()
        with out.phase(f"trial-{trial}", len(queries)) as phase:
            arrivals = arrivals_ns(spec.seed, trial, len(queries), rate_qps)
            served = Arrivals(runner, trial, queries, streams, arrivals).serve()
            phase.claimed_ns = sum(query.latency_ns for query in served)
        compiled_s += (compiled_ns() - before_ns) / 1e9
        probes.append(judge_probe(served, trial, rate_qps, spec.scenario_params, streams=streams, check=check))
        if out_of_reach(served, spec.scenario_params):
            raise Unreachable
        return probes[-1].passed

    measured.rate_qps = highest_rate(probe, service_qps, MAX_PROBES, streams, spec.max_qps)
    measured.capped, measured.probes = (
        measured.rate_qps is not None and measured.rate_qps == spec.max_qps,
        tuple(probes),
    )
    measured.compiled_s = compiled_s if compiled_ns.seen else None


def connections(adapter: Adapter, spec: JobSpec, out: Output, hand: QuerySource, measured: Measurement[str]) -> None:
    """Warm up, then double the connections until a service answers no faster; measure the best number once more.

    Each number is a probe, stored like a trial.
    """
    most = streams_of(adapter)
    runner, compiled_ns = QueryRunner(adapter, spec, out), CompilerClock()
    run_warmup(runner.one_by_one, spec, out, compiled_ns, measured)
    probes: list[Probe] = []

    def probe(streams: int, check: bool) -> float:
        pause_collector()
        trial, queries = spec.first_trial + len(probes), hand(len(probes) + 1)
        with out.phase(f"trial-{trial}", len(queries)) as phase:
            served = Arrivals(runner, trial, queries, streams).serve()
            phase.claimed_ns = sum(query.latency_ns for query in served)
        failed = sum(query.failed for query in served)
        took_ns = max(query.end_ns for query in served) - min(query.start_ns for query in served)
        rate_qps = (len(served) - failed) * 1e9 / took_ns
        median_s = statistics.median(query.latency_ns for query in served) / 1e9
        probes.append(Probe(trial, rate_qps, len(served), median_s, 0, True, check, failed, streams))
        return rate_qps

    best, best_qps, streams = 1, 0.0, 1
    while streams <= most:
        held = runner.pace.held if runner.pace else 0
        rate_qps = probe(streams, check=False)
        if rate_qps <= _FASTER * best_qps:
            break
        best, best_qps, streams = streams, rate_qps, 2 * streams
        if runner.pace is not None and runner.pace.held - held > _HELD * len(spec.sample):
            measured.capped = True
            break
    measured.rate_qps = probe(best, check=True)
    measured.probes = tuple(probes)


def streams_of(adapter: Adapter) -> int:
    """Return how many threads may ask an adapter at once."""
    streams = adapter.streams()
    if type(streams) is not int or not 1 <= streams <= _MAX_STREAMS:
        raise ValueError(f"streams() is {streams!r}, must be a whole number from 1 to {_MAX_STREAMS}")
    return streams


class Arrivals:
    """One probe: every query of the sample once, at its scheduled time; without ``arrivals``, as soon as a stream is
    free, and on schedule by definition.  ``alone``: no other thread searches meanwhile.
    """

    def __init__(
        self,
        runner: QueryRunner,
        trial: int,
        queries: Sequence[Query],
        streams: int,
        arrivals: Sequence[int] | None = None,
        *,
        alone: bool = True,
    ) -> None:
        self._runner, self._trial, self._queries, self._streams = runner, trial, queries, streams
        self._closed, self._arrivals = arrivals is None, arrivals or [0] * len(queries)
        self._one_by_one = alone and streams == 1
        self._answers: list[object] = [None] * len(queries)
        self._stages: list[dict[str, int]] = [{}] * len(queries)
        self._counts: list[dict[str, dict[str, int]]] = [{}] * len(queries)
        self._times: list[tuple[int, int, int]] = [(0, 0, 0)] * len(queries)
        self._failures: dict[int, QueryFailed] = {}
        self._failed: BaseException | None = None
        self._origin = self._reported = 0

    def serve(self) -> Sequence[ServedQuery]:
        """Send the queries on schedule; return them with their times, in order of arrival.

        Checks, writes and garbage collection wait for the last answer: earlier, they would delay queries and count as
        the system's.  So a probe's answers stay in memory until its end.
        """
        # A range's iterator yields each number once, also to several threads: first come, first served.
        turns = iter(range(len(self._queries)))
        self._origin = self._reported = perf_counter_ns() + _LEAD_NS
        if self._streams == 1:
            self._stream(turns)  # in this thread, which also ran load
        else:
            threads = [threading.Thread(target=self._stream, args=(turns,)) for _ in range(self._streams)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if self._failed is not None:
            raise self._failed
        gc.collect()
        return self._write()

    def _stream(self, turns: Iterator[int]) -> None:
        """Serve queries on one of the system's streams."""
        clock, k, origin = perf_counter_ns, self._runner.spec.k, self._origin
        free = origin
        try:
            for turn in turns:
                self._wait(origin + self._arrivals[turn])
                if self._failed is not None:
                    return
                if self._closed and self._runner.pace is not None:
                    self._runner.pace.wait()
                text, search = self._queries[turn].text, self._runner.search_of(self._queries[turn])
                start = clock()
                try:
                    self._answers[turn] = search(text, k)
                except QueryFailed as error:
                    self._failures[turn] = error
                end = clock()
                self._times[turn] = (free, start, end)
                if self._one_by_one:  # several threads have no "last search"
                    self._stages[turn] = self._runner.stages_ns()
                    self._counts[turn] = self._runner.counts()
                free = end
        except BaseException as error:  # noqa: BLE001 # the main thread raises it
            self._failed = self._failed or error

    def _wait(self, until: int) -> None:
        """Sleep until shortly before ``until``, then yield; report progress to the host meanwhile."""
        clock = perf_counter_ns
        while True:
            now = clock()
            if now - self._reported >= _REPORT_NS:
                self._reported = now
                self._runner.out.progress(sum(end > 0 for _, _, end in self._times))
            left = until - clock()
            if left <= _SLEEP_SHORT_NS or self._failed is not None:
                break
            time.sleep(min(left - _SLEEP_SHORT_NS, _REPORT_NS) / 1e9)
        while clock() < until:
            time.sleep(0)

    def _write(self) -> Sequence[ServedQuery]:
        served = [
            ServedQuery(
                start - self._origin if self._closed else scheduled,
                free - self._origin,
                start - self._origin,
                end - self._origin,
                turn in self._failures,
            )
            for turn, (scheduled, (free, start, end)) in enumerate(zip(self._arrivals, self._times, strict=True))
        ]
        if self._failures:  # the job's log shows what a count cannot
            number = len(self._failures)
            print(f"{number} of {len(served)} queries failed, one by: {next(iter(self._failures.values()))}")
        self._runner.out.progress(0)  # from now on the host counts samples
        for turn, (query, times) in enumerate(zip(self._queries, served, strict=True)):
            extra = {"scheduled_ns": times.scheduled_ns, "service_ns": times.service_ns, **self._counts[turn]}
            stages_ns, hits = self._stages[turn], []
            if failure := self._failures.get(turn):
                extra["failed"] = TIMED_OUT if failure.timed_out else ERROR
            else:
                hits = self._runner.hits_of(self._trial, query, self._answers[turn])
            self._runner.out.write_sample(self._trial, query.query_id, times.latency_ns, stages_ns, hits, **extra)
            self._answers[turn] = None
        gc.collect()
        return served
