"""Near duplicates of training queries: all pairs and no others, and measures with and without them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.evaluation import evaluate, evaluate_runs, leakage, measure_names
from harness.evaluation.embeddings import Embeddings
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.leakage import Leak
from harness.evaluation.trec import Run


def embedded(vectors: object, prefix: str = "q", **changes: str) -> Embeddings:
    found = np.asarray(vectors, dtype=np.float32)
    embeddings = Embeddings(tuple(f"{prefix}{n}" for n in range(len(found))), found, "minilm", "c" * 64, "query", "s")
    return replace(embeddings, **changes)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("What's  BM25?", "what s bm25", True),
        ("STRASSE", "straße", True),
        ("\ufb01ne\t\uff57ide", "fine wide", True),
        ("what is bm25", "what is bm26", False),
        ("c++", "c", False),
        ("什么是检索\uff1f", "什么是检索", True),
    ],
)
def test_same_texts_after_normalisation(one: str, other: str, same: bool) -> None:
    assert bool(leakage.same_texts({"q": one}, {"t": other})) is same


def test_texts_without_words_match_no_text() -> None:
    assert leakage.same_texts({"q1": "", "q2": "?!"}, {"t1": "", "t2": "..."}) == ()


def test_all_training_queries_with_the_same_text_are_named() -> None:
    leaks = leakage.same_texts({"q1": "a b", "q2": "c"}, {"t1": "A b.", "t2": "a  B", "t3": "d"})
    assert leaks == (Leak("q1", "t1", True), Leak("q1", "t2", True))


@pytest.mark.slow
@given(st.integers(1, 30), st.integers(1, 30), st.sampled_from([0.2, 0.5, 0.9]), st.integers(1, 60), st.integers(0, 99))
def test_blockwise_search_matches_all_cosines(rows: int, columns: int, threshold: float, block: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ours, theirs = embedded(rng.standard_normal((rows, 4))), embedded(rng.standard_normal((columns, 4)), "t")
    a, b = (each.vectors.astype(float) for each in (ours, theirs))
    cosines = (a @ b.T) / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(b, axis=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leakage, "_BLOCK", block)
        steps: list[tuple[int, int]] = []
        pairs = leakage.near_pairs(ours, theirs, threshold, lambda done, total: steps.append((done, total)))
    expected = {(f"q{row}", f"t{column}") for row, column in zip(*np.nonzero(cosines >= threshold), strict=True)}
    assert {(leak.query_id, leak.training_id) for leak in pairs} == expected
    for leak in pairs:
        assert leak.cosine == pytest.approx(cosines[int(leak.query_id[1:]), int(leak.training_id[1:])], abs=1e-12)
    assert steps[-1] == (columns, columns)


@pytest.mark.slow
@given(st.integers(2, 400), st.floats(1e-3, 1e3), st.integers(0, 99))
def test_threshold_of_one_finds_equal_directions_despite_rounding(size: int, scale: float, seed: int) -> None:
    vectors = np.random.default_rng(seed).standard_normal((20, size)).astype(np.float32)
    # A power of two changes no digit: the direction is the same to the last bit.
    pairs = leakage.near_pairs(
        embedded(vectors), embedded(vectors * np.float32(2.0 ** round(np.log2(scale))), "t"), 1.0
    )
    assert [(leak.query_id, leak.training_id) for leak in pairs] == [(f"q{n}", f"t{n}") for n in range(20)]
    assert all(leak.cosine is not None and 1 - 1e-9 <= leak.cosine <= 1 for leak in pairs)


def test_cosine_just_below_the_threshold_is_not_a_leak() -> None:
    angle = np.arccos(0.9 - 1e-6)
    assert leakage.near_pairs(embedded([[1, 0]]), embedded([[np.cos(angle), np.sin(angle)]], "t"), 0.9) == ()
    angle = np.arccos(0.9 + 1e-6)
    assert len(leakage.near_pairs(embedded([[1, 0]]), embedded([[np.cos(angle), np.sin(angle)]], "t"), 0.9)) == 1


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        ([[0, 0], [1, 0]], embedded([[1, 0]], "t"), "cannot compare 1 vector of length 0"),
        ([[1, 0]], embedded([[1, 0], [0, 0]], "t"), r"\(query 't1'\)"),
        ([[1, 0]], embedded([[1, 0]], "t", checkpoint_sha256="d" * 64), r"by minilm \(checkpoint_sha256 cccc"),
        ([[1, 0]], embedded([[1, 0]], "t", role="document"), r"\(role query\).* \(document\)"),
        ([[1, 0]], embedded([[1, 0, 0]], "t"), "vectors of 2 and 3 dimensions"),
    ],
)
def test_incomparable_vectors_are_refused(ours: list[list[int]], theirs: Embeddings, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        leakage.near_pairs(embedded(ours), theirs, 0.9)


def test_too_many_pairs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leakage, "MOST_PAIRS", 24)
    same = np.ones((5, 2))
    with pytest.raises(UsageError, match=r"more than 24 pairs .* raise --threshold"):
        leakage.near_pairs(embedded(same), embedded(same, "t"), 0.5)
    monkeypatch.setattr(leakage, "MOST_PAIRS", 25)
    assert len(leakage.near_pairs(embedded(same), embedded(same, "t"), 0.5)) == 25


def test_queries_without_vectors_are_named() -> None:
    vectors = embedded([[1, 0], [0, 1]]), embedded([[1, 0]], "t")
    with pytest.raises(UsageError, match=r"2 queries of the sample have no vector \('a', 'q5'\); embed all"):
        leakage.find_leaks({"q0": "x", "q5": "y", "a": "z"}, {"t0": "w"}, vectors, 0.9)
    with pytest.raises(UsageError, match="1 queries of the training set have no vector"):
        leakage.find_leaks({"q0": "x"}, {"t9": "w"}, vectors, 0.9)


def test_pairs_appear_once_nearest_first_and_equal_texts_have_cosines() -> None:
    vectors = embedded([[1, 0], [0, 1], [1, 1]]), embedded([[1, 0.1], [1, 0], [-1, 0.5]], "t")
    sample = {"q1": "up", "q0": "a b"}  # q2 is not asked, t2 points elsewhere
    training = {"t0": "other", "t1": "A, b", "t2": "UP"}
    leaks = leakage.find_leaks(sample, training, vectors, 0.9)
    assert [(leak.query_id, leak.training_id, leak.same_text) for leak in leaks] == [
        ("q0", "t1", True),
        ("q0", "t0", False),
        ("q1", "t2", True),
    ]
    assert [leak.cosine for leak in leaks] == pytest.approx([1, 1 / 1.01**0.5, 0.5 / 1.25**0.5])
    plain = leakage.find_leaks(sample, training, None, 0.9)
    assert [(leak.query_id, leak.training_id, leak.cosine) for leak in plain] == [
        ("q0", "t1", None),
        ("q1", "t2", None),
    ]


def test_measures_are_given_with_without_and_on_leaked_queries() -> None:
    queries = {f"q{n}": f"text {n}" for n in range(24)}
    qrels = {f"q{n}": {"right": 1} for n in range(23)}  # nobody judged q23
    run = Run({query: ("right",) if int(query[1:]) < 12 else ("wrong", "right") for query in queries}, ())
    runs = JudgedRuns("set", queries, qrels, {"bm25": run})
    training = {f"t{n}": f"Text {n}!" for n in (0, 1, 2, 23)}
    leaks = leakage.find_leaks(queries, training, None, 0.9)
    made = leakage.Leakage("set", queries, training, leaks, (), None, None)
    assert made.leaked == ("q0", "q1", "q2", "q23")
    reciprocal, counted = leakage.measure_effects(runs, made.leaked, measure_names.parse(("RR@10", "NumRet")))
    assert (reciprocal.queries, reciprocal.queries_leaked) == (23, 3)
    assert reciprocal.all.value == pytest.approx((12 + 11 / 2) / 23)
    assert reciprocal.without.value == pytest.approx((9 + 11 / 2) / 20)
    assert reciprocal.without.low < reciprocal.without.value < reciprocal.without.high
    assert (reciprocal.leaked.value, reciprocal.leaked.low) == (1.0, None)
    assert reciprocal.leaked.reason == "an interval needs 11 queries"
    assert counted.all.value is None and counted.all.reason == "no mean over queries"
    assert leakage.measure_effects(runs, (), ()) == ()


def test_all_commands_show_the_same_interval() -> None:
    """Sums depend on the order of the values, which is the same everywhere."""
    names = [f"q{n}" for n in range(40)]
    qrels = {name: {"right": 1} for name in names}
    run = Run({name: (*(f"wrong{place}" for place in range(n % 4)), "right") for n, name in enumerate(names)}, ())
    asked = measure_names.parse(("RR@10",))
    shown = []
    for queries in (names, names[::-1]):
        runs = JudgedRuns("set", dict.fromkeys(queries, ""), {name: qrels[name] for name in queries}, {"bm25": run})
        (effect,) = leakage.measure_effects(runs, ("q0",), asked)
        evaluated = evaluate_runs.evaluate_runs(runs, asked)
        judged = evaluate.evaluate(run, qrels, queries, asked)
        shown += [effect.all, *(evaluate.estimate(each, "RR@10") for each in (evaluated.evaluations["bm25"], judged))]
        shown.append(evaluate.mean_estimate(dict(sorted(judged.per_query["RR@10"].items(), reverse=True))))
    assert {(each.low, each.high) for each in shown} == {(shown[0].low, shown[0].high)} and shown[0].low is not None
