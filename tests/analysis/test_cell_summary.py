"""The jobs of one cell, pooled and described, as their row shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats

from harness.analysis import cell_summary, rows
from harness.analysis.table import Validity
from harness.driver.records import Outcome, Probe, ScenarioParams
from harness.pricing.prices import Snapshot
from harness.results.isolation import CONTAINER, PROCESS
from harness.results.schema import NULL_SYSTEM, Cell, Memory, Placement, Result, TrialCpu, TrialEnergy
from tests.support import sample_records
from tests.support.sample_records import FakeJob
from tests.support.stored_jobs import MIB, QUERIES, Maker, build_table, one


class Interleaved:
    """Makes the five jobs of one cell, each with one trial."""

    def __init__(self, make: Maker) -> None:
        self.make = make

    def __call__(self, *, trial_ms: tuple[float, ...] = (0, 0, 0, 0, 0), **more: Any) -> list[FakeJob]:
        changes = more.pop("changes", {})
        return [
            self.make(
                table=sample_records.samples(
                    np.array([[(2 + extra + number / 100) / 1e3 for number in range(140)]]),
                    first_trial=job,
                    names=QUERIES,
                    seed=job,
                    repeats=[(query, 0.003) for query in range(20)],
                ),
                protocol="interleaved",
                warmup_queries=20,
                jobs=5,
                job=job,
                trials=1,
                changes={"load_s": 1.0 + job, **changes},
                **more,
            )
            for job, extra in enumerate(trial_ms)
        ]


@pytest.fixture
def interleaved(make: Maker) -> Interleaved:
    return Interleaved(make)


def test_jobs_of_a_cell_form_one_row(interleaved: Interleaved, snapshot: Snapshot) -> None:
    jobs = interleaved(trial_ms=(0.0, 0.1, -0.1, 0.2, -0.2))
    jobs[3] = replace(
        jobs[3], result=sample_records.nested(jobs[3].result, {"memory": Memory(300 * MIB, 70 * MIB, 400 * MIB)})
    )
    row = one(jobs, snapshot)
    assert (row.queries, row.trials, row.jobs, row.attempts) == (140, 5, 5, 5)
    assert row.keys == tuple(job.result.key for job in jobs)
    assert (row.outcome, row.validity, row.notes) == (Outcome.OK, Validity.CLEAN, ())
    assert row.latency.mean_s.value == pytest.approx(2.695e-3)
    these = row.latency.these_queries_s["mean"]
    assert these.low is not None and these.high is not None
    # Student: 2.776 times the means' standard deviation of 0.158 ms, over the root of 5.
    assert (these.low, these.high) == pytest.approx((2.695e-3 - 0.1963e-3, 2.695e-3 + 0.1963e-3), rel=1e-3)
    assert row.latency.spread_s["job"].value == pytest.approx(0.1581e-3, rel=1e-3)
    assert row.latency.spread_s["residual"].value == pytest.approx(0.0, abs=1e-9)
    assert "coincide" in str(row.latency.spread_s["trial"].reason)
    assert row.latency.spread_s["query"].value == pytest.approx(0.4056e-3, rel=1e-3)
    memory = row.resources
    peaks = (memory.peak_anon_bytes, memory.peak_mapped_bytes, memory.peak_cgroup_bytes)
    assert peaks == (300 * MIB, 70 * MIB, 400 * MIB)
    assert row.resources.load_s == 3.0
    assert row.measures["RR@10"].value == pytest.approx(0.5)
    assert row.latency.at_most_s["p95"].value == pytest.approx(3.54e-3, rel=0.02)
    assert row.latency.at_most_s["p99"].reason == "p99 needs 662 queries, timed 140"
    assert build_table(reversed(jobs), snapshot=snapshot).rows == (row,)


@pytest.mark.slow
def test_cpu_time_of_a_query_is_the_counted_time_less_that_of_the_null_system(
    interleaved: Interleaved, make: Maker, snapshot: Snapshot
) -> None:
    jobs = [
        replace(
            job, result=sample_records.nested(job.result, {"trial_cpu": (TrialCpu(job.result.spec.job, cpu_s, 0.7),)})
        )
        for job, cpu_s in zip(interleaved(), (0.21, 0.21, 0.21, 0.28, 0.14), strict=True)
    ]
    row = one(jobs, snapshot)
    # 1.05 s over 5 x 140 queries; Student's 2.776 times a deviation of 0.3536 ms, over the root of 5.
    of_query = row.cpu.of_system_s
    assert of_query.value == pytest.approx(1.5e-3)
    assert (of_query.low, of_query.high) == pytest.approx((1.5e-3 - 0.439e-3, 1.5e-3 + 0.439e-3), rel=1e-3)
    assert row.price is not None and row.price.vcpus == 1
    assert row.cpu.busy_cpus == pytest.approx(0.3) and row.idle_share == pytest.approx(0.7)
    null = make(NULL_SYSTEM, base_ms=0.001, changes={"trial_cpu": (TrialCpu(0, 0.07, 0.1),)}, warmup_queries=20)
    (row,) = build_table([*jobs, null], snapshot=snapshot).rows
    # 0.5 of its 1.5 ms are harness's own: 0.2 CPUs of one remain.
    assert row.cpu.of_system_s.value == pytest.approx(1e-3) and row.idle_share == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("joules", "wall_s", "expected", "reason"),
    [
        # 105 J over 5 x 140 queries, and the interval of the CPU time above, 100 times as wide.
        ((21.0, 21.0, 21.0, 28.0, 14.0), 0.8, (0.15, 0.1061, 0.1939), None),
        ((21.0, 21.0, 21.0, 28.0, None), 0.8, (None,) * 3, "was not counted"),
        ((21.0, 21.0, 21.0, 28.0, -1.0), 0.8, (None,) * 3, "was not counted"),
        (
            (21.0, 21.0, 21.0, 28.0, 14.0),
            1.5,
            (None,) * 3,
            "was counted over 7.5 s for 3.5 s of trials; measure longer",
        ),
    ],
)
def test_energy_of_a_query_is_that_of_the_packages_over_the_trials(
    interleaved: Interleaved,
    snapshot: Snapshot,
    joules: tuple[float | None, ...],
    wall_s: float,
    expected: tuple[float | None, ...],
    reason: str | None,
) -> None:
    jobs = []
    for job, package_j in zip(interleaved(), joules, strict=True):
        number = job.result.spec.job
        energy = () if package_j is None else (TrialEnergy(number, package_j, wall_s),)
        changes = {"trial_cpu": (TrialCpu(number, 0.2, 0.7),), "trial_energy": energy}
        jobs.append(replace(job, result=sample_records.nested(job.result, changes)))
    found = one(jobs, snapshot).cpu.package_j
    ends = (found.value, found.low, found.high)
    assert tuple(None if end is None else round(end, 4) for end in ends) == expected
    assert (reason is None) == (found.reason is None) and (reason or "") in str(found.reason)


def test_cold_start_is_the_time_to_the_first_queries_and_the_first_answer(
    interleaved: Interleaved, snapshot: Snapshot
) -> None:
    jobs = interleaved(changes={"first_query_s": 0.25})
    assert one(jobs, snapshot).resources.cold_start_s is None, "earlier results have no such time"
    ready = zip(jobs, (1.5, 9.0, 1.0, 2.0, 1.75), strict=True)
    jobs = [replace(job, result=sample_records.nested(job.result, {"ready_s": ready_s})) for job, ready_s in ready]
    assert one(jobs, snapshot).resources.cold_start_s == 2.0


def test_cpu_time_is_missing_where_a_job_has_not_stored_it(interleaved: Interleaved, snapshot: Snapshot) -> None:
    first, *others = interleaved()
    first = replace(first, result=sample_records.nested(first.result, {"trial_cpu": (TrialCpu(0, 0.2, 0.7),)}))
    for jobs in (others, [first, *others]):
        row = one(jobs, snapshot)
        assert row.cpu.of_system_s.value is None and row.idle_share is None
        assert "measure it again" in str(row.cpu.of_system_s.reason)


def test_missing_jobs_make_a_row_noisy(interleaved: Interleaved, snapshot: Snapshot) -> None:
    row = one(interleaved()[:3], snapshot)
    assert row.validity is Validity.NOISY
    assert not row.transient
    assert "only 3 of 5 trials are in these numbers; run `harness run SUITE --only bm25" in row.notes[0]
    assert row.trials == 3


def test_jobs_that_rank_differently_have_a_note(interleaved: Interleaved, snapshot: Snapshot) -> None:
    jobs = interleaved()
    jobs[3].rank({query: ["wrong", "right"] if number else ["right", "wrong"] for number, query in enumerate(QUERIES)})
    row = one(jobs, snapshot)
    assert row.validity is Validity.NOISY
    assert row.notes[0].startswith("1 of 140 queries were ranked differently in different trials")
    assert row.measures["RR@10"].value == pytest.approx(0.5)  # the first trial's run


def test_verdicts_equal_those_of_rows_without_reading_runs(
    interleaved: Interleaved, make: Maker, snapshot: Snapshot
) -> None:
    drifting = interleaved(trial_ms=(0, 0, 0, 0, 2.0))
    failed = make("minilm", outcome=Outcome.OOM)
    for job in drifting:
        (job.folder / "run.trec.gz").write_bytes(b"no run at all")
    found = rows.verdicts([*drifting, failed])
    row = build_table([*drifting, failed], snapshot=snapshot).rows[0]
    verdict = found[drifting[0].result.spec.cell, CONTAINER.name]
    assert (verdict.validity, verdict.transient) == (row.validity, row.transient) == (Validity.NOISY, True)
    assert verdict.reasons == row.notes
    other = found[failed.result.spec.cell, CONTAINER.name]
    assert (other.validity, other.transient) == (Validity.CLEAN, False)


def test_verdicts_of_containers_and_processes_are_separate(make: Maker) -> None:
    jobs = [make(changes={"trials_finished": 3}), make(isolation=PROCESS.name)]
    found = {isolation: verdict.validity for (_, isolation), verdict in rows.verdicts(jobs).items()}
    assert found == {CONTAINER.name: Validity.NOISY, PROCESS.name: Validity.CLEAN}


def test_an_offline_row_has_a_throughput_and_no_latency(make: Maker, snapshot: Snapshot) -> None:
    latency = np.repeat(np.linspace(0.9, 1.1, 14), 10)[None, :]
    batch = np.repeat(range(14), 10).tolist()
    cell = Cell("quick", "bm25", "scifact", "offline", "cpu1-mem1")
    jobs = [
        make(
            cell=cell,
            trials=1,
            job=number,
            jobs=3,
            table=sample_records.samples(latency * (1 + number / 100), names=QUERIES, batch=batch),
        )
        for number in (-1, 0, 1)
    ]
    row = one(jobs, snapshot)
    assert row.throughput_qps.value == pytest.approx(10.0)
    assert row.throughput_qps.low is not None and row.throughput_qps.high is not None
    assert 9.5 < row.throughput_qps.low < 10 < row.throughput_qps.high < 10.5
    assert row.latency.mean_s.value is None
    assert "whole batch's" in str(row.latency.p95_s.reason)
    assert row.cost.sequential.value is None
    assert (row.queries, row.trials) == (140, 3)


def test_server_row_shows_the_latency_at_the_confirmed_rate(make: Maker, snapshot: Snapshot) -> None:
    latency = np.array([[0.002] * 140, [0.5] * 140, [0.003] * 140])
    service = np.full(3 * 140, 1_000_000).tolist()
    probes = (
        Probe(0, 100.0, 140, 0.002, 0, True, False),
        Probe(1, 200.0, 140, 0.5, 140, False, False),
        Probe(2, 100.0, 140, 0.003, 0, True, True),
    )
    cell = Cell("quick", "bm25", "scifact", "server", "cpu1-mem1")
    params = ScenarioParams(latency_target_s=0.05, latency_percentile=95.0)
    table = sample_records.samples(latency, names=QUERIES, service_ns=service)
    spec = {"cell": cell, "trials": 1, "scenario_params": params, "protocol": "mine"}
    row = one([make(table=table, changes={"probes": probes, "rate_qps": 100.0}, **spec)], snapshot)
    assert row.throughput_qps.value == 100.0
    assert row.latency.mean_s.value == pytest.approx(0.003)
    assert row.latency.p95_s.value == pytest.approx(0.003)
    assert row.latency.service_s is not None
    assert row.latency.service_s.mean_s.value == pytest.approx(0.001)
    assert row.validity is Validity.CLEAN
    assert "scenario server" in str(row.cost.sequential.reason)
    none = one([make(table=table, changes={"probes": probes[:2], "rate_qps": None}, **spec)], snapshot)
    assert none.latency.mean_s.reason == "no rate was confirmed, so there is no latency"
    assert none.validity is Validity.NOISY


def test_stages_are_shown_beside_the_latency(make: Maker, snapshot: Snapshot) -> None:
    latency = np.full((5, 140), 0.010)
    encode, retrieve = [6_000_000] * 700, [3_000_000] * 699 + [None]
    table = sample_records.samples(latency, names=QUERIES, stage_encode_ns=encode, stage_retrieve_ns=retrieve)
    row = one([make(table=table)], snapshot)
    assert list(row.latency.stages_s) == ["encode", "retrieve", "other"]
    assert row.latency.stages_s["encode"].mean_s.value == pytest.approx(0.006)
    assert row.latency.stages_s["retrieve"].p50_s.value == pytest.approx(0.003)
    assert row.latency.stages_s["retrieve"].mean_s.value == pytest.approx(0.003 * 699 / 700)
    assert row.latency.stages_s["other"].p50_s.value == pytest.approx(0.001), "10 ms less 6 and 3"
    assert row.latency.stages_s["other"].mean_s.value == pytest.approx(0.001 + 0.003 / 700), "one has no retrieve"
    assert row.latency.mean_s.value == pytest.approx(0.010)
    assert sum(timing.mean_s.value or 0 for timing in row.latency.stages_s.values()) == pytest.approx(0.010)
    assert row.notes == ("1 of 700 samples have no retrieve; the means count 0 for them",)
    more = sample_records.samples(latency, names=QUERIES, stage_encode_ns=encode, stage_rerank_ns=[5_000_000] * 700)
    expected = one([make(table=more)], snapshot)
    assert (expected.notes, expected.validity) == ((), Validity.CLEAN)
    assert expected.latency.stages_s["other"].mean_s.reason == "the stages of a sample sum to more than its time"


def test_queries_without_a_second_stage_count_in_the_means_of_its_stages_and_work(
    make: Maker, snapshot: Snapshot
) -> None:
    """Of 140 queries 7 find nothing to rerank; what an older adapter leaves out of their samples is 0."""
    idle = np.arange(140) < 7
    latency = np.tile(np.where(idle, 0.004, 0.010), (5, 1))
    samples_of = {
        "stage_retrieve_ns": np.full(140, 4_000_000),
        "stage_score_ns": np.where(idle, -1, 6_000_000),
        "count_pairs": np.where(idle, -1, 20),
        "count_flop": np.where(idle, -1, 1000),
        "count_parameters": np.where(idle, -1, 17),
    }
    columns = {name: [None if each < 0 else int(each) for each in [*values] * 5] for name, values in samples_of.items()}
    row = one([make(table=sample_records.samples(latency, names=QUERIES, **columns))], snapshot)
    assert row.counts == pytest.approx({"pairs": 19, "flop": 950, "parameters": 17})
    assert row.latency.stages_s["score"].mean_s.value == pytest.approx(0.0057)
    assert row.latency.mean_s.value == pytest.approx(0.0097)
    assert sum(timing.mean_s.value or 0 for timing in row.latency.stages_s.values()) == pytest.approx(0.0097)
    assert "35 of 700 samples have no score, flop, pairs; the means count 0 for them" in row.notes
    said = {name: [each or 0 for each in values] for name, values in columns.items()} | {"count_parameters": [17] * 700}
    again = one([make(table=sample_records.samples(latency, names=QUERIES, **said))], snapshot)
    assert (again.counts, again.latency.stages_s, again.notes) == (row.counts, row.latency.stages_s, ())


def test_shared_cpus_of_the_harness_are_a_validity_reason_of_the_row(make: Maker, snapshot: Snapshot) -> None:
    shared = Placement((0, 1), (0,), True, (0, 1), False)
    table = build_table([make(profile="cpu2-mem4", changes={"placement": shared})], snapshot=snapshot)
    assert table.rows[0].validity is Validity.NOISY
    assert table.rows[0].harness_apart is False
    assert "the harness had to share the job's CPUs (2 of 2)" in table.rows[0].notes[0]


def batched(*durations: float, first_trial: int = 0, size: int = 10) -> pa.Table:
    """Return one trial, with each batch's duration at each of its queries."""
    latency = np.repeat(durations, size)[None, :]
    return sample_records.samples(
        latency, first_trial=first_trial, batch=np.repeat(range(len(durations)), size).tolist()
    )


def test_offline_counts_each_batch_once() -> None:
    figure = cell_summary.offline_throughput(sample_records.timed(batched(1.0, 3.0)))
    assert figure.value == pytest.approx(20 / 4.0)
    assert (figure.low, figure.high) == (None, None)
    assert figure.reason == "an interval needs 3 whole processes, there is 1"


def test_offline_interval_over_processes_is_students_t_of_their_durations() -> None:
    jobs = [batched(1.0 + 0.1 * number, 3.0, first_trial=number) for number in range(5)]
    figure = cell_summary.offline_throughput(sample_records.timed(*jobs))
    low, high = scipy.stats.t.interval(0.95, 4, loc=4.2, scale=np.std([4.0, 4.1, 4.2, 4.3, 4.4], ddof=1) / 5**0.5)
    assert figure.value == pytest.approx(20 / 4.2)
    assert (figure.low, figure.high) == pytest.approx((20 / high, 20 / low))
    assert figure.reason == "interval for these queries, over 5 jobs"


def test_offline_trials_with_equal_batch_numbers_are_separate() -> None:
    latency = np.array([np.repeat([1.0, 2.0], 10), np.repeat([1.5, 2.5], 10)])
    table = sample_records.samples(latency, batch=np.tile(np.repeat([0, 1], 10), 2).tolist())
    figure = cell_summary.offline_throughput(sample_records.timed(table))
    assert figure.value == pytest.approx(40 / 7.0)


def test_offline_without_batches_has_no_throughput() -> None:
    assert (
        cell_summary.offline_throughput(sample_records.timed(sample_records.samples(np.ones((1, 20))))).reason
        == "no batches were timed"
    )


def served(*rates: float | None, **changes: Any) -> list[Result]:
    return [
        sample_records.result(job=number, jobs=len(rates), trials=1, rate_qps=rate, **changes)
        for number, rate in enumerate(rates)
    ]


@pytest.mark.parametrize(
    ("rates", "value", "low", "high", "reason"),
    [
        ((100.0, 120.0, 90.0), 100.0, 90.0, 120.0, "lowest and highest of 3 jobs; latencies were measured at each job"),
        ((100.0, 100.0), 100.0, None, None, "an interval needs 3 whole processes, there are 2"),
        ((100.0, 120.0), 100.0, None, None, "there are 2; latencies were measured at each job's own confirmed rate"),
        ((100.0,), 100.0, None, None, "an interval needs 3 whole processes, there is 1"),
        ((None,), None, None, None, "in 1 of 1 jobs no rate kept the latency target and kept it again"),
        ((0.0,), None, None, None, "in 1 of 1 jobs no rate kept"),
        ((None, 100.0, 120.0), 100.0, None, 120.0, "in 1 of 3 jobs no rate kept"),
        ((None, 100.0), None, None, None, "in 1 of 2 jobs no rate kept"),
        ((None, None, 120.0), None, None, None, "in 2 of 3 jobs no rate kept"),
        ((None, 100.0, 110.0, 120.0), 100.0, None, 120.0, "in 1 of 4 jobs no rate kept"),
    ],
)
def test_server_rate_is_the_median_and_counts_a_job_without_a_rate_as_lowest(
    rates: tuple[float | None, ...], value: float | None, low: float | None, high: float | None, reason: str
) -> None:
    figure = cell_summary.server_throughput(served(*rates))
    assert (figure.value, figure.low, figure.high) == (value, low, high)
    assert reason in str(figure.reason)


@pytest.mark.parametrize(
    ("rates", "value", "low", "high", "reason"),
    [
        ((90.0, 100.0, 110.0), 100.0, 90.0, 110.0, "lowest and highest of 3 jobs"),
        ((0.0, 100.0, 110.0), 100.0, None, 110.0, "lowest and highest of 3 jobs"),
        ((0.0, 0.0, 110.0), None, None, None, "no query was answered by 4 connections at once"),
        ((0.0,), None, None, None, "no query was answered"),
        ((100.0,), 100.0, None, None, "an interval needs 3 whole processes, there is 1"),
        ((None,), None, None, None, "no number of connections was tried"),
    ],
)
def test_a_job_of_a_service_that_answered_nothing_is_the_slowest(
    rates: tuple[float | None, ...], value: float | None, low: float | None, high: float | None, reason: str
) -> None:
    probes = (Probe(0, None, 10, 0.01, 0, True, False, streams=4),)
    found = cell_summary.connected_throughput(served(*rates, probes=probes))
    assert (found.value, found.low, found.high) == (value, low, high) and reason in str(found.reason)


def test_server_rate_counts_failed_checks_before_its_confirmation() -> None:
    tried = (Probe(0, 100.0, 10, 0.01, 9, False, False), Probe(1, 50.0, 10, 0.01, 0, True, False))
    failed, passed = Probe(2, 50.0, 10, 0.01, 9, False, True), Probe(3, 45.0, 10, 0.01, 0, True, True)
    assert "failed" not in str(cell_summary.server_throughput(served(45.0, probes=(*tried, passed))).reason)
    assert cell_summary.server_throughput(served(45.0, probes=(*tried, failed, passed))).reason == (
        "an interval needs 3 whole processes, there is 1; 1 check failed before"
    )
    assert "2 checks failed before" in str(
        cell_summary.server_throughput(served(45.0, 45.0, probes=(*tried, failed, passed))).reason
    )


def test_only_the_probe_that_confirmed_the_rate_is_described() -> None:
    def probe(trial: int, rate: float, *, passed: bool = True, check: bool = False) -> Probe:
        return Probe(trial, rate, 10, 0.01, 0, passed, check)

    probes = (
        probe(0, 50.0),
        probe(1, 100.0),
        probe(2, 200.0, passed=False),
        probe(3, 150.0),
        probe(4, 150.0, passed=False, check=True),
        probe(5, 100.0, check=True),
    )
    latency = np.arange(6.0)[:, None] + np.ones((6, 10))
    results = served(100.0, 100.0, probes=probes)
    results[1] = sample_records.nested(results[1], {"rate_qps": None})
    timings = sample_records.timed(sample_records.samples(latency), sample_records.samples(latency))
    found = cell_summary.confirming_samples(results, timings)
    assert found.trials == ((0, 5),)
    assert set(found.latency_s.tolist()) == {6.0}
    unchecked = served(150.0, probes=probes)
    assert (
        cell_summary.confirming_samples(unchecked, sample_records.timed(sample_records.samples(latency))).trials == ()
    )


@pytest.mark.parametrize("uncounted", [False, True])
def test_instructions_of_a_query_are_known_if_every_trial_has_them(
    interleaved: Interleaved, snapshot: Snapshot, make: Maker, uncounted: bool
) -> None:
    jobs = []
    for job, count in zip(interleaved(), (210_000, 210_000, 210_000, 280_000, 140_000), strict=True):
        number = job.result.spec.job
        used = TrialCpu(number, 0.2, 0.7, None if uncounted and number == 4 else count)
        jobs.append(replace(job, result=sample_records.nested(job.result, {"trial_cpu": (used,)})))
    null = make(NULL_SYSTEM, base_ms=0.001, changes={"trial_cpu": (TrialCpu(0, 0.07, 0.1, 70_000),)}, warmup_queries=20)
    (row,) = build_table([*jobs, null], snapshot=snapshot).rows
    found = row.cpu.of_system_instructions
    if uncounted:
        assert found.value is None and "some trials were not counted" in str(found.reason)
        return
    # 1,050,000 over 5 x 140 queries, of which the null system takes 500; the interval as that of the joules above.
    assert found.value == pytest.approx(1_000) and found.low == pytest.approx(1_061 - 500, abs=1)
