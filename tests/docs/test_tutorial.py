"""Every command of docs/guides/tutorial.md works, in the page's order and in one folder."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.command_line import call, run_process

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", (GUIDES / "tutorial.md").read_text(encoding="utf-8"), re.M | re.S)
MEASURING = {"plan", "run", "viable", "validate"}


def _bash(script: str, folder: Path) -> str:
    """Run a script as a reader does, with `harness` on the path."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return run_process(["bash", "-euo", "pipefail", "-c", script], folder, PATH=path, COLUMNS="120")


def _split(block: str) -> tuple[str, list[list[str]]]:
    """Return a block's shell, and the arguments of its `harness` commands, which end the block."""
    lines = block.splitlines(keepends=True)
    shell = "".join(line for line in lines if not line.startswith("harness "))
    return shell, [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("harness ")]


@pytest.mark.slow
def test_tutorial_works_without_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    ran = []
    for block in BLOCKS:
        shell, commands = _split(block)
        if shell:
            _bash(shell, tmp_path)
        for name, *arguments in commands:
            ran.append(name)
            if name == "doctor":  # judges this machine
                continue
            launcher = ("--launcher", "fake") if name in MEASURING else ()
            done = call(name, *arguments, *launcher)
            assert done.exit_code == 0, f"{name} {arguments}: {done.output}"
    assert ran[0] == "doctor" and {*MEASURING, "report", "explain", "compare", "instances"} < set(ran)


@pytest.mark.docker
def test_tutorial_ends_with_a_machine_to_rent(tmp_path: Path) -> None:
    output = {block: _bash(block, tmp_path) for block in BLOCKS if "harness doctor" not in block}
    table = next(text for block, text in output.items() if "harness run" in block)
    assert "cheapest" in table and "bm25 costs" in table
    verdict = next(text for block, text in output.items() if "harness viable" in block)
    assert "c7a.medium" in verdict
