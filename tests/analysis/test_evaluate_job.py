"""Frechet distances stand beside measures and cost in a report, by the vectors kept beside the results."""

from __future__ import annotations

import csv
import functools
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.analysis import evaluate_job
from harness.errors import UsageError
from harness.evaluation import embeddings, measure_names, trec
from harness.evaluation.embeddings import Embeddings
from harness.evaluation.frechet import Settings, distances
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.measure_names import DistanceName
from tests.support import publisher
from tests.support.command_line import Call, call
from tests.support.publisher import Made

DOCUMENTS = ("right", *(f"wrong{number}" for number in range(1, 11)))


def vectors(corpus: str, encoder: str = "minilm") -> Embeddings:
    made = np.random.default_rng(7).normal(size=(len(DOCUMENTS), 4)).astype(np.float32)
    return Embeddings(DOCUMENTS, made, encoder, "c" * 64, "document", corpus)


def keep(results: Path, made: Embeddings) -> None:
    path = embeddings.embeddings_path(results, made)
    path.parent.mkdir(exist_ok=True)
    embeddings.write(path, made)


# A report takes 1,000, whose number is in its note below.
FEW = Settings(resamples=100)


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate_job, "Settings", functools.partial(Settings, resamples=FEW.resamples))


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    publisher.put(tmp_path / "results", Made("early", 2.0, (1, 2)), Made("late", 2.0, (3, 0)))
    publisher.put(tmp_path / "results", Made("early", 2.0, (1, 2), profile="cpu2-mem4"), suite="other")
    return call


def corpus_of(results: Path) -> str:
    from harness.results.reader import read_jobs

    (found,) = {job.result.spec.corpus_sha256 for job in read_jobs(results)}
    return str(found)


def rows(harness: Call, *options: str) -> list[dict[str, str]]:
    done = harness("report", "--format", "csv", *options)
    assert done.exit_code == 0, done.output
    return list(csv.DictReader(io.StringIO(done.stdout)))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("FD@10", DistanceName(10)),
        ("FD(judged=5)@1", DistanceName(1, judged=5)),
        ("FD(judged='all',unlabelled=True)@3", DistanceName(3, judged=None, unlabelled=True)),
        ("FD(encoder='minilm')@10", DistanceName(10, encoder="minilm")),
    ],
)
def test_distance_names_parse_back(text: str, name: DistanceName) -> None:
    assert measure_names.parse_distance(text) == name
    assert str(name) == text
    assert measure_names.parse(["RR@10", text], distances=True)[1] == name
    with pytest.raises(UsageError, match="is a distance of a whole run, and less is better"):
        measure_names.parse([text])


@pytest.mark.parametrize("text", ["AP", "nDCG@10", "FDR@10"])
def test_names_of_other_measures_are_not_parsed(text: str) -> None:
    assert measure_names.parse_distance(text) is None


MALFORMED = (
    "FD FD@0 FD()@x FD(5)@10 FD(judged=0)@10 FD(judged=True)@10 FD(k=3)@10 FD(unlabelled=1)@10 "
    "FD(encoder='')@10 FD(encoder=open('x'))@10 FD(judged=5)(x)@10 FD(**x)@10 FD(judged=5,judged=6)@1"
)


@pytest.mark.parametrize("text", MALFORMED.split())
def test_malformed_distance_name_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(UsageError, match=r"unknown distance .*; write FD@10, with any of judged=5"):
        measure_names.parse_distance(text)


@pytest.mark.slow
@pytest.mark.usefixtures("few_resamples")
def test_a_report_shows_distances_beside_cost(harness: Call, tmp_path: Path) -> None:
    results = tmp_path / "results"
    asked = ("--measures", "RR@10 FD@10 FD(unlabelled=True)@2")
    before = rows(harness, *asked)
    assert {row["FD@10"] for row in before} == {""}
    message = "FD@10: the results folder has no vectors of the documents; make them with"
    assert f"{message} `harness embed minilm scifact --results " in harness("report", "--wide", *asked).stdout

    made = vectors(corpus_of(results))
    keep(results, made)
    found = rows(harness, *asked)
    assert len({row["FD@10"] for row in found if row["system"] == "early"}) == 1, "profiles share a run"
    for row in found:
        job = next(results.glob(f"*/{row['system']}/*/*/*/{row['key']}"))
        run, qrels = trec.read_run(job / "run.trec.gz"), {query: {"right": 1} for query in publisher.QUERIES}
        for name, k, settings in (("FD@10", 10, FEW), ("FD(unlabelled=True)@2", 2, replace(FEW, unlabelled=True))):
            plain = replace(settings, unlabelled=False)
            if settings.unlabelled:
                kept = {query: tuple(each for each in hits if each != "right") for query, hits in run.rankings.items()}
                run = replace(run, rankings=kept)
            runs = JudgedRuns("", dict.fromkeys(publisher.QUERIES, ""), qrels, {"": run})
            value = distances(runs, made, (k,), plain).systems[""][0].figure
            assert float(row[name]) == pytest.approx(value.value)
            assert float(row[f"{name}_low"]) == pytest.approx(value.low)
        assert any(float(value) > 0 for name, value in row.items() if name.startswith("usd_per_million") and value)
    text = harness("report", "--wide", *asked).stdout
    assert "Frechet distance between the first 10 hits of 140 queries and 140 judged documents, by minilm" in text
    assert "FD(unlabelled=True)@2: Frechet distance between the first 2 hits, judged ones skipped, of 140" in text


@pytest.mark.slow
@pytest.mark.usefixtures("few_resamples")
def test_one_of_several_encoders_must_be_named(harness: Call, tmp_path: Path) -> None:
    results = tmp_path / "results"
    for encoder in ("minilm", "other"):
        made = replace(vectors(corpus_of(results), encoder), checkpoint_sha256=encoder * 8)
        keep(results, made)
    text = harness("report", "--wide", "--measures", "FD@10 FD(encoder='other')@10 FD(encoder='third')@10").stdout
    assert "FD@10: vectors by minilm, other are kept; ask for one encoder, e.g. FD(encoder='minilm')@10" in text
    assert "FD(encoder='other')@10: Frechet distance between the first 10 hits" in text
    assert "FD(encoder='third')@10: the results folder has no vectors of the documents by third" in text


@pytest.mark.slow
def test_each_ranking_is_measured_once_and_noted_once(
    harness: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, looked = tmp_path / "results", []
    made = vectors(corpus_of(results))
    keep(results, made)
    distances = evaluate_job.distances

    def counted(*given: object) -> object:
        looked.append(given)
        return distances(*given)

    monkeypatch.setattr(evaluate_job, "distances", counted)
    done = harness("report", "--wide", "--measures", "FD@10")
    assert len(looked) == 2, "two systems, three rows"
    assert done.stderr.count("Frechet distances, 1,000 bootstraps each") == 1
    harness("report", "--wide", "--measures", "FD@10")
    assert len(looked) == 2, "rows are kept"
    (results / "embeddings").rename(results / "gone")
    assert "no vectors" in harness("report", "--wide", "--measures", "FD@10").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("leaderboard", "--dataset", "scifact", "--measures", "FD@10"),
        ("compare", "early", "late", "--measures", "FD@10"),
        ("report", "--format", "html", "-o", "page.html", "--measures", "FD@10"),
        ("report", "--format", "png", "-o", "pictures", "--measures", "FD@10"),
    ],
)
def test_commands_that_need_larger_is_better_refuse_distances(harness: Call, arguments: tuple[str, ...]) -> None:
    done = harness(*arguments)
    assert done.exit_code == 2
    assert "FD@10 is a distance of a whole run, and less is better" in done.stderr
    assert "harness report in the formats md, csv, json and latex" in done.stderr
