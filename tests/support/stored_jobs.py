"""Makes stored jobs in a temporary folder, with runs and judgements, for tests of tables (fixture ``make``)."""

from __future__ import annotations

import gzip
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.analysis import row_pricing
from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.rows import build_rows
from harness.analysis.table import Row, Table
from harness.driver.records import Envelope, Outcome
from harness.evaluation import measure_names
from harness.pricing.prices import Snapshot
from harness.pricing.serverless import ServerlessPrices
from harness.results.reader import StoredJob
from harness.results.schema import Cell, Environment, IndexFacts, Memory, Result
from tests.support import sample_records
from tests.support.sample_records import FakeJob

MIB = 2**20


QUERIES = tuple(f"q{number:03}" for number in range(140))


def samples(base_ms: float, trials: int = 5, queries: tuple[str, ...] = QUERIES) -> pa.Table:
    """Return scripted latencies: query i takes base + i/100 ms in every trial."""
    one = (base_ms + np.arange(len(queries)) / 100) / 1e3
    return sample_records.samples(np.tile(one, (trials, 1)), names=queries)


ENVELOPES = {
    "cpu1-mem1": Envelope("cpu1-mem1", 1, 1024 * MIB),
    "cpu1-mem256m": Envelope("cpu1-mem256m", 1, 256 * MIB),
    "cpu2-mem4": Envelope("cpu2-mem4", 2, 4096 * MIB),
    "gpu99": Envelope("gpu99", 1, 1024 * MIB, gpus=99),
}


def result(system: str, profile: str, outcome: Outcome, **spec: Any) -> Result:
    fields: dict[str, Any] = {
        "cell": Cell("quick", system, "scifact", "single_stream", profile),
        "envelope": ENVELOPES[profile],
        "sample_size": len(QUERIES),
        "seed": 7,
    }
    made = sample_records.result(outcome, **{**fields, **spec})
    stored: Result = sample_records.nested(
        made,
        {
            "detail": None if outcome is Outcome.OK else "killed by the kernel at 256 MiB",
            "environment": sample_records.as_record(
                Environment, "Test CPU", "x86_64", 2, 2**34, "6.18", 1, "20.10.24", "0.1.0", "abcdef0123456789"
            ),
            "index": IndexFacts(3.0, 8 * MIB, "x", ENVELOPES["cpu2-mem4"]),
            "memory": Memory(peak_anon_bytes=200 * MIB, peak_cgroup_bytes=250 * MIB),
            "load_s": 1.25,
            "first_query_s": 0.5,
            "placement": None,
        },
    )
    return stored


class Maker:
    """Makes jobs in a temporary folder; every query's judged document is ranked second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made = 0
        qrels = "".join(f"{query} 0 right 1\n" for query in QUERIES)
        (folder / "qrels.trec.gz").write_bytes(gzip.compress(qrels.encode()))

    def __call__(
        self,
        system: str = "bm25",
        profile: str = "cpu1-mem1",
        outcome: Outcome = Outcome.OK,
        *,
        base_ms: float = 2.0,
        changes: dict[str, Any] | None = None,
        table: pa.Table | None = None,
        **spec: Any,
    ) -> FakeJob:
        self.made += 1
        folder = self.folder / f"job{self.made}"
        folder.mkdir()
        if outcome is Outcome.OK:
            run = "".join(f"{query} Q0 wrong 1 2.0 x\n{query} Q0 right 2 1.0 x\n" for query in QUERIES)
            (folder / "run.trec.gz").write_bytes(gzip.compress(run.encode()))
        if table is None:
            table = samples(base_ms) if outcome is Outcome.OK else samples(base_ms, trials=0)
        key = {"key": f"{self.made:016x}"}
        made = sample_records.nested(result(system, profile, outcome, **spec), {**key, **(changes or {})})
        return FakeJob(made, folder, table, QUERIES)


def build_table(
    jobs: Iterable[StoredJob],
    *,
    snapshot: Snapshot,
    measures: Sequence[str] = measure_names.DEFAULT,
    keys: Collection[str] | None = None,
    serverless: ServerlessPrices | None = None,
) -> Table:
    """Return the table of some jobs at these prices."""
    tariff = row_pricing.tariff(snapshot, serverless=serverless)
    return row_pricing.price(build_rows(jobs, JobEvaluator(measures), keys=keys).table, tariff)


def one(jobs: list[FakeJob], snapshot: Snapshot) -> Row:
    table = build_table(jobs, snapshot=snapshot)
    assert len(table.rows) == 1
    return table.rows[0]
