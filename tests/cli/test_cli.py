"""All commands: errors as one line, signals, paths, help."""

from __future__ import annotations

import os
import signal
import time

import click
import pytest
from click.testing import CliRunner

from harness.cli import GROUPS, main
from harness.config import data_root
from harness.launch import container
from tests.conftest import Bench
from tests.support.command_line import Call


@pytest.mark.parametrize("option", ["--results", "--cache"])
@pytest.mark.parametrize(
    ("path", "message"), [("long/" * 700, "bytes; at most"), ("n" * 300, "bytes; at most"), ("\udcff", "is not UTF-8")]
)
def test_unusable_path_is_a_usage_error(harness: Call, bench: Bench, option: str, path: str, message: str) -> None:
    done = harness("run", str(bench.suite()), "--launcher", "fake", option, path)
    assert done.exit_code == 2 and message in done.stderr and not list(bench.folder.rglob("result.json"))


def test_signals_wait_for_the_end_of_a_protected_section() -> None:
    ended = []
    with pytest.raises(KeyboardInterrupt), container._deferred_interrupts():
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        ended.append(True)
    assert ended and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """Ignore the signal, as nohup does, while a container is created."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with container._deferred_interrupts():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("words", [["run", "-h"], ["ec2", "up", "-h"], ["-h"]])
def test_short_option_shows_the_help_of_each_command(words: list[str]) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0 and "-h, --help" in done.stdout, done.output


def test_help_lists_each_command_in_a_group_of_the_readme() -> None:
    shown = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout
    readme = (data_root() / "README.md").read_text(encoding="utf-8")
    context = click.Context(main)
    assert sorted(name for commands in GROUPS.values() for name in commands) == main.list_commands(context)
    for commands in GROUPS.values():
        for name, (_, text) in commands.items():
            command = main.get_command(context, name)
            assert command is not None and command.help and command.name == name
            assert len(text) <= 50 and f"  {name:<11}  {text}\n" in shown
            assert f"`harness {name}" in readme
    assert shown.endswith("Start with `harness demo`; `harness COMMAND --help` says what a command takes.\n")
