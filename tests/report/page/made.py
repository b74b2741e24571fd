"""Made-up results of any size for pages: systems on profiles, with intervals, samples, failures and findings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from harness.analysis import row_pricing
from harness.analysis.table import Cause, Finding, Latency, Machine, Overhead, Row, Table, Timing, Validity
from harness.driver.records import Envelope, Outcome
from harness.estimate import Estimate
from harness.evaluation.per_query import SHARES, PerQuery
from harness.pricing import prices, serverless
from harness.report import page
from harness.report.page import groups
from harness.report.page.answer import answer_html
from harness.report.page.results import bills_html
from harness.report.summary import summary_section
from harness.results.isolation import CONTAINER
from harness.untrusted import MAX_TEXT, one_line
from tests.support import sample_records
from tests.support.sample_records import compare_by

MEASURES = ("RR@10", "Success@10", "nDCG@10")
HOSTILE = "<script>alert(1)</script>"
QUERIES = 60
_MIB, _GIB = 2**20, 2**30
# CPUs, GPUs; memory limits, MiB
_SHAPES = ((1, 0), (2, 0), (4, 0), (16, 0), (1, 1))
_LIMITS = (256, 512, 1024, 4096, 16384, 32768)
_ALTRA: Machine = sample_records.as_record(
    Machine, "Ampere Altra", "aarch64", "6.12", 2, "28.0", "0.1.0", None, (), None, 8
)
_MACHINES = (sample_records.MACHINE, _ALTRA)
_NOTE = "drift: the slowest trial's mean is 1.53 times the fastest's (steady: up to 1.25)"


def rows(count: int, *, datasets: Sequence[str] = ("scifact",), seed: int = 1) -> tuple[list[Row], dict[str, PerQuery]]:
    """Return rows and the values by query of rows with samples; equal for equal arguments."""
    rng = random.Random(seed)
    made: list[Row] = []
    found: dict[str, PerQuery] = {}
    per_dataset = -(-count // len(datasets))
    for dataset in datasets:
        systems = [_System(number, rng) for number in range(-(-per_dataset // (len(_SHAPES) * len(_LIMITS))) + 5)]
        cells = [(system, shape, limit) for limit in _LIMITS for shape in _SHAPES for system in systems]
        rng.shuffle(cells)
        for system, shape, limit in cells[: min(per_dataset, count - len(made))]:
            row, samples = _row(dataset, system, shape, limit, len(made), rng)
            made.append(row)
            if samples is not None:
                found[row.key] = samples
    return made, found


class _System:
    """A system: its name, accuracy, time on one CPU, least memory in MiB, and the seed of its answers."""

    def __init__(self, number: int, rng: random.Random) -> None:
        quality = rng.random()
        self.name = f"{rng.choice(('bm25', 'dpr', 'splade', 'colbert', 'ance', 'hybrid'))}-{number}"
        self.accuracy = 0.2 + 0.3 * quality
        self.base_ms = 10 ** (0.2 + 2 * quality + rng.random() * 0.7)
        self.least = rng.choice((100, 300, 700, 3000))
        self.seed = rng.randrange(10**6)


def _row(
    dataset: str, system: _System, shape: tuple[int, int], limit: int, number: int, rng: random.Random
) -> tuple[Row, PerQuery | None]:
    (cpus, gpus), least, seed = shape, system.least, system.seed
    size = limit // 1024 or f"{limit}m"
    common = {
        "suite": "made-up",
        "system": system.name,
        "dataset": dataset,
        "profile": f"gpu{gpus}-cpu{cpus}-mem{size}" if gpus else f"cpu{cpus}-mem{size}",
        "key": f"{number:016x}",
        "keys": (f"{number:016x}", f"{number + 1:015x}b"),
        "cpus": cpus,
        "gpus": gpus,
        "memory_limit_bytes": limit * _MIB,
        "machine": _MACHINES[number % 2],
        "sample_sha256": f"sample of {dataset}",
        "corpus_sha256": f"corpus of {dataset}",
    }
    if limit < least or rng.random() < 0.02:
        outcome = Outcome.OOM if limit < least else Outcome.CRASH
        detail = f"the kernel killed the job at the memory limit of {limit} MiB" if limit < least else "exit code 139"
        return sample_records.row(**common, outcome=outcome, detail=detail), None
    numbers = np.random.default_rng(seed)
    values = {
        measure: np.round(np.clip(numbers.normal(system.accuracy + 0.1 * place, 0.25, QUERIES), 0, 1), 4)
        for place, measure in enumerate(MEASURES)
    }
    slower = (1.5 if limit < 2 * least else 1) * (0.3 if gpus else 1)
    mean_ms = system.base_ms / cpus**0.7 * slower * rng.uniform(0.97, 1.03)
    spread = np.random.default_rng(number).lognormal(0, 0.5, QUERIES)
    latencies_s = mean_ms / 1e3 * spread / spread.mean()
    mean_s = float(np.mean(latencies_s))
    low, high = mean_s * 0.94, mean_s * 1.07
    quantiles = tuple(np.quantile(latencies_s, SHARES).tolist())
    findings = _findings(rng)
    worst = max((each.validity for each in findings), key=lambda each: each is Validity.INVALID, default=None)
    row = sample_records.row(
        **common,
        queries=QUERIES,
        trials=3,
        jobs=3,
        queries_judged=QUERIES,
        measures={measure: _interval(of) for measure, of in values.items()},
        latency_mean_s=Estimate(mean_s, low, high),
        like_queries_s={"mean": Estimate(mean_s, low * 1.03, high * 0.99)},
        these_queries_s={"mean": Estimate(mean_s, low * 1.05, high * 0.97)},
        p50_s=Estimate(quantiles[25], quantiles[22], quantiles[28]),
        p95_s=Estimate(quantiles[47], quantiles[45], quantiles[49]),
        p99_s=Estimate(None, reason="p99 needs 662 queries, timed 60"),
        at_most_s={"p50": Estimate(quantiles[30])},
        spread_s={"query": Estimate(mean_ms * 4e-4), "trial": Estimate(None, reason="each job ran one trial")},
        stages_s={"encode": Timing(Estimate(mean_ms * 4e-4), Estimate(mean_ms * 3e-4))},
        trial_means_s=(mean_ms / 1e3, mean_ms / 1.01e3),
        peak_anon_bytes=None if number % 7 == 0 else int(least * 0.8 * _MIB),
        peak_cgroup_bytes=int(least * _MIB),
        index_bytes=int(8 * _MIB * (1 + seed % 50)),
        index_build_s=12.5,
        build_envelope=Envelope("cpu2-mem4", 2, 4 * _GIB),
        build_machine=sample_records.MACHINE,
        build_validity=Validity.NOISY,
        build_findings=(Finding(Cause.FOREIGN_CPU, Validity.NOISY, "others had 12.0% of the build's CPU time"),),
        corpus_documents=5183,
        load_s=1.0625,
        validity=Validity.CLEAN if worst is None else worst,
        findings=findings,
        notes=tuple(each.text for each in findings),
    )
    ids = tuple(f"q{place:03}" for place in range(QUERIES))
    return row, PerQuery(row.key, ids, latencies_s, values, quantiles)


def _interval(values: NDArray[np.float64]) -> Estimate:
    mean, half = float(values.mean()), 1.96 * float(values.std(ddof=1)) / QUERIES**0.5
    return Estimate(mean, mean - half, mean + half)


def _findings(rng: random.Random) -> tuple[Finding, ...]:
    chance = rng.random()
    if chance < 0.03:
        return (Finding(Cause.ISOLATION, Validity.INVALID, "limits were not enforced; measure it in a container"),)
    if chance < 0.3:
        return (Finding(Cause.DRIFT, Validity.NOISY, _NOTE, transient=True),)
    return ()


def hostile() -> list[Row]:
    """Rows of a stranger."""
    quiet, _ = rows(3, seed=3)
    nasty = f'{HOSTILE}</script><img src=x onerror="alert(2)"> ]]>--> {{b|c}} %%data%% \u2028\u2029\u202e\x1b[31m\ud800'
    return [
        *quiet,
        sample_records.row(system=HOSTILE, profile=nasty, key="</script>", outcome=Outcome.CRASH, detail=nasty),
        sample_records.row(
            system=nasty,
            key="javascript:alert(3)",
            suite=nasty,
            stand_in=nasty,
            notes=(nasty,),
            findings=(Finding(Cause.DRIFT, Validity.NOISY, nasty),),
            validity=Validity.NOISY,
            measures={measure: Estimate(0.5) for measure in MEASURES},
            latency_mean_s=Estimate(0.003),
            p95_s=Estimate(None, reason=nasty),
            stages_s={nasty: Timing(Estimate(0.001), Estimate(0.001))},
        ),
    ]


def throughputs() -> list[Row]:
    """Rows of the scenarios with a throughput; one is on a whole instance."""
    (first, *_), _ = rows(1)
    rate = Estimate(151.3, 140.0, 160.0)
    return [
        replace(first, scenario=name, key=f"{name}-{cpus}", keys=(name,), cpus=cpus, throughput_qps=rate)
        for name in ("server", "offline")
        for cpus in (1, 2)
    ]


def page_of(
    made: Sequence[Row],
    found: dict[str, PerQuery] | None = None,
    *,
    measures: tuple[str, ...] = MEASURES,
    title: str = "Made-up results",
) -> page.PageSource:
    """Return the source of a page of these rows."""
    at = row_pricing.tariff(prices.snapshot(), serverless=serverless.FILES.newest())
    latency = Latency(mean_s=Estimate(4e-7))
    overhead = Overhead("made-up", "cpu1-mem1", CONTAINER, Outcome.OK, None, Validity.CLEAN, (), "00ff", latency)
    measured = Table(tuple(made), measures, overhead=(overhead,))
    table = row_pricing.price(measured, at)
    return page.PageSource(
        title=title,
        measured=measured,
        tariff=at,
        ranking=groups.ranking_data(table, found or {}),
        quantiles_s={key: each.quantiles_s for key, each in (found or {}).items()},
        notes=table.notes,
    )


def html(made: Sequence[Row], found: dict[str, PerQuery] | None = None) -> str:
    """Return the file of a page of these rows."""
    source = page_of(made, found)
    priced = row_pricing.price(source.measured, source.tariff)
    answer = summary_section(priced, compare_by(found), lambda text: one_line(text, MAX_TEXT))
    return page.render_page(page.page_content(source), answer_html(answer), bills_html(priced))
