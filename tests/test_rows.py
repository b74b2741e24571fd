import dataclasses
import gzip
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from harness import instances, rows
from harness.errors import FileError, UsageError
from harness.records import (
    Cell,
    Envelope,
    Environment,
    IndexFacts,
    Isolation,
    Memory,
    Outcome,
    Result,
    ResultSpec,
)
from harness.table import Row, Table, Validity

MIB = 2**20
QUERIES = tuple(f"q{number:03}" for number in range(140))


@dataclass(frozen=True)
class FakeJob:
    """What ``harness.store`` would read, from memory and a temporary folder."""

    folder: Path
    result: Result
    table: pa.Table
    queries: tuple[str, ...] = QUERIES

    def samples(self) -> pa.Table:
        return self.table

    @property
    def run_path(self) -> Path | None:
        path = self.folder / "run.trec.gz"
        return path if path.exists() else None

    def qrels_path(self) -> Path:
        return self.folder.parent / "qrels.trec.gz"

    def sample_ids(self) -> tuple[str, ...]:
        return self.queries


def samples(base_ms: float, trials: int = 5, queries: tuple[str, ...] = QUERIES) -> pa.Table:
    """Scripted latencies: query i takes base + i/100 ms in every trial; warm-up takes an hour."""
    timed = [(query, trial, number) for trial in range(trials) for number, query in enumerate(queries)]
    warm = [("w", -1, 0)] * 10
    return pa.table(
        {
            "query_id": [row[0] for row in warm + timed],
            "trial": pa.array([row[1] for row in warm + timed], pa.int32()),
            "warmup": [True] * 10 + [False] * len(timed),
            "latency_ns": pa.array(
                [3_600_000_000_000] * 10 + [round(base_ms * 1e6) + row[2] * 10_000 for row in timed], pa.int64()
            ),
        }
    )


ENVELOPES = {
    "cpu1-mem1": Envelope("cpu1-mem1", 1, 1024 * MIB),
    "cpu1-mem256m": Envelope("cpu1-mem256m", 1, 256 * MIB),
    "cpu2-mem4": Envelope("cpu2-mem4", 2, 4096 * MIB),
    "gpu99": Envelope("gpu99", 1, 1024 * MIB, gpus=99),
}


def result(system: str, profile: str, outcome: Outcome, **spec: Any) -> Result:
    fields: dict[str, Any] = {
        "cell": Cell("quick", system, "scifact", "single_stream", profile),
        "protocol": "santhanam2023",
        "envelope": ENVELOPES[profile],
        "isolation": Isolation.CONTAINER,
        "params": {},
        "image_digest": "sha256:1",
        "index_key": "i",
        "corpus_sha256": "c",
        "qrels_sha256": "q",
        "sample_sha256": "s",
        "warmup_sha256": "w",
        "sample_size": len(QUERIES),
        "warmup_queries": 10,
        "trials": 5,
        "k": 10,
        "seed": 7,
    }
    ok = outcome is Outcome.OK
    return Result(
        key="0" * 16,
        spec=ResultSpec(**{**fields, **spec}),
        outcome=outcome,
        detail=None if ok else "killed by the kernel at 256 MiB",
        started_at="2026-11-20T10:00:00+00:00",
        wall_s=9.0,
        environment=Environment("Test CPU", "x86_64", 2, 2**34, "6.18", 1, "20.10.24", "0.1.0", "abcdef0123456789"),
        index=IndexFacts(3.0, 8 * MIB, None, None, "x", ENVELOPES["cpu2-mem4"]),
        memory=Memory(peak_anon_bytes=200 * MIB, peak_cgroup_bytes=250 * MIB),
        load_s=1.25,
        first_query_s=0.5,
        throttled_periods=0,
        trials_finished=5 if ok else 0,
        ranking_disagreements=0 if ok else None,
    )


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
        made = replace(result(system, profile, outcome, **spec), key=f"{self.made:016x}", **(changes or {}))
        return FakeJob(folder, made, table)


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


@pytest.fixture(scope="module")
def snapshot() -> instances.Snapshot:
    return instances.latest()


def one(jobs: list[FakeJob], snapshot: instances.Snapshot) -> Row:
    table = rows.build(jobs, snapshot=snapshot)
    assert len(table.rows) == 1
    return table.rows[0]


def at(minute: int) -> str:
    return f"2026-11-20T10:{minute:02}:00+00:00"


def test_a_row_by_hand(make: Maker, snapshot: instances.Snapshot) -> None:
    row = one([make()], snapshot)
    # 2 ms + the mean of 0, 0.01, ..., 1.39 ms; warm-up hours play no part.
    assert row.latency_mean_s.value == pytest.approx(2.695e-3)
    assert row.latency_mean_s.low is not None and row.latency_mean_s.high is not None
    assert 2.6e-3 < row.latency_mean_s.low < 2.695e-3 < row.latency_mean_s.high < 2.8e-3
    assert row.p50_s.value == pytest.approx(2.69e-3)
    assert row.p95_s.value == pytest.approx(3.32e-3)
    assert (row.p99_s.value, row.p99_s.reason) == (None, "p99 needs 662 queries, timed 140")
    assert {name: figure.value for name, figure in row.measures.items()} == {
        "RR@10": pytest.approx(0.5),
        "Success@10": pytest.approx(1.0),
        "nDCG@10": pytest.approx(1 / math.log2(3)),
    }
    assert row.price is not None
    assert (row.price.instance_type, row.price.usd_per_hour) == ("a1.medium", 0.0255)
    scale = 0.0255 / 3600 * 1e6
    assert row.usd_per_million.value == pytest.approx(2.695e-3 * scale)
    assert row.usd_per_million.low == pytest.approx(row.latency_mean_s.low * scale)
    assert row.usd_per_million.high == pytest.approx(row.latency_mean_s.high * scale)
    assert (row.queries, row.trials, row.queries_judged) == (140, 5, 140)
    assert (row.peak_anon_bytes, row.peak_cgroup_bytes, row.peak_gpu_bytes) == (200 * MIB, 250 * MIB, None)
    assert (row.index_bytes, row.load_s, row.first_query_s) == (8 * MIB, 1.25, 0.5)
    assert (row.outcome, row.validity, row.notes) == (Outcome.OK, Validity.CLEAN, ())
    assert row.trial_spread_s == pytest.approx(0.0, abs=1e-12)


def test_another_architecture_is_told(make: Maker, snapshot: instances.Snapshot) -> None:
    note = one([make()], snapshot).price_note
    assert note is not None
    assert note.startswith("priced on a1.medium (arm64); latency was measured on x86_64")
    arm = replace(result("bm25", "cpu1-mem1", Outcome.OK).environment, architecture="aarch64")
    assert one([make(changes={"environment": arm})], snapshot).price_note is None


def test_a_profile_that_nobody_sells_has_no_cost(make: Maker, snapshot: instances.Snapshot) -> None:
    row = one([make(profile="gpu99")], snapshot)
    assert row.price is None
    assert row.usd_per_million.value is None
    assert row.price_note == row.usd_per_million.reason
    assert "provides 1 CPU, 1 GiB, 99 GPU" in str(row.price_note)
    assert row.latency_mean_s.value is not None


def test_only_closed_loop_latency_is_priced(make: Maker, snapshot: instances.Snapshot) -> None:
    row = one([make(cell=Cell("quick", "bm25", "scifact", "server", "cpu1-mem1"))], snapshot)
    assert row.usd_per_million.value is None
    assert "scenario server" in str(row.usd_per_million.reason)


def test_a_failed_cell_is_a_row_without_numbers(make: Maker, snapshot: instances.Snapshot) -> None:
    row = one([make("minilm", "cpu1-mem256m", Outcome.OOM)], snapshot)
    assert (row.outcome, row.detail) == (Outcome.OOM, "killed by the kernel at 256 MiB")
    for item in dataclasses.fields(row):
        value = getattr(row, item.name)
        if item.name.endswith(("_s", "_bytes")) and item.name not in ("memory_limit_bytes", "trial_means_s"):
            assert (value.value if dataclasses.is_dataclass(value) else value) is None, item.name  # type: ignore[union-attr]
    assert row.usd_per_million.value is None
    assert row.measures == {}
    assert row.price is not None


def test_a_newer_failure_does_not_hide_nor_is_hidden(make: Maker, snapshot: instances.Snapshot) -> None:
    good = make(changes={"started_at": at(0)})
    bad = make(outcome=Outcome.TIMEOUT, changes={"started_at": at(5), "detail": "no end after 60 s"}, repetition=1)
    row = one([bad, good], snapshot)
    assert (row.outcome, row.key, row.attempts) == (Outcome.OK, good.result.key, 2)
    assert row.notes == (
        "newer attempt ended timeout on 2026-11-20T10:05:00+00:00 (no end after 60 s); the last ok is shown",
    )


def test_an_older_failure_is_past(make: Maker, snapshot: instances.Snapshot) -> None:
    bad = make(outcome=Outcome.CRASH, changes={"started_at": at(0)})
    good = make(changes={"started_at": at(5)}, repetition=1)
    row = one([good, bad], snapshot)
    assert (row.outcome, row.notes, row.attempts) == (Outcome.OK, (), 2)


def test_of_failures_the_newest_is_shown(make: Maker, snapshot: instances.Snapshot) -> None:
    # Written with another offset: 11:30 at +01:00 is 10:30.
    first = make(outcome=Outcome.CRASH, changes={"started_at": "2026-11-20T11:30:00+01:00"})
    second = make(outcome=Outcome.OOM, changes={"started_at": at(45)}, repetition=1)
    assert one([second, first], snapshot).outcome is Outcome.OOM


def test_repetitions_are_never_pooled(make: Maker, snapshot: instances.Snapshot) -> None:
    old = make(base_ms=2.0, changes={"started_at": at(0)})
    new = make(base_ms=4.0, changes={"started_at": at(5)}, repetition=1)
    row = one([old, new], snapshot)
    assert row.latency_mean_s.value == pytest.approx(4.695e-3)
    assert row.queries == 140
    assert row.notes == ("the newest of 2 ok results of this cell; not pooled",)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"image_digest": "sha256:2"}, "image"),
        ({"corpus_sha256": "other"}, "corpus"),
        ({"sample_sha256": "other"}, "query sample"),
        ({"params": {"k1": 1.2}}, "parameters"),
    ],
)
def test_what_differs_is_told_and_not_pooled(
    make: Maker, snapshot: instances.Snapshot, changed: dict[str, Any], word: str
) -> None:
    old = make(base_ms=2.0, changes={"started_at": at(0)}, **changed)
    new = make(base_ms=4.0, changes={"started_at": at(5)})
    row = one([new, old], snapshot)
    assert row.latency_mean_s.value == pytest.approx(4.695e-3)
    assert row.notes == (f"1 result of another spec ({word}) is stored beside; not pooled",)


def test_isolations_have_rows_of_their_own(make: Maker, snapshot: instances.Snapshot) -> None:
    table = rows.build([make(), make(isolation=Isolation.PROCESS)], snapshot=snapshot)
    assert [row.isolation for row in table.rows] == [Isolation.CONTAINER, Isolation.PROCESS]
    assert table.rows[0].notes == ()
    assert "not comparable with container results" in table.rows[1].notes[0]


def test_rows_stand_by_dataset_profile_and_system(make: Maker, snapshot: instances.Snapshot) -> None:
    jobs = [make(system, profile) for profile in ("cpu2-mem4", "cpu1-mem1", "cpu1-mem256m") for system in ("z", "a")]
    jobs.append(make(cell=Cell("quick", "z", "arguana", "single_stream", "cpu2-mem4"), profile="cpu2-mem4"))
    table = rows.build(jobs, snapshot=snapshot)
    assert [(row.dataset, row.profile, row.system) for row in table.rows] == [
        ("arguana", "cpu2-mem4", "z"),
        ("scifact", "cpu1-mem256m", "a"),
        ("scifact", "cpu1-mem256m", "z"),
        ("scifact", "cpu1-mem1", "a"),
        ("scifact", "cpu1-mem1", "z"),
        ("scifact", "cpu2-mem4", "a"),
        ("scifact", "cpu2-mem4", "z"),
    ]
    assert rows.build(reversed(jobs), snapshot=snapshot) == table


def test_a_broken_run_costs_the_measures_only(make: Maker, snapshot: instances.Snapshot) -> None:
    job = make()
    (job.folder / "run.trec.gz").write_bytes(gzip.compress(b"q000 Q0 d\n"))
    row = one([job], snapshot)
    assert all(figure.value is None for figure in row.measures.values())
    assert "run.trec.gz:1: 3 fields" in str(row.measures["RR@10"].reason)
    assert row.latency_mean_s.value is not None
    (job.folder / "run.trec.gz").unlink()
    assert "holds no run" in str(one([job], snapshot).measures["RR@10"].reason)


def test_broken_samples_cost_the_latencies_only(make: Maker, snapshot: instances.Snapshot) -> None:
    row = one([make(table=samples(1.0).drop_columns(["warmup"]))], snapshot)
    assert row.latency_mean_s.value is None
    assert row.usd_per_million.value is None
    assert "samples cannot be used" in str(row.p50_s.reason)
    assert row.measures["RR@10"].value == pytest.approx(0.5)


def test_gaps_in_judgements_and_hits_are_told(make: Maker, snapshot: instances.Snapshot) -> None:
    job = make()
    (job.folder / "run.trec.gz").write_bytes(gzip.compress(b"q005 Q0 right 1 1 x\nq006 Q0 a 1 1 x\nq006 Q0 b 2 1 x\n"))
    qrels = "".join(f"{query} 0 right 1\n" for query in QUERIES[5:])
    (job.folder.parent / "qrels.trec.gz").write_bytes(gzip.compress(qrels.encode()))
    row = one([job], snapshot)
    assert row.queries_judged == 135
    assert row.queries_unjudged == QUERIES[:5]
    assert row.measures["RR@10"].value == pytest.approx(1 / 135)
    assert row.notes == (
        "5 (q000, q001, q002, ...) of 140 queries have no judgements, left out of the measures",
        "133 (q007, q008, q009, ...) judged queries got no hits and count 0",
        "1 (q006) queries have equal scores, judged in the order that was returned",
    )


def test_a_measure_deeper_than_the_run_is_told(make: Maker, snapshot: instances.Snapshot) -> None:
    table = rows.build([make()], snapshot=snapshot, measures=["RR@10", "R@100"])
    assert table.measures == ("RR@10", "R@100")
    assert table.rows[0].notes == ("R@100: looks deeper than the 10 hits that were retrieved",)


def test_a_measure_without_a_cutoff_is_deeper_than_any_run(make: Maker, snapshot: instances.Snapshot) -> None:
    table = rows.build([make()], snapshot=snapshot, measures=["AP", "P@5", "SetP", "nDCG"])
    assert table.rows[0].notes == ("AP, nDCG: look deeper than the 10 hits that were retrieved",)


def test_a_new_images_crash_is_not_hidden_by_the_old_images_result(make: Maker, snapshot: instances.Snapshot) -> None:
    old = make(changes={"started_at": at(0)})
    new = make(outcome=Outcome.CRASH, image_digest="sha256:2", changes={"started_at": at(5), "detail": "raised"})
    row = one([old, new], snapshot)
    assert (row.outcome, row.detail, row.latency_mean_s.value) == (Outcome.CRASH, "raised", None)
    assert row.notes == ("1 result of another spec (image) is stored beside; not pooled",)


def test_the_jobs_that_are_asked_for_are_shown(make: Maker, snapshot: instances.Snapshot) -> None:
    five = make(base_ms=2.0, changes={"started_at": at(0)})
    two = make(base_ms=4.0, trials=2, changes={"started_at": at(5), "trials_finished": 2})
    other = make("minilm", base_ms=8.0)
    jobs = [five, two, other]

    def keys(table: Table) -> list[str]:
        return [row.key for row in table.rows]

    assert keys(rows.build(jobs, snapshot=snapshot)) == [two.result.key, other.result.key]
    asked = rows.build(jobs, snapshot=snapshot, keys={five.result.key})
    assert keys(asked) == [five.result.key, other.result.key]
    assert asked.rows[0].latency_mean_s.value == pytest.approx(2.695e-3)
    assert asked.rows[0].notes == ("1 result of another spec (protocol) is stored beside; not pooled",)


def notes_with(jobs: list[FakeJob], snapshot: instances.Snapshot, word: str) -> list[str]:
    return [note for note in rows.build(jobs, snapshot=snapshot).notes if word in note]


def test_the_smallest_profile_that_passes_is_said(make: Maker, snapshot: instances.Snapshot) -> None:
    jobs = [
        make("minilm", "cpu1-mem256m", Outcome.OOM),
        make("minilm", "cpu2-mem4"),
        make("minilm", "cpu1-mem1"),
        make("bm25", "cpu1-mem256m"),
        make("bm25", "cpu1-mem1"),
        make("hopeless", "cpu1-mem256m", Outcome.OOM),
        make("hopeless", "cpu1-mem1", Outcome.CRASH),
        make("once", "cpu1-mem1"),
    ]
    assert notes_with(jobs, snapshot, "Smallest profile") == [
        "Smallest profile here that passes on scifact: bm25 cpu1-mem256m, hopeless none, minilm cpu1-mem1."
    ]


@pytest.mark.parametrize(
    ("isolation", "outcome"), [(Isolation.PROCESS, Outcome.OK), (Isolation.CONTAINER, Outcome.NOT_APPLICABLE)]
)
def test_only_containers_of_two_sizes_tell_a_smallest_profile(
    make: Maker, snapshot: instances.Snapshot, isolation: Isolation, outcome: Outcome
) -> None:
    jobs = [make(profile="cpu1-mem1"), make(profile="cpu1-mem256m", isolation=isolation, outcome=outcome)]
    assert notes_with(jobs, snapshot, "Smallest profile") == []


def test_of_equal_memory_the_fewest_cpus_are_smallest(make: Maker, snapshot: instances.Snapshot) -> None:
    four = Envelope("cpu1-mem4", 1, 4096 * MIB)
    cell = Cell("quick", "bm25", "scifact", "single_stream", "cpu1-mem4")
    jobs = [make(profile="cpu2-mem4"), make(cell=cell, envelope=four), make(profile="cpu1-mem1", outcome=Outcome.OOM)]
    assert "bm25 cpu1-mem4." in notes_with(jobs, snapshot, "Smallest profile")[0]


def test_less_memory_is_smaller_whatever_the_cpus(make: Maker, snapshot: instances.Snapshot) -> None:
    lean = Envelope("cpu2-mem256m", 2, 256 * MIB)
    cell = Cell("quick", "bm25", "scifact", "single_stream", "cpu2-mem256m")
    jobs = [make(profile="cpu1-mem1"), make(cell=cell, envelope=lean)]
    assert "bm25 cpu2-mem256m." in notes_with(jobs, snapshot, "Smallest profile")[0]


def test_profiles_that_take_the_whole_host_are_told_once(make: Maker, snapshot: instances.Snapshot) -> None:
    jobs = [make(profile="cpu2-mem4"), make("minilm", "cpu2-mem4"), make(profile="cpu1-mem1")]
    (note,) = notes_with(jobs, snapshot, "sampling")
    assert note.startswith("Profiles with all CPUs of their host (cpu2-mem4: 2 of 2) share them")
    assert {row.validity for row in rows.build(jobs, snapshot=snapshot).rows} == {Validity.CLEAN}
    larger = replace(jobs[0].result.environment, host_cpus=3)
    apart = [
        make(profile="cpu2-mem4", changes={"environment": larger}),
        make("minilm", "cpu2-mem4", Outcome.OOM),
        make("fake", "cpu2-mem4", isolation=Isolation.FAKE),
    ]
    assert notes_with(apart, snapshot, "sampling") == []


def test_doubts_reach_the_row(make: Maker, snapshot: instances.Snapshot) -> None:
    drifting = samples(2.0)
    slow = np.where(drifting.column("trial").to_numpy() == 4, 2, 1)
    latency = pa.array(drifting.column("latency_ns").to_numpy() * slow)
    row = one([make(table=drifting.set_column(3, "latency_ns", latency))], snapshot)
    assert row.validity is Validity.NOISY
    assert "2.00 times the fastest's" in row.notes[0]
    few = one([make(table=samples(2.0, queries=QUERIES[:130]))], snapshot)
    assert few.validity is Validity.NOISY
    assert "130 of 140 sample queries were timed" in few.notes[0]


def test_rows_that_must_not_be_compared_are_told(make: Maker, snapshot: instances.Snapshot) -> None:
    def warnings(table: Table) -> list[str]:
        return [note for note in table.notes if "do not compare" in note]

    assert warnings(rows.build([make("a"), make("b")], snapshot=snapshot)) == []
    differing = rows.build([make("a"), make("b", sample_sha256="other")], snapshot=snapshot)
    assert len(warnings(differing)) == 1
    assert "scifact were measured with 2 different query samples" in warnings(differing)[0]


def test_nothing_stored_is_an_empty_table(snapshot: instances.Snapshot) -> None:
    table = rows.build([], snapshot=snapshot)
    assert table.rows == ()
    assert table.price_date == "2026-07-20"


def test_faults_that_end_the_table(make: Maker, snapshot: instances.Snapshot) -> None:
    with pytest.raises(UsageError, match="unknown measure 'MRR10'"):
        rows.build([make()], snapshot=snapshot, measures=["MRR10"])
    with pytest.raises(FileError, match="started_at 'yesterday' is no ISO time"):
        rows.build([make(changes={"started_at": "yesterday"})], snapshot=snapshot)
