"""A passport: a row in a kilobyte, read without samples, and refused once it was changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from harness.analysis import passport, results_folder, row_pricing
from harness.analysis.passport import Hub
from harness.analysis.table import Cause, Finding, Row, Validity
from harness.driver.records import Outcome
from harness.errors import FileError, UsageError
from harness.estimate import Estimate
from harness.pricing import prices
from harness.results import isolation, reader, seals
from tests.support import publisher
from tests.support.publisher import Made

PLAIN = Hub()
TARIFF = row_pricing.tariff(prices.snapshot(region="aws/us-east-1"))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Results of two systems."""
    return publisher.put(tmp_path / "results", Made("bm25", 2.0, ranks=(1, 2, 0)), Made("minilm", 9.0))


def priced(results: Path) -> list[Row]:
    return list(row_pricing.price(results_folder.read(results).table, TARIFF).rows)


def entry(results: Path, system: str = "bm25", hub: Hub = PLAIN, **changes: Any) -> dict[str, Any]:
    """Return the entry of a row, of which some fields are changed before."""
    row = replace(next(row for row in priced(results) if row.system == system), **changes)
    job = next(job for job in reader.read_jobs(results) if job.result.key == row.key)
    return passport.of_row(row, job, "RR@10", hub)


def put(path: Path, *entries: dict[str, Any]) -> Path:
    path.write_text(passport.written(entries), encoding="utf-8")
    return path


def sealed(raw: dict[str, Any]) -> dict[str, Any]:
    return {**raw, "seal": seals.of(raw)}


@pytest.mark.slow
def test_a_row_has_the_same_figures_and_the_same_cost_without_its_samples(results: Path, tmp_path: Path) -> None:
    path = put(tmp_path / "bm25.yaml", entry(results))
    (whole,), (alone,) = [row for row in priced(results) if row.system == "bm25"], priced(path)
    assert len(path.read_bytes()) <= 1300
    for read in (
        lambda row: row.latency.mean_s,
        lambda row: row.usd_per_million,
        lambda row: row.measures["RR@10"],
    ):
        for end in ("low", "value", "high"):
            assert getattr(read(alone), end) == pytest.approx(getattr(read(whole), end), rel=1e-3)
    assert alone.price == whole.price
    assert alone.machine is not None and whole.machine is not None
    assert alone.machine.cpu_model == whole.machine.cpu_model
    assert alone.isolation.marked("1 CPU") == "1 CPU (passport)" and passport.NOTE in alone.notes


@pytest.mark.slow
def test_the_hub_s_own_library_reads_it(results: Path) -> None:
    hub = Hub("mteb/scifact", "SciFact_default_test", "https://example.org/results")
    (found,) = parse_eval_result_entries(yaml.safe_load(passport.written([entry(results, hub=hub)])))
    row = next(row for row in priced(results) if row.system == "bm25")
    assert (found.dataset_id, found.task_id) == ("mteb/scifact", "SciFact_default_test")
    assert found.value == pytest.approx(row.measures["RR@10"].value, rel=1e-3)
    assert found.source_url == "https://example.org/results" and found.date == (row.started_at or "")[:10]
    assert found.notes == "bm25: 2.1 ms a query on 1 CPU, 1 GiB"


@pytest.mark.slow
def test_entries_of_others_are_left_out(results: Path, tmp_path: Path) -> None:
    other = {"dataset": {"id": "cais/hle", "task_id": "hle"}, "value": 44.4}
    path = put(tmp_path / ".eval_results.yaml", other, entry(results))
    assert [each.harness.system for each in passport.read(path)] == ["bm25"]
    folder = tmp_path / "cards"
    folder.mkdir()
    put(folder / "a.yaml", entry(results))
    put(folder / "b.yml", entry(results, "minilm"))
    assert [row.system for row in priced(folder)] == ["bm25", "minilm"]
    assert not passport.is_in(results) and not passport.is_in(tmp_path / "nowhere")


@pytest.mark.slow
def test_a_changed_figure_breaks_the_seal(results: Path, tmp_path: Path) -> None:
    raw = entry(results)
    raw["harness"]["figures"]["latency_mean_ms"] = 0.001
    with pytest.raises(FileError, match=r"entry 1: its seal is .*, and its content gives"):
        passport.read(put(tmp_path / "forged.yaml", raw))
    assert passport.read(put(tmp_path / "again.yaml", sealed(raw))), "a person can seal any figure"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- [", "not YAML|while parsing|expected"),
        ("a: 1\n", "no passport in it"),
        ("- {harness: {}, date: 2026-11-30}\n", "its seal is None"),
        ("- &a {harness: 1}\n- *a\n", "a reference"),
    ],
)
def test_another_file_is_refused_in_a_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    with pytest.raises(FileError, match=said):
        passport.read(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"figures": {"latency_mean_ms": -1.0}}, "figures.latency_mean_ms"),
        ({"figures": {"throughput_qps": 0}}, "throughput_qps is 0; leave it out"),
        ({"figures": {"throughput_qps": [5, 0, 9]}}, "throughput_qps is 0; leave it out"),
        ({"system": "a\x1b[2J"}, "system"),
        ({"more": 1}, "unknown key 'harness.more'"),
        ({"validity": "sure"}, "validity"),
    ],
)
def test_a_wrong_field_is_named(results: Path, tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    raw = entry(results)
    raw["harness"] |= changes
    with pytest.raises(FileError, match=said):
        passport.read(put(tmp_path / "wrong.yaml", sealed(raw)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"outcome": Outcome.OOM}, "bm25/scifact/single_stream/cpu1-mem1: ended oom; a passport has figures"),
        ({"measures": {}}, "has no RR@10"),
        ({"isolation": isolation.FAKE}, "was not measured here"),
        ({"isolation": isolation.ATTACHED}, "does not know the machine"),
    ],
)
def test_some_rows_have_no_passport(results: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        entry(results, **changes)


@pytest.mark.slow
def test_a_passport_has_no_passport(results: Path, tmp_path: Path) -> None:
    (row,) = priced(put(tmp_path / "bm25.yaml", entry(results)))
    with pytest.raises(UsageError, match="was not measured here"):
        passport.of_row(row, next(iter(reader.read_jobs(results))), "RR@10", Hub())


@pytest.mark.slow
def test_doubts_go_along(results: Path, tmp_path: Path) -> None:
    finding = Finding(Cause.FOREIGN_CPU, Validity.NOISY, "other work took 8 % of the CPUs")
    made = entry(results, validity=Validity.NOISY, findings=(finding,))
    (row,) = priced(put(tmp_path / "noisy.yaml", made))
    assert (row.validity, row.findings[0].text) == (Validity.NOISY, "foreign cpu, as the passport says")


@pytest.mark.slow
def test_a_language_model_s_tokens_are_priced(results: Path, tmp_path: Path) -> None:
    made = entry(results, token_model="openai/gpt-4o-mini", counts={"prompt_tokens": 2000.0, "completion_tokens": 10.0})
    (row,) = passport.table(passport.read(put(tmp_path / "llm.yaml", made))).rows
    assert row.token_model == "openai/gpt-4o-mini" and row.counts == {"prompt_tokens": 2000, "completion_tokens": 10}


@pytest.mark.slow
def test_an_open_load_keeps_its_target(results: Path, tmp_path: Path) -> None:
    made = entry(
        results,
        scenario="server",
        throughput_qps=Estimate(812.3, 700.0, 900.0),
        latency_target_s=0.05,
        latency_percentile=95.0,
    )
    (row,) = priced(put(tmp_path / "server.yaml", made))
    assert (row.throughput_qps.value, row.latency_target_s, row.latency_percentile) == (812.3, 0.05, 95.0)
    assert made["notes"] == "bm25: 812 queries/s on 1 CPU, 1 GiB"
