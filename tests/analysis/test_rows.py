"""Rows of the table: figures, notes and omissions of each cell."""

from __future__ import annotations

import gzip
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.analysis import axes
from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.rows import build_rows
from harness.analysis.table import Cost, IndexFigures, Judged, Latency, Resources, Table, Validity
from harness.driver.records import Outcome
from harness.estimate import Estimate
from harness.pricing.prices import Snapshot
from harness.results import attempts
from harness.results.isolation import CONTAINER, PROCESS
from harness.results.schema import Cell, GpuUse
from tests.support import sample_records
from tests.support.sample_records import at, build
from tests.support.stored_jobs import ENVELOPES, MIB, QUERIES, Maker, build_table, one, result, samples


def test_row_matches_the_calculation_by_hand(make: Maker, snapshot: Snapshot) -> None:
    row = one([make()], snapshot)
    # 2 ms + the mean of 0, 0.01, ..., 1.39 ms; warm-up hours play no part.
    assert row.latency.mean_s.value == pytest.approx(2.695e-3)
    like = row.latency.like_queries_s["mean"]
    assert like.low is not None and like.high is not None
    assert 2.6e-3 < like.low < 2.695e-3 < like.high < 2.8e-3
    # One process: what holds for fresh ones is not known, nor what that costs.
    alone = "an interval needs 3 whole processes, there is 1"
    for figure in (
        row.latency.mean_s,
        row.latency.p50_s,
        row.latency.p95_s,
        row.usd_per_million,
        row.latency.these_queries_s["mean"],
    ):
        assert (figure.low, figure.high, figure.reason) == (None, None, alone)
    assert row.latency.p50_s.value == pytest.approx(2.69e-3)
    assert row.latency.p95_s.value == pytest.approx(3.32e-3)
    assert (row.latency.p99_s.value, row.latency.p99_s.reason) == (None, "p99 needs 662 queries, timed 140")
    assert {name: figure.value for name, figure in row.measures.items()} == {
        "RR@10": pytest.approx(0.5),
        "Success@10": pytest.approx(1.0),
        "nDCG@10": pytest.approx(1 / math.log2(3)),
    }
    assert row.price is not None
    assert (row.price.instance_type, row.price.usd_per_hour) == ("c7a.medium", 0.05132)
    scale = 0.05132 / 3600 * 1e6
    assert row.usd_per_million.value == pytest.approx(2.695e-3 * scale)
    assert (row.queries, row.trials, row.judged.queries) == (140, 5, 140)
    memory = row.resources
    assert (memory.peak_anon_bytes, memory.peak_cgroup_bytes, memory.peak_gpu_bytes) == (200 * MIB, 250 * MIB, None)
    assert (row.index.size_bytes, row.resources.load_s, row.resources.first_query_s) == (8 * MIB, 1.25, 0.5)
    assert (row.outcome, row.validity, row.notes) == (Outcome.OK, Validity.CLEAN, ())
    assert row.latency.trial_spread_s == pytest.approx(0.0, abs=1e-12)


def test_row_of_a_hybrid_has_the_build_time_of_each_component(make: Maker, snapshot: Snapshot) -> None:
    index = result("bm25", "cpu1-mem1", Outcome.OK).index
    assert index is not None
    joined = replace(index, build_s=8.0, components={"bm25": index, "minilm": replace(index, build_s=4.0)})
    row = one([make(changes={"index": joined})], snapshot)
    assert (row.index.build_s, row.index.parts_s) == (8.0, {"bm25": 3.0, "minilm": 4.0})
    assert row.index.envelope == index.envelope and row.cost.build.value is None
    other = replace(index, envelope=replace(index.envelope, cpus=9))
    assert one([make(changes={"index": replace(joined, components={"bm25": other})})], snapshot).index.envelope is None


@pytest.mark.parametrize(
    ("params", "libraries", "names"),
    [
        (
            {"backend": "onnxruntime-int8", "document_backend": "openvino-bf16"},
            {},
            ("onnxruntime-int8", "openvino-bf16"),
        ),
        ({"backend": "openvino-bf16"}, {"openvino_precision": "bf16"}, ("openvino-bf16", None)),
        ({"backend": "openvino-bf16"}, {"openvino_precision": "f32"}, ("openvino-bf16 in float32", None)),
        ({"backend": "openvino"}, {"openvino_precision": "f32"}, ("openvino", None)),
        ({}, {"torch": "2.13.0"}, ("torch", None)),
        (
            {"a.backend": "openvino-bf16", "b.backend": "onnxruntime-int8", "b.document_backend": "torch"},
            {"a.openvino_precision": "f32", "b.onnxruntime": "1.31.1", "c.torch": "2.13.0", "d.lucene": "10.3"},
            ("a: openvino-bf16 in float32, b: onnxruntime-int8, c: torch", "b: torch"),
        ),
        ({"k1": 0.9}, {"lucene": "10.3"}, (None, None)),
    ],
)
def test_row_names_the_backends_that_ran(
    make: Maker,
    snapshot: Snapshot,
    params: dict[str, Any],
    libraries: dict[str, str],
    names: tuple[str | None, str | None],
) -> None:
    row = one([make(params=params, changes={"libraries": libraries})], snapshot)
    assert (row.backend, row.document_backend) == names


def test_row_names_its_stand_in_for_any_outcome(make: Maker, snapshot: Snapshot) -> None:
    changes = {"stand_in": "a small model"}
    assert one([make(changes=changes)], snapshot).stand_in == "a small model"
    assert one([make("dpr", outcome=Outcome.OOM, changes=changes)], snapshot).stand_in == "a small model"
    assert one([make("x")], snapshot).stand_in is None


@pytest.mark.slow
def test_gpu_energy_needs_readings_of_all_jobs(make: Maker, snapshot: Snapshot) -> None:
    def energy_j(*measured: float | None) -> float | None:
        jobs = [
            make(
                base_ms=2.0, trials=1, job=number, jobs=2, changes={"gpu": GpuUse(energy_j=each), "trials_finished": 1}
            )
            for number, each in enumerate(measured)
        ]
        return one(jobs, snapshot).resources.gpu_energy_j

    assert energy_j(700.0, 701.5) == 1401.5
    assert energy_j(700.0, None) is None
    assert one([make(base_ms=2.0)], snapshot).resources.gpu_energy_j is None, "a job without GPUs"


def test_leaderboard_cost_has_the_interval_of_the_report(make: Maker, snapshot: Snapshot) -> None:
    row = one([make(trials=1, base_ms=2.0 + number / 100, job=number, jobs=3) for number in range(3)], snapshot)
    row = sample_records.row_with(row, these_queries_s={"mean": Estimate(row.latency.mean_s.value, 0.0, 1.0)})
    assert row.usd_per_million.low is not None
    assert axes.axis("cost", "RR@10").read(row) == row.usd_per_million
    latency, factor = axes.axis("latency", "RR@10").read(row), row.price.usd_per_hour / 3.6
    assert (latency.low * factor, latency.high * factor) == pytest.approx(
        (row.usd_per_million.low, row.usd_per_million.high)
    )


def test_a_failed_cell_is_a_row_without_numbers(make: Maker, snapshot: Snapshot) -> None:
    row = one([make("minilm", "cpu1-mem256m", Outcome.OOM)], snapshot)
    assert (row.outcome, row.detail) == (Outcome.OOM, "killed by the kernel at 256 MiB")
    assert (row.latency, row.resources, row.cost, row.judged) == (Latency(), Resources(), Cost(), Judged())
    assert row.index == IndexFigures(documents=row.index.documents)
    assert (row.queries, row.throughput_qps, row.measures, row.counts) == (None, Estimate(None), {}, {})
    assert row.price is not None


def test_repetitions_are_never_pooled(make: Maker, snapshot: Snapshot) -> None:
    old = make(base_ms=2.0, changes={"started_at": at(0)})
    new = make(base_ms=4.0, changes={"started_at": at(5)}, repetition=1)
    row = one([old, new], snapshot)
    assert row.latency.mean_s.value == pytest.approx(4.695e-3)
    assert row.queries == 140
    assert row.notes == ("the newest of 2 ok results of this cell; not pooled",)


def test_each_isolation_has_its_own_row(make: Maker, snapshot: Snapshot) -> None:
    table = build_table([make(), make(isolation=PROCESS.name)], snapshot=snapshot)
    assert [row.isolation for row in table.rows] == [CONTAINER, PROCESS]
    assert table.rows[0].notes == ()
    assert "not comparable with container results" in table.rows[1].notes[0]


@pytest.mark.slow
def test_rows_are_sorted_by_dataset_profile_and_system(make: Maker, snapshot: Snapshot) -> None:
    jobs = [make(system, profile) for profile in ("cpu2-mem4", "cpu1-mem1", "cpu1-mem256m") for system in ("z", "a")]
    jobs.append(make(cell=Cell("quick", "z", "arguana", "single_stream", "cpu2-mem4"), profile="cpu2-mem4"))
    table = build_table(jobs, snapshot=snapshot)
    assert [(row.dataset, row.profile, row.system) for row in table.rows] == [
        ("arguana", "cpu2-mem4", "z"),
        ("scifact", "cpu1-mem256m", "a"),
        ("scifact", "cpu1-mem256m", "z"),
        ("scifact", "cpu1-mem1", "a"),
        ("scifact", "cpu1-mem1", "z"),
        ("scifact", "cpu2-mem4", "a"),
        ("scifact", "cpu2-mem4", "z"),
    ]
    assert build_table(reversed(jobs), snapshot=snapshot) == table


def test_broken_run_loses_only_the_measures(make: Maker, snapshot: Snapshot) -> None:
    job = make()
    (job.folder / "run.trec.gz").write_bytes(gzip.compress(b"q000 Q0 d\n"))
    row = one([job], snapshot)
    assert all(figure.value is None for figure in row.measures.values())
    assert "run.trec.gz:1: 3 fields" in str(row.measures["RR@10"].reason)
    assert row.latency.mean_s.value is not None
    (job.folder / "run.trec.gz").unlink()
    assert "holds no run" in str(one([job], snapshot).measures["RR@10"].reason)


def test_broken_samples_lose_only_the_latencies(make: Maker, snapshot: Snapshot) -> None:
    row = one([make(table=samples(1.0).drop_columns(["warmup"]))], snapshot)
    assert row.latency.mean_s.value is None
    assert row.usd_per_million.value is None
    assert "samples cannot be used" in str(row.latency.p50_s.reason)
    assert row.measures["RR@10"].value == pytest.approx(0.5)


def test_missing_judgements_and_hits_have_a_note(make: Maker, snapshot: Snapshot) -> None:
    job = make()
    (job.folder / "run.trec.gz").write_bytes(gzip.compress(b"q005 Q0 right 1 1 x\nq006 Q0 a 1 1 x\nq006 Q0 b 2 1 x\n"))
    qrels = "".join(f"{query} 0 right 1\n" for query in QUERIES[5:])
    (job.folder.parent / "qrels.trec.gz").write_bytes(gzip.compress(qrels.encode()))
    row = one([job], snapshot)
    assert row.judged.queries == 135
    assert row.judged.unjudged == QUERIES[:5]
    assert row.measures["RR@10"].value == pytest.approx(1 / 135)
    assert row.notes == (
        "5 (q000, q001, q002, ...) of 140 queries have no judgements, left out of the measures",
        "133 (q007, q008, q009, ...) judged queries got no hits and count 0",
        "1 (q006) queries have equal scores, judged in the order that was returned",
    )


def test_measures_that_look_deeper_than_the_run_have_a_note(make: Maker, snapshot: Snapshot) -> None:
    table = build_table([make()], snapshot=snapshot, measures=["AP", "P@5", "SetP", "nDCG", "R@100"])
    assert table.rows[0].notes == ("AP, nDCG, R@100: look deeper than the 10 hits retrieved",)


@pytest.mark.slow
def test_requested_jobs_are_shown(make: Maker, snapshot: Snapshot) -> None:
    five = make(base_ms=2.0, changes={"started_at": at(0)})
    two = make(base_ms=4.0, trials=2, changes={"started_at": at(5), "trials_finished": 2})
    other = make("minilm", base_ms=8.0)
    jobs = [five, two, other]

    def keys(table: Table) -> list[str]:
        return [row.key for row in table.rows]

    assert keys(build_table(jobs, snapshot=snapshot)) == [two.result.key, other.result.key]
    asked = build_table(jobs, snapshot=snapshot, keys={five.result.key})
    assert keys(asked) == [five.result.key, other.result.key]
    assert asked.rows[0].latency.mean_s.value == pytest.approx(2.695e-3)
    assert asked.rows[0].notes == ("1 result of another spec (protocol) is stored beside; not pooled",)


def test_requested_jobs_are_compared_with_the_default_choice(make: Maker) -> None:
    old = make(base_ms=2.0, changes={"started_at": at(0)})
    new = make(base_ms=4.0, changes={"started_at": at(5)}, repetition=1)
    other = make("minilm", base_ms=8.0)
    jobs = [old, new, other]
    assert attempts.are_default(jobs, {new.result.key, other.result.key})
    assert not attempts.are_default(jobs, {old.result.key, other.result.key})


def test_rows_have_their_values_by_query(make: Maker) -> None:
    built = build_rows([make(), make("minilm", base_ms=4.0), make("dead", outcome=Outcome.OOM)], JobEvaluator())
    keys = {row.system: row.key for row in built.table.rows}
    by_key = built.per_query
    assert set(by_key) == {keys["bm25"], keys["minilm"]}
    minilm = by_key[keys["minilm"]]
    assert minilm.query_ids == QUERIES
    np.testing.assert_allclose(minilm.latency_s, (4.0 + np.arange(140) / 100) / 1e3)
    np.testing.assert_array_equal(minilm.measures["RR@10"], np.full(140, 0.5))
    assert minilm.quantiles_s[0] == pytest.approx(4.0e-3) and minilm.quantiles_s[-1] == pytest.approx(5.39e-3)
    assert len(minilm.quantiles_s) == 51 and list(minilm.quantiles_s) == sorted(minilm.quantiles_s)


def test_measures_have_intervals_over_queries(make: Maker) -> None:
    job = make()
    half = {query: ("right", "wrong") if number % 2 else ("wrong",) for number, query in enumerate(QUERIES)}
    job = replace(job, folder=make.folder / "half")
    job.folder.mkdir()
    job.rank(half)
    (row,) = build_rows([job], JobEvaluator(("RR@10", "NumQ"))).table.rows
    rr = row.measures["RR@10"]
    error = 0.5 / 140**0.5
    assert rr.value == 0.5 and rr.low == pytest.approx(0.5 - 1.98 * error, abs=0.01)
    assert rr.high == pytest.approx(0.5 + 1.98 * error, abs=0.01)
    assert row.measures["NumQ"].low is None  # a sum has no mean over queries


def test_row_has_the_machine_and_the_verdict_of_its_build(make: Maker, snapshot: Snapshot) -> None:
    quiet = build(envelope=ENVELOPES["cpu2-mem4"])
    loud = sample_records.nested(quiet, {"counters": sample_records.quiet(foreign_cpu_s=4.0)})
    jobs = [make("a", changes={"index": quiet}), make("b", changes={"index": loud}), make("c")]
    jobs += [make("d", outcome=Outcome.OOM, changes={"index": loud})]
    rows = {row.system: row for row in build_table(jobs, snapshot=snapshot).rows}
    assert {name: row.index.validity.value for name, row in rows.items()} == {
        "a": "clean",
        "b": "noisy",
        "c": "unknown",
        "d": "unknown",
    }
    assert [finding.cause.value for finding in rows["b"].index.findings] == ["foreign_cpu"]
    assert rows["b"].validity is rows["a"].validity, "a search does not suffer from its build"
    assert not any("build" in note for note in rows["b"].notes)
    assert rows["a"].index.machine is not None and rows["a"].index.machine.cpu_model == "CPU"
    assert rows["c"].index.machine is None


def test_build_machine_is_unknown_if_a_component_was_built_on_another(make: Maker, snapshot: Snapshot) -> None:
    def machine(instance_type: str | None, commit: str | None = None) -> str | None:
        other = replace(sample_records.ENVIRONMENT, instance_type=instance_type, harness_commit=commit)
        index = build(components={"bm25": build(environment=other)})
        built = one([make(changes={"index": index})], snapshot).index.machine
        return None if built is None else built.cpu_model

    assert (machine(None), machine(None, commit="later"), machine("r6g.large")) == ("CPU", "CPU", None)
