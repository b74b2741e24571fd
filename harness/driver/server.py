"""The ``server`` scenario: queries arrive by themselves, whether or not the system is ready for them (open loop).

A closed loop hides a stall: nobody asks while the system stands.  Here latency counts from the scheduled arrival,
so every query that a stall kept waiting shows it.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from time import perf_counter_ns  # by name: see output.py

from harness.driver.adapter import Adapter
from harness.driver.compilers import CompilerClock
from harness.driver.output import Output
from harness.driver.rate_search import Served, Unreachable, arrivals_ns, highest_rate, judge, out_of_reach
from harness.driver.scenarios import Asker, Done, Hand, handed, rest_collector, warmed
from harness.records import MAX_PROBES, JobSpec, Probe, Query

_MOST_STREAMS = 1024
# The kernel wakes a sleeper some tens of microseconds late; the last stretch is passed in short yields.
_SLEEP_SHORT_NS = 200_000
# The host stops a job that says nothing for as long as one query may take.
_TELL_NS = 1_000_000_000
# Between the arrivals' origin and now: time for the threads to start.
_LEAD_NS = 2_000_000


def server(adapter: Adapter, spec: JobSpec, out: Output, hand: Hand | None = None) -> Done:
    """Warm up one query at a time, then look for the highest rate that keeps the target.

    Each rate that is tried is a probe, numbered and written down like a trial.
    """
    streams = adapter.streams()
    if type(streams) is not int or not 1 <= streams <= _MOST_STREAMS:
        raise ValueError(f"streams() is {streams!r}, must be a whole number from 1 to {_MOST_STREAMS}")
    asker, hand = Asker(adapter, spec, out), hand or partial(handed, spec)
    compiled_ns = CompilerClock()
    level_ns, steady = warmed(asker.one_by_one, spec, out, compiled_ns)
    service_qps = streams * len(spec.warmup) * 1e9 / max(1, level_ns) if spec.warmup else 1.0
    probes: list[Probe] = []
    compiled_s = 0.0

    def probe(rate_qps: float, check: bool) -> bool:
        nonlocal compiled_s
        rest_collector()
        trial, queries = spec.first_trial + len(probes), hand(len(probes) + 1)
        before_ns = compiled_ns()
        with out.phase(f"trial-{trial}", len(queries)) as phase:
            served = _Arrivals(adapter, spec, out, asker, trial, queries, rate_qps, streams).serve()
            phase.claimed_ns = sum(each.latency_ns for each in served)
        compiled_s += (compiled_ns() - before_ns) / 1e9
        probes.append(judge(served, trial, rate_qps, spec.scenario_params, streams=streams, check=check))
        if out_of_reach(served, spec.scenario_params):
            raise Unreachable
        return probes[-1].passed

    rate_qps = highest_rate(probe, service_qps, MAX_PROBES, streams)
    return Done(steady, tuple(probes), rate_qps, compiled_s if compiled_ns.seen else None)


class _Arrivals:
    """One probe: every query of the sample once, each at its scheduled time."""

    def __init__(
        self,
        adapter: Adapter,
        spec: JobSpec,
        out: Output,
        asker: Asker,
        trial: int,
        queries: Sequence[Query],
        rate_qps: float,
        streams: int,
    ) -> None:
        self._adapter, self._out, self._asker = adapter, out, asker
        self._trial, self._streams, self._k = trial, streams, spec.k
        self._queries = queries
        self._arrivals = arrivals_ns(spec.seed, trial, len(self._queries), rate_qps)
        self._answers: list[object] = [None] * len(self._queries)
        self._stages: list[dict[str, int]] = [{}] * len(self._queries)
        self._times: list[tuple[int, int, int]] = [(0, 0, 0)] * len(self._queries)
        self._failed: BaseException | None = None
        self._origin = self._told = 0

    def serve(self) -> Sequence[Served]:
        """Let the queries arrive; return what came of each, in order of arrival.

        Checking answers, writing samples and collecting garbage wait until the last query is answered: in between
        they would stand in the queue, and count as the system's.  So a probe's answers stay in memory until its end.
        """
        # A range's iterator hands out each number once, also to several threads: first come, first served.
        turns = iter(range(len(self._queries)))
        self._origin = self._told = perf_counter_ns() + _LEAD_NS
        if self._streams == 1:
            self._stream(turns)  # in this thread, which the engine knows from load
        else:
            threads = [threading.Thread(target=self._stream, args=(turns,)) for _ in range(self._streams)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if self._failed is not None:
            raise self._failed
        gc.collect()
        return self._kept()

    def _stream(self, turns: Iterator[int]) -> None:
        """One of the streams that the system takes queries on."""
        clock, search, k, origin = perf_counter_ns, self._adapter.search, self._k, self._origin
        free = origin
        try:
            for turn in turns:
                self._wait(origin + self._arrivals[turn])
                if self._failed is not None:
                    return
                text = self._queries[turn].text
                start = clock()
                self._answers[turn] = search(text, k)
                end = clock()
                self._times[turn] = (free, start, end)
                if self._streams == 1:  # several streams have no "last search" to ask about
                    self._stages[turn] = self._asker.stages_ns()
                free = end
        # Carried to the main thread, which says how the job ended.
        except BaseException as error:  # noqa: BLE001
            self._failed = self._failed or error

    def _wait(self, until: int) -> None:
        """Sleep most of the time until then, and tell the host now and again that we are alive."""
        clock = perf_counter_ns
        while True:
            now = clock()
            if now - self._told >= _TELL_NS:
                self._told = now
                self._out.progress(sum(end > 0 for _, _, end in self._times))
            left = until - clock()
            if left <= _SLEEP_SHORT_NS or self._failed is not None:
                break
            time.sleep(min(left - _SLEEP_SHORT_NS, _TELL_NS) / 1e9)
        while clock() < until:
            time.sleep(0)

    def _kept(self) -> Sequence[Served]:
        served = [
            Served(scheduled, free - self._origin, start - self._origin, end - self._origin)
            for scheduled, (free, start, end) in zip(self._arrivals, self._times, strict=True)
        ]
        self._out.progress(0)  # from here on the host counts samples
        for turn, (query, each) in enumerate(zip(self._queries, served, strict=True)):
            extra = {"scheduled_ns": each.scheduled_ns, "service_ns": each.service_ns}
            stages_ns, hits = self._stages[turn], self._asker.hits_of(self._trial, query, self._answers[turn])
            self._out.write_sample(self._trial, query.query_id, each.latency_ns, stages_ns, hits, **extra)
            self._answers[turn] = None
        gc.collect()
        return served
