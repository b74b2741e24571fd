"""Puts whole results folders on disk, through the real store: scripted latencies and rankings of any systems."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from harness.records import Envelope, Outcome
from harness.results.schema import Cell, IndexFacts, Memory, job_key
from harness.results.store import Store
from tests.support import sample_records

MIB = 2**20
# Hashes in name alone: files are found by them.
_QRELS, _SAMPLE = "a" * 64, "b" * 64
QUERIES = tuple(f"q{number:03}" for number in range(140))


@dataclass(frozen=True)
class Made:
    """A cell: its latency, the rank of each query's judged document, and its outcome.

    Query i takes ``latency_ms`` x (1 + i / 1400); ``ranks`` repeat over the queries, 0 for a document not found.
    """

    system: str
    latency_ms: float
    ranks: Sequence[int] = (1,)
    profile: str = "cpu1-mem1"
    outcome: Outcome = Outcome.OK
    jobs: int = 3
    dataset: str = "scifact"
    jitter: float = 0.001
    canary_s: float = 0.010


def put(
    root: Path,
    *cells: Made,
    suite: str = "quick",
    queries: tuple[str, ...] = QUERIES,
    measures: tuple[str, ...] = (),
) -> Path:
    """Store these cells below ``root``; returns it."""
    store = Store(root, suite)
    with store.held():
        judged = "".join(f"{query} 0 right 1\n" for query in queries)
        sample = json.dumps([{"query_id": query, "text": query} for query in queries])
        store.keep_inputs(judged.encode(), _QRELS, {_SAMPLE: sample})
        store.keep_measures(measures)
        for cell in cells:
            for job in range(cell.jobs):
                _put(store, cell, job, suite, queries)
    return root


def _put(store: Store, made: Made, job: int, suite: str, queries: tuple[str, ...]) -> None:
    cpus, memory = made.profile.removeprefix("cpu").split("-mem")
    unit = MIB if memory.endswith("m") else 1024 * MIB
    envelope = Envelope(made.profile, int(cpus), int(memory.removesuffix("m")) * unit)
    ok = made.outcome is Outcome.OK
    result = sample_records.result(
        made.outcome,
        detail=None if ok else "killed by the kernel at the memory limit",
        cell=Cell(suite, made.system, made.dataset, "single_stream", made.profile),
        envelope=envelope,
        sample_size=len(queries),
        qrels_sha256=_QRELS,
        sample_sha256=_SAMPLE,
        trials=1,
        jobs=made.jobs,
        job=job,
    )
    result = replace(
        result,
        key=job_key(result.spec),
        index=IndexFacts(3.0, 8 * MIB, None, None, "x", envelope),
        memory=Memory(peak_anon_bytes=200 * MIB, peak_cgroup_bytes=250 * MIB) if ok else Memory(),
        load_s=1.25,
        first_query_s=0.5,
        corpus_documents=1000,
        canary=(sample_records.canary(made.canary_s),) * 2,
    )
    if not ok:
        store.put(result, None, None, b"")
        return
    latency_s = made.latency_ms / 1e3 * (1 + np.arange(len(queries)) / 1400) * (1 + made.jitter * (job - 1))
    store.put(result, sample_records.samples(latency_s[np.newaxis, :], names=queries), _run(made, queries), b"said")


def _run(made: Made, queries: tuple[str, ...]) -> bytes:
    lines = []
    for number, query in enumerate(queries):
        right = made.ranks[number % len(made.ranks)]
        for rank in range(1, 11):
            document = "right" if rank == right else f"wrong{rank}"
            lines.append(f"{query} Q0 {document} {rank} {11 - rank}.0 {made.system}\n")
    return "".join(lines).encode()
