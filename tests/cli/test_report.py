"""`harness report`: formats, measures and layouts, as a person types them."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.results_folder import ReadResults
from harness.analysis.rows import build_rows
from harness.cli import stored_results
from harness.cli.stored_results import StoredResults
from harness.results.reader import RUN
from tests.conftest import Bench
from tests.support import publisher
from tests.support.command_line import Call, assert_refused, call
from tests.support.published import SHIPPED
from tests.support.publisher import Made
from tests.support.stored_jobs import Maker


@pytest.mark.parametrize(
    "options",
    [
        ("--sort", "cost", "--format", "csv"),
        ("--columns", "cost", "--wide"),
        ("--sort", "cost", "--layout", "santhanam2023"),
        ("--columns", "cost", "--format", "html"),
        ("--currency", "gCO2e", "--format", "csv"),
    ],
)
def test_options_of_the_short_table_are_refused_elsewhere(bench: Bench, options: tuple[str, ...]) -> None:
    message = "--columns, --sort and --currency change the short table; leave"
    assert_refused(call("report", str(bench.results), *options), message)


def test_published_tables_have_the_short_table_where_columns_are_named() -> None:
    shown = call("report", str(SHIPPED), "--columns", "cost").stdout
    assert "US$/1M queries" in shown and "Table 1:" not in shown


def test_layout_of_the_paper_has_its_measures_unless_others_are_named(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, jobs = [], [make()]

    def read(stored: StoredResults, **_: Any) -> ReadResults:
        options.append(stored.measures)
        return ReadResults(build_rows(jobs, JobEvaluator(stored.measures)).table, dict)

    monkeypatch.setattr(StoredResults, "read", read)
    usual = ["report", str(make.folder), "--layout", "santhanam2023", "--as-of", "2026-07-20"]
    assert call(*usual).exit_code == call(*usual, "--measures", "nDCG@10").exit_code == 0
    assert options == [("RR@10", "Success@10"), ("nDCG@10",)]


@pytest.mark.slow
def test_the_sentence_is_the_same_from_a_kept_test_and_follows_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = publisher.put(tmp_path / "results", Made("a", 2.0, (1, 2)), Made("b", 5.0, (0, 2)))
    command = ("report", str(results), "--cache", str(tmp_path / "cache"))
    shown = call(*command).stdout
    scope = "This tests RR@10 alone (95 %, over queries); harness compare tests every measure and latency together"
    sentence = "a costs 2.5x less than b and is 50.0 points RR@10 better [41.7, 58.5] on these queries."
    assert f"\n{sentence} {scope} (Holm), and may show less.\n" in shown
    (values,) = (tmp_path / "cache" / "tables").glob("*.queries.parquet")
    values.unlink()
    assert call(*command).stdout == shown and not values.exists()
    with monkeypatch.context() as patch:
        patch.setattr(stored_results, "_MOST_TESTED", 1)
        assert "b and is 50.0 points RR@10 better (not tested)." in call(*command).stdout, "too many rows for a test"
    for path in (results / "quick" / "a").rglob(RUN):
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"right", b"other")))
    assert "b and is 25.0 points RR@10 worse [20.8, 29.2] on these queries." in call(*command).stdout


def test_latex_is_one_table_and_all_tables_only_when_asked_for(tmp_path: Path) -> None:
    one, all_of_it = tmp_path / "one.tex", tmp_path / "all.tex"
    for path, options in ((one, ()), (all_of_it, ("--wide",))):
        done = call("report", str(SHIPPED.parent / "quickstart"), "--format", "latex", "-o", str(path), *options)
        assert done.exit_code == 0, done.output
    assert one.read_text().count(r"\caption") == 1 and "Prices: aws" not in one.read_text()
    assert all_of_it.read_text().count(r"\caption") > 1 and "Prices: aws" in all_of_it.read_text()


@pytest.mark.slow
def test_report_says_what_is_wrong_with_the_data(harness: Call, bench: Bench) -> None:
    with (bench.folder / "tiny" / "queries.jsonl").open("a") as file:
        file.write('{"_id": "q99", "text": " "}\n')
    bench.suite()
    said = "tiny: 1 of 7 queries are blank, such as 'q99'; they are asked anyway"
    ran = harness("run", "test-suite.toml", "--launcher", "fake")
    assert f"- {said}." in ran.stdout and f"  {said}\n" in ran.stderr
    assert f"- {said}." in harness("report").stdout and f"- {said}." in harness("report", "--wide").stdout


@pytest.mark.slow
def test_grams_of_co2e_follow_the_grid() -> None:
    shown = call("report", "quickstart", "--currency", "gCO2e")
    assert "gCO2e/1M queries (estimate)" in shown.output and "an estimate, not a measurement" in shown.output
    # us-east-1 has 379.069 g per kWh.
    low, twice = (
        [float(low) for each in csv.DictReader(io.StringIO(done.stdout)) if (low := each["gco2e_per_million_low"])]
        for done in (
            call("report", "quickstart", "--format", "csv"),
            call("report", "quickstart", "--format", "csv", "--grid", "758.138"),
        )
    )
    assert len(low) == 4 and twice == pytest.approx([2 * each for each in low])
    explained = call("explain", "tantivy", "--results", "quickstart", "--grid", "eu-north-1").output
    assert "8 g per kWh (aws/eu-north-1), factors of 2026-11-29" in " ".join(explained.split())
    assert_refused(call("report", "quickstart", "--grid", "eu-nort-1"), "Did you mean 'aws/eu-north-1'")
    assert_refused(
        call("report", "quickstart", "--currency", "gCO2e", "--region", "gcp/us-central1"),
        "no row has an estimate of CO2e: the factors of 2026-11-29 have no grams of CO2e a kWh for gcp/us-central1",
    )
    assert_refused(call("report", "santhanam2023", "--currency", "gCO2e"), "the row was not measured here")
