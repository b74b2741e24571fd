"""How queries reach the system in a closed loop: the next is asked when the one before is answered.

``single_stream``: one query at a time.  ``offline``: batches.  The open loop is in :mod:`harness.measure.server`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from harness.measure.adapter import Adapter
from harness.measure.compilers import CompilerClock
from harness.measure.output import REPEAT_TRIAL, WARMUP_TRIAL, Output
from harness.measure.passes import Asker, rest_collector, trial_order
from harness.measure.warmup import warm_up
from harness.records import JobSpec, Probe, Query

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


def single_stream(adapter: Adapter, spec: JobSpec, out: Output, hand: Hand | None = None) -> Done:
    """Warm up, run the trials one query at a time, then ask some queries twice in a row."""
    asker, hand = Asker(adapter, spec, out), hand or partial(handed, spec)
    done = _closed_loop(asker.one_by_one, spec, out, hand)
    if spec.repeats:
        again = hand(spec.trials + 1)
        # After the trials: a cache that these questions fill can make no trial faster.
        with out.phase("repeat", 2 * len(again)):
            for query in again:
                asker.one_by_one(REPEAT_TRIAL, (query, query))
    return done


def offline(adapter: Adapter, spec: JobSpec, out: Output, hand: Hand | None = None) -> Done:
    """Warm up and run the trials, in batches of ``scenario_params.batch_size``."""
    return _closed_loop(Asker(adapter, spec, out).in_batches, spec, out, hand or partial(handed, spec))


def repeated(spec: JobSpec) -> list[Query]:
    """The queries that are asked twice in a row after the trials."""
    return trial_order(spec.sample, spec.seed, REPEAT_TRIAL)[: spec.repeats]


def warmed(ask: Pass, spec: JobSpec, out: Output, compiled_ns: CompilerClock) -> tuple[int, bool | None]:
    """Run the warm-up phase: the last pass's nanoseconds, and whether it became steady."""
    rest_collector()
    queries = len(spec.warmup)
    with out.phase("warmup", queries):
        return warm_up(lambda: ask(WARMUP_TRIAL, spec.warmup), queries, spec.warmup_cap if queries else 0, compiled_ns)


def _closed_loop(ask: Pass, spec: JobSpec, out: Output, hand: Hand) -> Done:
    compiled_ns = CompilerClock()
    _, steady = warmed(ask, spec, out, compiled_ns)
    compiled_s = 0.0
    for number in range(spec.trials):
        rest_collector()  # what warm-up left is walked here once, not after each query
        trial, queries = spec.first_trial + number, hand(number + 1)
        before_ns = compiled_ns()
        with out.phase(f"trial-{trial}", len(queries)) as phase:
            phase.claimed_ns = ask(trial, queries)
        compiled_s += (compiled_ns() - before_ns) / 1e9
    return Done(steady, compiled_s=compiled_s if compiled_ns.seen else None)
