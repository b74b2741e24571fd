"""Sample records for tests behind the store: a spec, a result, jobs, samples, a row."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import TypeAdapter

from harness.analysis import timings
from harness.analysis.results_folder import ReadResults
from harness.analysis.table import Machine, Price, Row, Table, Validity
from harness.driver.records import Envelope, Measurement, Outcome
from harness.evaluation.per_query import PerQuery
from harness.report.sentences import Compare
from harness.results.isolation import CONTAINER
from harness.results.samples import SampleBudget
from harness.results.schema import (
    AnswerCounts,
    CanaryReading,
    Cell,
    Counters,
    Environment,
    GpuUse,
    IndexFacts,
    JobProvenance,
    Observed,
    Placement,
    Result,
    ResultSpec,
    job_key,
)
from harness.untrusted import ForeignText, foreign


def as_record(kind: type[Any], *values: Any, **named: Any) -> Any:
    """Return a record of these plain values, read as a stored one is: its free texts are strangers'."""
    names = [each.name for each in fields(kind)]
    return TypeAdapter(kind).validate_python({**dict(zip(names, values, strict=False)), **named})


def as_foreign(kind: type[Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the changes with the free texts of a record marked as strangers'."""
    free = {each.name for each in fields(kind) if re.search(r"ForeignText|\bText\b", str(each.type))}
    return {name: _marked(value) if name in free else value for name, value in changes.items()}


def _marked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _marked(part) for name, part in value.items()}
    return ForeignText(value) if isinstance(value, str) else value


ENVIRONMENT: Environment = as_record(Environment, "CPU", "x86_64", 4, 2**34, "6.1", 1, "20.10", "0.1", None)
MACHINE: Machine = as_record(
    Machine, "AMD EPYC 9B14", "x86_64", "6.18.5", 1, "20.10.24", "0.1.0", "0123456789abcdef", (), None, 4
)
PLACEMENT = Placement((0,), (0,), True, (1, 2, 3), True)
# Never to be changed: golden files hold it, and a golden key is made of it.
GOLDEN_SPEC = ResultSpec(
    cell=Cell("demo", "bm25", "tiny", "single_stream", "cpu1-mem1"),
    protocol="santhanam2023",
    envelope=Envelope("cpu1-mem1", 1, 1 << 30),
    isolation=CONTAINER.name,
    params={"k1": 0.9},
    recipe="sha256:1",
    index_key="i",
    corpus_sha256="c",
    qrels_sha256="q",
    sample_sha256="s",
    warmup_sha256="w",
    sample_size=4,
    warmup_queries=2,
    trials=2,
    k=3,
    seed=7,
)
# What the paper's protocol asks for.
SPEC = replace(
    GOLDEN_SPEC,
    cell=Cell("s", "bm25", "scifact", "single_stream", "cpu1-mem1"),
    params={},
    sample_size=300,
    warmup_queries=10,
    trials=5,
    k=10,
    seed=1,
)


@dataclass(frozen=True)
class FakeJob:
    """A stored job in memory, in a folder only if one is given."""

    result: Result
    folder: Path = Path("/results/job")
    table: pa.Table | None = field(default=None, compare=False)
    queries: tuple[str, ...] = ()
    origin: str | None = None

    def samples(self, budget: SampleBudget | None = None) -> pa.Table:
        assert self.table is not None, "nothing here should read samples"
        return self.table

    @property
    def run_path(self) -> Path | None:
        return self.file("run.trec.gz")

    def file(self, name: str) -> Path | None:
        path = self.folder / name
        return path if path.exists() else None

    def qrels_path(self) -> Path:
        return self.folder.parent / "qrels.trec.gz"

    def sample_ids(self) -> tuple[str, ...]:
        return self.queries

    def rank(self, rankings: dict[str, Sequence[str]], *, name: str = "run", tag: str = "x") -> None:
        """Write the run, or that of the first stage."""
        lines = [
            f"{query} Q0 {document} {rank} {-rank}.0 {tag}\n"
            for query, documents in rankings.items()
            for rank, document in enumerate(documents, 1)
        ]
        (self.folder / f"{name}.trec.gz").write_bytes(gzip.compress("".join(lines).encode()))


def at(minute: int) -> str:
    """Return the time ``minute`` minutes past ten, as a result writes it."""
    return f"2026-11-20T10:{minute:02}:00+00:00"


def result(outcome: Outcome = Outcome.OK, *, detail: str | None = None, minute: int = 0, **changes: Any) -> Result:
    """Return a clean result; fields of the spec and of the result may be changed."""
    spec = replace(SPEC, **{key: changes.pop(key) for key in list(changes) if key in ResultSpec.__dataclass_fields__})
    whole = Result(
        key=job_key(spec),
        spec=spec,
        outcome=outcome,
        detail=foreign(detail),
        started_at=at(minute),
        wall_s=9.0,
        environment=ENVIRONMENT,
        provenance=JobProvenance(image_digest="sha256:1"),
        page_cache=ForeignText("dropped"),
        observed=Observed(throttled_periods=0, placement=PLACEMENT, counters=quiet()),
        answers=AnswerCounts(trials_finished=spec.trials, ranking_disagreements=0)
        if outcome is Outcome.OK
        else AnswerCounts(),
    )
    return nested(whole, changes)


def nested(whole: Any, changes: dict[str, Any]) -> Any:
    """Return a record with changes to its own fields and to fields of the records in it, each by its bare name.

    A result has a measurement only if one of its facts is given.
    """
    parts = {"observed": Observed, "answers": AnswerCounts, "provenance": JobProvenance, "measured": Measurement}
    for name, kind in parts.items():
        own = {each.name for each in fields(kind)} - {each.name for each in fields(whole)}
        inner = {key: changes.pop(key) for key in list(changes) if key in own}
        if inner:
            before = getattr(whole, name) or Measurement(changes.get("outcome", whole.outcome), None, None)
            changes[name] = replace(before, **as_foreign(kind, inner))
    return replace(whole, **as_foreign(type(whole), changes))


def job(minute: int = 0, outcome: Outcome = Outcome.OK, *, detail: str | None = None, **changes: Any) -> FakeJob:
    """Return an attempt that started ``minute`` minutes past ten, without readable samples."""
    return FakeJob(result(outcome, detail=detail, minute=minute, **changes))


def row(**changes: Any) -> Row:
    """Return a clean, ok row without figures and without a price; fields of its records may be changed by ``ROW``."""
    plain = Row(
        suite="quickstart",
        system="bm25",
        dataset="scifact",
        scenario="single_stream",
        profile="cpu1-mem1",
        isolation=CONTAINER,
        outcome=Outcome.OK,
        detail=None,
        validity=Validity.CLEAN,
        key="0011223344556677",
        started_at=at(0),
        machine=MACHINE,
        cpus=1,
        memory_limit_bytes=1 << 30,
        gpus=0,
        price=None,
        price_note=None,
        k=10,
        sample_sha256="s",
        corpus_sha256="c",
        qrels_sha256="q",
    )
    return row_with(plain, **changes)


# Fields of the records in a row, by the flat names that tests give.
ROW = {
    **{f"{name}_s": f"latency.{name}_s" for name in ("p50", "p95", "p99", "like_queries", "these_queries", "at_most")},
    **{f"{name}_s": f"latency.{name}_s" for name in ("service", "stages", "spread", "trial_means", "trial_spread")},
    "latency_mean_s": "latency.mean_s",
    **{f"peak_{name}_bytes": f"resources.peak_{name}_bytes" for name in ("anon", "mapped", "cgroup", "gpu")},
    **{name: f"resources.{name}" for name in ("gpu_energy_j", "load_s", "first_query_s")},
    "index_bytes": "index.size_bytes",
    "index_build_s": "index.build_s",
    "index_parts_s": "index.parts_s",
    "corpus_documents": "index.documents",
    **{f"build_{name}": f"index.{name}" for name in ("envelope", "machine", "validity", "findings")},
    "usd_per_million": "cost.sequential",
    "usd_per_million_saturated": "cost.saturated",
    "usd_tokens_per_million": "cost.tokens",
    "usd_build_per_million_documents": "cost.build",
    "usd_storage_per_month": "cost.storage_per_month",
    **{name: f"cost.{name}" for name in ("token_price", "build_price")},
    "queries_judged": "judged.queries",
    "queries_unjudged": "judged.unjudged",
    **{name: f"judged.{name}" for name in ("unjudged_depth", "unjudged_share", "rejudged")},
}


def row_with(before: Row, **changes: Any) -> Row:
    """Return a row with changes to its fields and to fields of its records (``ROW``)."""
    flat = {name: changes.pop(name) for name in list(changes) if name in ROW}
    for name, value in flat.items():
        record, _, field_name = ROW[name].partition(".")
        changes[record] = replace(changes.get(record, getattr(before, record)), **{field_name: value})
    return replace(before, **as_foreign(Row, changes))


def price(instance_type: str, usd_per_hour: float, cpus: int, memory_bytes: int) -> Price:
    """Return an on-demand arm64 type with July prices."""
    where = ("us-east-1", "on-demand")
    return Price(instance_type, "arm64", cpus, memory_bytes, *where, usd_per_hour, "2026-07-20")


def table(rows: Sequence[Row], measures: tuple[str, ...] = ("RR@10",), **changes: Any) -> Table:
    """Return a table with the prices of ``price``."""
    formula = "US$ per million = time x money"
    return Table(tuple(rows), measures, "aws", "us-east-1", "2026-07-20", "made up", formula, **changes)


def compare_by(values: Mapping[str, PerQuery] | None = None) -> Compare:
    """Return the tests of rows with these values by query, by default none."""
    return ReadResults(table(()), lambda: values or {}).compare


def canary(cpu_s: float = 0.010, memory_s: float = 0.020, disk_s: float | None = 0.005) -> CanaryReading:
    return CanaryReading("between", 0, 0.1, cpu_s, memory_s, disk_s)


def gpu(**changes: Any) -> GpuUse:
    """Return NVML's counts of a GPU that a job had to itself for ten seconds."""
    calm = GpuUse(
        wall_s=10.0,
        energy_j=700.0,
        readings=40,
        sm_clock_mhz=1980.0,
        clock_reasons={"gpu_idle": 12},
        foreign_processes=0,
        foreign_bytes=0,
    )
    return replace(calm, **changes)


def quiet(**changes: Any) -> Counters:
    """Return the kernel's counts on a quiet machine, for one CPU and ten seconds."""
    calm = Counters(
        wall_s=10.0,
        cpu_s=9.5,
        foreign_cpu_s=0.1,
        steal_s=0.01,
        wait_s=0.05,
        throttled_s=0.0,
        swap_bytes=0,
        major_faults=0,
    )
    return replace(calm, **changes)


def build(**changes: Any) -> IndexFacts:
    """Return an index that took ten seconds to build on the machine of ``result``, which was quiet."""
    calm = IndexFacts(
        10.0,
        8 << 20,
        "content",
        SPEC.envelope,
        isolation=CONTAINER.name,
        started_at=at(0),
        environment=ENVIRONMENT,
        observed=Observed(throttled_periods=0, canary=(canary(), canary()), counters=quiet(), placement=PLACEMENT),
    )
    built: IndexFacts = nested(calm, changes)
    return built


def samples(
    latency_s: NDArray[np.float64],
    *,
    first_trial: int = 0,
    names: Sequence[str] | None = None,
    seed: int | None = None,
    repeats: Sequence[tuple[int, float]] = (),
    **columns: Sequence[int | None],
) -> pa.Table:
    """Return a job's samples: warm-up that took hours, the trials, repeats.

    Args:
        latency_s: shape (trials, queries).
        first_trial: number of the first of them.
        names: of the queries.
        seed: each trial asks in a random order of its own; ``None``: in the order of the names.
        repeats: query and seconds, each asked twice in a row.
        columns: further whole numbers of the timed rows, in the order of writing.
    """
    trials, queries = latency_s.shape
    names = names or [f"q{number:04}" for number in range(queries)]
    rng = np.random.default_rng(seed)
    rows = [("w", -1, 3600.0)] * 10
    for trial in range(trials):
        order = range(queries) if seed is None else rng.permutation(queries)
        rows += [(names[query], first_trial + trial, float(latency_s[trial, query])) for query in order]
    rows += [(names[query], -2, seconds) for query, seconds in repeats for _ in range(2)]
    before, after = [None] * 10, [None] * (2 * len(repeats))
    return pa.table(
        {
            "query_id": pa.array([name for name, _, _ in rows], pa.string()).dictionary_encode(),
            "trial": pa.array([trial for _, trial, _ in rows], pa.int32()),
            "warmup": [trial == -1 for _, trial, _ in rows],
            "latency_ns": pa.array([round(seconds * 1e9) for _, _, seconds in rows], pa.int64()),
            **{name: pa.array([*before, *values, *after], pa.int64()) for name, values in columns.items()},
        }
    )


def timed(*tables: pa.Table) -> timings.Timings:
    """Return the samples of one cell's jobs, numbered in order."""
    return timings.read(enumerate(tables))
