"""Resampled queries: the same for every row; what their paired differences can show."""

from __future__ import annotations

import numpy as np
import pytest

from harness import stats
from harness.analysis import resampling
from harness.analysis.resampling import BETTER, EQUAL, UNDECIDED, WORSE
from harness.evaluation.per_query import PerQuery

RNG = np.random.default_rng(5)
QUERIES = 200
HARD = RNG.uniform(0, 60, QUERIES)  # what makes a query easy or hard moves all systems alike
IDS = tuple(f"q{number:03}" for number in range(QUERIES))


def per_query(key: str, accuracy: np.ndarray, ids: tuple[str, ...] = IDS) -> PerQuery:
    return PerQuery(key, ids, np.full(len(ids), 0.01), {"RR@10": accuracy / 100})


def test_columns_are_aligned_by_query() -> None:
    backwards = per_query("b", HARD[::-1], IDS[::-1])
    found = resampling.aligned([per_query("a", HARD), backwards], "RR@10")
    assert found is not None
    np.testing.assert_allclose(found[0][:, 0], found[0][:, 1])
    np.testing.assert_allclose(found[0][:, 0], HARD)


def test_query_that_one_row_lacks_is_nan_in_that_row() -> None:
    found = resampling.aligned([per_query("a", HARD), per_query("b", HARD[1:], IDS[1:])], "RR@10")
    assert found is not None
    assert np.isnan(found[0][0, 1]) and not np.isnan(found[0][0, 0])
    means = resampling.resample(*found, seed=1).accuracy
    assert np.isfinite(means).all()


def test_draws_have_as_many_judged_queries_as_the_sample() -> None:
    """So that each draw has a mean, as wide as that of the judged queries alone."""
    few = np.where(np.arange(QUERIES) < 11, HARD, np.nan)
    found = resampling.aligned([per_query("a", few)], "RR@10")
    assert found is not None and found[0].shape == (QUERIES, 1)
    drawn = resampling.resample(*found, seed=1)
    alone = resampling.resample(found[0][:11], found[1][:11], seed=1)
    np.testing.assert_allclose(drawn.accuracy, alone.accuracy)
    np.testing.assert_allclose(drawn.latency_s, 0.01)
    few[10] = np.nan
    assert resampling.aligned([per_query("a", few)], "RR@10") is None


def test_blocks_of_draws_are_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    few = np.where(np.arange(QUERIES) % 3 > 0, HARD, np.nan)
    found = resampling.aligned([per_query("a", few)], "RR@10")
    assert found is not None
    whole = resampling.resample(*found, seed=1)
    monkeypatch.setattr(stats, "_BLOCK_WEIGHTS", 7 * QUERIES)
    groups = np.zeros(QUERIES, dtype=np.int64)
    blocks = list(stats.weight_blocks(groups, 100, seed=1))
    assert [len(block) for block in blocks] == [7] * 14 + [2]
    np.testing.assert_array_equal(np.concatenate(blocks), stats.draw_weights(QUERIES, 100, seed=1))
    np.testing.assert_allclose(resampling.resample(*found, seed=1).accuracy, whole.accuracy, rtol=1e-12)


@pytest.mark.parametrize("found", [[], [None], [per_query("a", HARD), None], [per_query("a", HARD[:5], IDS[:5])]])
def test_resampling_is_skipped_without_values_by_query(found: list[PerQuery | None]) -> None:
    assert resampling.aligned(found, "RR@10") is None
    assert resampling.aligned([per_query("a", HARD)], "nDCG@10") is None


def test_resampled_means_spread_by_the_standard_error() -> None:
    found = resampling.aligned([per_query("a", HARD)], "RR@10")
    assert found is not None
    means = resampling.resample(*found, seed=1).accuracy[:, 0]
    assert means.mean() == pytest.approx(HARD.mean(), rel=0.02)
    assert means.std() == pytest.approx(HARD.std() / QUERIES**0.5, rel=0.1)


def test_small_difference_is_shown_if_every_query_has_it() -> None:
    """Far smaller than either interval: the pairing shows it."""
    better, same = HARD + 0.5 + RNG.normal(0, 0.1, QUERIES), HARD.copy()
    unsure = HARD + RNG.normal(0.0, 30, QUERIES)
    columns = resampling.aligned(
        [per_query("a", HARD), per_query("b", better), per_query("c", same), per_query("d", unsure)], "RR@10"
    )
    assert columns is not None
    found = resampling.paired_signs(["a", "b", "c", "d"], columns[0], resampling.resample(*columns, seed=1))
    assert found is not None
    assert found.group["a"] == found.group["c"] != found.group["b"]
    a, b, d = (found.group[key] for key in "abd")
    assert (found.signs[b, a], found.signs[a, b], found.signs[a, a]) == (BETTER, WORSE, EQUAL)
    assert found.signs[a, d] == found.signs[d, a] == UNDECIDED


def test_too_many_rankings_are_not_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "MOST_PAIRED", 1)
    columns = resampling.aligned([per_query("a", HARD), per_query("b", HARD + 1)], "RR@10")
    assert columns is not None
    assert resampling.paired_signs(["a", "b"], columns[0], resampling.resample(*columns, seed=1)) is None


def test_cutoff_is_half_the_median_interval() -> None:
    noise = RNG.normal(0, 20, (2, QUERIES))
    columns = resampling.aligned([per_query("a", HARD + noise[0]), per_query("b", HARD + noise[1])], "RR@10")
    assert columns is not None
    expected = 1.96 * np.std(noise[1] - noise[0], ddof=1) / QUERIES**0.5
    assert resampling.cutoff(columns[0]) == pytest.approx(expected, rel=1e-3)
    alone = resampling.aligned([per_query("a", HARD), per_query("b", HARD)], "RR@10")
    assert alone is not None and resampling.cutoff(alone[0]) == 0.0  # one ranking, however many rows
