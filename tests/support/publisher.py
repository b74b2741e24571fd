"""Puts whole results folders on disk, through the real store: scripted latencies and rankings of any systems."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from harness.driver.records import Envelope, Outcome
from harness.results.reader import FIRST_STAGE
from harness.results.schema import Cell, IndexFacts, Memory, SweepPoint, job_key
from harness.results.store import Store
from harness.results.suite_record import SuiteRecord
from tests.support import sample_records

MIB = 2**20
# Hashes in name alone: files are found by them.
_QRELS, _SAMPLE = "a" * 64, "b" * 64
# Of a first stage.
DEPTH = 20
QUERIES = tuple(f"q{number:03}" for number in range(140))


@dataclass(frozen=True)
class Made:
    """A cell: its latency, the rank of each query's judged document, and its outcome.

    Query i takes ``latency_ms`` x (1 + i / 1400); ``ranks`` repeat over the queries, 0 for a document not found.
    ``first`` are the ranks of a first stage, 20 deep, that the system ``first_name`` ran; ``counts`` are the same for
    every query, and ``staged`` is the share of the latency that the stages ``retrieve`` and ``score`` claim.
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
    started: int = 0  # minutes past ten
    first: Sequence[int] = ()
    first_name: str = "bm25"
    counts: Mapping[str, int] = field(default_factory=dict)
    params: Mapping[str, int | str] = field(default_factory=dict)
    staged: float = 1.0
    k: int = 10
    sweep: SweepPoint | None = None
    models: tuple[str, ...] = ()


def put(
    root: Path,
    *cells: Made,
    suite: str = "quick",
    queries: tuple[str, ...] = QUERIES,
    measures: tuple[str, ...] = (),
    firstp: Mapping[str, str] = {},
    exact: Mapping[str, str] = {},
    seeds: Mapping[str, str] = {},
) -> Path:
    """Store these cells below ``root``; returns it."""
    store = Store(root, suite)
    with store.held():
        judged = "".join(f"{query} 0 right 1\n" for query in queries)
        sample = json.dumps([{"query_id": query, "text": query} for query in queries])
        store.keep_inputs(judged.encode(), _QRELS, {_SAMPLE: sample})
        record = SuiteRecord(measures=measures, firstp=dict(firstp), exact=dict(exact), seeds=dict(seeds))
        store.keep_suite(record, {})
        for cell in cells:
            for job in range(cell.jobs):
                _put(store, cell, job, suite, queries)
    return root


def _put(store: Store, made: Made, job: int, suite: str, queries: tuple[str, ...]) -> None:
    cpus, memory, small = re.findall(r"^cpu(\d+)-mem(\d+)(m?)", made.profile)[0]
    envelope = Envelope(made.profile, int(cpus), int(memory) * (MIB if small else 1024 * MIB))
    ok = made.outcome is Outcome.OK
    result = sample_records.result(
        made.outcome,
        detail=None if ok else "killed by the kernel at the memory limit",
        minute=made.started,
        cell=Cell(suite, made.system, made.dataset, "single_stream", made.profile),
        envelope=envelope,
        sample_size=len(queries),
        qrels_sha256=_QRELS,
        sample_sha256=_SAMPLE,
        trials=1,
        jobs=made.jobs,
        job=job,
        k=made.k,
        params={**({"depth": DEPTH} if made.first else {}), **made.params},
    )
    facts = {
        "key": job_key(result.spec),
        "index": IndexFacts(3.0, 8 * MIB, "x", envelope),
        "memory": Memory(peak_anon_bytes=200 * MIB, peak_cgroup_bytes=250 * MIB) if ok else Memory(),
        "load_s": 1.25,
        "first_query_s": 0.5,
        "corpus_documents": 1000,
        "sweep": made.sweep,
        "models": made.models,
        "canary": (sample_records.canary(made.canary_s),) * 2,
    }
    result = sample_records.nested(result, facts)
    if not ok:
        store.put(result, None, None, b"")
        return
    latency_s = made.latency_ms / 1e3 * (1 + np.arange(len(queries)) / 1400) * (1 + made.jitter * (job - 1))
    columns: dict[str, list[int]] = {
        f"count_{name}": [number] * len(queries) for name, number in {**made.counts}.items()
    }
    if made.first:
        halves = np.round(latency_s * 1e9 * made.staged / 2).astype(int).tolist()
        columns |= {"stage_retrieve_ns": halves, "stage_score_ns": halves}
    samples = sample_records.samples(latency_s[np.newaxis, :], names=queries, **columns)
    further = {FIRST_STAGE: _run(made.first, queries, made.first_name, DEPTH)} if made.first else {}
    store.put(result, samples, _run(made.ranks, queries, "".join(made.system.split()), made.k), b"said", further)


def _run(ranks: Sequence[int], queries: tuple[str, ...], tag: str, depth: int) -> bytes:
    lines = []
    for number, query in enumerate(queries):
        right = ranks[number % len(ranks)]
        for rank in range(1, depth + 1):
            document = "right" if rank == right else f"wrong{rank}"
            lines.append(f"{query} Q0 {document} {rank} {depth + 1 - rank}.0 {tag}\n")
    return "".join(lines).encode()
