"""One made-up table with everything that a report must survive."""

from pathlib import Path
from typing import Any

import pytest

from harness.analysis.table import Carbon, Cause, CpuUse, Finding, Latency, Overhead, Row, Table, Timing, Validity
from harness.driver.records import Envelope, Outcome
from harness.estimate import Estimate
from harness.results.isolation import CONTAINER, PROCESS
from tests.support import sample_records

MIB = 2**20
PRICES = {
    "cpu1-mem256m": ("a1.medium", 0.0255, 1, 256),
    "cpu1-mem1": ("a1.medium", 0.0255, 1, 1024),
    "cpu2-mem4": ("a1.large", 0.051, 2, 4096),
}
AGAIN = "run `harness run SUITE --fresh --only bm25/scifact/single_stream/cpu2-mem4`"
STAND_IN = "MiniLM | of two layers, trained for a minute"
DRIFT = f"the slowest trial's mean is 1.49 times the fastest's; then {AGAIN}"

FOREIGN = "other processes had 12.0% of the build's CPU time; then run `harness run SUITE --fresh-index`"

CARBON = Carbon(
    grams=Estimate(0.5, 0.1, 2.5),
    processors=("EPYC 4th Gen",),
    cases=(0.1, 2.5),
    date="2026-11-29",
    grid="aws/us-east-1",
    grams_per_kwh=379.069,
)


def row(system: str, profile: str, **changes: Any) -> Row:
    instance, usd, cpus, memory_mib = PRICES[profile]
    fields: dict[str, Any] = {
        "system": system,
        "profile": profile,
        "cpus": cpus,
        "memory_limit_bytes": memory_mib * MIB,
        "price": sample_records.price(instance, usd, 2 * cpus, 2 * memory_mib * MIB),
        "stand_in": STAND_IN if system == "minilm" else None,
        "price_note": f"priced on {instance} (arm64); latency was measured on x86_64",
    }
    return sample_records.row(**{**fields, **changes})


def measured(system: str, profile: str, mean_ms: float, **changes: Any) -> Row:
    usd = PRICES[profile][1]
    fields: dict[str, Any] = {
        "queries": 300,
        "trials": 5,
        "queries_judged": 300,
        "measures": {"RR@10": Estimate(0.64321), "Success@10": Estimate(0.79), "nDCG@10": Estimate(0.67891)},
        "latency_mean_s": Estimate(mean_ms / 1e3, mean_ms / 1.05e3, mean_ms * 1.05 / 1e3),
        "p50_s": Estimate(mean_ms / 1.1e3, mean_ms / 1.2e3, mean_ms / 1e3),
        "p95_s": Estimate(mean_ms * 2 / 1e3, mean_ms * 1.8 / 1e3, mean_ms * 2.2 / 1e3),
        "p99_s": Estimate(None, reason="p99 needs 662 queries, timed 300"),
        "like_queries_s": {"mean": Estimate(mean_ms / 1e3, mean_ms * 0.97 / 1e3, mean_ms * 1.03 / 1e3)},
        "these_queries_s": {"mean": Estimate(mean_ms / 1e3, mean_ms * 0.99 / 1e3, mean_ms * 1.01 / 1e3)},
        "at_most_s": {
            "p50": Estimate(mean_ms * 1.02 / 1e3),
            "p95": Estimate(mean_ms * 2.3 / 1e3),
            "p99": Estimate(None, reason="p99 needs 662 queries, timed 300"),
        },
        "spread_s": {
            "query": Estimate(mean_ms * 0.4 / 1e3),
            "trial": Estimate(None, reason="each job ran one trial: the two coincide"),
            "job": Estimate(mean_ms * 0.01 / 1e3, reason="holds the trial's part too"),
            "residual": Estimate(mean_ms * 0.05 / 1e3),
        },
        "jobs": 5,
        "keys": tuple(f"001122334455667{number}" for number in range(5)),
        "trial_means_s": (mean_ms / 1e3, mean_ms / 1e3),
        "trial_spread_s": 0.0,
        "peak_anon_bytes": 210 * MIB + 12345,
        "peak_cgroup_bytes": 1024 * MIB,
        "index_bytes": 8 * MIB + 4321,
        "index_build_s": 12.5,
        "build_envelope": Envelope("cpu2-mem4", 2, 4096 * MIB),
        "corpus_documents": 5183,
        "build_price": sample_records.price("a1.large", 0.051, 2, 4096 * MIB),
        "usd_build_per_million_documents": Estimate(12.5 * 0.051 / 3600 / 5183 * 1e6),
        "usd_storage_per_month": Estimate(None, reason="no price of storage is known"),
        "load_s": 1.0625,
        "first_query_s": 0.25,
        "usd_per_million": Estimate(mean_ms / 3600 * usd * 1e3, mean_ms / 3780 * usd * 1e3, mean_ms / 3428 * usd * 1e3),
    }
    if system == "bm25":
        fields |= {
            "build_machine": sample_records.MACHINE,
            "build_validity": Validity.NOISY,
            "build_findings": (Finding(Cause.FOREIGN_CPU, Validity.NOISY, FOREIGN, transient=True),),
        }
    return row(system, profile, **{**fields, **changes})


@pytest.fixture
def table() -> Table:
    hostile = '<script>alert("x")</script>|_a_ `b` [c](http://d) \x1b[31m\u202e*e*\n\nnext'
    rows = (
        row("minilm", "cpu1-mem256m", outcome=Outcome.OOM, detail="killed by the kernel: memory limit of 256 MiB"),
        row(
            hostile, "cpu1-mem256m", outcome=Outcome.CRASH, detail=f"=1+1 | {hostile}", price=None, price_note="no type"
        ),
        measured(
            "bm25",
            "cpu1-mem1",
            1.634,
            attempts=2,
            notes=("the newest of 2 ok results of this cell; not pooled",),
            cpu=CpuUse(per_query_s=Estimate(0.0015, 0.00145, 0.00155), busy_cpus=0.92),
            carbon=CARBON,
        ),
        measured("minilm", "cpu1-mem1", 12.25, isolation=PROCESS, notes=("isolation: process",)),
        measured(
            "bm25",
            "cpu2-mem4",
            0.0456,
            validity=Validity.NOISY,
            findings=(Finding(Cause.DRIFT, Validity.NOISY, DRIFT, transient=True),),
            notes=(DRIFT,),
            peak_anon_bytes=None,
            peak_mapped_bytes=70 * MIB,
            stages_s={"encode": Timing(Estimate(0.00003, 0.00002, 0.00004), Estimate(0.00002))},
            transient=True,
            measures={
                "RR@10": Estimate(0.0),
                "Success@10": Estimate(1.0),
                "nDCG@10": Estimate(None, reason="the run cannot be judged"),
            },
        ),
        measured(
            "minilm",
            "cpu2-mem4",
            1234.5,
            latency_mean_s=Estimate(1.2345, reason="an interval needs 11 queries, timed 5"),
            spread_s={},
            at_most_s={},
            p50_s=Estimate(None, reason="p50 needs 11 queries, timed 5"),
            p95_s=Estimate(None, reason="p95 needs 130 queries, timed 5"),
        ),
    )
    return sample_records.table(
        rows,
        ("RR@10", "Success@10", "nDCG@10"),
        overhead=(
            Overhead(
                suite="quickstart",
                profile="cpu1-mem1",
                isolation=CONTAINER,
                outcome=Outcome.OK,
                detail=None,
                validity=Validity.CLEAN,
                reasons=(),
                key="8899aabbccddeeff",
                latency=Latency(
                    mean_s=Estimate(4e-7, 3.9e-7, 4.1e-7),
                    p50_s=Estimate(3.5e-7),
                    p99_s=Estimate(None, reason="p99 needs 662 queries, timed 300"),
                ),
            ),
        ),
        notes=("harness's own overhead.", "How the interval was made.", "Prices: aws us-east-1, 2026-07-20."),
    )


@pytest.fixture
def empty() -> Table:
    return sample_records.table(())


@pytest.fixture
def golden() -> Path:
    return Path(__file__).parent.parent / "golden"
