"""`harness reprice` and `harness report --as-of`, as a person types them."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness import api
from harness.analysis import rows
from harness.cli import main
from tests.conftest import make_bench

Call = Callable[..., Result]


@pytest.fixture(scope="module")
def _stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One stored result, measured once, with the cache that it came from."""
    made = make_bench(tmp_path_factory.mktemp("reprice"))
    suite = made.suite()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_IMAGES", str(made.folder / "engines"))
        patch.setenv("HARNESS_CACHE", str(made.cache))
        patch.chdir(made.folder)
        done = CliRunner().invoke(main, ("run", suite.name, "--launcher", "fake"), catch_exceptions=False)
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

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, catch_exceptions=False)

    return call


def test_reprice_at_the_prices_of_another_date(harness: Call) -> None:
    done = harness("report", "--as-of", "2022-12-31", "--format", "json")
    assert done.exit_code == 0, done.output
    table = json.loads(done.stdout)
    assert (table["price_date"], table["price_region"], table["price_term"]) == ("2022-12-05", "us-east-1", "on-demand")
    assert table["cost_formulas"].keys() == {"sequential", "saturated", "build", "storage"}
    (row,) = table["rows"]
    expected = row["latency_mean_s"]["value"] * row["price"]["usd_per_hour"] / 3600 * 1e6
    assert row["usd_per_million"]["value"] == pytest.approx(expected)
    assert row["corpus_documents"] == 10


def test_reprice_compares_with_the_newest_prices_by_default(harness: Call) -> None:
    done = harness("reprice", "--as-of", "2022-12-05")
    assert done.exit_code == 0, done.output
    title, _, summary = done.stdout.splitlines()[:3]
    assert title == "**aws us-east-1, on-demand: prices of 2022-12-05 against 2026-07-20**"
    # c7a.medium (US$ 0.05132) has no price in 2022; m3.medium (0.067) stands in for it.
    assert summary.startswith("- On the same instance at both dates: of 1 row 1 cost more and 0 less;")
    assert "| same instance 2022-12-05 (US$/h) |" in done.stdout


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
def test_preferred_types_reach_table_page_and_reprice(
    harness: Call, folder: Path, options: tuple[str, ...], instance_type: str
) -> None:
    asked = ("--as-of", "2026-07-20", *options)
    table = json.loads(harness("report", *asked, "--format", "json").stdout)
    assert [row["price"]["instance_type"] for row in table["rows"]] == [instance_type]
    assert (table["price_architecture"], table["price_generation"]) == (
        options[1],
        "any" if "--generation" in options else "current",
    )
    (change,) = json.loads(harness("reprice", *asked, "--format", "json").stdout)["changes"]
    assert change["cheapest"]["instance_type"] == instance_type
    assert harness("report", *asked, "--format", "html", "-o", "page.html").exit_code == 0
    content = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', (folder / "page.html").read_text(), re.S
    )
    assert content is not None
    page = json.loads(content[1])
    newest = page["snapshots"][page["snapshot"]]
    assert [page["texts"][place["type"]] for place in newest["places"]] == [instance_type]
    (folder / "table.json").write_text(json.dumps(table))
    assert harness("verify", "--against", "table.json").exit_code == 0
    by_hand = api.load("results", architecture=options[1], generation=table["price_generation"])
    assert list(by_hand["instance_type"]) == [instance_type]


def test_reprice_writes_the_requested_file(harness: Call, folder: Path) -> None:
    asked = ("--as-of", "2022-12-05", "--against", "2022-10-31", "--measures", "P@1")
    assert harness("reprice", *asked, "--format", "csv", "-o", "out.csv").stdout == ""
    (line,) = csv.DictReader(io.StringIO((folder / "out.csv").read_text()))
    assert (line["before_price_date"], line["same_price_date"], line["cost_model"]) == (
        "2022-10-31",
        "2022-12-05",
        "sequential",
    )
    assert "P@1" in line
    found = json.loads(harness("reprice", *asked, "--format", "json").stdout)
    assert (found["before"]["date"], found["now"]["date"], len(found["changes"])) == ("2022-10-31", "2022-12-05", 1)


def test_report_reuses_cached_rows(harness: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise AssertionError("rows were made again")

    assert harness("run", "test-suite.toml", "--launcher", "fake").exit_code == 0
    whole = harness("report", "--as-of", "2022-12-05").stdout
    monkeypatch.setattr(rows, "build_rows", nobody)
    assert harness("report", "--as-of", "2022-12-05").stdout == whole
    assert harness("reprice", "--as-of", "2022-12-05").exit_code == 0
    # A run keeps the rows of its own suite's folder.
    measures = "RR@10 Success@10 nDCG@10"
    assert harness("report", "results/test-suite", "--measures", measures).exit_code == 0


@pytest.mark.parametrize("command", ["report", "reprice"])
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--region", "us-east-9"), "unknown region 'us-east-9'; did you mean 'us-east-1'?"),
        (
            ("--as-of", "2020-01-01"),
            "no prices of us-east-1 are dated 2020-01-01 or before; there are those of 2022-10-31",
        ),
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


def test_comparison_date_must_have_prices(harness: Call) -> None:
    done = harness("reprice", "--as-of", "2022-12-05", "--against", "2022-01-01")
    assert done.exit_code == 2
    assert done.stderr.startswith("harness: no prices of us-east-1 are dated 2022-01-01 or before")


def test_edited_prices_are_refused(harness: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.pricing import instances

    copy = tmp_path / "profiles"
    shutil.copytree(instances.data_folder(), copy)
    with (copy / "prices" / "aws_us-east-1_2022-12-05.csv").open("a") as stream:
        stream.write("aws,us-east-1,a1.medium,on-demand,0.0001,2022-12-05,nobody\n")
    monkeypatch.setattr(instances, "data_folder", lambda: copy)
    done = harness("reprice", "--as-of", "2022-12-05")
    assert done.exit_code == 2 and done.stderr.count("\n") == 1
    assert "aws_us-east-1_2022-12-05.csv: its checksum is not the one in SHA256SUMS" in done.stderr


def test_unwritable_cache_is_logged_and_the_table_is_printed(harness: Call, folder: Path) -> None:
    (folder / "file").write_text("")
    done = harness("reprice", "--as-of", "2022-12-05", "--cache", "file")
    assert done.exit_code == 0 and "| planted |" in done.stdout
    assert done.stderr.count("\n") == 1 and "cannot be written: Not a directory" in done.stderr


def test_published_tables_are_repriced_like_measured_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    folder = Path(__file__).parents[2] / "results" / "published" / "santhanam2023"
    asked = ("reprice", str(folder), "--as-of", "2026-07-20", "--against", "2022-12-05", "--format", "json")
    found = json.loads(CliRunner().invoke(main, asked, catch_exceptions=False).stdout)
    assert len(found["changes"]) == 62
    for each in found["changes"]:
        assert each["before"]["instance_type"] == each["same"]["instance_type"] == each["published_type"]
        assert each["validity"] == "unknown" and each["before"]["rank"] is not None
    ance = next(each for each in found["changes"] if each["system"] == "ANCE")
    assert (ance["before"]["instance_type"], ance["before"]["usd_per_million"]["value"]) == (
        "p3.2xlarge",
        pytest.approx(10.20),
    )
    assert ance["cheapest"]["note"] == "another type than the paper's; latency not re-measured"


@pytest.mark.parametrize("place", [(), ("--region", "gcp/us-central1", "--against", "2025-03-06")])
def test_reprice_and_report_agree_on_published_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    folder = str(Path(__file__).parents[2] / "results" / "published" / "santhanam2023")

    def json_of(command: str, *asked: str) -> dict[str, list[dict[str, Any]]]:
        done = CliRunner().invoke(main, [command, folder, *asked, "--format", "json"], catch_exceptions=False)
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    def like(usd: float | None) -> object:
        return None if usd is None else pytest.approx(usd, rel=1e-12)

    asked = ("--as-of", "2026-07-20")
    any_type = ("--architecture", "any", "--generation", "any")  # as the study of the paper chooses
    repriced = {each["key"]: each for each in json_of("reprice", *asked, *place, *any_type)["changes"]}
    reported = [row for row in json_of("report", *asked, *place[:2])["rows"] if row["table"] != "1"]
    assert len(reported) == len(repriced) == 62
    for row in reported:
        each = repriced[f"santhanam2023/table{row['table']}/{row['row']}"]
        same, cheapest = each["same"], each["cheapest"]
        assert (each["system"], each["published_type"]) == (row["system"], row["instance_type"])
        assert same["instance_type"] == (row["instance_type"] if row["now_usd_per_hour"] else None)
        assert same["usd_per_hour"] == row["now_usd_per_hour"]
        assert same["usd_per_million"]["value"] == like(row["now_cost"])
        assert cheapest["instance_type"] == row["now_cheapest_type"]
        assert cheapest["usd_per_million"]["value"] == like(row["now_cheapest_cost"])
        assert cheapest["rank"] == row["now_rank"], "among the rows of its own table"


def test_a_type_of_another_provider_has_neither_price_nor_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    folder = str(Path(__file__).parents[2] / "results" / "published" / "santhanam2023")
    asked = ("--region", "gcp/us-central1")
    report = CliRunner().invoke(main, ["report", folder, "--wide", *asked], catch_exceptions=False).stdout
    assert "a type of another provider, aws" in report
    assert "successor" not in report and "None" not in report
    done = CliRunner().invoke(main, ["reprice", folder, *asked, "--against", "2025-03-06"], catch_exceptions=False)
    assert "p3.2xlarge is a type of another provider, aws" in done.stdout
    assert "add a row" not in done.stdout and "Gone by" not in done.stdout
