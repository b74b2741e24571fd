"""Every command of docs/guides/tutorial.md works, in the page's order and in one folder."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from harness.cli import viability
from harness.experiments.viability.probe import subject
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


def _follow(blocks: Sequence[str], folder: Path, more: Callable[[str], Sequence[str]]) -> dict[str, str]:
    """Follow the page in a folder; return the output of each command, by its name.

    Args:
        more: returns further arguments of a command.
    """
    said = {}
    for block in blocks:
        shell, commands = _split(block)
        if shell:
            _bash(shell, folder)
        for name, *arguments in commands:
            said[name] = ""
            if name == "doctor":  # judges this machine
                continue
            done = call(name, *arguments, *more(name))
            assert done.exit_code == 0, f"{name} {arguments}: {done.output}"
            said[name] = done.stdout
    return said


@pytest.mark.slow
def test_tutorial_works_without_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    ran = _follow(BLOCKS, tmp_path, lambda name: ("--launcher", "fake") if name in MEASURING else ())
    assert {"doctor", *MEASURING, "report", "explain", "compare", "instances"} <= ran.keys()


@pytest.mark.docker
def test_tutorial_ends_with_a_machine_to_rent(
    engine: docker.DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's commands on real systems, with one trial, a short warm-up and few steps of memory."""
    short = [block.replace("trials = 3", "trials = 1\nwarmup_cap = 20") for block in BLOCKS]
    assert short != BLOCKS
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        viability, "subject", lambda *given, **asked: replace(subject(*given, **asked), trials=1, warmup_cap=20)
    )
    said = _follow(short, tmp_path, lambda name: ("--step", "128MiB") if name == "viable" else ())
    # Tests that run at the same time may make a row noisy, and either system the cheaper one.
    assert re.search(r"points RR@10 (better|worse)", said["run"]), said["run"]
    assert "cheapest" in said["run"] or "noisy" in said["run"], said["run"]
    assert "c7a.medium" in said["viable"] and "c7a.medium" in said["validate"]
