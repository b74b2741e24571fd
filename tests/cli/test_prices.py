"""`harness instances` and `harness prices`, as a person types them, on the shipped prices."""

from __future__ import annotations

import datetime

import pytest
from click.testing import CliRunner, Result

from harness.cli import main
from harness.cli import prices as prices_cli


def harness(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def test_instances_lists_types_that_fit_cheapest_first() -> None:
    done = harness("instances", "--cpu", "16", "--memory", "32", "--as-of", "2022-12-05")
    assert done.exit_code == 0
    head, first, *rest = done.stdout.splitlines()
    assert head.split()[:3] == ["instance", "type", "US$/hour"]
    assert first.split() == ["c6g.4xlarge", "0.544", "16", "16", "32", "arm64", "-", "-", "current"]
    prices = [float(line.split()[1]) for line in rest[: rest.index("")]]
    assert prices == sorted(prices) and len(prices) == 19 and prices[0] >= 0.544
    assert "more fit (--limit). Prices: aws us-east-1 on-demand of 2022-12-05, Linux." in done.stdout
    assert "fewer than 16 vCPUs (" in done.stdout and "of an earlier generation (a1.4xlarge" in done.stdout
    every = harness("instances", "--cpu", "16", "--memory", "32", "--as-of", "2022-12-05", "--generation", "any")
    cheapest = every.stdout.splitlines()[1].split()
    assert cheapest == ["a1.4xlarge", "0.408", "16", "16", "32", "arm64", "-", "-", "previous"]
    assert "of an earlier generation" not in every.stdout


def test_instances_respects_gpus_architecture_and_host_reserve() -> None:
    gpus = harness("instances", "--cpu", "1", "--memory", "4", "--gpu", "1", "--architecture", "x86_64", "--limit", "1")
    assert gpus.stdout.splitlines()[1].split()[0] == "g4dn.xlarge"
    assert "arm64, asked for x86_64" in gpus.stdout
    plain = harness("instances", "--cpu", "1", "--memory", "4", "--limit", "1", "--as-of", "2022-12-05")
    assert plain.stdout.splitlines()[1].split()[0] == "m6g.medium"
    reserved = harness("instances", "--cpu", "1", "--memory", "4", "--limit", "1", "--as-of", "2022-12-05", "--reserve")
    assert reserved.stdout.splitlines()[1].split()[0] == "r6g.medium", "4 GiB are not left beside the host's own need"
    assert "beside the host's own" in reserved.stdout


def test_instances_lists_types_that_were_left_out() -> None:
    few = harness("instances", "--cpu", "4", "--memory", "16", "--region", "eastus")
    all_of_them = harness("instances", "--cpu", "4", "--memory", "16", "--region", "azure/eastus", "--left-out")
    assert "Standard_NC16as_T4_v3" in all_of_them.stdout and len(all_of_them.stdout) >= len(few.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--region", "mars"), "harness: unknown region 'mars'; known: eastus, us-central1, us-east-1"),
        (("--as-of", "2021-01-01"), "harness: no prices of us-east-1 are dated 2021-01-01 or before; there are those"),
        (("--as-of", "yesterday"), "'yesterday' does not match the format"),
        (("--term", "spot"), "harness: no spot prices of us-east-1 are here; fetch some"),
        (("--term", "on_demand"), "harness: unknown term 'on_demand'; did you mean 'on-demand'?"),
        (
            ("--cpu", "4000"),
            "harness: no type of the current generation and any architecture in the prices of aws us-east-1 on-demand"
            " of 2026-07-20 provides 4000 vCPUs",
        ),
        (("--architecture", "measured"), "'measured' is not one of 'any', 'x86_64', 'arm64'"),
        (("--memory", "inf"), "inf is not in the range"),
        (("--memory", "nan"), "harness: --memory is no number"),
        (("--memory", "0"), "0.0 is not in the range"),
    ],
)
def test_impossible_request_is_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = harness("instances", "--cpu", "1", "--memory", "4", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("today", "old"), [("2026-07-21", False), ("2026-10-18", False), ("2026-10-19", True)])
def test_prices_older_than_90_days_have_a_warning(monkeypatch: pytest.MonkeyPatch, today: str, old: bool) -> None:
    day = datetime.date.fromisoformat(today)
    monkeypatch.setattr(prices_cli, "_today", lambda: day)
    done = harness("prices")
    assert done.exit_code == 0
    age = (day - datetime.date(2026, 7, 20)).days
    (newest,) = [line for line in done.stdout.splitlines() if "2026-07-20" in line]
    assert newest.split()[:6] == ["aws", "us-east-1", "on-demand", "2026-07-20", str(age), "days"]
    assert ("the newest on-demand prices of aws us-east-1 are" in done.stderr) == old
    assert "gcp us-central1" in done.stderr, "a region's age is its own"
