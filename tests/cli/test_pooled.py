"""`harness report --pooled`: several machines' results in one table."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from harness.driver.records import Outcome
from harness.results import origins
from harness.results.origins import Origin
from tests.support import publisher
from tests.support.command_line import Call, call
from tests.support.publisher import Made

SPEEDS = (1.0, 1.1, 1.3, 1.6, 2.0)


def merged(root: Path, machines: int = len(SPEEDS), failed: int = 0) -> Path:
    """Put merged results of some machines, of which some failed at one system."""
    for number, speed in enumerate(SPEEDS[:machines]):
        folder = publisher.put(
            root / f"m{number}",
            Made("tantivy", 0.05 * speed, canary_s=0.01 * speed, jitter=0.01),
            Made("bm25", 0.4 * speed, canary_s=0.01 * speed, jitter=0.01),
            *([Made("splade", 4.0, outcome=Outcome.OOM)] if number < failed else [Made("splade", 4.0 * speed)]),
        )
        (folder / origins.FILE).write_text(origins.text(Origin(name=f"m{number}", jobs=9, sha256="0" * 64)))
    return root


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line where results are."""
    monkeypatch.chdir(tmp_path)
    return call


@pytest.mark.slow
def test_each_system_has_an_interval_for_another_machine(harness: Call, tmp_path: Path) -> None:
    merged(tmp_path / "results")
    done = harness("report", "--pooled")
    assert done.exit_code == 0, done.output
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0] == "scifact single_stream cpu1-mem1, on another machine (95 %)"
    assert lines[2] == "| system | machines | latency, ms | US$ per million | times tantivy | share of machines |"
    # By hand: 0.4 ms x 1.0496 (mean over the queries) x 1.3555 (geometric mean of the speeds); the interval is a factor
    # of exp(2.77645 x 0.28138 x sqrt(1.2)).
    assert next(line for line in lines if line.startswith("| bm25 ")).startswith("| bm25 | 5 | 0.569 (0.242–1.339) | ")
    assert (
        any(line.endswith("| 8.00 (8.00–8.00) | 100 % |") for line in lines)
        and "5 of 5 machines have the processor CPU" in done.stdout
    )
    assert sum(line.startswith("- ") for line in lines) <= 5


@pytest.mark.slow
def test_programs_get_every_figure_with_its_covariates(harness: Call, tmp_path: Path) -> None:
    merged(tmp_path / "results")
    found = json.loads(harness("report", "--pooled", "--format", "json").stdout)
    assert found["pooled_version"] == 1 and found["method"]
    one = next(each for each in found["figures"] if (each["system"], each["figure"]) == ("bm25", "latency_mean_ms"))
    assert one["machines"] == 5 and one["reference"] == "tantivy"
    assert one["fixed_work_ms"] == pytest.approx(13.0) and one["at_fixed_work"] == pytest.approx(
        0.4 * 1.0496 * 1.3, rel=1e-3
    )
    assert one["explained_by_fixed_work"] == pytest.approx(1.0) and one["machine_share"] > 0.99
    lines = list(csv.DictReader(io.StringIO(harness("report", "--pooled", "--format", "csv").stdout)))
    assert {line["figure"] for line in lines} >= {"latency_mean_ms", "p95_ms", "cost", "peak_anon_mib", "index_build_s"}
    wide = harness("report", "--pooled", "--wide").stdout
    assert "peak anonymous, MiB" in wide and "intraclass correlation" in wide


@pytest.mark.slow
def test_failures_and_missing_machines_are_said(harness: Call, tmp_path: Path) -> None:
    merged(tmp_path / "results", failed=2)
    done = harness("report", "--pooled", "--reference", "bm25")
    assert "splade cpu1-mem1: oom on 2 of 5 machines; an interval for another machine needs 4 machines" in done.stdout
    line = next(line for line in done.stdout.splitlines() if line.startswith("| splade"))
    assert line.split()[3:6] == ["3", "|", "—"], "three machines give no interval"
    assert "times bm25" in done.stdout and "US$: priced on c7a.medium in us-east-1, on-demand, " in done.stdout
    assert "splade cpu1-mem1 is no reference: " in harness("report", "--pooled", "--reference", "splade").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machines", "words", "said"),
    [
        (3, (), "needs 4 machines, and at most 3 measured one cell"),
        (5, ("--reference", "bm26"), "--reference 'bm26': no such system. Did you mean 'bm25'?"),
        (5, ("--format", "html"), "--pooled has its own columns"),
        (5, ("--sort", "latency"), "--pooled has its own columns"),
    ],
)
def test_refusals(harness: Call, tmp_path: Path, machines: int, words: tuple[str, ...], said: str) -> None:
    merged(tmp_path / "results", machines)
    done = harness("report", "--pooled", *words)
    assert done.exit_code == 2 and said in done.stderr, done.output


@pytest.mark.slow
def test_results_of_one_machine_are_refused(harness: Call, tmp_path: Path) -> None:
    publisher.put(tmp_path / "results", Made("bm25", 1.0))
    assert "no row has an origin" in harness("report", "--pooled").stderr
    assert "--reference needs --pooled" in harness("report", "--reference", "bm25").stderr
