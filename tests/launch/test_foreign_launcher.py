"""A launcher of another distribution runs jobs, and marks what it measured, without a change in harness.

The launcher is that of ``docs/guides/add-a-launcher.md``: its files are installed as they are printed there.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.launch import launchers
from harness.launch.base import Launcher
from harness.results.isolation import CONTAINER, CounterSource
from harness.results.reader import read_jobs
from tests.conftest import Bench, make_bench
from tests.support.command_line import call

_GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "add-a-launcher.md"
_MARK = "(nice)"
_SENTENCE = "CPUs were pinned, at the lowest priority"


def install(site: Path, module: str, code: str, points: dict[str, str], name: str = "nice-launcher") -> None:
    """Write a distribution as an installer leaves it: a module, and the metadata that names its launchers."""
    (site / f"{module}.py").write_text(code, encoding="utf-8")
    about = site / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"[{launchers.GROUP}]", *(f"{launcher} = {path}" for launcher, path in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _of_guide(language: str) -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", _GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    return str(block)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, environments: Path) -> Iterator[Bench]:
    """Run the null system and another one by the guide's launcher."""
    bench = make_bench(tmp_path_factory.mktemp("foreign"))
    (bench.cache / "process").symlink_to(environments)
    site = bench.folder / "site"
    site.mkdir()
    points = tomllib.loads(_of_guide("toml"))["project"]["entry-points"][launchers.GROUP]
    install(site, "nice_launcher", _of_guide("python"), points)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        patch.setenv("HARNESS_IMAGES", str(bench.folder / "engines"))
        patch.setenv("HARNESS_CACHE", str(bench.cache))
        patch.chdir(bench.folder)
        suite = bench.suite(systems=["null", "planted"], profiles=["cpu1-mem256m", "cpu1-mem1"])
        done = call("run", str(suite), "--launcher", "nice", "--results", "results")
        assert done.exit_code == 0, done.output
        assert _MARK in done.stdout
    # Readers do without the launcher.
    sys.modules.pop("nice_launcher", None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_IMAGES", str(bench.folder / "engines"))
        patch.setenv("HARNESS_CACHE", str(bench.cache))
        patch.chdir(bench.folder)
        yield bench


def test_the_null_system_ran_and_its_limits_were_verified(measured: Bench) -> None:
    jobs = read_jobs(measured.results)
    assert {job.result.outcome.value for job in jobs} == {"ok"}
    for job in jobs:
        isolation = job.result.isolation
        assert (job.result.spec.isolation, isolation.enforced, isolation.mark) == ("nice", ("cpus",), "nice")
        assert isolation.counters is CounterSource.PROCESS and isolation.sentence.startswith(_SENTENCE)
        assert job.result.effective is not None and len(job.result.effective.cpus) == 1


_TEXTS = (
    "report results",
    "report results --wide",
    "report results -f csv",
    "report results --wide -f md",
    "report results --wide -f tex",
    "report results -f json",
    "report results --jobs -f csv",
    "leaderboard results",
    "leaderboard results -f csv",
    "leaderboard results -f json",
    "explain --results results",
    "reprice results",
    "reprice results -f csv",
    "compare planted null --results results",
    "report results --at-least RR@10=.01",
)


@pytest.mark.parametrize("command", _TEXTS)
def test_every_table_marks_its_rows(measured: Bench, command: str) -> None:
    shown = call(*command.split())
    assert shown.exit_code == 0, shown.output
    if command.endswith(("csv", "json")):
        assert "nice" in shown.stdout
    else:
        assert _MARK in shown.stdout, shown.stdout
