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

# What people want to do, and the commands for it, as the README has them: each with its module, which a call imports.
GROUPS = {
    "Start": {
        "demo": ("run", "measure four systems on SciFact, in minutes"),
        "doctor": ("systems", "is this machine fit, and how far to trust it?"),
        "systems": ("systems", "list the systems, or show one"),
    },
    "Measure": {
        "plan": ("run", "what a suite would run, and how long"),
        "run": ("run", "run a suite; after any stop it goes on"),
        "attach": ("attach", "measure a service that runs already"),
        "images": ("systems", "build the images of systems"),
        "conformance": ("systems", "does an engine keep the container contract?"),
        "pin": ("systems", "hashes of a system's files on the model hub"),
    },
    "Read results": {
        "report": ("report", "table, page or pictures of stored results"),
        "explain": ("explain", "how a number was made"),
        "leaderboard": ("leaderboard", "rank systems by Dynascore or one axis"),
        "compare": ("compare", "two systems query by query; a gate for CI"),
        "history": ("history", "a figure over commits or dates"),
        "robustness": ("runs", "how often two systems would swap ranks"),
        "recall": ("compare", "share of the exact hits that others find"),
    },
    "Choose a machine": {
        "viable": ("viability", "the smallest memory that works, and its machine"),
        "validate": ("viability", "does a system work on an instance type?"),
        "curve": ("viability", "latency by memory limit"),
        "instances": ("prices", "instance types with enough CPUs and memory"),
        "prices": ("prices", "the price lists and their ages; fetch new ones"),
        "reprice": ("prices", "stored results at other prices"),
        "bill": ("bill", "the cost of a month at your traffic"),
    },
    "Use other machines": {
        "stage": ("stage", "a suite as a folder for nodes without a network"),
        "worker": ("folder", "measure for `harness run --work FOLDER`"),
        "ec2": ("aws", "set up EC2, list and end instances"),
        "batch": ("aws", "set up AWS Batch, list and delete a stack"),
    },
    "Evaluate and judge": {
        "evaluate": ("runs", "measures of TREC run files"),
        "pool": ("judgements", "unjudged first hits, to judge them"),
        "qrels": ("judgements", "add judgements, or describe them"),
        "leakage": ("runs", "training queries that recur in the sample"),
        "embed": ("embed", "encode texts with a dense system"),
        "frechet": ("runs", "distance of judged and retrieved texts"),
    },
    "Make collections": {
        "generate": ("generate", "documents whose passages have known places"),
        "positions": ("positions", "where relevant passages start"),
        "label": ("generate", "passages of DuReader 2.0, by its answers"),
    },
    "Exchange results": {
        "export": ("export", "stored results for other programs"),
        "import": ("foreign", "quality that others report, beside your cost"),
        "merge": ("export", "results of several people in one folder"),
        "verify": ("export", "check results by seals and checksums"),
    },
    "Check harness": {"calibrate": ("systems", "measure times and memory that are known")},
}
_COMMANDS = {name: entry for commands in GROUPS.values() for name, entry in commands.items()}

# New objects between two collections.  Importing makes many that live on; Python's 700 costs a tenth of a report.
_COLLECT_AFTER = 100_000


class Commands(click.Group):
    """All commands; calling a command imports it, and errors that harness raises become one line."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 # click's
        """Import a command."""
        if cmd_name not in _COMMANDS:
            return None
        module, _ = _COMMANDS[cmd_name]
        attribute = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command = getattr(importlib.import_module(f"harness.cli.{module}"), attribute)
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
                formatter.write_dl([(f"{name:<11}", text) for name, (_, text) in commands.items()])

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
    commands=[click.Command(name, help=text) for name, (_, text) in _COMMANDS.items()],
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
