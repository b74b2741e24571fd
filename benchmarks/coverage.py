"""Count how often 95 % intervals hold the truth: ``python -m benchmarks.coverage`` (some six minutes on one CPU).

Draws samples from known populations and prints the tables of docs/reference/coverage.md.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness import stats
from harness.analysis import gate, scaling
from harness.analysis import other_machines as machines
from harness.analysis.gate import Answer, ChangeLimit, Checked
from harness.analysis.paired_differences import Latencies, welch
from harness.analysis.scaling import MeasuredSize
from harness.estimate import Estimate, Varies
from harness.evaluation import evaluate

Floats = NDArray[np.float64]
# Sigma of the lognormal change between two measurements of a query.
_WITHIN = 0.05
_SEED = 2023


@dataclass(frozen=True)
class Population:
    """Values of queries, and their true mean."""

    name: str
    draw: Callable[[np.random.Generator, int], Floats]
    mean: float


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--only", choices=("again", "means", "measures", "gate", "machines", "sizes"))
    arguments = parser.parse_args()
    tables = {
        "again": again,
        "means": means,
        "measures": measures,
        "gate": gate_answers,
        "machines": other_machines,
        "sizes": larger_sizes,
    }
    for name, lines in tables.items():
        if arguments.only in (None, name):
            print(*lines(arguments.samples), "", sep="\n", flush=True)
    return 0


def again(samples: int) -> Iterator[str]:
    """Yield the coverage of a latency's one interval: other queries, in fresh processes."""
    yield "| processes | queries | sigma | differ by | mean | over queries alone | p50 | p95 |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for processes, queries, sigma, differ in (
        *(
            (3, queries, sigma, differ)
            for sigma in (0.5, 1.0)
            for queries in (30, 100, 300)
            for differ in (0.05, 0.1, 0.2)
        ),
        *((processes, 300, 1.0, differ) for processes in (5,) for differ in (0.0, 0.1)),
    ):
        held = covered_again(samples, processes, queries, sigma, differ)
        cells = (percent(held.get(name)) for name in ("mean", "over queries", "p50", "p95"))
        yield f"| {processes} | {queries} | {sigma:g} | {100 * differ:.0f} % | {' | '.join(cells)} |"


def covered_again(samples: int, processes: int, queries: int, sigma: float, differ: float) -> dict[str, float]:
    """Return how often each latency's interval holds the truth, by its name.

    Args:
        samples: how many suites are drawn.
        processes: jobs, each with one trial over the same queries.
        queries: in the sample, lognormal.
        sigma: of the queries' lognormal.
        differ: standard deviation of the factor on all latencies of a process; the factor's mean is 1.
    """
    rng = np.random.default_rng(_SEED)
    between = math.log(1 + differ**2) ** 0.5
    whole = math.sqrt(sigma**2 + _WITHIN**2 + between**2)
    truth = {name: math.exp(whole * z - between**2 / 2) for name, z in (("p50", 0.0), ("p95", 1.6448536269514722))}
    truth["mean"] = truth["over queries"] = math.exp((sigma**2 + _WITHIN**2) / 2)
    names = np.tile([f"q{number:04}" for number in range(queries)], processes)
    jobs = np.repeat(np.arange(processes), queries)
    held: dict[str, list[bool]] = {}
    for _ in range(samples):
        slow = rng.lognormal(-(between**2) / 2, between, (processes, 1))
        latency = rng.lognormal(0, sigma, queries) * slow * rng.lognormal(0, _WITHIN, (processes, queries))
        summary = stats.summarise(names, jobs, latency.ravel(), jobs=jobs, shown=("p50", "p95"))
        figures = {"mean": summary.mean_s, "over queries": summary.like_queries_s["mean"], **summary.percentiles_s}
        for name, figure in figures.items():
            if figure.low is not None or figure.high is not None:
                held.setdefault(name, []).append(holds(figure, truth[name]))
    return {name: float(np.mean(values)) for name, values in held.items()}


def means(samples: int) -> Iterator[str]:
    """Yield the coverage of three intervals of a latency over queries, from the same samples."""
    from scipy.stats import bootstrap

    def student(values: Floats) -> Estimate:
        return Estimate(float(values.mean()), *stats.student(values))

    def bca(values: Floats) -> Estimate:
        ends = bootstrap((values,), np.mean, n_resamples=999, method="BCa", rng=rng).confidence_interval
        return Estimate(float(values.mean()), float(ends.low), float(ends.high))

    rng = np.random.default_rng(_SEED)
    methods = {"Student": student, "BCa bootstrap": bca, "Hall, as printed": stats.latency_mean}
    yield f"| latencies | queries | {' | '.join(methods)} |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for population in LATENCIES:
        for queries in (30, 100, 300):
            drawn = [population.draw(rng, queries) for _ in range(samples)]
            cells = (
                percent(covered([method(values) for values in drawn], population.mean)) for method in methods.values()
            )
            yield f"| {population.name} | {queries} | {' | '.join(cells)} |"


def gate_answers(samples: int) -> Iterator[str]:
    """Yield how often a gate calls B worse, by how much slower B is."""
    changes = (0.0, 0.05, 0.08, 0.1, 0.2)
    yield "| figure | processes | differ by | limit | " + " | ".join(f"+{100 * each:g} %" for each in changes) + " |"
    yield f"| --- | ---: | ---: | ---: |{' ---: |' * len(changes)}"
    timed = ((5, 0.01), (5, 0.03), (5, 0.1), (15, 0.03))
    for figure, measured in (("latency", timed), ("CPU time", timed), ("instructions", ((5, 0.001), (5, 0.01)))):
        for (processes, differ), limit in itertools.product(measured, (0.0, 0.05)):
            cells = (
                " / ".join(percent(share) for share in answered(samples, figure, processes, differ, limit, change))
                for change in changes
            )
            yield f"| {figure} | {processes} | {100 * differ:g} % | +{100 * limit:g} % | {' | '.join(cells)} |"


def answered(
    samples: int, figure: str, processes: int, differ: float, limit: float, change: float
) -> tuple[float, float]:
    """Return the shares of samples in which the gate calls B worse and cannot tell, of one condition.

    Args:
        samples: how many pairs of measurements are drawn.
        figure: ``latency``, of 240 lognormal queries, or another, which each process has one of.
        processes: of each side.
        differ: standard deviation of the factor on all that a process measures.
        limit: of the condition, relative.
        change: by how much more B takes than A.
    """
    rng = np.random.default_rng(_SEED)
    condition = ChangeLimit(figure, "", limit, True, True, lambda _: None, Varies.CPU)
    found, between = [], math.log(1 + differ**2) ** 0.5

    for _ in range(samples):
        slow = [rng.lognormal(-(between**2) / 2, between, processes) * factor for factor in (1.0, 1.0 + change)]
        if figure == "latency":
            queries = rng.lognormal(0, 1.0, 240)
            a, b = (
                queries * each[:, None] * rng.lognormal(-(_WITHIN**2) / 2, _WITHIN, (processes, len(queries)))
                for each in slow
            )
            again = functools.partial(welch, a.mean(axis=1), b.mean(axis=1))
            evidence = gate.of_latencies(Latencies(a.mean(axis=0), b.mean(axis=0), again), processes)
        else:
            a, b = slow
            evidence = gate.over_processes(a, b)
        checked = Checked("", "", condition, Answer.CANNOT_TELL, float(a.mean()), float(b.mean()))
        found.append(gate.decide(checked, evidence, 1).answer)
    return found.count(Answer.WORSE) / samples, found.count(Answer.CANNOT_TELL) / samples


@dataclass(frozen=True)
class Machines:
    """Simulated machines: standard deviations of the logarithm of a latency, and the kind of its distribution.

    ``speed`` is between machines, ``own`` what a system has beside its machine's speed, ``differ`` between processes of
    one machine; ``slope`` is by how much a machine's speed counts for the system.
    """

    name: str
    speed: float
    own: float
    differ: float
    slope: float = 1.0
    draw: Callable[[np.random.Generator, int], Floats] = lambda rng, count: rng.standard_normal(count)


def _of_two_kinds(rng: np.random.Generator, count: int) -> Floats:
    return (np.where(rng.random(count) < 0.5, -1.0, 1.0) + 0.2 * rng.standard_normal(count)) / math.hypot(1, 0.2)


MACHINES = (
    Machines("alike, quiet", 0.05, 0.02, 0.01),
    Machines("alike, noisy", 0.05, 0.02, 0.10),
    Machines("of several generations", 0.30, 0.05, 0.02),
    Machines("the speed counts half", 0.30, 0.05, 0.02, slope=0.5),
    Machines(
        "with outliers (Student's t, 5)", 0.30, 0.05, 0.02, draw=lambda rng, n: rng.standard_t(5, n) / (5 / 3) ** 0.5
    ),
    Machines("of two kinds, half each", 0.30, 0.05, 0.02, draw=_of_two_kinds),
)


def other_machines(samples: int) -> Iterator[str]:
    """Yield how often an interval from some machines holds what the next machine measures."""
    names = ("on any machine", "by the fixed work", "by the reference", "share of machines")
    yield f"| machines | their number | {' | '.join(names)} |"
    yield f"| --- | ---: |{' ---: |' * len(names)}"
    for kind in MACHINES:
        for count in (4, 8, 16):
            held = covered_elsewhere(samples, kind, count)
            yield f"| {kind.name} | {count} | {' | '.join(map(percent, held))} |"


def covered_elsewhere(
    samples: int, kind: Machines, count: int, processes: int = 5
) -> tuple[float, float, float, float]:
    """Return how often the next machine's figure is in each of three intervals, and the true share in its own.

    Args:
        samples: how many sets of machines are drawn.
        kind: of machines.
        count: of machines, besides the next.
        processes: of each machine; a figure is their mean.
    """
    rng = np.random.default_rng(_SEED)
    variance = (kind.slope * kind.speed) ** 2 + kind.own**2
    truth, held = variance / (variance + kind.differ**2), np.zeros((samples, 4))
    for number in range(samples):
        speed = kind.speed * kind.draw(rng, count + 1)
        each = (
            (kind.slope * speed + kind.own * rng.standard_normal(count + 1))[:, None]
            + kind.differ * rng.standard_normal((count + 1, processes))
            for _ in range(2)
        )
        figure, reference = each
        work = speed + 0.02 * rng.standard_normal(count + 1)
        values = figure.mean(axis=1)
        found = (
            (machines.predicted(values[:-1]), values[-1]),
            *(
                (machines.beyond(np.stack((values, by), axis=1)[:-1])[0], values[-1] - by[-1])
                for by in (work, reference.mean(axis=1))
            ),
        )
        held[number, :3] = [holds(estimate, math.exp(next_one)) for estimate, next_one in found]
        held[number, 3] = holds(machines.machine_share([list(row) for row in figure[:-1]]), truth)
    any_machine, by_work, by_reference, share = held.mean(axis=0)
    return float(any_machine), float(by_work), float(by_reference), float(share)


@dataclass(frozen=True)
class SizeLaw:
    """A law of size that is planted: the figure at a number of documents; ``steepest``: as it is fitted."""

    name: str
    at: Callable[[float], float]
    steepest: float = scaling.STEEPEST


LAWS = (
    SizeLaw("constant + n", lambda n: 0.05 + 1e-6 * n),
    SizeLaw("n", lambda n: 1e-6 * n),
    SizeLaw("n log n", lambda n: 1e-7 * n * math.log(n)),
    SizeLaw("constant + n^0.7", lambda n: 0.02 + 1e-5 * n**0.7),
    SizeLaw("n^0.5", lambda n: 1e-3 * n**0.5),
    SizeLaw("constant + log n", lambda n: 0.1 + 0.05 * math.log(n)),
    SizeLaw("constant", lambda _: 5.0),
    SizeLaw("constant + n, of memory", lambda n: 130 + 1.5e-3 * n, scaling.STORED_STEEPEST),
    SizeLaw("n, of memory", lambda n: 1.5e-3 * n, scaling.STORED_STEEPEST),
    SizeLaw("constant + n^0.7, of memory", lambda n: 12 + 5e-3 * n**0.7, scaling.STORED_STEEPEST),
)
_SIZES = (10_000, 30_000, 100_000, 300_000)


def larger_sizes(samples: int) -> Iterator[str]:
    """Yield how often a prediction from four sizes holds what is measured at a larger one, and the exam is passed."""
    targets = (1_000_000, 10_000_000, 30_000_000)
    yield f"| law | exams passed | {' | '.join(f'{target:,} documents' for target in targets)} |"
    yield f"| --- | ---: |{' ---: |' * len(targets)}"
    for planted in LAWS:
        found = [covered_sizes(samples, planted, target) for target in targets]
        yield f"| {planted.name} | {percent(found[0][1])} | {' | '.join(percent(held) for held, _ in found)} |"


def covered_sizes(samples: int, planted: SizeLaw, target: int, processes: int = 5) -> tuple[float, float]:
    """Return how often the prediction holds what is measured at a size, and how often the exam is passed.

    Each size has an error of its own (standard deviation of the logarithm 0.05), and each process another (0.05).
    """
    rng = np.random.default_rng(_SEED)

    def measure(documents: int) -> MeasuredSize:
        errors = scaling.OWN_ERROR * rng.standard_normal() + 0.05 * rng.standard_normal(processes)
        return MeasuredSize(documents, tuple((planted.at(documents) * np.exp(errors)).tolist()))

    held, passed = 0, 0
    for _ in range(samples):
        sizes, there = [measure(size) for size in _SIZES], measure(target)
        law = scaling.examined(sizes, steepest=planted.steepest)
        held += holds(law.extrapolate(target), there.mean)
        passed += law.exam is not None and law.exam.passed
    return held / samples, passed / samples


def measures(samples: int) -> Iterator[str]:
    """Yield the coverage of the interval of a measure, and of a difference between two systems."""
    rng = np.random.default_rng(_SEED)
    sizes = (11, 30, 50, 300)
    yield f"| values by query | {' | '.join(f'{size} queries' for size in sizes)} |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for population in (*MEASURES, *DIFFERENCES):
        cells = (percent(covered_measure(rng, population, queries, samples)) for queries in sizes)
        yield f"| {population.name} | {' | '.join(cells)} |"


def covered_measure(rng: np.random.Generator, population: Population, queries: int, samples: int) -> float:
    """Return how often the interval of a measure or a difference holds the true mean."""
    drawn = [population.draw(rng, queries) for _ in range(samples)]
    if population in DIFFERENCES:
        return covered([stats.mean(values) for values in drawn], population.mean)
    figures = [
        evaluate.mean_estimate({f"{number:04}": float(values) for number, values in enumerate(of)}) for of in drawn
    ]
    return covered(figures, population.mean)


def covered(figures: Sequence[Estimate], truth: float) -> float:
    """Return the share of the intervals that hold the truth."""
    return float(np.mean([holds(values, truth) for values in figures]))


def holds(figure: Estimate, truth: float) -> bool:
    """Return whether an interval holds the truth; a missing end bounds nothing."""
    low, high = (-math.inf if figure.low is None else figure.low), (math.inf if figure.high is None else figure.high)
    return low <= truth <= high


def percent(share: float | None) -> str:
    """Return a share to a tenth of a per cent."""
    return "—" if share is None else f"{100 * share:.1f} %"


def _lognormal(sigma: float) -> Population:
    return Population(
        f"lognormal, sigma {sigma:g}", lambda rng, queries: rng.lognormal(0, sigma, queries), math.exp(sigma**2 / 2)
    )


def _mixed(rng: np.random.Generator, queries: int) -> Floats:
    return np.asarray(rng.lognormal(0, 0.3, queries) * np.where(rng.random(queries) < 0.05, 20, 1), dtype=np.float64)


def _chosen(values: Sequence[float], shares: Sequence[float], name: str) -> Population:
    return Population(name, lambda rng, queries: rng.choice(values, queries, p=shares), float(np.dot(values, shares)))


def _gain(rng: np.random.Generator, queries: int) -> Floats:
    return np.where(rng.random(queries) < 0.15, 0.0, rng.beta(2, 1.5, queries))


def _gain_differences(rng: np.random.Generator, queries: int) -> Floats:
    return np.asarray(rng.normal(0.02, 0.15, queries) * (rng.random(queries) < 0.7), dtype=np.float64)


LATENCIES = (
    _lognormal(0.5),
    _lognormal(1.0),
    _lognormal(1.5),
    Population("5 % of queries 20 times slower", _mixed, math.exp(0.3**2 / 2) * (0.95 + 0.05 * 20)),
)
MEASURES = (
    _chosen(
        (1, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 10, 0),
        (0.4, 0.15, 0.1, 0.08, 0.04, 0.03, 0.2),
        "RR@10: 40 % at 1, 20 % at 0",
    ),
    _chosen((1, 1 / 2, 0), (0.97, 0.02, 0.01), "RR@10: 97 % at 1"),
    Population("nDCG@10: spread over 0–1, 15 % at 0", _gain, 0.85 * 2 / 3.5),
    *(_chosen((1, 0), (p, 1 - p), f"Success@10: {100 * p:.0f} % succeed") for p in (0.5, 0.9, 0.98)),
)
DIFFERENCES = (
    _chosen((-1, -0.5, 0.5, 1, 0), (0.06, 0.08, 0.10, 0.08, 0.68), "differences of RR@10: 68 % are 0"),
    Population("differences of nDCG@10: 30 % are 0", _gain_differences, 0.7 * 0.02),
)

if __name__ == "__main__":
    sys.exit(main())
