"""A launcher of another distribution runs jobs, and marks what it measured, without a change in harness.

The launcher is that of ``docs/guides/add-a-launcher.md``: its files are installed as they are printed there.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.launch import launchers
from harness.launch.base import Launcher
from harness.results.isolation import CONTAINER, CounterScope
from harness.results.reader import read_jobs
from tests.conftest import Bench, make_bench
from tests.support.command_line import call
from tests.support.foreign_distribution import install

_GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "add-a-launcher.md"
_MARK = "(nice)"
_SENTENCE = "CPUs were pinned, at the lowest priority"


_CODE = """
from harness.launch.fake import FakeLauncher
from harness.results.isolation import PROCESS, Isolation
class Odd(FakeLauncher):
    isolation = Isolation({})
"""


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
        bench.plant("other", service_s=0.001)
        suite = bench.suite(systems=["null", "planted", "other"], profiles=["cpu1-mem256m"])
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


@pytest.mark.slow
def test_the_null_system_ran_and_its_limits_were_verified(measured: Bench) -> None:
    jobs = read_jobs(measured.results)
    assert {job.result.outcome.value for job in jobs} == {"ok"}
    for job in jobs:
        isolation = job.result.isolation
        assert (job.result.spec.isolation, isolation.enforced, isolation.mark) == ("nice", ("cpus",), "nice")
        assert isolation.counters is CounterScope.PROCESS and isolation.sentence.startswith(_SENTENCE)
        measured = job.result.measured
        assert measured is not None and measured.effective is not None and len(measured.effective.cpus) == 1


# A command, and what must be in its output: the mark beside the hardware where people read, the name in data.
_SHOWN = {
    "report results": _MARK,
    "report results --wide": _MARK,
    "report results --format latex": _MARK,
    "report results --format csv": "nice",
    "report results --format html": "nice",
    "report results --at-least RR@10=.01": _MARK,
    "leaderboard results": _MARK,
    "leaderboard results --format latex": _MARK,
    "compare planted other --results results": _MARK,
    "compare * --results results": _MARK,
    "reprice results --wide": _MARK,
    "explain planted --results results": _MARK,
}


@pytest.mark.slow
@pytest.mark.parametrize("command", _SHOWN)
def test_every_table_and_page_marks_its_rows(measured: Bench, command: str) -> None:
    shown = call(*command.split())
    assert shown.exit_code == 0, shown.output
    assert _SHOWN[command] in shown.stdout, shown.stdout


@pytest.mark.slow
def test_every_picture_marks_its_rows(measured: Bench) -> None:
    done = call("leaderboard", "results", "--format", "svg", "--output", "pictures")
    assert done.exit_code == 0, done.output
    pictures = [*(measured.folder / "pictures").rglob("*.svg")]
    assert pictures
    for picture in pictures:
        assert "Isolation nice: CPUs were pinned" in picture.read_text(encoding="utf-8"), picture.name


def test_plan_finds_the_jobs_done_and_readers_need_no_launcher(
    measured: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = call("verify", "results")
    assert verified.exit_code == 0, verified.output
    unknown = call("plan", "test-suite.toml", "--launcher", "nice", "--results", "results")
    assert unknown.exit_code == 2
    assert "unknown launcher 'nice'; known: apptainer, attached, docker, fake, process" in unknown.stderr
    monkeypatch.syspath_prepend(measured.folder / "site")
    planned = call("plan", "test-suite.toml", "--launcher", "nice", "--results", "results", "--format", "csv")
    assert planned.exit_code == 0 and "to do" not in planned.stdout, planned.output
    refused = call("viable", "planted", "--dataset", "./tiny", "--launcher", "nice")
    assert "isolation nice enforces no memory limit" in refused.stderr, refused.output


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise RuntimeError('no')", "(odd:Odd) cannot be imported: RuntimeError: no; reinstall it"),
        ("Odd = 3", "(odd:Odd) is not a subclass of harness.launch.base.Launcher; correct its entry point"),
        (_CODE.format("'container'"), "isolation 'container' is harness's own; choose another name"),
        (_CODE.format("'Odd one'"), "isolation 'Odd one' is not a valid name"),
        (_CODE.format("'odd', enforced=('speed',)"), "isolation 'odd': 'speed' is not a limit; known: cpu"),
        (_CODE.format("'odd'").replace("Isolation('odd')", "PROCESS"), "takes harness's isolation 'process'"),
    ],
)
def test_a_launcher_that_cannot_be_used_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    install(tmp_path, "odd", code, {"odd": "odd:Odd"}, "odd-one")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "odd", raising=False)
    with pytest.raises(UsageError) as raised:
        launchers.load("odd")
    assert str(raised.value).startswith("launcher 'odd' of odd-one (odd:Odd)") and message in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
    sys.modules.pop("odd", None)


def test_two_distributions_with_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        install(tmp_path / name, name, _CODE.format("'odd'"), {"odd": f"{name}:Odd"}, name)
        monkeypatch.syspath_prepend(tmp_path / name)
    with pytest.raises(UsageError, match=r"launcher 'odd' of one .* both add a launcher 'odd'; uninstall one of them"):
        launchers.load("odd")
    assert launchers.names() == ["docker", "apptainer", "process", "attached", "fake", "odd"]


def test_a_package_cannot_take_the_name_of_a_launcher_of_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "odd", _CODE.format("'odd'"), {"docker": "odd:Odd"})
    monkeypatch.syspath_prepend(tmp_path)
    assert launchers.load("docker").isolation is CONTAINER


def test_options_of_one_launcher_are_refused_by_the_others(tmp_path: Path) -> None:
    assert launchers.open_launcher("docker", tmp_path, platform="linux/arm64") is not None
    for name in ("process", "fake"):
        with pytest.raises(UsageError, match=f"--platform does not work with --launcher {name}"):
            launchers.open_launcher(name, tmp_path, platform="linux/arm64")


@pytest.mark.parametrize("name", launchers.LAUNCHERS)
def test_each_launcher_of_harness_opens(tmp_path: Path, name: str) -> None:
    opened = launchers.open_launcher(name, tmp_path)
    assert isinstance(opened, Launcher) and opened.isolation.to_store is None
    assert list(launchers.load(name).examine()) or name != "docker"
