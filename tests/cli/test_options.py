"""Options, lists, places to write to and the cache, the same in every command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from harness import config
from harness.cli import main
from harness.errors import UsageError
from harness.results.schema import Cell, matches, unmatched
from harness.untrusted import split_list
from scripts.docs.generate import commands_of
from tests.conftest import Bench
from tests.support.command_line import Call


@pytest.mark.parametrize(("name", "command"), tuple(commands_of(main)))
def test_an_option_given_twice_is_refused_or_repeated(harness: Call, name: str, command: click.Command) -> None:
    for option in command.params:
        if isinstance(option, click.Option) and not option.multiple and not option.is_flag:
            given = [word for _ in range(2) for word in (option.opts[-1], *["1"] * option.nargs)]
            done = harness(*name.split(), *given)
            assert done.exit_code == 2
            assert f"harness: {option.opts[-1]} is given 2 times; give it once" in done.stderr


def test_lists_take_commas_and_blanks() -> None:
    assert split_list("a,b c, d\n") == ("a", "b", "c", "d")
    assert split_list("nDCG(dcg='exp-log2', cutoff=3)@10,RR@10") == ("nDCG(dcg='exp-log2', cutoff=3)@10", "RR@10")
    assert split_list("it's,[, ]x") == ("it's", "[, ]x")
    assert split_list(" , ") == ()


def test_globs_are_a_list_of_which_each_matches_a_cell(harness: Call, bench: Bench) -> None:
    cells = [Cell("s", name, "my data,set", "offline", "p") for name in ("bm25", "tantivy", "pisa")]
    for globs in ("bm25,tantivy", "bm25 tantivy", "bm25/*, tantivy/*"):
        assert [cell.system for cell in cells if matches(cell, globs)] == ["bm25", "tantivy"]
        assert unmatched(cells, globs) is None
    assert all(matches(cell, "*/my data,set/*") for cell in cells) and unmatched(cells, "*/my data,set/*") is None
    assert unmatched(cells, "bm25,tantvy") == "tantvy"
    path = str(bench.suite(systems=["planted"], profiles=["cpu1-mem256m", "cpu2-mem4"]))
    both = harness("plan", path, "--launcher", "fake", "--only", "cpu1-*,cpu2-*", "--format", "json")
    assert both.exit_code == 0 and '"cpu1-mem256m"' in both.stdout and '"cpu2-mem4"' in both.stdout
    wrong = harness("run", path, "--launcher", "fake", "--only", "planted,tantvy")
    assert (wrong.exit_code, "--only 'tantvy' matches no cell" in wrong.stderr) == (2, True)


def test_output_through_a_link_writes_its_target(harness: Call) -> None:
    Path("qrels").write_text("q 0 d 1\n")
    Path("run").write_text("q Q0 d 1 1 t\n")
    Path("below").mkdir()
    for target in ("below/there.md", "below/new.md"):
        Path("link.md").unlink(missing_ok=True)
        Path("link.md").symlink_to(target)
        assert harness("evaluate", "qrels", "run", "-o", "link.md").exit_code == 0
        assert Path("link.md").is_symlink() and "RR@10" in Path(target).read_text()
    Path("loop").symlink_to("loop")
    assert "is a link that leads to itself" in harness("evaluate", "qrels", "run", "-o", "loop").stderr


@pytest.mark.slow
def test_the_streams_of_the_process_are_written_in_place(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("q 0 d 1\n")
    (tmp_path / "run").write_text("q Q0 d 1 1 t\n")
    command = [sys.executable, "-m", "harness", "evaluate", "qrels", "run", "-o", "/dev/stdout"]
    with (tmp_path / "out").open("w") as out:
        subprocess.run(command, cwd=tmp_path, stdout=out, check=True)
    assert "RR@10" in (tmp_path / "out").read_text()
    assert Path("/dev/stdout").is_symlink()


@pytest.mark.parametrize("place", ["~nosuch", "~nosuch/cache"])
def test_an_unknown_home_is_one_line(harness: Call, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    for arguments in (("verify", "--cache", place), ("plan", "x.toml", "--cache", place)):
        done = harness(*arguments)
        assert done.exit_code == 2 and "no home folder for '~nosuch'; name a cache with HARNESS_CACHE" in done.stderr
    monkeypatch.setenv("HARNESS_CACHE", place)
    assert "HARNESS_CACHE" in harness("report").stderr
    with pytest.raises(UsageError, match="HARNESS_CACHE"):
        config.cache_folder()


@pytest.mark.slow
def test_only_commands_that_measure_need_a_home(harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bench.suite(systems=["planted"])
    assert harness("run", str(path), "--launcher", "fake").exit_code == 0
    for name in ("HARNESS_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)  # no entry in passwd
    for command in ("report", "verify", "explain"):
        done = harness(command)
        assert done.exit_code == 0, done.output
    refused = harness("run", str(path), "--launcher", "fake")
    assert refused.exit_code == 2
    assert "this system has no home folder for '~'; name a cache with HARNESS_CACHE" in refused.stderr


@pytest.mark.parametrize(
    "address", ["http://localhost:9200", "HTTPS://a.b/c", "localhost:9200", "gs://bucket/x", "file:///x"]
)
def test_a_service_is_named_as_one(harness: Call, address: str) -> None:
    for arguments in (
        ("report", address),
        ("verify", address),
        ("compare", "a", "b", "--results", address),
        ("evaluate", address, "run"),
        ("merge", f"a={address}", "-o", "merged"),
        ("run", "suite.toml", "--results", address),
    ):
        done = harness(*arguments)
        assert done.exit_code == 2
        assert f"{address} is the address of a service, and harness reads files" in done.stderr
    assert not {"http:", "https:", "merged"} & {path.name for path in Path().iterdir()}
