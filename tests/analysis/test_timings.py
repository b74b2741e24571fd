from __future__ import annotations

import numpy as np
import pytest

from harness.analysis import timings
from harness.errors import StoreError
from tests.support import sample_records


def test_jobs_are_joined_by_query_and_trial() -> None:
    first = sample_records.samples(np.array([[1.0, 2.0, 3.0]]), first_trial=0)
    second = sample_records.samples(np.array([[4.0, 5.0, 6.0]]), first_trial=1)
    found = timings.read([(0, first), (1, second)])
    assert found.queries == ("q0000", "q0001", "q0002")
    assert found.trials == ((0, 0), (1, 1))
    assert found.whole().tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
    assert found.job.tolist() == [0, 0, 0, 1, 1, 1]


def test_equal_trial_numbers_of_two_jobs_are_two_trials() -> None:
    # The probes of a server job are numbered by themselves.
    found = sample_records.timed(sample_records.samples(np.array([[1.0]])), sample_records.samples(np.array([[2.0]])))
    assert found.trials == ((0, 0), (1, 0))


def test_warm_up_is_ignored_and_repeats_are_separate() -> None:
    found = sample_records.timed(sample_records.samples(np.array([[1.0, 2.0]]), repeats=[(1, 0.5), (0, 0.25)]))
    assert found.latency_s.tolist() == [1.0, 2.0]
    assert found.repeat_s.tolist() == [0.5, 0.5, 0.25, 0.25]
    assert found.repeat_query.tolist() == [1, 1, 0, 0]
    assert found.repeat_job.tolist() == [0, 0, 0, 0]


def test_measuring_order_is_kept() -> None:
    table = sample_records.samples(np.arange(1.0, 21.0)[None, :], seed=3)
    found = sample_records.timed(table)
    order = np.random.default_rng(3).permutation(20)
    assert found.query.tolist() == order.tolist()


def test_optional_columns_are_missing_for_samples_without_them() -> None:
    first = sample_records.samples(np.array([[1.0, 2.0]]), batch=[0, 0], stage_encode_ns=[10**9, None])
    second = sample_records.samples(np.array([[3.0, 4.0]]), service_ns=[10**9, 2 * 10**9])
    found = sample_records.timed(first, second)
    assert found.batch is not None and found.service_s is not None
    assert found.batch.tolist() == [0, 0, -1, -1]
    assert found.service_s[2:].tolist() == [1.0, 2.0]
    assert np.isnan(found.service_s[:2]).all()
    assert found.stages_s["encode"][0] == 1.0
    assert np.isnan(found.stages_s["encode"][1:]).all()
    plain = sample_records.timed(sample_records.samples(np.array([[1.0]])))
    assert (plain.batch, plain.service_s, plain.stages_s) == (None, None, {})


def test_other_is_what_no_stage_counts_of_the_call_and_of_each_stage() -> None:
    ms = 10**6
    latency = np.array([[0.010, 0.010, 0.010, 0.010]])
    stages = {
        "bm25": [4 * ms, 4 * ms, None, 4 * ms],
        "bm25.retrieve": [3 * ms, None, None, 3 * ms],
        "x.encode": [5 * ms, 5 * ms, None, 6 * ms + 500],
        "other": [9 * ms] * 4,
    }
    columns = {f"stage_{name}_ns": values for name, values in stages.items()}
    found = sample_records.timed(sample_records.samples(latency, **columns))
    place = np.argsort(found.query)
    assert found.other_s.keys() == {"other", "bm25.other"}
    # The last: 0.5 us too much, which two clocks may differ by.
    assert found.other_s["other"][place] == pytest.approx([0.001, 0.001, np.nan, 0], nan_ok=True)
    assert found.other_s["bm25.other"][place] == pytest.approx([0.001, np.nan, np.nan, 0.001], nan_ok=True)
    served = sample_records.timed(
        sample_records.samples(latency, service_ns=[7 * ms] * 4, stage_retrieve_ns=[5 * ms] * 4)
    )
    assert served.other_s["other"] == pytest.approx([0.002] * 4), "the wait in the queue is no stage's"
    overlapping = sample_records.timed(sample_records.samples(latency, stage_retrieve_ns=[11 * ms] * 4))
    assert overlapping.other_s["other"] == pytest.approx([-0.001] * 4)
    assert sample_records.timed(sample_records.samples(latency)).other_s == {}


def test_trials_can_be_selected() -> None:
    found = sample_records.timed(sample_records.samples(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))).only(
        [(0, 2), (0, 0)]
    )
    assert found.trials == ((0, 0), (0, 2))
    assert found.whole().tolist() == [[1.0, 5.0], [2.0, 6.0]]
    assert len(sample_records.timed(sample_records.samples(np.array([[1.0]]))).only([]).query) == 0


def test_trial_cut_short_is_incomplete() -> None:
    table = sample_records.samples(np.array([[1.0, 2.0], [3.0, 4.0]]))
    found = sample_records.timed(table.slice(0, table.num_rows - 1))
    assert found.whole_trials() == [(0, 0)]
    assert found.whole().tolist() == [[1.0], [2.0]]


def test_impossible_samples_are_refused() -> None:
    with pytest.raises(StoreError, match="negative or not a number"):
        sample_records.timed(sample_records.samples(np.array([[-1.0]])))
    with pytest.raises(StoreError, match="timed twice in one trial"):
        sample_records.timed(sample_records.samples(np.array([[1.0, 2.0]]), names=["a", "a"]))
    with pytest.raises(KeyError):
        sample_records.timed(sample_records.samples(np.array([[1.0]])).drop_columns(["latency_ns"]))
