"""The first stage of a two-stage system: ceiling, gain, harm; counts of work; stages that miss the latency."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.analysis import first_stage, timings
from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.rejudge import QrelsOverride
from harness.analysis.rows import build_rows
from harness.analysis.table import Cause, FirstStage, Row, Validity
from harness.analysis.validity import sample_checks
from harness.results.schema import JUDGED_HITS
from tests.support import sample_records
from tests.support.sample_records import FakeJob
from tests.support.stored_jobs import QUERIES, Maker

MEASURES = ("RR@10", "RR")
# Rank of the judged document in the first stage, 20 deep, and in the whole run, ten deep; 0: not found.
ALONE, WHOLE = (1, 2, 15, 3, 0), (1, 1, 1, 5, 0)


def ranking(ranks: tuple[int, ...], number: int, depth: int) -> list[str]:
    right = ranks[number % len(ranks)]
    return ["right" if rank == right else f"wrong{rank}" for rank in range(1, depth + 1)]


def staged(make: Maker, tag: str = "bm25", **spec: Any) -> FakeJob:
    """A job of two stages."""
    job = make("both", **{"params": {"depth": 20}, **spec})
    for ranks, depth, name in ((WHOLE, 10, "run"), (ALONE, 20, "first_stage")):
        job.rank({query: ranking(ranks, n, depth) for n, query in enumerate(QUERIES)}, name=name, tag=tag)
    return job


def row_of(job: FakeJob, override: QrelsOverride | None = None) -> Row:
    (row,) = build_rows([job], JobEvaluator(MEASURES, override)).table.rows
    return row


def stage_of(row: Row) -> FirstStage:
    assert row.first_stage is not None
    return row.first_stage


def test_ceiling_gain_and_harm_are_those_counted_by_hand(make: Maker) -> None:
    stage = stage_of(row_of(staged(make)))
    assert (stage.system, stage.measured, stage.depth) == ("bm25", True, 20)
    assert stage.ceiling.value == pytest.approx(4 / 5), "rank 15 is within the 20 that the second stage orders"
    assert stage.measures["RR@10"].value == pytest.approx((1 + 1 / 2 + 0 + 1 / 3 + 0) / 5)
    gain, harm = stage.gain["RR@10"], stage.harm["RR@10"]
    assert gain.value == pytest.approx((0 + 1 / 2 + 1 + (1 / 5 - 1 / 3) + 0) / 5)
    assert gain.low is not None and gain.high is not None and 0 < gain.low < gain.value < gain.high
    assert harm.value == 1 / 5 and harm.low is not None and harm.low < 1 / 5


def test_a_measure_without_a_cutoff_sees_as_many_hits_of_both(make: Maker) -> None:
    # Else the first stage, which is deeper, would have hits that the whole run was never asked for.
    assert stage_of(row_of(staged(make))).measures["RR"].value == pytest.approx((1 + 1 / 2 + 0 + 1 / 3 + 0) / 5)


def test_a_stored_ranking_is_a_first_stage_that_was_not_measured(make: Maker) -> None:
    stage = stage_of(row_of(staged(make, "fixed-run/dl19-bm25")))
    assert (stage.system, stage.measured) == ("dl19-bm25", False)


def test_depth_0_has_no_ceiling_and_one_stage_has_no_first_stage(make: Maker) -> None:
    assert stage_of(row_of(staged(make, params={"depth": 0}))).ceiling.value is None
    assert row_of(make("bm25")).first_stage is None


def test_queries_left_out_count_for_neither_stage(make: Maker) -> None:
    without = frozenset(query for number, query in enumerate(QUERIES) if number % 5 != 1)
    stage = stage_of(row_of(staged(make), QrelsOverride("", "", None, without, "few.txt")))
    assert stage.gain["RR@10"].value == pytest.approx(1 / 2)
    assert stage.harm["RR@10"].value == 0
    assert stage.ceiling.value == 1


def test_a_damaged_first_stage_costs_its_own_figures_alone(make: Maker) -> None:
    job = staged(make)
    (job.folder / "first_stage.trec.gz").write_bytes(b"\x1f\x8bno gzip")
    row = row_of(job)
    assert row.measured("RR@10") is not None
    assert "cannot be judged" in str(stage_of(row).ceiling.reason)
    (job.folder / "first_stage.trec.gz").write_bytes(gzip.compress(b"q000 Q0 right\n"))
    assert "cannot be judged" in str(stage_of(row_of(job)).ceiling.reason)


@dataclass(frozen=True)
class _HitsAlone(FakeJob):
    def qrels_path(self) -> Path:
        return self.folder / JUDGED_HITS


def test_judgements_of_hits_alone_say_nothing_of_the_first_stage(make: Maker) -> None:
    job = staged(make)
    text = "".join(f"{query} 0 {ranking(WHOLE, n, 10)[0]} 1\n" for n, query in enumerate(QUERIES))
    (job.folder / JUDGED_HITS).write_bytes(gzip.compress(text.encode()))
    row = row_of(_HitsAlone(job.result, job.folder, job.table, job.queries))
    stage = stage_of(row)
    assert row.measured("RR@10") == 1 and stage.gain == {} and stage.ceiling.value is None
    assert stage.ceiling.reason == first_stage._HITS_ALONE


def timed(**columns: float) -> timings.Timings:
    """Ten queries of 10 ms, each with stages of so many ms."""
    latency = np.full((1, 10), 0.01)
    stages = {f"stage_{name}_ns": [round(ms * 1e6)] * 10 for name, ms in columns.items()}
    return sample_records.timed(sample_records.samples(latency, **stages))


@pytest.mark.parametrize(("score_ms", "found"), [(8.0, False), (7.81, False), (7.7, True), (8.19, False), (8.3, True)])
def test_stages_that_miss_two_per_cent_of_the_latency_are_found(score_ms: float, found: bool) -> None:
    gap = sample_checks.stage_gap(timed(retrieve=2.0, score=score_ms))
    assert (gap is not None) is found


def test_a_stage_of_a_stage_is_not_counted_twice_and_50_us_are_allowed() -> None:
    assert sample_checks.stage_gap(timed(**{"bm25": 10.0, "bm25.retrieve": 9.0})) is None
    fast = replace(timed(retrieve=0.06), latency_s=np.full(10, 1e-4))
    assert sample_checks.stage_gap(fast) is None
    assert sample_checks.stage_gap(replace(fast, latency_s=np.full(10, 1.2e-4))) is not None


def test_a_row_of_two_stages_has_counts_and_doubts_stages_that_do_not_sum(make: Maker) -> None:
    table = sample_records.samples(
        np.full((5, len(QUERIES)), 0.01),
        names=QUERIES,
        stage_score_ns=[5_000_000] * (5 * len(QUERIES)),
        count_pairs=[20] * (5 * len(QUERIES)),
        count_tokens=[*range(5 * len(QUERIES))],
        count_padded_tokens=[2 * 5 * len(QUERIES)] * (5 * len(QUERIES)),
    )
    row = row_of(staged(make, table=table))
    mean = (5 * len(QUERIES) - 1) / 2
    assert row.counts == {"pairs": 20, "tokens": mean, "padded_tokens": 2 * 5 * len(QUERIES)}, "warm-up has no counts"
    assert row.padding_share == pytest.approx(1 - mean / (10 * len(QUERIES)))
    assert [finding.validity for finding in row.findings if finding.cause is Cause.STAGES] == [Validity.NOISY]
    one_stage = row_of(make("one", table=table))
    assert one_stage.counts == row.counts
    assert Cause.STAGES not in [finding.cause for finding in one_stage.findings], "others' stages need not sum"


def test_counts_belong_to_the_trials_of_their_samples() -> None:
    made = sample_records.timed(sample_records.samples(np.full((2, 3), 0.01), count_pairs=[1, 2, 3, 4, 5, 6]))
    assert made.counts["pairs"].tolist() == [1, 2, 3, 4, 5, 6], "warm-up is left out"
    assert made.only([(0, 1)]).counts["pairs"].tolist() == [4, 5, 6]
