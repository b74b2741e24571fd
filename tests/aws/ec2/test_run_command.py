"""``harness run --launcher ec2`` as a user types it; the engine and what it makes are stand-ins."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import harness.aws.ec2
import harness.remote
from harness.aws.clients import Connections
from harness.aws.objects import Objects
from harness.cli import main
from harness.launch.fake import FakeLauncher
from harness.remote.watch import Timeouts
from tests.aws.ec2.conftest import WORK, FakeShipper, Field, launched_and_terminated
from tests.aws.server import REGION, SECRETS


class _Engine(FakeLauncher):
    client = None

    def __init__(self, *_: object, platform: str = "linux/amd64", **_options: object) -> None:
        super().__init__()
        assert platform in ("linux/amd64", "linux/arm64")

    def close(self) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.launch.docker.DockerLauncher", _Engine)
    monkeypatch.setattr("harness.remote.shipment.Shipper", lambda work, _, cache: FakeShipper(work, cache))
    monkeypatch.setattr(Timeouts.__init__, "__defaults__", (0.1, *(Timeouts.__init__.__defaults__ or ())[1:]))


def harness_run(plain: Field, *arguments: str, code: int = 0) -> Result:
    path = plain.bench.folder / "test-suite.toml"
    plain.request()
    where = ["--results", str(plain.bench.results), "--cache", str(plain.bench.cache)]
    result = CliRunner().invoke(main, ["run", str(path), *where, "--launcher", "ec2", *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    assert not [secret for secret in SECRETS if secret in result.output]
    return result


@pytest.mark.usefixtures("engine")
def test_run_command_quotes_and_asks(plain: Field) -> None:
    place = ("--work", str(WORK))
    arm = harness_run(plain, *place, "--dry-run", "--wide", "--architecture", "arm64")
    assert re.search(r"\b[a-z]\d+g\w*\.", arm.output)
    dry = harness_run(plain, *place, "--dry-run")
    assert "never more than US$" in dry.output
    assert (
        f"to stop: `harness ec2 reap --region {REGION}` ends every machine" in dry.output
        and launched_and_terminated() == (0, 0)
    )
    assert list(Objects(Connections(REGION), WORK).list()) == []
    nobody = harness_run(plain, *place, code=2)
    assert "pass --yes" in nobody.output and launched_and_terminated() == (0, 0)


@pytest.mark.usefixtures("engine")
def test_wrong_options_are_refused_before_anything_starts(plain: Field) -> None:
    assert "harness ec2 up" in harness_run(plain, code=2).output
    place = ("--work", str(WORK), "--yes")
    assert "t3.large is burstable" in harness_run(plain, *place, "--instance", "t3.large", code=2).output
    assert "unknown instance type" in harness_run(plain, *place, "--instance", "m99.large", code=2).output
    assert "more than --max-usd" in harness_run(plain, *place, "--max-usd", "0.001", code=2).output
    assert "nan: is not a finite number" in harness_run(plain, *place, "--max-usd", "nan", code=2).output
    assert "unknown region" in harness_run(plain, *place, "--region", "eu-west-3", code=2).output
    assert "no subnet" in harness_run(plain, *place, "--subnet", "subnet-0", code=2).output
    assert launched_and_terminated() == (0, 0)


def test_options_of_ec2_are_refused_by_other_launchers(plain: Field) -> None:
    path = plain.bench.folder / "test-suite.toml"
    plain.request()
    result = CliRunner().invoke(main, ["run", str(path), "--launcher", "fake", "--max-usd", "5"])
    assert result.exit_code == 2 and "--max-usd is for --launcher ec2" in result.output


@pytest.mark.parametrize("launcher", ["ec2", "batch"])
def test_fresh_index_is_refused_in_the_cloud(plain: Field, launcher: str) -> None:
    plain.request()
    path = str(plain.bench.folder / "test-suite.toml")
    result = CliRunner().invoke(main, ["run", path, "--launcher", launcher, "--work", str(WORK), "--fresh-index"])
    assert result.exit_code == 2 and f"--fresh-index is not for --launcher {launcher}" in result.output
    assert launched_and_terminated() == (0, 0)


@pytest.mark.slow
def test_cloud_code_never_reads_the_local_clock() -> None:
    """Clock skew cannot matter to who does not look: all times are AWS' own."""
    clocks = []
    # The worker's own times are its machine's: nobody compares them with AWS'.
    folders = [Path(each.__path__[0]) for each in (harness.aws.ec2, harness.remote)]
    for path in (path for folder in folders for path in folder.glob("*.py") if path.name != "worker.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("now", "utcnow", "today", "time", "localtime"):
                owner = ast.unparse(node.value)
                if owner in ("datetime", "datetime.datetime", "date", "datetime.date", "time"):
                    clocks.append(f"{path.name}: {ast.unparse(node)}")
    assert clocks == []
