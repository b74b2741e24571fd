"""How queries reach the system.  ``single_stream``: a closed loop, one query at a time."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Sequence

from harness.measure.adapter import Adapter
from harness.measure.answers import check
from harness.measure.output import WARMUP_TRIAL, Output
from harness.records import JobSpec, Query

# Two passes over the same warm-up queries that differ by less than this are steady (measuring rule 8).
STEADY = 0.10


def single_stream(adapter: Adapter, spec: JobSpec, out: Output) -> bool | None:
    """Warm up, then run the trials; return whether warm-up became steady (None: it had one pass only)."""
    # What load left behind is never garbage; without this each collection would walk all of it.
    gc.collect()
    gc.freeze()
    gc.disable()
    with out.phase("warmup", len(spec.warmup)):
        steady = _warm_up(adapter, spec, out)
    for trial in range(spec.trials):
        with out.phase(f"trial-{trial}", len(spec.sample)):
            _pass(adapter, spec, out, trial, trial_order(spec.sample, spec.seed, trial))
    return steady


def _warm_up(adapter: Adapter, spec: JobSpec, out: Output) -> bool | None:
    """Pass over the warm-up queries once, then on until two passes agree or the cap is reached.

    Passes over the same queries are compared: other queries would be slower or faster by themselves.
    """
    level_ns, asked, steady = _pass(adapter, spec, out, WARMUP_TRIAL, spec.warmup), len(spec.warmup), None
    while not steady and asked + len(spec.warmup) <= spec.warmup_cap:
        before_ns, level_ns = level_ns, _pass(adapter, spec, out, WARMUP_TRIAL, spec.warmup)
        asked += len(spec.warmup)
        steady = abs(level_ns - before_ns) <= STEADY * before_ns
    return steady


def trial_order(sample: Sequence[Query], seed: int, trial: int) -> list[Query]:
    """The sample in this trial's own order: fixed by the seed, another one each trial.

    One order for all trials would let a neighbour's cache effect hit the same query every time.
    """
    order = list(sample)
    random.Random(f"{seed}:{trial}").shuffle(order)
    return order


def _pass(adapter: Adapter, spec: JobSpec, out: Output, trial: int, queries: Sequence[Query]) -> int:
    """Ask each query once; return the nanoseconds that all took."""
    fewest = 0 if spec.fewer_hits_ok else min(spec.k, spec.corpus_size)
    total_ns = 0
    for query in queries:
        text, k, search = query.text, spec.k, adapter.search  # outside: attribute look-ups are ours
        start = time.perf_counter_ns()
        answer = search(text, k)  # inside: query text in, ranked ids and scores out, and nothing else
        latency_ns = time.perf_counter_ns() - start
        # Outside: checking, writing and collecting garbage are the harness's work, not the system's.
        hits = check(answer, k, fewest)
        stages_ns = {name: round(seconds * 1e9) for name, seconds in adapter.stages_s().items()}
        out.sample(trial, query.query_id, latency_ns, stages_ns, hits)
        total_ns += latency_ns
        del answer
        gc.collect()
    return total_ns


SCENARIOS = {"single_stream": single_stream}
