"""The console script: parse, call one function, print.

Exit codes: 0 done, 1 something failed and is stored, 2 usage, 130 stopped.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import io
import re
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import click

import harness

# The modules of commands whose name is not their module's.
_MODULES = {
    "aws": ("batch", "ec2"),
    "compare": ("compare", "recall"),
    "export": ("export", "merge", "verify"),
    "generate": ("generate", "label"),
    "judgements": ("pool", "qrels"),
    "prices": ("instances", "prices", "reprice"),
    "run": ("demo", "plan", "run", "worker"),
    "runs": ("evaluate", "frechet", "leakage", "robustness"),
    "systems": ("calibrate", "conformance", "doctor", "images", "pin", "systems"),
    "viability": ("curve", "validate", "viable"),
}
_ALONE = ("embed", "explain", "leaderboard", "positions", "report")
# Each command and the module that holds it, as a function of the command's name; calling a command imports its module.
COMMANDS = {name: module for module, names in _MODULES.items() for name in names} | dict(
    zip(_ALONE, _ALONE, strict=True)
)

# New objects between two collections.  Importing makes many that live on; Python's 700 costs a tenth of a report.
_COLLECT_AFTER = 100_000


class Commands(click.Group):
    """All commands; calling a command imports it, and errors that harness raises become one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 # click's
        """Return the names of all commands."""
        return sorted(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 # click's
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"harness.cli.{COMMANDS[cmd_name]}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the called command, and check its arguments."""
        from harness.cli.options import check_words

        resolved = super().resolve_command(ctx, args)
        _, command, rest = resolved
        while isinstance(command, click.Group) and rest:
            command, rest = command.get_command(ctx, rest[0]), rest[1:]
        if command is not None and not isinstance(command, click.Group):
            check_words(command, rest)
        return resolved

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        listing = click.Group(commands=self.commands)
        listing.format_commands(ctx, formatter)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line, on streams that can write every character."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # LANG=C, or a terminal without UTF-8
        gc.set_threshold(_COLLECT_AFTER)
        return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; show its messages and bars on stderr."""
        from harness import progress  # late, as all that the help needs not
        from harness.cli.options import one_line_errors
        from harness.errors import UsageError

        with one_line_errors(), progress.show_progress(progress.Screen(stderr=True)):
            try:
                Path.cwd()
            except FileNotFoundError:  # relative paths have no meaning there
                raise UsageError("the folder that you are in was removed; change to another") from None
            return super().invoke(ctx)


class _Unimported(click.Command):
    """A command that is not imported yet: its name and, on demand, its help."""

    def get_short_help_str(self, limit: int = 45) -> str:
        """Read the help from the docstring in the command's file."""
        source = Path(__file__).with_name(f"{COMMANDS[str(self.name)]}.py").read_text(encoding="utf-8")
        found = re.search(rf'^def {self.name}\(.*?^    """(.*?)"""', source, re.MULTILINE | re.DOTALL)
        self.help = inspect.cleandoc(found[1]) if found else None
        return super().get_short_help_str(limit)


@click.group(
    cls=Commands,
    commands=[_Unimported(name) for name in COMMANDS],
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(harness.__version__, prog_name="harness")
def main() -> None:
    """Measure what a retrieval system costs and what it is worth."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _interrupt)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """End the command as Ctrl-C does, with its clean-up."""
    raise KeyboardInterrupt
