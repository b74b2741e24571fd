"""Fréchet distances from runs, judgements and vectors, and the reasons for missing ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from harness.errors import UsageError
from harness.estimate import Estimate
from harness.evaluation import frechet, frechet_distance
from harness.evaluation.embeddings import Embeddings
from harness.evaluation.frechet import Settings, relevant_documents, retrieved_documents
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.trec import Qrels, Run

QUERIES = tuple(f"q{number}" for number in range(30))
_RNG = np.random.default_rng(7)
_TOPICS = _RNG.standard_normal((30, 8)).astype(np.float32)
_NAMES = (*(f"r{n}" for n in range(30)), *(f"n{n}" for n in range(30)), *(f"x{n}" for n in range(30)))
# Relevant ones, near ones, and others far away.
_VECTORS = np.concatenate([_TOPICS, _TOPICS + 0.2, _RNG.standard_normal((30, 8)).astype(np.float32) * 3 + 2])
FOUND = Embeddings(_NAMES, _VECTORS.astype(np.float32), "minilm", "c" * 64, "document", "s")
GOOD = Run({f"q{n}": (f"r{n}", f"n{n}") for n in range(30)}, ())
BAD = Run({f"q{n}": (f"x{n}", f"x{(n + 1) % 30}") for n in range(30)}, ())
JUDGED = {f"q{n}": {f"r{n}": 1} for n in range(30)}
RUNS = JudgedRuns("toy", dict.fromkeys((*QUERIES, "alone"), ""), JUDGED, {"good": GOOD, "bad": BAD})
FEW = Settings(resamples=50)


def run_distance(
    run: Run, qrels: Qrels, queries: Sequence[str], embeddings: Embeddings, k: int, settings: Settings
) -> Estimate:
    """Return ``FD@k`` of one run."""
    runs = JudgedRuns("", dict.fromkeys(queries, ""), qrels, {"": run})
    return frechet.distances(runs, embeddings, (k,), settings).systems[""][0].figure


def test_system_that_retrieves_relevant_documents_is_nearer() -> None:
    distances = frechet.distances(RUNS, FOUND, (1, 2), replace(FEW, unlabelled=True))
    good, bad = distances.systems["good"], distances.systems["bad"]
    assert [(each.k, each.unlabelled) for each in good] == [(1, False), (2, False), (1, True), (2, True)]
    assert good[0].figure.value == pytest.approx(0, abs=1e-6)
    for one, other in zip(good, bad, strict=True):
        assert one.figure.value is not None and other.figure.value is not None
        assert one.figure.value < other.figure.value
    assert (distances.queries, distances.judged, distances.left_out, distances.dimensions) == (30, 30, ("alone",), 8)
    # All that is left of the good one is what is near; that of two there is one.
    assert good[2].figure.value == pytest.approx(frechet_distance.distance_of_points(_VECTORS[:30], _VECTORS[30:60]))
    assert (good[3].retrieved, good[3].short, good[3].without) == (30, 30, 0)
    assert bad[3].retrieved == 30, "as many of each query as the other has"
    assert bad[2].figure == bad[0].figure, "none of it was judged"


def test_interval_contains_the_value_and_is_deterministic() -> None:
    one = run_distance(BAD, RUNS.qrels, RUNS.query_ids, FOUND, 1, FEW)
    assert one == run_distance(BAD, RUNS.qrels, RUNS.query_ids, FOUND, 1, FEW)
    assert one != run_distance(BAD, RUNS.qrels, RUNS.query_ids, FOUND, 1, replace(FEW, seed=1))
    assert one.value is not None and one.low is not None and one.high is not None
    assert 0 < one.low < one.value < one.high


def test_run_shuffled_over_queries_has_the_same_distance() -> None:
    """Ignore the query that a document was retrieved for."""
    dealt = Run({f"q{n}": GOOD.rankings[f"q{(n + 1) % 30}"] for n in range(30)}, ())
    one, other = (run_distance(run, RUNS.qrels, RUNS.query_ids, FOUND, 2, FEW).value for run in (GOOD, dealt))
    assert one == pytest.approx(other, abs=1e-9)


def test_documents_without_vectors_are_refused() -> None:
    known = replace(FOUND, ids=FOUND.ids[:-2], vectors=FOUND.vectors[:-2])
    with pytest.raises(UsageError, match=r"2 documents have no vector of minilm, e.g. 'x28'; .* `harness embed minilm"):
        frechet.distances(RUNS, known, (1,), FEW)
    with pytest.raises(UsageError, match="vectors of query texts, not of documents"):
        frechet.distances(RUNS, replace(FOUND, role="query"), (1,), FEW)


def test_too_large_vectors_are_refused() -> None:
    for scale, finite in ((1e10, True), (1e36, False)):
        known = replace(FOUND, vectors=(FOUND.vectors * scale).astype(np.float32))
        if finite:
            distance = run_distance(BAD, RUNS.qrels, RUNS.query_ids, known, 2, FEW)
            assert distance.value is not None and np.isfinite([distance.value, distance.low, distance.high]).all()
            continue
        with pytest.raises(UsageError, match=r"vectors of minilm reach \d\S+e\+36, which is too large"):
            frechet.distances(RUNS, known, (1,), FEW)


def test_judgements_of_hits_only_are_refused_as_reference() -> None:
    with pytest.raises(UsageError, match="judgements that no system chose"):
        frechet.distances(replace(RUNS, hits_alone=True), FOUND, (1,), FEW)


def test_missing_distance_has_a_reason() -> None:
    one = Run({"q0": ("r0",)}, ())
    distance = run_distance(one, RUNS.qrels, RUNS.query_ids, FOUND, 1, FEW)
    assert (distance.value, distance.reason) == (None, "a covariance takes two documents on each side")
    few = run_distance(GOOD, RUNS.qrels, QUERIES[:5], FOUND, 2, FEW)
    assert few.value is not None and few.low is None
    assert few.reason == "no interval: 5 queries, it takes 11"
    none = run_distance(GOOD, RUNS.qrels, QUERIES, FOUND, 2, replace(FEW, resamples=0))
    assert none.value is not None and none.low is none.reason is None
    empty = run_distance(Run({}, ()), {}, QUERIES, FOUND, 2, FEW)
    assert empty.value is None and empty.reason


def test_run_over_half_of_the_queries_is_as_near_as_the_full_run() -> None:
    """A run over 22 of 43 queries has a larger distance alone, though every hit is the same."""
    rng = np.random.default_rng(5)
    topics = rng.standard_normal((43, 30)).astype(np.float32)
    near = topics + rng.standard_normal((43, 30)).astype(np.float32)
    names = (*(f"r{n}" for n in range(43)), *(f"n{n}" for n in range(43)))
    embeddings = Embeddings(names, np.concatenate([topics, near]), "e", "c" * 64, "document", "s")
    whole = Run({f"q{n}": (f"n{n}",) for n in range(43)}, ())
    half = Run({f"q{n}": (f"n{n}",) for n in range(22)}, ())
    qrels = {f"q{n}": {f"r{n}": 1} for n in range(43)}
    both = JudgedRuns("toy", dict.fromkeys(qrels, ""), qrels, {"whole": whole, "half": half})
    made = frechet.distances(both, embeddings, (1,), FEW).systems
    assert made["whole"][0].figure == made["half"][0].figure
    assert (made["half"][0].queries, made["half"][0].judged, made["half"][0].without) == (22, 22, 21)
    assert made["whole"][0].difference == Estimate(0.0, 0.0, 0.0)
    alone = run_distance(whole, qrels, tuple(qrels), embeddings, 1, Settings(resamples=0)).value
    assert alone is not None and alone < 0.8 * (made["half"][0].figure.value or 0), "over all of its queries"


def test_grades_below_the_threshold_are_not_relevant() -> None:
    qrels = {f"q{n}": {f"r{n}": 2, f"x{n}": 1} for n in range(30)}
    strict = frechet.distances(replace(RUNS, qrels=qrels), FOUND, (1,), replace(FEW, relevant_from=2))
    assert strict.judged == 30 and strict.systems["good"][0].figure.value == pytest.approx(0, abs=1e-6)
    assert frechet.distances(replace(RUNS, qrels=qrels), FOUND, (1,), FEW).judged == 60


def test_differences_are_from_the_nearest_or_the_named_system() -> None:
    made = frechet.distances(RUNS, FOUND, (1,), FEW).systems
    (good,), (bad,) = made["good"], made["bad"]
    assert (good.against, good.difference, bad.against) == (None, Estimate(None), "good")
    assert bad.difference.value == pytest.approx((bad.figure.value or 0) - (good.figure.value or 0))
    turned = frechet.distances(RUNS, FOUND, (1,), replace(FEW, against="bad")).systems["good"][0].difference
    assert bad.difference.low is not None and turned.high == pytest.approx(-bad.difference.low)
    with pytest.raises(UsageError, match="toy: unknown system 'none'; known: bad, good"):
        frechet.distances(RUNS, FOUND, (1,), replace(FEW, against="none"))


def test_vectors_of_another_collection_are_refused() -> None:
    known = replace(RUNS, corpus_sha256="s")
    assert frechet.distances(known, FOUND, (1,), Settings(resamples=0)).source_checked
    assert not frechet.distances(RUNS, FOUND, (1,), Settings(resamples=0)).source_checked
    with pytest.raises(UsageError, match="vectors of other texts than toy's documents; make those"):
        frechet.distances(replace(RUNS, corpus_sha256="z"), FOUND, (1,), Settings(resamples=0))


def drawn_runs(clouds: Sequence[np.ndarray], queries: int, rng: np.random.Generator) -> tuple[JudgedRuns, Embeddings]:
    """Return a sample: the first cloud has the relevant document of each query, each other one a system's only hit."""
    size = len(clouds[0])
    chosen = rng.integers(0, size, queries).tolist()
    runs = {
        str(number): Run({f"q{n}": (str(number * size + point),) for n, point in enumerate(chosen)}, ())
        for number in range(1, len(clouds))
    }
    qrels = {f"q{n}": {str(point): 1} for n, point in enumerate(chosen)}
    names = tuple(map(str, range(size * len(clouds))))
    vectors = Embeddings(names, np.concatenate(clouds), "e", "c" * 64, "document", "s")
    return JudgedRuns("", dict.fromkeys(qrels, ""), qrels, runs), vectors


def _width(figure: Estimate) -> float:
    return 0.0 if figure.low is None or figure.high is None else figure.high - figure.low


@pytest.mark.slow
def test_paired_interval_covers_the_difference_and_is_narrower_than_unpaired() -> None:
    """Two systems whose documents lie near each other's: 50 queries, 8 dimensions."""
    rng = np.random.default_rng(11)
    topics = rng.standard_normal((4000, 8)).astype(np.float32)
    one = topics + 0.5 * rng.standard_normal((4000, 8)).astype(np.float32)
    other = one + 0.3 * rng.standard_normal((4000, 8)).astype(np.float32)
    widths: list[float] = []

    def drawn(resamples: int) -> Estimate:
        sample = drawn_runs((topics, one, other), 50, rng)
        made = frechet.distances(*sample, (1,), Settings(resamples=resamples, against="1")).systems
        widths.append(sum(_width(each.figure) ** 2 for (each,) in made.values()) ** 0.5)
        return made["2"][0].difference

    expected = float(np.mean([drawn(0).value or 0.0 for _ in range(150)]))
    widths.clear()
    found = [drawn(100) for _ in range(30)]
    assert sum((each.low or 0) <= expected <= (each.high or 0) for each in found) >= 26
    assert np.mean([_width(each) for each in found]) < np.mean(widths) / 1.5


QRELS = {"q1": {"a": 1, "b": 3, "c": 2, "d": 0, "e": 2}, "q2": {"a": 1}, "q3": {"x": 0, "y": -1}}
RUN = Run({"q1": ("d", "z", "a", "w", "v"), "q2": ("a", "b")}, ())


def test_best_grades_are_chosen_first_and_ties_by_seed() -> None:
    def relevant(most: int | None, seed: int) -> tuple[str, ...]:
        return relevant_documents(QRELS, ("q1",), Settings(most_judged=most, seed=seed))[0]

    assert relevant(1, 0) == ("b",)
    assert {relevant(2, seed) for seed in range(20)} == {("b", "c"), ("b", "e")}
    assert {frozenset(relevant(3, seed)) for seed in range(20)} == {frozenset("bce")}
    assert set(relevant(None, 0)) == set(relevant(10, 0)) == set("abce")


def test_drawn_documents_depend_only_on_their_query() -> None:
    one = {"q": dict.fromkeys("abcdef", 1)}
    other = {"p": {"a": 1}, "q": dict.fromkeys("fedcba", 1)}
    for seed in range(10):
        settings = Settings(most_judged=2, seed=seed)
        assert relevant_documents(one, ("q",), settings)[0] == relevant_documents(other, ("p", "q"), settings)[1]


def test_unlabelled_skips_judged_documents_before_taking_k() -> None:
    documents = retrieved_documents(RUN, QRELS, ("q1", "q2"), 2, unlabelled=True)
    assert documents == (("z", "w"), ("b",)), "d has grade 0, and a is judged for q2"
