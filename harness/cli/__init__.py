"""The console script: parse, call one function, print.

Exit codes: 0 done, 1 something failed and is stored, 2 usage, 130 stopped.
"""

from __future__ import annotations

import signal
from types import FrameType

import click

import harness
from harness.cli import (
    batch,
    compare,
    ec2,
    embed,
    evaluate,
    export,
    frechet,
    images,
    leaderboard,
    leakage,
    pool,
    prices,
    qrels,
    report,
    reprice,
    robustness,
    run,
    systems,
    viability,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(harness.__version__, prog_name="harness")
def main() -> None:
    """Measure what a retrieval system costs and what it is worth."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _interrupt)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """End the command as Ctrl-C does, with all its cleaning up."""
    raise KeyboardInterrupt


_MODULES = (
    *(run, viability, report, leaderboard, reprice, export, prices, images, systems),
    *(compare, evaluate, robustness, pool, qrels, leakage, embed, frechet),
    *(ec2, batch),
)
for _commands in _MODULES:
    for _command in _commands.COMMANDS:
        main.add_command(_command)
