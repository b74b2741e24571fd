"""How queries reach the system in a closed loop: the next is asked when the one before is answered.

``single_stream``: one query at a time.  ``offline``: batches.  The open loop is in :mod:`harness.measure.server`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.measure.adapter import Adapter
from harness.measure.compilers import CompilerClock
from harness.measure.output import REPEAT_TRIAL, WARMUP_TRIAL, Output
from harness.measure.passes import Asker, rest_collector, trial_order
from harness.measure.warmup import warm_up
from harness.records import JobSpec, Probe, Query

# Called between trials with the number of the pause, from 1; comes back when the next trial may begin.
Pause = Callable[[int], None]
# One pass over queries under a trial's number; says the nanoseconds that it took.
Pass = Callable[[int, Sequence[Query]], int]


@dataclass(frozen=True)
class Done:
    """What a scenario says besides its samples; the names are those of ``Measurement``."""

    warmup_steady: bool | None
    probes: tuple[Probe, ...] = ()
    rate_qps: float | None = None
    compiled_s: float | None = None


def no_pause(_number: int) -> None:
    """Go on at once."""


def single_stream(adapter: Adapter, spec: JobSpec, out: Output, pause: Pause = no_pause) -> Done:
    """Warm up, run the trials one query at a time, then ask some queries twice in a row."""
    asker = Asker(adapter, spec, out)
    done = _closed_loop(asker.one_by_one, spec, out, pause)
    again = repeated(spec)
    if again:
        # After the trials: a cache that these questions fill can make no trial faster.
        with out.phase("repeat", 2 * len(again)):
            for query in again:
                asker.one_by_one(REPEAT_TRIAL, (query, query))
    return done


def offline(adapter: Adapter, spec: JobSpec, out: Output, pause: Pause = no_pause) -> Done:
    """Warm up and run the trials, in batches of ``scenario_params.batch_size``."""
    return _closed_loop(Asker(adapter, spec, out).in_batches, spec, out, pause)


def repeated(spec: JobSpec) -> list[Query]:
    """The queries that are asked twice in a row after the trials."""
    return trial_order(spec.sample, spec.seed, REPEAT_TRIAL)[: spec.repeats]


def warmed(ask: Pass, spec: JobSpec, out: Output, compiled_ns: CompilerClock) -> tuple[int, bool | None]:
    """Run the warm-up phase: the last pass's nanoseconds, and whether it became steady."""
    rest_collector()
    passes = max(1, spec.warmup_cap // len(spec.warmup)) if spec.warmup else 1
    with out.phase("warmup", len(spec.warmup)):
        return warm_up(lambda: ask(WARMUP_TRIAL, spec.warmup), passes, compiled_ns)


def _closed_loop(ask: Pass, spec: JobSpec, out: Output, pause: Pause) -> Done:
    compiled_ns = CompilerClock()
    _, steady = warmed(ask, spec, out, compiled_ns)
    compiled_s = 0.0
    for number in range(spec.trials):
        if number:
            pause(number)
        trial = spec.first_trial + number
        before_ns = compiled_ns()
        with out.phase(f"trial-{trial}", len(spec.sample)):
            ask(trial, trial_order(spec.sample, spec.seed, trial))
        compiled_s += (compiled_ns() - before_ns) / 1e9
    return Done(steady, compiled_s=compiled_s if compiled_ns.seen else None)
