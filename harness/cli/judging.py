"""By what else than by what was stored a command judges stored runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click

if TYPE_CHECKING:
    from harness.rejudged import Instead

P = ParamSpec("P")
without_queries_option = click.option(
    "--without-queries",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Leave these queries out of the measures: ids, one a line (harness leakage writes such).",
)


def judging_options(command: Callable[P, None]) -> Callable[P, None]:
    """``--qrels`` and ``--without-queries``, which :func:`instead_of` reads."""
    for option in (
        without_queries_option,
        click.option(
            "--qrels",
            type=click.Path(path_type=Path),
            help="Judge by this file, which holds the stored judgements and more (harness qrels add makes such);"
            " nothing is measured again.",
        ),
    ):
        command = option(command)
    return command


def instead_of(qrels: Path | None, without_queries: Path | None) -> Instead | None:
    """By what else than by what was stored runs are judged; ``None``: by nothing else."""
    if qrels is None and without_queries is None:
        return None  # nothing to import for
    from harness import rejudged

    return rejudged.read(qrels, without_queries)
