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


@pytest.mark.slow
def test_published_table_gets_a_bill_that_follows_from_its_latencies() -> None:
    lines = [line for line in records("santhanam2023", "--queries-per-month", "100M") if line["usd_month"]]
    assert not any(line["offer"] for line in lines), "serverless prices of 2022 are not stored"
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
    assert shown.startswith(
        "scifact-1200, 3 million queries a month (1.14 a second, 3.42 in the busiest hour), p95 at most 20ms,"
    )
    assert "   quality: harness report quickstart   by hand: harness explain " in shown
    assert "1 x c7a.medium, US$ 37 a month" in shown and "cost the same (within 1 %) up to " in shown
    assert "; from there on tantivy, bm25 and minilm are the cheapest." in shown
    assert "assumes that the busiest hour has 3 times the mean rate" in shown
    assert sum(line.startswith("- ") for line in shown.splitlines()) <= 5
    content = json.loads(bill("quickstart", "--queries-per-month", "3M", "--format", "json"))
    (group,) = content["groups"]
    assert len(group["cheapest"]) == len(group["bills"]) == 4
    slowest = min(one["capacity_qps"] for one in group["bills"])
    assert group["change"]["queries_per_month"] == pytest.approx(slowest * SECONDS / 3)


@pytest.mark.slow
def test_one_sentence_says_up_to_how_many_queries_serverless_costs_less() -> None:
    shown = bill("quickstart", "--queries-per-month", "3M", "--max-latency", "p95=20ms")
    # 1 ms of 1.7275390625 GiB, and a request: US$ 0.228792 a million, three of them; the machine is 0.05132 x 730.
    found = (
        "Serverless costs less: tantivy on AWS Lambda x86_64, US$ 0.686 a month, less than machines up to 164 million"
    )
    assert found in shown
    busy = bill("quickstart", "--queries-per-month", "1G")
    assert "Below 164 million queries a month serverless costs less: tantivy on AWS Lambda x86_64." in busy
    lines = [line for line in records("quickstart", "--queries-per-month", "3M") if line["offer"]]
    assert len(lines) == 4 * 4, "four systems at four offers"
    tantivy = next(line for line in lines if (line["system"], line["offer"]) == ("tantivy", "AWS Lambda x86_64"))
    assert float(tantivy["cheaper_below_queries"]) == pytest.approx(0.05132 * 730 / 0.228792e-6, rel=1e-3)
    wide = bill("quickstart", "--queries-per-month", "3M", "--wide")
    assert "without a rented machine" in wide and "1 x AWS Fargate x86_64" in wide
    unknown = bill("santhanam2023", "--queries-per-month", "3M")
    assert "No row has a serverless price: no serverless prices of 2022-10-31 or before are stored" in unknown
    later = bill("santhanam2023", "--queries-per-month", "3M", "--as-of", "2026-11-29")
    assert "Serverless costs less: BM25 on AWS Lambda arm64, US$ " in later


@pytest.mark.slow
def test_without_a_traffic_three_prices_of_a_query_are_shown() -> None:
    shown = bill("quickstart")
    (line,) = (line for line in shown.splitlines() if line.startswith("| tantivy"))
    assert "AWS Lambda x86_64" in line and "0.229" in line and "0.00159" in line
    assert all(f"\n{model}: " in shown for model in ("sequential", "saturated", "metered"))
    assert "--queries-per-month 3M" in shown.splitlines()[-1]
    priced = [line for line in records("quickstart") if line["system"] == "tantivy"]
    assert [line["cost_model"] for line in priced] == ["sequential", "saturated", "offer", "metered", "offer", "offer"]
    assert priced[1]["reason"] == "no throughput was measured; measure scenario server"
    wide = bill("quickstart", "--wide")
    assert "each query a start" in wide and "Azure Container Apps" in wide
    content = json.loads(bill("quickstart", "--format", "json"))
    assert {one["metered_offer"] for one in content["systems"]} == {"AWS Lambda x86_64"}


def test_system_that_misses_the_latency_has_no_bill() -> None:
    lines = records("quickstart", "--queries-per-month", "3M", "--max-latency", "mean=1ms")
    reasons = {line["system"]: line["reason"] for line in lines if line["hardware_profile"] == "cpu1-mem1"}
    assert reasons["bm25"] == reasons["tantivy"] == ""
    assert "is more than 1 ms" in reasons["minilm"] and "is more than 1 ms" in reasons["hybrid-minilm"]
    none = bill("quickstart", "--queries-per-month", "3M", "--max-latency", "mean=0.001ms")
    assert "No row has a bill (mean " in none


@pytest.mark.slow
def test_traffic_comes_from_a_file_whose_numbers_options_replace(tmp_path: Path) -> None:
    path = tmp_path / "traffic.toml"
    path.write_text("[traffic]\nqueries_per_month = 1e6\npeak = 5\nmachines = 2\ndocuments = 51830\n", encoding="utf-8")
    content = json.loads(bill("quickstart", "--traffic", str(path), "--peak", "4", "--format", "json"))
    traffic = content["traffic"]
    assert (traffic["queries_per_month"], traffic["peak"], traffic["machines"]) == (1e6, 4, 2)
    assert {one["machines_rented"] for one in content["groups"][0]["bills"]} == {2}
    path.write_text('[traffic]\nqueries_per_month = 1e6\nmax_latency = ["p95=2ms"]\n', encoding="utf-8")
    billed = [
        {line["system"] for line in records("quickstart", "--traffic", str(path), *given) if line["usd_month"]}
        for given in ((), ("--max-latency", "p95=13ms"))
    ]
    assert billed == [{"tantivy", "bm25"}, {"tantivy", "bm25", "minilm"}], "an option replaces the file's targets"
    path.write_text("[trafic]\nqueries_per_month = 1e6\n", encoding="utf-8")
    assert "has no table [traffic]. Did you mean 'trafic'?" in bill("quickstart", "--traffic", str(path), code=2)
    path.write_text("[traffic]\nqueries_per_month = 1e6\npek = 5\n", encoding="utf-8")
    assert "unknown key 'traffic.pek'. Did you mean 'peak'?" in bill("quickstart", "--traffic", str(path), code=2)


def test_last_line_leads_to_the_arithmetic_of_the_cheapest_at_the_same_traffic() -> None:
    shown = bill("quickstart", "--queries-per-month", "3M", "--peak", "4.5", "--as-of", "2022-12-05").splitlines()[-1]
    command = shown.split("by hand: harness ")[1].rstrip("`").split()
    assert command[0] == "explain" and command[-4:] == ["--peak", "4.5", "--as-of", "2022-12-05"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0
    text = " ".join(done.output.split())
    # c6a.large at US$ 0.0765; 3,000,000 / 2,628,000 x 4.5 = 5.137.
    assert "peak 4.5 = 5.137 queries/s" in text and "1 x US$ 0.0765 x 730 h = US$ 55.845." in text


@pytest.mark.slow
def test_pictures_go_into_a_folder(tmp_path: Path) -> None:
    shown = bill("quickstart", "--queries-per-month", "3M", "--format", "svg", "-o", str(tmp_path))
    assert [Path(line) for line in shown.splitlines()] == [tmp_path / "scifact-1200-bill.svg"]
    drawn = (tmp_path / "scifact-1200-bill.svg").read_text(encoding="utf-8")
    for name in ("tantivy", "bm25", "minilm", "hybrid-minilm", "the traffic", "changes"):
        assert f'id="{name}"' in drawn, name
    none = bill("quickstart", "--queries-per-month", "3M", "--max-latency", "mean=0.001ms", "--format", "svg",
                "-o", str(tmp_path), code=1)  # fmt: skip
    assert "no picture: No row has a bill (mean " in none


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--peak", "2"), "how many queries a month?"),
        (("--queries-per-month", "many"), "write a number of 0 or more, e.g. 250000, 3M or 1.5G"),
        (("--queries-per-month", "3M", "--max-latency", "p90=2ms"), "unknown latency figure 'p90'"),
        (("--queries-per-month", "3M", "--documents", "0"), "documents"),
    ],
)
def test_mistake_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    shown = bill("quickstart", *arguments, code=2)
    assert message in shown and len(shown.strip().splitlines()) == 1
