"""`harness leaderboard`, as a person types it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.support import publisher
from tests.support.command_line import SCREEN_LINES, Call, call
from tests.support.publisher import Made

PUBLISHED = str(Path(__file__).resolve().parents[2] / "results" / "published" / "santhanam2023")


@pytest.fixture
def harness(four_systems: Call) -> Call:
    return four_systems


def test_leaderboard_shows_few_columns_and_what_is_not_ranked(harness: Call) -> None:
    lines = harness("leaderboard").stdout.splitlines()
    assert len(lines) <= SCREEN_LINES
    assert lines[0].startswith("scifact, single_stream, by Dynascore (reference), weights accuracy 0.5")
    assert [cell.strip() for cell in lines[2].strip("|").split("|")] == [
        *("rank", "system", "hardware", "priced on", "score", "RR@10", "US$/1M queries", "ms", "other queries", "")
    ]
    assert "- not ranked: dead on 1 CPU, 1 GiB (out of memory at 1 GiB)" in lines
    assert lines[-1] == "- all columns, methods and notes: --wide"


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "why"), [((1,), "no two rows differ enough in accuracy"), ((2,), None)])
def test_leaderboard_without_scores_says_why_and_what_gives_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: tuple[int, ...], why: str | None
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    results = publisher.put(tmp_path / "results", Made("a", 1.0, (1,)), Made("b", 2.0, ranks))
    said = [line for line in call("leaderboard", str(results)).stdout.splitlines() if "no score" in line]
    assert said == (
        []
        if why is None
        else [
            f"- no score, no rank: {why}, so nothing says how much cost and latency a point of accuracy is worth."
            " Say it with --amrs cost=NUMBER,latency=NUMBER, or rank by one axis with --rank-by cost."
        ]
    )
    wide = call("leaderboard", str(results), "--wide").stdout
    assert (f"cost none ({why}), latency none ({why})" in wide) == (why is not None)


def test_published_leaderboard_is_reproduced(harness: Call) -> None:
    done = harness("leaderboard", "--wide", PUBLISHED, "--dataset", "msmarco", "--as-of", "2022-12-05")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    rates = "rates of Santhanam et al. 2023, Table 4a: a point is worth 33.0507 ms or US$ 10.4392"
    assert lines[0].replace("\\", "") == f"**msmarco, single_stream, by Dynascore ({rates})**"
    assert lines[4].startswith("| 1 | ColBERTv2-M | cpu16-mem32 | c7g.4xlarge (0.58) | 19.130 |")
    assert "Santhanam et al. 2023, Table 4a: cost 10.4392 US$ per million queries (given)" in done.stdout
    assert "Mode reference" not in done.stdout
    assert "Set of systems: BM25, BT-SPLADE-L, ColBERTv2-L, ColBERTv2-M, ColBERTv2-S, DPR (28 rows)." in done.stdout


@pytest.mark.slow
def test_first_line_names_the_rates(harness: Call) -> None:
    def first(*options: str) -> str:
        return harness("leaderboard", PUBLISHED, "--dataset", "xortydi", *options).stdout.splitlines()[0]

    assert "rates of Santhanam et al. 2023, Table 4b: a point is worth 18.1102 ms or US$ 35.1647" in first()
    assert "(heavy emphasis on quality)" in first("--weights", "quality")
    assert "by Dynascore (robust)" in first("--mode", "robust")
    assert "by Dynascore (reference)" in first("--measures", "Success@10")
    asked = "by Dynascore (rates as asked: a point is worth US$ 2; latency reference)"
    assert asked in first("--amrs", "cost=2")
    assert (
        json.loads(harness("leaderboard", PUBLISHED, "--dataset", "xortydi", "--format", "json").stdout)["amrs_source"]
        == "Santhanam et al. 2023, Table 4b"
    )


@pytest.mark.slow
def test_csv_and_json_hold_the_same_values(harness: Call) -> None:
    lines = list(csv.DictReader(io.StringIO(harness("leaderboard", "--wide", "--format", "csv").stdout)))
    board = json.loads(harness("leaderboard", "--wide", "--format", "json").stdout)
    assert len(lines) == 5 and {line["system"] for line in lines if not line["rank"]} == {"dead"}
    ranked = [line for line in lines if line["rank"]]
    assert [float(line["dynascore"]) for line in ranked] == [each["dynascore"] for each in board["rows"]]
    assert [int(line["rank"]) for line in ranked] == [each["rank"] for each in board["rows"]] == [1, 2, 3, 4]
    (left,) = board["left_out"]
    assert (left["system"], left["outcome"]) == ("dead", "oom") and lines[-1]["reason"] == left["reason"]
    assert board["amrs"].keys() == {"cost", "latency"} and all(each["pairs"] for each in board["amrs"].values())
    for each in board["rows"]:
        assert each["rank_by_queries"]["best"] <= each["rank"] <= each["rank_by_queries"]["worst"]
        assert each["figures"]["accuracy"]["low"] < each["figures"]["accuracy"]["value"]


@pytest.mark.slow
def test_thresholds_exclude_rows_with_a_reason(harness: Call) -> None:
    done = harness("leaderboard", "--wide", "--at-most", "latency=25", "--rank-by", "accuracy")
    assert done.stdout.startswith("**scifact, single_stream, by accuracy, at most 25 latency**")
    assert "| bad | cpu1-mem1 | quick | mean latency 31.49 ms is above 25 |" in done.stdout
    assert "Dynascore" not in done.stdout
    cheapest = harness("leaderboard", "--wide", "--at-least", "accuracy=60", "--rank-by", "cost", "--format", "json")
    assert [each["system"] for each in json.loads(cheapest.stdout)["rows"]] == ["good", "bad"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--weights", "accuracy=0.5,cost=0.2"), "weights must not be negative and must sum to 1, these sum to 0.7"),
        (("--weights", "accuracy=1.5,cost=-0.5"), "not be negative"),
        (("--weights", "accuracy=0.5,speed=0.5"), "unknown axis 'speed'"),
        (("--weights", "half"), "unknown preset of weights 'half'; known: cost-sensitive, default, low-latency"),
        (("--weights", "cost=half"), "'cost=half' is not axis=number"),
        (("--weights", "accuracy=0.5,accuracy=0.5"), "accuracy appears twice"),
        (("--amrs", "latency=0"), "a rate must be above 0"),
        (("--amrs", "latency=nan"), "is not axis=number"),
        (("--front", "accuracy"), "name two or three axes"),
        (("--rank-by", "speed"), "unknown axis 'speed'"),
        (("--dataset", "scifct"), "Did you mean 'scifact'?"),
        (("--measures", "NDCG@10"), "unknown measure"),
        (("--suite", "other"), "no row of scifact has that suite"),
    ],
)
def test_invalid_options_are_one_line(harness: Call, arguments: tuple[str, ...], message: str) -> None:
    done = harness("leaderboard", "--wide", *arguments)
    assert done.exit_code == 2 and message in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.slow
def test_leaderboard_writes_a_page_that_opens_at_it(harness: Call, tmp_path: Path) -> None:
    options = ("--dataset", "xortydi", "--mode", "robust", "--weights", "accuracy=0.2,cost=0.3,latency=0.5")
    done = harness("leaderboard", PUBLISHED, *options, "--amrs", "cost=35.1647", "--format", "html", "-o", "page.html")
    assert done.exit_code == 0, done.output
    assert "w=0.200%2C0.300%2C0.500\\u0026mode=robust\\u0026rcost=35.1647" in (tmp_path / "page.html").read_text()
    refused = harness(
        "leaderboard", PUBLISHED, *options, "--at-most", "latency=5", "--format", "html", "-o", "page.html"
    )
    assert refused.exit_code == 2 and "leave --at-most or --at-least out" in refused.stderr


def test_a_dataset_must_be_chosen_among_several(harness: Call) -> None:
    done = harness("leaderboard", "--wide", PUBLISHED)
    assert done.exit_code == 2 and "--dataset msmarco | --dataset xortydi" in done.stderr
