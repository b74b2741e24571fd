import gzip
import math
import subprocess
import sys
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest

from harness.errors import UsageError, quoted_name
from harness.evaluation import evaluate, measure_names, trec

MEASURES = measure_names.parse(measure_names.DEFAULT)


def judge(
    rankings: dict[str, tuple[str, ...]], qrels: trec.Qrels, sample: list[str], *names: str
) -> evaluate.Evaluation:
    measures = measure_names.parse(names) if names else MEASURES
    return evaluate.evaluate(trec.Run(rankings, ()), qrels, sample, measures)


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


RUN = """\
q1 Q0 d3 1 9.5 bm25
q1 Q0 d1 2 8.25 bm25
q1 Q0 d2 3 1 bm25
q2 Q0 d9 1 3.5 bm25
"""
QRELS = """\
q1 0 d1 1
q1 0 d2 2
q1 0 d3 0
q2 0 d1 1
q3 0 d7 1
q9 0 d1 1
"""


def test_measures_match_the_calculation_by_hand(tmp_path: Path) -> None:
    run = trec.read_run(write(tmp_path / "run.trec.gz", RUN))
    qrels = trec.read_qrels(write(tmp_path / "qrels.trec.gz", QRELS))
    evaluation = evaluate.evaluate(run, qrels, ["q1", "q2", "q3", "q4"], MEASURES)
    # q1: first relevant at rank 2; gains 0, 1, 2 against the ideal 2, 1.  q2: a miss.  q3: no hits.  q4: not judged.
    # q9 is judged, but not in the sample.
    gain = (1 / math.log2(3) + 2 / math.log2(4)) / (2 / math.log2(2) + 1 / math.log2(3))
    assert evaluation.values == {
        "RR@10": pytest.approx(0.5 / 3),
        "Success@10": pytest.approx(1 / 3),
        "nDCG@10": pytest.approx(gain / 3),
    }
    assert evaluation.queries == 3
    assert evaluation.unjudged == ("q4",)
    assert evaluation.without_hits == ("q3",)
    assert evaluation.tied_queries == ()


def test_run_without_hits_scores_zero_in_all_measures() -> None:
    evaluation = judge({}, {"a": {"d": 1}, "b": {"d": 0}}, ["a", "b"])
    assert evaluation.values == {"RR@10": 0.0, "Success@10": 0.0, "nDCG@10": 0.0}
    assert evaluation.queries == 2
    assert evaluation.without_hits == ("a", "b")


def test_measures_without_judgements_are_missing_not_zero() -> None:
    evaluation = judge({"a": ("d",)}, {"b": {"d": 1}}, ["a"])
    assert evaluation.values == {"RR@10": None, "Success@10": None, "nDCG@10": None}
    assert evaluation.queries == 0
    assert evaluation.unjudged == ("a",)


@pytest.mark.parametrize("relevant", ["d1", "d2"])
def test_equal_scores_are_measured_in_returned_order(tmp_path: Path, relevant: str) -> None:
    # ir_measures alone would put d1 first for RR@10 and d2 first for nDCG@10, whatever was returned.
    text = "q Q0 d2 1 5.0 x\nq Q0 d1 2 5.0 x\n"
    run = trec.read_run(write(tmp_path / "run.trec", text))
    evaluation = evaluate.evaluate(run, {"q": {relevant: 1}}, ["q"], MEASURES)
    rank = {"d2": 1, "d1": 2}[relevant]
    assert evaluation.values["RR@10"] == pytest.approx(1 / rank)
    assert evaluation.values["nDCG@10"] == pytest.approx(1 / math.log2(rank + 1))
    assert evaluation.tied_queries == ("q",)


def test_unknown_query_in_the_run_is_named() -> None:
    with pytest.raises(UsageError, match=r"the run has 1 queries that are not in the sample, e\.g\. 'zz'"):
        judge({"zz": ("d",)}, {"a": {"d": 1}}, ["a"])


def test_measures_print_as_they_are_written() -> None:
    names = ("RR@10", "Success@10", "nDCG@10", "AP(rel=2)@100", "R@10", "RR@10")
    measures = measure_names.parse(names)
    assert [str(measure) for measure in measures] == list(names[:-1])
    assert [measure_names.cutoff(measure) for measure in measures] == [10, 10, 10, 100, 10]
    assert measure_names.cutoff(measure_names.parse(["RR"])[0]) is None


@pytest.mark.parametrize(
    ("names", "deeper"),
    [
        ("AP nDCG RR Rprec Bpref infAP AP(rel=2) R@11 AP@100", True),
        ("RR@10 P@5 nDCG@10 Judged@10 Judged NumRet NumRet(rel=1) NumRel NumQ SetP SetR SetF SetAP SetRelP", False),
    ],
)
def test_cutoff_and_set_measures_use_no_deeper_ranks(names: str, deeper: bool) -> None:
    for measure in measure_names.parse(names.split()):
        assert measure_names.looks_deeper(measure, 10) is deeper, measure


HITS_ALONE = {"a": {"x": 0, "y": 1}}  # query b was judged, and got no hits


@pytest.mark.parametrize(
    ("name", "value"),
    [("RR@10", 0.25), ("Success@1", 0.0), ("Success@2", 0.5), ("P@2", 0.25), ("SetP", 0.25), ("NumRet(rel=1)", 1.0)],
)
def test_some_measures_need_only_judged_hits(name: str, value: float) -> None:
    measures = measure_names.parse([name])
    run = trec.Run({"a": ("x", "y")}, ())
    evaluation = evaluate.evaluate(run, HITS_ALONE, ["a", "b"], measures, hits_alone=True)
    assert evaluation.values == {name: pytest.approx(value)} and evaluation.reasons == {}
    assert (evaluation.queries, evaluation.unjudged, evaluation.without_hits) == (2, (), ("b",))


@pytest.mark.parametrize(
    "name", ["nDCG@10", "R@10", "AP", "AP@10", "Rprec", "Bpref", "SetR", "SetF", "SetAP", "NumRel", "Judged@10", "F1@5"]
)
def test_measures_that_need_all_relevant_documents_are_missing_for_judged_hits(name: str) -> None:
    measures = measure_names.parse(["RR@10", name])
    evaluation = evaluate.evaluate(trec.Run({"a": ("y",)}, ()), HITS_ALONE, ["a"], measures, hits_alone=True)
    assert evaluation.values == {"RR@10": 1.0, str(measures[1]): None}
    assert evaluation.reasons[str(measures[1])].startswith("needs all relevant documents")


@pytest.mark.slow
def test_query_with_only_negative_grades_counts_and_provider_returns() -> None:
    """pytrec_eval alone never returns if this query follows another."""
    code = """
from harness.evaluation import evaluate, measure_names, trec
names = "RR AP AP@5 nDCG nDCG@10 R@5 P@5 Bpref Rprec infAP SetF".split()
qrels = {"a": {"d1": 2, "d2": 0}, "b": {"d1": -1, "d2": -2}, "c": {"d1": -1, "d2": 3}}
run = trec.Run({query: ("d1", "d2") for query in qrels}, ())
for _ in range(20):
    found = evaluate.evaluate(run, qrels, list(qrels), measure_names.parse(names))
    assert {name: of["b"] for name, of in found.per_query.items()} == dict.fromkeys(names, 0.0), found
    assert found.per_query["RR"] == {"a": 1.0, "b": 0.0, "c": 0.5}
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


@pytest.mark.parametrize("name", ["nDCG@10", "AP", "RR@10", "P@5", "SetF", "Rprec", "R@5", "Success@5"])
@pytest.mark.parametrize("grade", [-1, -2, -100])
def test_negative_grade_counts_as_zero(name: str, grade: int) -> None:
    run = {"q": ("d1", "d2", "d3")}
    values = [judge(run, {"q": {"d1": low, "d2": 2, "d4": 1, "d5": low}}, ["q"], name).values for low in (grade, 0)]
    assert values[0] == values[1]


def test_gdeval_measures_accept_query_ids_without_digits() -> None:
    qrels = {"q b": {"d1": 1}, "q a": {"d2": 2, "d1": -1}}
    evaluation = judge({"q a": ("d1", "d2"), "q b": ("d1",)}, qrels, ["q a", "q b", "q c"], "ERR@10", "RR@10")
    # gdeval prints five decimals; its gains are (2^grade - 1) / 16.
    assert evaluation.per_query["ERR@10"] == {
        "q a": pytest.approx(3 / 16 / 2, abs=1e-5),
        "q b": pytest.approx(1 / 16, abs=1e-5),
    }
    assert evaluation.per_query["RR@10"] == {"q a": 0.5, "q b": 1.0}


@pytest.mark.parametrize("names", [("Accuracy",), ("Accuracy", "RR")])
def test_mean_counts_every_query_with_any_provider(names: tuple[str, ...]) -> None:
    """Accuracy alone would be a mean over query a, which has something relevant; beside RR it is one over both."""
    evaluation = judge({"a": ("x", "y"), "b": ("x",)}, {"a": {"x": 1, "y": 0}, "b": {"x": 0}}, ["a", "b"], *names)
    assert evaluation.values["Accuracy"] == 0.5 and evaluation.per_query["Accuracy"] == {"a": 1.0, "b": 0.0}


def test_uncomputable_measure_has_a_reason_and_others_have_values() -> None:
    evaluation = judge(
        {"a": ("x",), "b": ("x",)}, {"a": {"x": 1}, "b": {"x": 0}}, ["a", "b"], "RR", "Accuracy", "ERR@5"
    )
    assert evaluation.values["Accuracy"] is None and evaluation.values["RR"] == 0.5
    assert evaluation.values["ERR@5"] is not None
    assert list(evaluation.reasons) == ["Accuracy"] and "Accuracy" not in evaluation.per_query
    assert evaluation.reasons["Accuracy"].startswith("cannot be computed for every query: float division")


def test_counts_cover_all_judged_queries() -> None:
    evaluation = judge({"a": ("x",)}, {"a": {"x": 1}, "b": {"y": 2, "z": 1}}, ["a", "b"], "NumQ", "NumRel", "NumRet")
    assert evaluation.values == {"NumQ": 2.0, "NumRel": 3.0, "NumRet": 1.0}


def test_many_queries_are_evaluated_in_batches_with_equal_results(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [f"q{number}" for number in range(30)]
    rankings = {query: ("x", "y", "z")[number % 3 :] for number, query in enumerate(queries) if number % 7}
    qrels = {query: {"y": 1, "z": number % 3 - 1} for number, query in enumerate(queries)}
    names = ("RR@10", "nDCG@10", "AP", "NumQ", "NumRet", "ERR@5", "Judged@2")
    whole = judge(rankings, qrels, queries, *names)
    monkeypatch.setattr(evaluate, "_MAX_ROWS", 7)
    parts = judge(rankings, qrels, queries, *names)
    assert parts.values == pytest.approx(whole.values) and parts.per_query == whole.per_query


def test_set_measures_accept_a_cutoff() -> None:
    rankings = {"a": ("x", "n", "y", "z"), "b": ("n",), "c": ()}
    qrels = {"a": {"x": 1, "y": 2, "z": 1, "w": 1}, "b": {"n": 1}, "c": {"n": 1}}
    names = ("SetF@2", "SetP@2", "SetR@3", "SetF(rel=2)@3", "SetF@100", "SetF", "SetF(beta=2.0)@2")
    evaluation = judge(rankings, qrels, list(qrels), *names)
    assert [str(each) for each in measure_names.parse(names)] == list(names)
    p, r = 1 / 2, 1 / 4
    assert evaluation.per_query["SetF@2"] == pytest.approx({"a": 2 * p * r / (p + r), "b": 1.0, "c": 0.0})
    assert evaluation.per_query["SetP@2"] == pytest.approx({"a": 1 / 2, "b": 1.0, "c": 0.0}), "of what there is"
    assert evaluation.per_query["SetR@3"] == pytest.approx({"a": 2 / 4, "b": 1.0, "c": 0.0})
    assert evaluation.per_query["SetF(rel=2)@3"]["a"] == pytest.approx(1 / 2)
    assert evaluation.per_query["SetF@100"] == evaluation.per_query["SetF"]
    assert evaluation.values["SetF@2"] == pytest.approx((1 / 3 + 1) / 3) and "SetF@2" in evaluation.means
    deeper = [measure_names.looks_deeper(measure, 10) for measure in measure_names.parse(["SetF@11", "SetF@10"])]
    assert deeper == [True, False]
    run, measures = trec.Run({"a": ("y", "x")}, ()), measure_names.parse(["SetP@1", "SetF@1"])
    alone = evaluate.evaluate(run, HITS_ALONE, ["a"], measures, hits_alone=True)
    assert alone.values == {"SetP@1": 1.0, "SetF@1": None}


# What ir_measures reads and its providers abort on, end in a traceback of, or silently compute as something else.
_REFUSED = {
    "the cutoff is a whole number from 1 to 2,147,483,647": (
        *("P@0", "nDCG@0", "R@0", "AP@0", "Success@0", "RR@0", "Judged@0", "ERR@0", "Accuracy@0", "SetF@0"),
        *("P@2147483648", "P@99999999999999999999", "P@True", "P@5.0", "SetF@9999999999", "P(cutoff=0)", "F1@0"),
    ),
    "rel, the lowest relevant grade, is 1 to 65,535": (
        *("AP(rel=0)", "R(rel=0)@5", "SetF(rel=0)@5", "NumRet(rel=0)", "P(rel=99999999999)@5", "NumRel(rel=0)"),
        *("Bpref(rel=0)", "infAP(rel=0)", "RR(rel=0)@5"),
    ),
    "rel is a whole number, not True": ("AP(rel=True)",),
    "gains map whole grades": (
        *("nDCG(gains={1:1.5})", "nDCG(gains={1:True})", "nDCG(gains={'a':1})", "nDCG(gains={1:100000000})"),
    ),
    "grade 0 is not relevant and gains nothing": ("nDCG(gains={0:1,1:2})@5",),
    "recall is 0 to 1 with at most two decimals": ("IPrec@1.5", "IPrec@0.123"),
    "beta is 0 or more": ("SetF(beta=1e400)",),
    "p is above 0 and below 1": ("Compat(p=1.0)", "Compat(p=2.0)"),
    "it needs a cutoff: P@10": ("P",),
    "it needs a recall: IPrec@0.1": ("IPrec",),
    "SetP has no cutoff": ("SetRelP@5",),
    "it needs a cutoff: F1@10; over all retrieved documents it is SetF;": ("F1",),
    "it needs a cutoff: F1(rel=2)@10; over all retrieved documents it is SetF(rel=2);": ("F1(rel=2)",),
    "P has no 'x'": ("F1(x=2)@3",),
    "write it like nDCG@10": (
        *("nDCG@ten", "nDCG@", "Compat@10", "RR@10;1", "__import__('os')", "RR(cutoff='x')"),
        *("SetF@-1", "SetF@x", "SetX@10", "SetF(cutoff=10)@10"),
    ),
    "RR has no 'bar'; it has cutoff, rel, judged_only": ("RR(bar=3)@10",),
    "dcg is one of 'log2', 'exp-log2'": ("nDCG(dcg='x')@5",),
    "it is not NAME, NAME@k or NAME(key=value)@k": ("RR@10 AP", "P@10@5", "AP(1)", "AP(**{})", "nDCG@nan", "(" * 300),
    "Did you mean 'nDCG@10'?": ("nDGC@10", "ndcg@10", "ndcg_cut_10", "ndcg_cut.10", "nDCG_10"),
    "Did you mean 'AP'?": ("map", "Map"),
    "Did you mean 'RR'?": ("mrr", "recip_rank"),
    "Did you mean 'AP@5'?": ("map_cut_5", "map@5"),
    "Did you mean 'P@5'?": ("P_5", "precision@5"),
    "Did you mean 'F1@3'?": ("f1@3",),
    "Did you mean 'IPrec@0.10'?": ("iprec_at_recall_0.10",),
    "it is empty": ("",),
    "R@1kt to R@10kt": ("R@0kt", "R@02kt", "R@11kt", "R@xkt"),
}


@pytest.mark.parametrize(("why", "names"), _REFUSED.items())
def test_measure_beyond_its_providers_is_refused(why: str, names: tuple[str, ...]) -> None:
    for name in names:
        with pytest.raises(UsageError) as caught:
            measure_names.parse([name])
        message = str(caught.value)
        assert message.startswith(f"unknown measure {quoted_name(name)}: ") and why in message
        assert "object at" not in message and "\n" not in message


@pytest.mark.parametrize("name", ["NERR8@5", "BPM@5", "INST", "RBP", "ERR_IA@5"])
def test_measure_without_a_provider_is_refused_before_its_parameters(name: str) -> None:
    with pytest.raises(UsageError, match="no installed provider of ir_measures computes"):
        measure_names.parse([name])


def test_extreme_parameters_are_computed() -> None:
    names = ("P@1", "RR@2147483647", "P(rel=65535)@1", "IPrec@1.0", "IPrec@0.07", "SetF(beta=0.0)", "Compat(p=0.5)")
    evaluation = judge({"a": ("x", "y")}, {"a": {"x": 1, "y": 65535}}, ["a"], *names, "nDCG(gains={1:2,2:65535})@2")
    assert not evaluation.reasons and None not in evaluation.values.values()
    assert evaluation.values["P(rel=65535)@1"] == 0.0 and evaluation.values["P@1"] == 1.0


@pytest.mark.parametrize("name", ["ERR@5", 'nDCG(dcg="exp-log2")@5'])
def test_grade_beyond_gdeval_loses_only_its_measures(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    qrels = {"a": {"w": 4, "x": 5}, "b": {"x": 1}}
    evaluation = judge({"a": ("w", "x"), "b": ("x",)}, qrels, ["a", "b"], name, "RR@10")
    (text,) = map(str, measure_names.parse([name]))
    assert evaluation.values[text] is None and evaluation.values["RR@10"] == 1.0
    assert evaluation.reasons == {
        text: "knows grades up to 4 (gdeval computes it); document 'x' of query 'a' has grade 5"
    }
    assert capfd.readouterr().err == "", "gdeval was not asked"
    assert judge({"a": ("w",)}, {"a": {"w": 4}}, ["a"], name).values[text] is not None


def test_provider_error_loses_only_its_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    import ir_measures

    ours = ir_measures.evaluator

    def fails(measures: list[Any], *rest: Any) -> Any:
        if any(measure.NAME == "P" for measure in measures):
            raise CalledProcessError(25, ["a program"])
        return ours(measures, *rest)

    monkeypatch.setattr(ir_measures, "evaluator", fails)
    evaluation = judge({"a": ("x",)}, {"a": {"x": 1}}, ["a"], "P@5", "RR@10", "SetP@1")
    assert evaluation.values == {"P@5": None, "RR@10": 1.0, "SetP@1": 1.0}
    why = "Command '['a program']' returned non-zero exit status 25."
    assert evaluation.reasons == {"P@5": f"cannot be computed for every query: {why}"}


def test_f1_is_the_harmonic_mean_of_precision_and_recall_at_the_cutoff() -> None:
    rankings = {"a": ("x", "n", "y"), "b": ("n",), "d": ("x", "y")}
    qrels = {"a": {"x": 1, "y": 2, "z": 1}, "b": {"x": 1}, "c": {"x": 1}, "d": {"x": 0}}
    names = ("F1@5", "P@5", "SetF@5", "F1(rel=2)@5", "F1@2")
    evaluation = judge(rankings, qrels, list(qrels), *names)
    assert [str(each) for each in measure_names.parse(names)] == list(names)
    assert evaluation.per_query["F1@5"] == pytest.approx({"a": 0.5, "b": 0.0, "c": 0.0, "d": 0.0}), "P@5 .4, R@5 .667"
    assert evaluation.per_query["SetF@5"]["a"] == pytest.approx(2 / 3), "of the three hits that there are"
    assert evaluation.per_query["F1(rel=2)@5"]["a"] == pytest.approx(2 * 0.2 / 1.2)
    assert evaluation.per_query["F1@2"]["a"] == pytest.approx(2 * 0.5 / 3 / (0.5 + 1 / 3))
    assert evaluation.values["F1@5"] == pytest.approx(0.125) and evaluation.means >= {"F1@5", "P@5"}
    assert set(evaluation.values) == set(names), "what F1 is made of is not shown unasked"


def test_gdeval_says_nothing_of_queries_and_locales(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query with only negative grades counts 0, also where no query has another."""
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")  # Perl complains of one that is not installed
    names = ("ERR@10", "ERR@5", "nDCG(dcg='exp-log2')@10")
    evaluation = judge({"1": ("a",), "2": ("b",)}, {"1": {"a": 1}, "2": {"b": -2}}, ["1", "2"], *names)
    assert evaluation.reasons == {}
    assert evaluation.per_query["ERR@10"] == evaluation.per_query["ERR@5"] == {"1": 0.0625, "2": 0.0}
    assert evaluation.per_query[names[2]] == {"1": 1.0, "2": 0.0}
    alone = judge({"2": ("b",)}, {"2": {"b": -2}}, ["2"], *names)
    assert alone.values == dict.fromkeys(names, 0.0)
    assert capfd.readouterr() == ("", "")
