"""`harness bill`: a month at some traffic, over stored and published results."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.pricing.bill import SECONDS


def bill(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["bill", *arguments])
    assert done.exit_code == code, done.output
    return done.output


def records(*arguments: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(bill(*arguments, "--format", "csv"))))


def test_published_table_gets_a_bill_that_follows_from_its_latencies() -> None:
    lines = [line for line in records("santhanam2023", "--queries-per-month", "100M") if line["usd_month"]]
    bm25 = next(line for line in lines if (line["system"], line["instance_type"]) == ("BM25", "m6g.medium"))
    # 4 ms a query: 250 a second, of which 100 million a month need 38.05, and 114.16 in the busiest hour: one machine.
    # 0.0385 x 730 = 28.105; the index' storage is 0.08.
    assert float(bm25["capacity_qps"]) == pytest.approx(250)
    assert float(bm25["busy_share"]) == pytest.approx(1e8 / SECONDS / 250)
    assert bm25["machines_rented"] == "1" and float(bm25["usd_search"]) == pytest.approx(28.105)
    assert float(bm25["usd_month"]) == pytest.approx(28.105 + float(bm25["usd_storage"]))
    assert bm25["cheapest"] == "true" and bm25["usd_builds"] == "", "no build is published"
    totals = [float(line["usd_month"]) for line in lines if line["suite"] == bm25["suite"]]
    assert min(totals) == float(bm25["usd_month"])


def test_idle_machines_cost_the_same_until_a_slow_system_needs_two() -> None:
    shown = bill("quickstart", "--queries-per-month", "3M", "--max-latency", "p95=20ms")
    assert "1 x c7a.medium, US$ 37 a month" in shown and "cost the same (within 1 %) up to " in shown
    assert "; from there on tantivy, bm25 and minilm are the cheapest." in shown
    assert "assumes that the busiest hour has 3 times the mean rate" in shown
    assert sum(line.startswith("- ") for line in shown.splitlines()) <= 5
    content = json.loads(bill("quickstart", "--queries-per-month", "3M", "--format", "json"))
    (group,) = content["groups"]
    assert len(group["cheapest"]) == len(group["bills"]) == 4
    slowest = min(one["capacity_qps"] for one in group["bills"])
    assert group["change"]["queries_per_month"] == pytest.approx(slowest * SECONDS / 3)


def test_system_that_misses_the_latency_has_no_bill() -> None:
    lines = records("quickstart", "--queries-per-month", "3M", "--max-latency", "mean=1ms")
    reasons = {line["system"]: line["reason"] for line in lines if line["hardware_profile"] == "cpu1-mem1"}
    assert reasons["bm25"] == reasons["tantivy"] == ""
    assert "is more than 1 ms" in reasons["minilm"] and "is more than 1 ms" in reasons["hybrid-minilm"]
    none = bill("quickstart", "--queries-per-month", "3M", "--max-latency", "mean=0.001ms")
    assert "No row has a bill (mean " in none


def test_traffic_comes_from_a_file_whose_numbers_options_replace(tmp_path: Path) -> None:
    path = tmp_path / "traffic.toml"
    path.write_text("[traffic]\nqueries_per_month = 1e6\npeak = 5\nmachines = 2\ndocuments = 51830\n", encoding="utf-8")
    content = json.loads(bill("quickstart", "--traffic", str(path), "--peak", "4", "--format", "json"))
    traffic = content["traffic"]
    assert (traffic["queries_per_month"], traffic["peak"], traffic["machines"]) == (1e6, 4, 2)
    assert {one["machines_rented"] for one in content["groups"][0]["bills"]} == {2}
    path.write_text("[traffic]\nqueries_per_month = 1e6\npek = 5\n", encoding="utf-8")
    assert "unknown key 'traffic.pek'. Did you mean 'peak'?" in bill("quickstart", "--traffic", str(path), code=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "how many queries a month?"),
        (("--queries-per-month", "many"), "write a number, e.g. 250000, 3M or 1.5G"),
        (("--queries-per-month", "3M", "--max-latency", "p90=2ms"), "unknown latency figure 'p90'"),
        (("--queries-per-month", "3M", "--documents", "0"), "documents"),
    ],
)
def test_mistake_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    shown = bill("quickstart", *arguments, code=2)
    assert message in shown and len(shown.strip().splitlines()) == 1
