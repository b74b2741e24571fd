"""The figures of DuReader-retrieval's text: those that follow from others, and those that harness has as defaults."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from harness.analysis import published_measures
from harness.cli import judgements as pool
from harness.datasets import dureader_questions
from harness.evaluation import packages
from harness.launch.images import catalog
from scripts.compare_with_paper import files_of_others
from tests.support.command_line import call

FOLDER = Path(__file__).resolve().parents[2] / "results" / "published" / "qiu2022"
# When `python -m scripts.compare_with_paper` had found each figure in the text.
SHA256 = "e66b7d97dba5b015d975226201ea763f928344d1b85e2ace1e7f0d3c5875fb85"


def value(fact: str) -> str:
    (line,) = (line for line in published_measures.read(FOLDER).lines["text"] if line["fact"] == fact)
    return line["value"]


def test_facts_are_those_that_were_compared_with_the_text() -> None:
    assert hashlib.sha256((FOLDER / "facts.csv").read_bytes()).hexdigest() == SHA256


@pytest.mark.slow
def test_defaults_are_the_figures_of_the_text() -> None:
    rule, plan = dureader_questions.DEFAULT_RULE, packages.CheckPlan()
    assert (str(rule.threshold), str(rule.characters)) == (value("the threshold"), value("document is less than"))
    assert str(pool.DEEP) == value("top-50 retrieved passages as candidates")
    assert str(pool.KEPT) == value("pooled from five retrieval systems")
    assert (plan.pairs, str(plan.checked)) == (1000, value("random query-paragraph pairs"))
    assert value("divided into packages") == "1K"
    assert f"{100 * packages.ACCURACY:g}" == value("average accuracy is less than the threshold")
    systems = catalog.systems()
    question, passage = (int(value(f"maximal length of questions{rest}")) for rest in ("", " and passages"))
    encoder, crossed = systems["dureader-de"], systems["dureader-ce"]
    assert (encoder.search_params["query_tokens"], encoder.build_params["document_tokens"]) == (question, passage)
    assert crossed.search_params["query_tokens"] == question
    assert crossed.build_params["document_tokens"] == passage - question - 3


def test_figures_of_the_text_follow_from_each_other_but_for_the_errata() -> None:
    shares = {name: float(value(name)) for name in ("simply predicting its output", "noise in the query or paragraph")}
    assert round(sum(shares.values()), 1) == float(value("two other typical challenges"))
    queries = float(value("queries in development and testing set"))
    assert round(100 * queries / 6000, 2) == float(value("of total development and testing queries")), "2K and 4K"
    erratum = next(each for each in published_measures.read(FOLDER).about.errata if each.name == "E2")
    assert f"{sum(float(value(fact)) for fact in erratum.systems):.1f} % together" in erratum.follows


def test_baseline_names_its_source_and_stays_out_of_the_comparison() -> None:
    done = call("report", str(FOLDER), "--wide")
    assert done.exit_code == 0 and "From: README of PaddlePaddle/RocketQA at 179ff77" in done.stdout
    assert files_of_others(FOLDER) == {"baseline_dev.csv"}
