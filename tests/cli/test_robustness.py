"""`harness robustness`, as a person types it."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from scripts.docs import example_runs
from tests.support import publisher
from tests.support.command_line import Call, call
from tests.support.publisher import Made

pytestmark = pytest.mark.slow

QRELS = ("--qrels", "qrels.txt")


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    return functools.partial(call, "robustness")


def test_robustness_covers_stored_results_of_several_datasets(harness: Call, tmp_path: Path) -> None:
    publisher.put(
        tmp_path / "results",
        Made("good", 20.0, (1, 1, 2)),
        Made("bad", 30.0, (2, 1, 3)),
        Made("dead", 1.0, outcome=publisher.Outcome.OOM),
        Made("only", 1.0, dataset="nfcorpus"),
    )
    done = harness("--measures", "nDCG@10 Success@1", "--keep", "1")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("**scifact, by nDCG@10, 140 judged queries**")
    assert "good" in done.stdout and "dead" not in done.stdout
    assert done.stderr == "nfcorpus: left out, because only is its only system\n"
    alone = harness("--only", "only")
    assert alone.exit_code == 2 and alone.stderr.count("\n") == 1
    assert "nfcorpus: an order needs two systems, but only only is here; name another" in alone.stderr


def test_robustness_of_run_files_draws_pictures(harness: Call, tmp_path: Path) -> None:
    example_runs.write(tmp_path)
    options = ("zeta.run", "gamma.run", *QRELS, "--resamples", "100", "--draws", "5", "--seed", "3")
    (board,) = json.loads(harness(*options, "--format", "json").stdout)["leaderboards"]
    assert [each["name"] for each in board["conditions"]] == [
        "resampled",
        "at most 1 relevant a query",
        "50 % of all",
        "RR@10",
        "AP",
    ]
    assert [each["draws"] for each in board["conditions"]] == [100, 5, 5, 100, 100]
    (any_grade,) = json.loads(harness(*options, "--any-grade", "--format", "json").stdout)["leaderboards"]
    assert any_grade["conditions"][1]["name"] == "at most 1 relevant a query, of any grade"
    drawn = harness(*options, "--format", "svg", "-o", "pictures")
    assert drawn.exit_code == 0, drawn.output
    assert [Path(line) for line in drawn.stdout.splitlines()] == [Path("pictures") / "qrels.txt-flips.svg"]
    assert "gamma" in (tmp_path / "pictures" / "qrels.txt-flips.svg").read_text()


def test_robustness_without_a_picture_prints_the_reason(harness: Call, tmp_path: Path) -> None:
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\n")
    for name in ("one", "two"):
        (tmp_path / f"{name}.run").write_text("q1 Q0 d1 1 2.0 x\n")
    done = harness("one.run", "two.run", *QRELS, "--measures", "nDCG@10", "--keep", "1", "--format", "png", "-o", "p")
    assert "no matrix of other queries, resampled: resampling needs 11 queries, there are 1" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--measures", "XYZ@10"), "unknown measure 'XYZ@10'"),
        (("--measures", "nDCG@10 AP ABC"), "unknown measure 'ABC'"),
        (("--keep", "2.5"), "--keep 2.5: write a number of relevant judgements"),
        (("--format", "png"), "--format png writes several files; name a folder for them with -o"),
        (("--measures", "NumRet"), "NumRet makes no leaderboard: it is not a mean over queries; name another first in"),
        (("missing.run",), "missing.run: this file does not exist"),
    ],
)
def test_invalid_options_are_one_line(harness: Call, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    example_runs.write(tmp_path)
    done = harness("alpha.run", "beta.run", *QRELS, *arguments)
    assert done.exit_code == 2 and message in done.stderr and done.stderr.count("\n") == 1
