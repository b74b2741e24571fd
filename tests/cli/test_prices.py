"""`harness instances`, `prices` and `reprice`, and reports at other prices, as a person types them."""

from __future__ import annotations

import csv
import datetime
import io
import itertools
import json
import shutil
from pathlib import Path

import pytest

from harness import api
from harness.cli import prices as prices_cli
from tests.conftest import make_bench
from tests.support.command_line import Call, call


def rows_of(printed: str) -> list[list[str]]:
    """Return the cells of a Markdown table, the header first."""
    lines = [line for line in printed.splitlines() if line.startswith("| ") and not line.startswith("| --")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_instances_lists_types_that_fit_cheapest_first() -> None:
    done = call("instances", "--cpu", "16", "--memory", "32", "--as-of", "2022-12-05")
    assert done.exit_code == 0
    head, first, *rest = rows_of(done.stdout)
    assert head[:2] == ["instance type", "US$/hour"]
    assert first == ["c6g.4xlarge", "0.544", "16", "16", "32", "arm64", "—", "current"]
    prices = [float(row[1]) for row in rest]
    assert prices == sorted(prices) and len(prices) == 14 and prices[0] >= 0.544
    assert "more fit (--limit). Prices: aws us-east-1 on-demand of 2022-12-05, Linux." in done.stdout
    assert "fewer than 16 vCPUs\n" in done.stdout and "of an earlier generation\n" in done.stdout
    assert "(--format json names them)" in done.stdout and len(done.stdout.splitlines()) <= 26
    every = call("instances", "--cpu", "16", "--memory", "32", "--as-of", "2022-12-05", "--generation", "any")
    assert rows_of(every.stdout)[1] == ["a1.4xlarge", "0.408", "16", "16", "32", "arm64", "—", "previous"]
    assert "of an earlier generation" not in every.stdout


def test_instances_respects_gpus_architecture_and_host_reserve() -> None:
    gpus = call("instances", "--cpu", "1", "--memory", "4", "--gpu", "1", "--architecture", "x86_64", "--limit", "1")
    assert rows_of(gpus.stdout)[1][0] == "g4dn.xlarge"
    assert "arm64, asked for x86_64" in gpus.stdout
    plain = call("instances", "--cpu", "1", "--memory", "4", "--limit", "1", "--as-of", "2022-12-05")
    assert rows_of(plain.stdout)[1][0] == "m6g.medium"
    reserved = call("instances", "--cpu", "1", "--memory", "4", "--limit", "1", "--as-of", "2022-12-05", "--reserve")
    assert rows_of(reserved.stdout)[1][0] == "r6g.medium", "4 GiB are not left beside the host's own need"
    listed = json.loads(call("instances", "--cpu", "1", "--memory", "4", "--format", "json").stdout)["instances"]
    assert all(each["job_memory_limit_bytes"] < each["memory_bytes"] for each in listed)


def test_instances_are_lines_and_an_object_for_programs() -> None:
    asked = ("instances", "--cpu", "16", "--memory", "32", "--as-of", "2022-12-05", "--limit", "1")
    lines = list(csv.DictReader(io.StringIO(call(*asked, "--format", "csv").stdout)))
    listed = json.loads(call(*asked, "--format", "json").stdout)
    assert [line["instance_type"] for line in lines] == [each["instance_type"] for each in listed["instances"]]
    assert lines[0]["instance_type"] == "c6g.4xlarge" and listed["instances"][0]["memory_bytes"] == 32 << 30
    assert len(lines) > 15 and "t3.nano" in listed["left_out"]["fewer than 16 vCPUs"]
    assert listed["prices"] == "aws us-east-1 on-demand of 2022-12-05"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--region", "mars"), "harness: unknown region 'mars'; known: eastus, us-central1, us-east-1"),
        (("--region", "eu-west-1"), "No prices of it are stored; fetch some: `harness prices fetch --region eu-west"),
        (("--as-of", "2021-01-01"), "us-east-1 has no prices from 2021-01-01 or before; choose one of these dates"),
        (("--as-of", "yesterday"), "'yesterday' does not match the format '%Y-%m-%d'"),
        (("--term", "spot"), "harness: no spot prices of us-east-1 are here; fetch some"),
        (("--term", "on_demand"), "harness: unknown term 'on_demand'. Did you mean 'on-demand'?"),
        (("--cpu", "4000"), "in the prices of aws us-east-1 on-demand of 2026-07-20 provides 4000 vCPUs"),
        (("--architecture", "measured"), "'measured' is not one of 'any', 'x86_64', 'arm64'"),
        (("--memory", "inf"), "inf is not in the range"),
        (("--memory", "nan"), "harness: --memory nan: is not a finite number"),
        (("--memory", "0"), "0.0 is not in the range"),
    ],
)
def test_impossible_request_is_one_line(arguments: tuple[str, str], message: str) -> None:
    usual = {"--cpu": "1", "--memory": "4", **dict([arguments])}
    done = call("instances", *itertools.chain.from_iterable(usual.items()))
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("today", "old"), [("2026-07-21", False), ("2026-10-18", False), ("2026-10-19", True)])
def test_prices_older_than_90_days_have_a_warning(monkeypatch: pytest.MonkeyPatch, today: str, old: bool) -> None:
    day = datetime.date.fromisoformat(today)
    monkeypatch.setattr(prices_cli, "_today", lambda: day)
    done = call("prices")
    assert done.exit_code == 0
    age = (day - datetime.date(2026, 7, 20)).days
    (newest,) = [line for line in done.stdout.splitlines() if "2026-07-20" in line]
    assert newest.split()[:6] == ["aws", "us-east-1", "on-demand", "2026-07-20", str(age), "days"]
    assert ("the newest on-demand prices of aws us-east-1 are" in done.stderr) == old
    assert "gcp us-central1" in done.stderr, "a region's age is its own"


@pytest.fixture(scope="module")
def _stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One stored result, measured once, with the cache that it came from."""
    made = make_bench(tmp_path_factory.mktemp("reprice"))
    suite = made.suite()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_IMAGES", str(made.folder / "engines"))
        patch.setenv("HARNESS_CACHE", str(made.cache))
        patch.chdir(made.folder)
        done = call("run", suite.name, "--launcher", "fake")
    assert done.exit_code == 0, done.output
    return made.folder


@pytest.fixture
def folder(_stored: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(_stored, tmp_path / "copy"))


@pytest.fixture
def harness(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line beside one stored result."""
    monkeypatch.setenv("HARNESS_IMAGES", str(folder / "engines"))
    monkeypatch.setenv("HARNESS_CACHE", str(folder / "cache"))
    monkeypatch.chdir(folder)

    return call


@pytest.mark.slow
def test_reprice_compares_with_the_newest_prices_by_default(harness: Call) -> None:
    shown = harness("reprice", "--as-of", "2022-12-05").stdout.splitlines()
    assert "US$/1M, 2026-07-20 | US$/1M, 2022-12-05 | change" in " ".join(shown[2].split())
    assert shown[-1] == "- cheapest types, ranks, verdicts and all notes: --wide"
    done = harness("reprice", "--wide", "--as-of", "2022-12-05")
    assert done.exit_code == 0, done.output
    title, _, summary = done.stdout.splitlines()[:3]
    assert title == "**aws us-east-1, on-demand: prices of 2022-12-05 against 2026-07-20**"
    # c7a.medium (US$ 0.05132) has no price in 2022; m3.medium (0.067) stands in for it.
    assert summary.startswith("- On the same instance at both dates: of 0 rows 0 cost more and 0 less;")
    assert "1 instance type gone, of 1 row that a substitute prices" in done.stdout
    assert "| same instance 2022-12-05 (US$/h) |" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "instance_type"),
    [
        # Read off the snapshot of 2026-07-20 for 1 CPU and 1 GiB: US$ 0.05132, 0.044, 0.034 and 0.0255 an hour.
        (("--architecture", "x86_64"), "c7a.medium"),
        (("--architecture", "x86_64", "--generation", "any"), "m1.small"),
        (("--architecture", "any"), "c6g.medium"),
        (("--architecture", "any", "--generation", "any"), "a1.medium"),
    ],
)
def test_preferred_types_reach_table_reprice_and_notebooks(
    harness: Call, options: tuple[str, ...], instance_type: str
) -> None:
    dated = ("--as-of", "2026-07-20", *options)
    table = json.loads(harness("report", *dated, "--format", "json").stdout)
    assert [row["price"]["instance_type"] for row in table["rows"]] == [instance_type]
    assert (table["price_architecture"], table["price_generation"]) == (
        options[1],
        "any" if "--generation" in options else "current",
    )
    (change,) = json.loads(harness("reprice", *dated, "--format", "json").stdout)["changes"]
    assert change["cheapest_instance_type"] == instance_type
    frame = api.load("results", architecture=options[1], generation=table["price_generation"])
    assert list(frame["instance_type"]) == [instance_type]


@pytest.mark.parametrize("command", ["report", "reprice"])
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--region", "us-east-9"), "unknown region 'us-east-9'. Did you mean 'us-east-1'?"),
        (("--as-of", "2020-01-01"), "us-east-1 has no prices from 2020-01-01 or before; choose one"),
        (("--term", "weekly"), "unknown term 'weekly'"),
        (("--term", "spot", "--as-of", "2022-12-05"), "no spot prices of us-east-1 until 2022-12-05 are here"),
        (("empty",), "empty: no finished job in it; run a suite first"),
        (("nowhere",), "nowhere: no results here; run a suite first, or give the folder that holds them"),
        (("--measures", "MRR10"), "unknown measure 'MRR10'"),
    ],
)
def test_unpriceable_results_are_one_line(
    harness: Call, folder: Path, command: str, arguments: tuple[str, ...], line: str
) -> None:
    (folder / "empty").mkdir()
    done = harness(command, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"harness: {line}") and done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_type_of_another_provider_has_neither_price_nor_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    folder = str(Path(__file__).parents[2] / "results" / "published" / "santhanam2023")
    options = ("--region", "gcp/us-central1")
    report = call("report", folder, "--wide", *options).stdout
    assert "a type of another provider, aws" in report
    assert "successor" not in report and "None" not in report
    done = call("reprice", folder, *options, "--wide", "--against", "2025-03-06")
    assert "p3.2xlarge is a type of another provider, aws" in done.stdout
    assert "add a row" not in done.stdout and "Gone by" not in done.stdout
