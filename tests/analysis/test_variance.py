from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from harness import stats

Floats = NDArray[np.float64]


def planted(rng: np.random.Generator, queries: int, jobs: int, trials: int, **deviations: float) -> Floats:
    """Latencies of 100 plus normal parts of queries, jobs, trials and the rest; shape (queries, jobs x trials)."""
    query = rng.normal(0, deviations["query"], (queries, 1))
    job = np.repeat(rng.normal(0, deviations["job"], jobs), trials)
    trial = rng.normal(0, deviations["trial"], jobs * trials)
    return 100 + query + job + trial + rng.normal(0, deviations["residual"], (queries, jobs * trials))


def test_the_split_is_right_on_average() -> None:
    rng = np.random.default_rng(9)
    truth = {"query": 3.0, "job": 1.0, "trial": 0.5, "residual": 0.8}
    squares: dict[str, list[float]] = {name: [] for name in truth}
    for _ in range(400):
        found = stats.variance_components(planted(rng, 60, 8, 4, **truth), np.repeat(range(8), 4).tolist())
        for name in truth:
            squares[name].append(found[name].value ** 2)
    for name, deviation in truth.items():
        assert np.mean(squares[name]) == pytest.approx(deviation**2, rel=0.06), name


def test_what_a_query_takes_by_chance_is_not_its_own() -> None:
    rng = np.random.default_rng(4)
    truth = {"query": 0.5, "job": 0.0, "trial": 0.0, "residual": 2.0}
    squares = []
    for _ in range(200):
        value = stats.variance_components(planted(rng, 2000, 2, 1, **truth), [0, 1])["query"].value
        assert value is not None
        squares.append(value**2)
    assert np.mean(squares) == pytest.approx(0.25, abs=0.05)


def test_one_large_design_tells_all_components() -> None:
    truth = {"query": 3.0, "job": 1.0, "trial": 0.5, "residual": 0.8}
    latency = planted(np.random.default_rng(1), 500, 200, 5, **truth)
    found = stats.variance_components(latency, np.repeat(range(200), 5).tolist())
    for name, deviation in truth.items():
        assert found[name].value == pytest.approx(deviation, rel=0.15), name


def test_one_job_tells_no_job() -> None:
    latency = planted(np.random.default_rng(2), 300, 1, 50, query=3.0, job=0.0, trial=0.5, residual=0.8)
    found = stats.variance_components(latency, [0] * 50)
    assert found["trial"].value == pytest.approx(0.5, rel=0.2)
    assert (found["job"].value, found["job"].reason) == (None, "one job only: nothing to compare")


def test_one_trial_a_job_tells_the_two_together() -> None:
    latency = planted(np.random.default_rng(2), 300, 50, 1, query=3.0, job=0.4, trial=0.3, residual=0.8)
    found = stats.variance_components(latency, list(range(50)))
    assert found["job"].value == pytest.approx(0.5, rel=0.2)
    assert found["job"].reason == "holds the trial's part too"
    assert (found["trial"].value, found["trial"].reason) == (None, "each job ran one trial: the two coincide")


def test_a_variance_is_never_negative() -> None:
    rng = np.random.default_rng(3)
    none = {"query": 0.0, "job": 0.0, "trial": 0.0, "residual": 1.0}
    for _ in range(50):
        found = stats.variance_components(planted(rng, 30, 3, 2, **none), [0, 0, 1, 1, 2, 2])
        for name in none:
            assert found[name].value >= 0
    constant = stats.variance_components(np.full((20, 4), 0.25), [0, 0, 1, 1])
    assert [constant["query"].value, constant["trial"].value, constant["job"].value, constant["residual"].value] == [
        0.0
    ] * 4


@pytest.mark.parametrize(("shape", "why"), [((1, 5), "2 queries"), ((5, 1), "2 whole trials"), ((5, 0), "2 whole")])
def test_what_the_design_cannot_tell(shape: tuple[int, int], why: str) -> None:
    found = stats.variance_components(np.ones(shape), list(range(shape[1])))
    assert found["query"].value is None
    assert why in str(found["query"].reason)
    assert found["residual"] == found["query"]


def test_unequal_jobs_tell_queries_alone() -> None:
    latency = planted(np.random.default_rng(2), 300, 1, 5, query=3.0, job=0.0, trial=0.0, residual=0.8)
    found = stats.variance_components(latency, [0, 0, 0, 1, 1])
    assert found["query"].value == pytest.approx(3.0, rel=0.15)
    assert found["job"].value is None and found["trial"].value is None
    assert "unequal" in str(found["job"].reason)
