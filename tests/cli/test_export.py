"""`harness export`, `merge` and `verify`, as a person types them; and their page, which does what it says."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.results import reader
from tests.support import publisher
from tests.support.command_line import Call, call
from tests.support.publisher import Made
from tests.support.results_folders import change, job, put

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guides" / "exchange.md").read_text(encoding="utf-8")
SHIPPED = "results/published/santhanam2023"


@pytest.fixture
def harness(results: Path) -> Call:
    """The command line beside stored results, which the fixture puts into the current folder."""
    return call


def test_every_example_of_the_documentation_page_runs(harness: Call) -> None:
    """Every command of it succeeds and every line of Python runs, in their order."""
    for name in ("alice", "bob", *"abcd"):
        shutil.copytree("results", f"from-{name}")
    shutil.copytree(ROOT / SHIPPED, SHIPPED)
    publisher.put(Path("in-containers"), Made("bm25", 2.0))
    names: dict[str, Any] = {}
    ran = []
    for kind, block in re.findall(r"```(sh|python)\n(.*?)```", PAGE, flags=re.DOTALL):
        if kind == "python":
            exec(block, names)
            continue
        for line in block.splitlines():
            program, *arguments = shlex.split(line)
            if program == "cmp":
                assert Path(arguments[0]).read_bytes() == Path(arguments[1]).read_bytes()
                continue
            if "passport" in arguments:  # scripted figures have none
                arguments[arguments.index("results")] = "in-containers"
            done = harness(*arguments)
            assert (program, done.exit_code) == ("harness", 0), f"{line}: {done.output}"
            ran.append(arguments[0])
    assert ran.count("export") == 5 and {"merge", "verify", "report"} <= set(ran)
    assert len(names["rows"]) == 6 and len(names["old"]) == 6 and "P@1" in names["old"]
    assert {path.name for path in Path("together").iterdir()} == {"alice", "bob"}
    (named,) = re.findall(r"`(harness verify \w+)` lists", PAGE)
    assert harness(*named.split()[1:]).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--format", "parquet", "--samples"), "--samples goes with --format sqlite"),
        (("--format", "csv", "--actor-team", "us"), "go with --format ir_metadata"),
        (("--format", "csv", "--measures", "none@3"), "unknown measure 'none@3'"),
        (("--format", "csv", "--as-of", "1999-01-01"), "has no prices from 1999-01-01 or before"),
    ],
)
def test_conflicting_options_are_one_line(harness: Call, arguments: tuple[str, ...], message: str) -> None:
    done = harness("export", "results", "-o", "out", *arguments)
    assert done.exit_code == 2 and done.stderr.count("\n") == 1 and message in done.stderr
    assert not Path("out").exists()


def test_published_tables_are_exported_as_rows_only(harness: Call) -> None:
    shipped = str(ROOT / SHIPPED)
    for form in ("csv", "parquet", "sqlite"):
        assert harness("export", shipped, "--format", form, "-o", f"out.{form}").exit_code == 0
    assert harness("export", shipped, "--format", "sqlite", "--samples", "-o", "more.db").exit_code == 2
    assert "no runs to describe" in harness("export", shipped, "--format", "ir_metadata", "-o", "meta").stderr


def test_merge_prints_the_jobs_of_each_origin(harness: Call) -> None:
    done = harness("merge", "results", "bob=results", "-o", "out")
    assert done.exit_code == 0 and done.stdout == "bob: 12 jobs\nresults: 12 jobs\nwritten: out\n"
    put(job(Path("results")) / reader.LOG, b"x")
    done = harness("merge", "results", "-o", "other")
    assert done.exit_code == 2 and "nothing was written" in done.stderr and not Path("other").exists()
    assert harness("merge", "-o", "other").exit_code == 2


def test_verify_prints_one_finding_per_line_and_fails(harness: Call) -> None:
    done = harness("verify")
    assert (done.exit_code, done.stdout) == (0, "- 12 jobs, 36 files: all follows\n")
    folder = job(Path("results"))
    put(folder / reader.LOG, b"x")
    change(folder, lambda raw: raw["answers"].update(warmup_done=9))
    change(folder, lambda raw: raw["files"].update({"a b": "0"}))
    done = harness("verify", "results")
    *lines, last = done.stdout.splitlines()
    assert done.exit_code == 1 and len(lines) == 3 and all(line.startswith("- fail  ") for line in lines)
    assert last.endswith(": 3 do not follow") and done.stderr == ""
    assert len(json.loads(harness("verify", "--format", "json").stdout)["mismatches"]) == 3
    assert len(harness("verify", "--format", "csv").stdout.splitlines()) == 4
    assert harness("verify", "none").exit_code == 2
    change(folder, lambda raw: raw["files"].update({"a\n\x1b[2Jb": "0"}))
    damaged = harness("verify", "results")
    assert damaged.exit_code == 1 and "write at most 4,096 printable characters" in damaged.stdout
    assert "\x1b" not in damaged.stdout, "a stranger's control characters reach no terminal"


def test_verify_says_that_it_does_not_check_reports(harness: Call) -> None:
    assert harness("report", "results", "--format", "html", "-o", "results/report.html").exit_code == 0
    note = "- note  not checked: report.html; `harness report` makes a report again"
    assert harness("verify").stdout == f"{note}\n- 12 jobs, 36 files: all follows\n"
    put(Path("results/report.html"), b"0 ms")
    assert harness("verify").stdout.splitlines()[0] == note
    assert json.loads(harness("verify", "--format", "json").stdout)["notes"] == [note.removeprefix("- note  ")]
    assert "not check reports" in " ".join(harness("verify", "--help").stdout.split())


def test_merged_results_have_origins_in_every_table(harness: Call) -> None:
    harness("merge", "ours=results", "theirs=results", "-o", "out")
    for arguments in (("report",), ("reprice", "--as-of", "2022-12-05"), ("report", "--layout", "santhanam2023")):
        command, *options = arguments
        for form in ("md", "csv", "json"):
            done = harness(command, "out", *options, "--format", form)
            assert done.exit_code == 0 and "theirs" in done.stdout, (arguments, form)
