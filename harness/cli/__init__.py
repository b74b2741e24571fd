"""The console script: parse, call one function, print.

Exit codes: 0 done, 1 something failed and is stored, 2 usage, 130 stopped.
"""

from __future__ import annotations

import gc
import importlib
import io
import keyword
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
    "folder": ("worker",),
    "foreign": ("import",),
    "generate": ("generate", "label"),
    "judgements": ("pool", "qrels"),
    "prices": ("instances", "prices", "reprice"),
    "run": ("demo", "plan", "run"),
    "runs": ("evaluate", "frechet", "leakage", "robustness"),
    "systems": ("calibrate", "conformance", "doctor", "images", "pin", "systems"),
    "viability": ("curve", "validate", "viable"),
}
# What people want to do, and the commands for it, as the README has them.
GROUPS = {
    "Start": {
        "demo": "measure four systems on SciFact, in minutes",
        "doctor": "is this machine fit, and how far to trust it?",
        "systems": "list the systems, or show one",
    },
    "Measure": {
        "plan": "what a suite would run, and how long",
        "run": "run a suite; after any stop it goes on",
        "attach": "measure a service that runs already",
        "images": "build the images of systems",
        "conformance": "does an engine keep the container contract?",
        "pin": "hashes of a system's files on the model hub",
    },
    "Read results": {
        "report": "table, page or pictures of stored results",
        "explain": "how a number was made",
        "leaderboard": "rank systems by Dynascore or one axis",
        "compare": "two systems query by query; a gate for CI",
        "history": "a figure over commits or dates",
        "robustness": "how often two systems would swap ranks",
        "recall": "share of the exact hits that others find",
    },
    "Choose a machine": {
        "viable": "the smallest memory that works, and its machine",
        "validate": "does a system work on an instance type?",
        "curve": "latency by memory limit",
        "instances": "instance types with enough CPUs and memory",
        "prices": "the price lists and their ages; fetch new ones",
        "reprice": "stored results at other prices",
        "bill": "the cost of a month at your traffic",
    },
    "Use other machines": {
        "stage": "a suite as a folder for nodes without a network",
        "worker": "measure for `harness run --work FOLDER`",
        "ec2": "set up EC2, list and end instances",
        "batch": "set up AWS Batch, list and delete a stack",
    },
    "Evaluate and judge": {
        "evaluate": "measures of TREC run files",
        "pool": "unjudged first hits, to judge them",
        "qrels": "add judgements, or describe them",
        "leakage": "training queries that recur in the sample",
        "embed": "encode texts with a dense system",
        "frechet": "distance of judged and retrieved texts",
    },
    "Make collections": {
        "generate": "documents whose passages have known places",
        "positions": "where relevant passages start",
        "label": "passages of DuReader 2.0, by its answers",
    },
    "Exchange results": {
        "export": "stored results for other programs",
        "import": "quality that others report, beside your cost",
        "merge": "results of several people in one folder",
        "verify": "check results by seals and checksums",
    },
    "Check harness": {"calibrate": "measure times and memory that are known"},
}
_HELP = {name: text for commands in GROUPS.values() for name, text in commands.items()}
# Each command and the module that holds it, as a function of the command's name; calling a command imports its module.
COMMANDS = {name: name for name in _HELP} | {name: module for module, names in _MODULES.items() for name in names}

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
        attribute = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command = getattr(importlib.import_module(f"harness.cli.{COMMANDS[cmd_name]}"), attribute)
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
            check_words(command, rest, ctx)
        return resolved

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 # click's
        """List the commands by what people want to do, without importing them."""
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(f"{name:<11}", text) for name, text in commands.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 # click's
        """Say what to do first: the lines above it may have left the screen."""
        formatter.write("\nStart with `harness demo`; `harness COMMAND --help` says what a command takes.\n")

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


@click.group(
    cls=Commands,
    commands=[click.Command(name, help=text) for name, text in _HELP.items()],
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
