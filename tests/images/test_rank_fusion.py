"""Fused scores equal the formulas, calculated by hand."""

from __future__ import annotations

import importlib.util
import random
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.driver.records import Hit

FOLDER = Path(__file__).parents[2] / "images" / "fusion"


def module(name: str) -> ModuleType:
    """Load a module of the engine without its folder on the path."""
    spec = importlib.util.spec_from_file_location(f"fusion_{name}", FOLDER / f"{name}.py")
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


rank_fusion = module("rank_fusion")

FIRST = [Hit("a", 10.0), Hit("b", 6.0), Hit("c", 2.0)]
SECOND = [Hit("b", 0.9), Hit("d", 0.5), Hit("a", 0.4)]


def scores(first: list[Hit] = FIRST, second: list[Hit] = SECOND, **params: Any) -> dict[str, float]:
    lists = [([hit.doc_id for hit in hits], [hit.score for hit in hits]) for hits in (first, second)]
    scored: dict[str, float] = rank_fusion.fuse(params)(lists)
    return scored


def test_reciprocal_rank_fusion_equals_a_hand_calculation() -> None:
    # By hand: a is 1st and 3rd, b 2nd and 1st, c 3rd, d 2nd.
    expected = {
        "a": Fraction(1, 61) + Fraction(1, 63),
        "b": Fraction(1, 62) + Fraction(1, 61),
        "c": Fraction(1, 63),
        "d": Fraction(1, 62),
    }
    scored = scores(method="rrf")
    assert scored == pytest.approx({doc_id: float(score) for doc_id, score in expected.items()}, rel=1e-15)
    assert [hit.doc_id for hit in rank_fusion.ranked(scored, 10)] == ["b", "a", "d", "c"]
    assert scores(method="rrf", rrf_k=0)["a"] == pytest.approx(1 + 1 / 3)


def test_weighted_sums_of_plain_scores() -> None:
    # What a list lacks has its lowest score there: c 0.4 in the second, d 2 in the first.
    scored = scores(method="weighted", normalise="none", first_weight=0.1, second_weight=2)
    expected = {"a": 1 + 0.8, "b": 0.6 + 1.8, "c": 0.2 + 0.8, "d": 0.2 + 1}
    assert scored == pytest.approx(expected, rel=1e-15)


def test_weighted_sums_of_scores_between_0_and_1() -> None:
    # First: a 1, b 0.5, c 0, d 0 (lacking).  Second: b 1, d 0.2, a 0, c 0 (lacking).
    scored = scores(method="weighted")
    assert scored == pytest.approx({"a": 0.5, "b": 0.25 + 0.5, "c": 0.0, "d": 0.1}, abs=1e-15)
    scored = scores(method="weighted", first_weight=0.3, second_weight=0.7)
    assert scored == pytest.approx({"a": 0.3, "b": 0.15 + 0.7, "c": 0.0, "d": 0.14}, abs=1e-15)


def test_weighted_sums_of_standard_scores() -> None:
    # First: mean 6, deviation sqrt(32/3).  Second: mean 0.6, deviation sqrt(0.14/3).
    one, two = (32 / 3) ** 0.5, (0.14 / 3) ** 0.5
    scored = scores(method="weighted", normalise="z", first_weight=1, second_weight=1)
    expected = {"a": 4 / one - 0.2 / two, "b": 0.3 / two, "c": -4 / one - 0.2 / two, "d": -4 / one - 0.1 / two}
    assert scored == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("normalise", ["min-max", "z"])
def test_list_of_equal_scores_adds_nothing(normalise: str) -> None:
    alone = scores(second=[], method="weighted", normalise=normalise)
    equal = [Hit(doc_id, 0.1) for doc_id in "abc"]
    assert scores(second=equal, method="weighted", normalise=normalise) == alone
    assert list(alone) == ["a", "b", "c"] and alone["a"] > alone["b"] > alone["c"]
    assert scores([], [], method="weighted") == {} == scores([], [], method="rrf")


def test_scores_within_rounding_error_are_equal() -> None:
    near = [Hit("a", 5e-324), Hit("b", 0.0)]
    assert scores(near, [], method="weighted", normalise="z") == {"a": 0.0, "b": 0.0}
    assert scores(near, [], method="weighted") == {"a": 0.5, "b": 0.0}


def test_equal_scores_are_sorted_by_id() -> None:
    hits = rank_fusion.ranked({"b": 1.0, "a": 1.0, "c": 2.0, "\u00e9": 1.0, "Z": 1.0}, 4)
    assert [hit.doc_id for hit in hits] == ["c", "Z", "a", "b"]


@pytest.mark.parametrize("params", [{"method": "rrf"}, {"method": "weighted", "normalise": "z"}])
def test_fusion_does_not_depend_on_the_order_of_the_lists(params: dict[str, Any]) -> None:
    rng = random.Random(7)

    def some() -> list[Hit]:
        ids = rng.sample(range(150), 100)
        return sorted((Hit(f"d{n}", round(rng.random(), 2)) for n in ids), key=lambda hit: -hit.score)

    for _ in range(50):
        first, second = some(), some()
        ours = rank_fusion.ranked(scores(first, second, **params), 200)
        assert len(ours) == len({hit.doc_id for hit in (*first, *second)})
        assert rank_fusion.ranked(scores(second, first, **params), 200) == ours


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "method is None, must be one of rrf, weighted"),
        ({"method": "combsum"}, "method is 'combsum', must be one of rrf, weighted"),
        ({"method": "rrf", "first_weight": 1}, "'first_weight' is no parameter of 'rrf', which has rrf_k"),
        (
            {"method": "weighted", "rrf_k": 60},
            "'rrf_k' is no parameter of 'weighted', which has normalise, first_weight",
        ),
        ({"method": "rrf", "rrf_k": -1}, "rrf_k is -1, must not be negative"),
        ({"method": "rrf", "rrf_k": "60"}, "rrf_k is '60', must be a number"),
        ({"method": "rrf", "rrf_k": True}, "rrf_k is True, must be a number"),
        ({"method": "weighted", "normalise": "softmax"}, "normalise is 'softmax', must be one of min-max, z, none"),
        ({"method": "weighted", "first_weight": -1}, "the weights are -1 and 0.5, must not be negative, nor both 0"),
        ({"method": "weighted", "first_weight": 0, "second_weight": 0}, "nor both 0"),
    ],
)
def test_invalid_parameters_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        rank_fusion.fuse(params)
    assert message in str(caught.value)
