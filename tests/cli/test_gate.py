"""`harness compare --fail-if`: a gate in a workflow, as its log and its exit code show it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.support import publisher
from tests.support.command_line import Call
from tests.support.publisher import Made


@pytest.fixture
def harness(four_systems: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    return four_systems


def test_a_system_that_loses_quality_fails(harness: Call) -> None:
    done = harness("compare", "good", "bad", "--fail-if", "RR@10 < -0.01", "--fail-if", "index > +0MiB")
    assert done.exit_code == 1, done.output
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert any(
        line.startswith("| worse | bad against good | RR@10 | 0.836 | 0.668 | -0.168 (-0.208 to -0.128)")
        for line in lines
    ), done.stdout
    assert any(
        line.startswith("| not worse | bad against good | index, MiB | 8.00 | 8.00 | +0 | at most +0 |")
        for line in lines
    )
    assert lines[-1] == "- 1 worse, 1 not worse, of 2 conditions: exit code 1"


@pytest.mark.slow
def test_the_same_results_are_not_worse_than_themselves(harness: Call, tmp_path: Path) -> None:
    words = ("compare", "--baseline", "results", str(tmp_path / "results"))
    done = harness(*words, "--fail-if", "RR@10 < -0.01", "--fail-if", "index > +0%", "--format", "json")
    found = json.loads(done.stdout)
    assert found["gate_version"] == 1 and found["exit_code"] == done.exit_code == 0
    answers = {(item["row_a"].partition("/")[0], item["answer"], item["reason"]) for item in found["checked"]}
    assert {
        ("good", "not worse", None),
        ("dead", "not worse", "both ended oom: killed by the kernel at the memory limit"),
    } <= answers
    for answer, code in (((), 3), (("--cannot-tell", "ok"), 0), (("--cannot-tell", "fail"), 1)):
        done = harness(*words, "--fail-if", "index_build_s > +5%", *answer)
        assert done.exit_code == code and f"exit code {code}" in done.stdout
    plain = harness(*words)
    assert plain.exit_code == 0 and plain.stdout.startswith("5 pairs, by RR@10")


@pytest.mark.slow
def test_a_measure_that_no_suite_names_can_be_a_condition(harness: Call) -> None:
    done = harness(
        "compare",
        "good",
        "bad",
        "--fail-if",
        "P@1 < -0.01",
        "--fail-if",
        "MRR@10 < -0.9",
        "--fail-if",
        "p95_ms > +100ms",
        "--format",
        "csv",
    )
    line, mrr, p95 = csv.DictReader(io.StringIO(done.stdout))
    assert (mrr["figure"], mrr["answer"]) == ("RR@10", "not worse")
    assert (p95["answer"], p95["unit"], p95["limit"]) == ("not worse", "ms", "100.0")
    assert (line["answer"], line["figure"], line["limit"], line["fails_if"]) == ("worse", "P@1", "-0.01", "less")
    assert float(line["change_high"]) < -0.01 and float(line["change"]) == pytest.approx(-47 / 140)


@pytest.mark.slow
def test_the_summary_of_a_workflow_has_the_answers(
    harness: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "missing" / "summary.md"))
    done = harness("compare", "good", "bad", "--fail-if", "RR@10 < -0.01")
    assert done.exit_code == 1 and "summary.md cannot be written" in done.stderr
    summary = tmp_path / "summary.md"
    summary.write_text("# Before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    harness("compare", "good", "bad", "--fail-if", "RR@10 < -0.01")
    text = summary.read_text()
    assert text.startswith("# Before\n") and "| worse " in text and "Bonferroni" in text


@pytest.mark.slow
def test_a_slowdown_of_every_process_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.command_line import call

    monkeypatch.chdir(tmp_path)
    for folder, factor in (("main", 1.0), ("branch", 1.08), ("again", 1.002)):
        publisher.put(tmp_path / folder, Made("tantivy", 2.0 * factor, (1, 2, 0), jobs=5))
    words = ("compare", "--baseline", "main")
    assert call(*words, "branch", "--fail-if", "latency > +5%").exit_code == 1
    assert call(*words, "again", "--fail-if", "latency > +5%").exit_code == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["good", "bad", "--fail-if", "latency > 5%"],
            "--fail-if 'latency > 5%' is not a condition; write it as FIGURE",
        ),
        (["good", "bad", "--fail-if", "latncy > +5%"], "no figure 'latncy'. Did you mean 'latency'?"),
        (["good", "bad", "--fail-if", "memory > +5ms"], "memory is in MiB; write the change in it, or in %"),
        (["good", "bad", "--cannot-tell", "ok"], "--cannot-tell needs --fail-if"),
        (["--baseline", "results", "results", "results"], "compares one folder of results with it, not 2"),
        (["--baseline", "results", "nowhere"], "nowhere"),
        (["--baseline", "results", "results", "--with", "results"], "--with does not go with --baseline"),
    ],
)
def test_a_wrong_gate_is_one_line(harness: Call, given: list[str], said: str) -> None:
    done = harness("compare", *given)
    assert done.exit_code == 2 and said in done.stderr and done.stderr.count("\n") <= 3, done.output
