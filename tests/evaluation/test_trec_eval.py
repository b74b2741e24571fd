"""Measures agree with trec_eval to the four decimals that it prints.

On trec_eval's own test set they are compared with its official outputs; on a BM25 run of TREC DL 2019 with its
published values.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.evaluation import evaluate, measure_names, trec
from harness.evaluation.trec import Run

DATA = Path(__file__).resolve().parents[1] / "data"
TREC_EVAL = DATA / "trec_eval"
DL19 = DATA / "dl19-bm25"
CUTOFFS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
ALL = "all"

# Output -> the judgements, the run, and the grade from which a document is relevant.
OUTPUTS = {
    "out.test.a": ("qrels.test", "results.test", 1),
    "out.test.aq": ("qrels.test", "results.test", 1),
    "out.test.aqc": ("qrels.test", "results.trunc", 1),
    "out.test.aql": ("qrels.rel_level", "results.test", 2),
}


def names(rel: int) -> dict[str, str]:
    """trec_eval's names of measures -> ours, all that both have.

    But for iprec_at_recall: these outputs are of trec_eval 10, which rounds a share of the relevant documents to the
    nearest one; pytrec_eval has the code of trec_eval 9, which took the next one from a tenth on
    (docs/method/measures.md).
    """
    at = "" if rel == 1 else f"(rel={rel})"
    plain = {"ndcg": "nDCG", "num_ret": "NumRet", "num_rel_ret": f"NumRet(rel={rel})", "num_q": "NumQ"}
    plain |= {"map": f"AP{at}", "Rprec": f"Rprec{at}", "bpref": f"Bpref{at}", "recip_rank": f"RR{at}"}
    plain |= {"infAP": f"infAP{at}", "set_P": f"SetP{at}", "set_recall": f"SetR{at}"}
    plain |= {"set_map": f"SetAP{at}", "set_F": f"SetF{at}", **({"num_rel": "NumRel"} if rel == 1 else {})}
    cut = {"P": f"P{at}", "recall": f"R{at}", "map_cut": f"AP{at}", "ndcg_cut": "nDCG"}
    plain |= {f"{theirs}_{k}": f"{ours}@{k}" for theirs, ours in cut.items() for k in CUTOFFS}
    return plain | {f"success_{k}": f"Success{at}@{k}" for k in (1, 5, 10)}


def official(output: str) -> dict[tuple[str, str], float]:
    """(measure, query or ``all``) -> value, as trec_eval printed it."""
    lines = [line.split() for line in (TREC_EVAL / output).read_text().splitlines()]
    return {(name, query): float(value) for name, query, value in lines if not name.startswith(("runid", "relstring"))}


@pytest.fixture(scope="module", params=OUTPUTS)
def agreed(request: pytest.FixtureRequest) -> tuple[str, evaluate.Evaluation]:
    qrels, run, rel = OUTPUTS[request.param]
    judged = trec.read_qrels(TREC_EVAL / f"{qrels}.gz")
    measures = measure_names.parse(names(rel).values())
    found = trec.read_scored_run(TREC_EVAL / f"{run}.gz")
    return request.param, evaluate.evaluate(found, judged, list(judged), measures)


def test_trec_eval_test_set_gives_its_published_values(agreed: tuple[str, evaluate.Evaluation]) -> None:
    output, found = agreed
    expected, rel = official(output), OUTPUTS[output][2]
    compared = 0
    for theirs, ours in names(rel).items():
        for query in (ALL, *found.per_query[ours]):
            if (theirs, query) not in expected:
                continue
            value = found.values[ours] if query == ALL else found.per_query[ours][query]
            assert value == pytest.approx(expected[theirs, query], abs=5.1e-5), (theirs, query)
            compared += 1
    assert compared >= (53 if output == "out.test.a" else 205)


def test_query_without_results_counts_zero_as_with_trec_eval_c() -> None:
    """``out.test.aqc`` is of a run that lacks query 302: trec_eval without ``-c`` would leave it out of the means."""
    judged = trec.read_qrels(TREC_EVAL / "qrels.test.gz")
    whole = trec.read_scored_run(TREC_EVAL / "results.test.gz")
    run = Run({query: whole.rankings[query] for query in ("301", "303")}, ())
    evaluation = evaluate.evaluate(run, judged, list(judged), measure_names.parse(["AP"]))
    both = [evaluation.per_query["AP"][query] for query in ("301", "303")]
    assert evaluation.without_hits == ("302",) and evaluation.queries == 3
    assert evaluation.values["AP"] == pytest.approx(sum(both) / 3) != pytest.approx(sum(both) / 2)


@pytest.mark.slow
def test_dl19_bm25_run_has_the_published_values() -> None:
    run = trec.read_scored_run(DL19 / "run.trec2019-bm25.res.gz")
    qrels = trec.read_qrels(DL19 / "qrels.dl19-passage.txt.gz")
    evaluation = evaluate.evaluate(run, qrels, list(qrels), measure_names.parse(["AP", "nDCG@10"]))
    assert evaluation.values == pytest.approx({"AP": 0.3766, "nDCG@10": 0.4973}, abs=5e-5)
    assert evaluation.queries == 43
