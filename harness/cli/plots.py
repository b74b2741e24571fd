"""Pictures, as commands write them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.errors import UsageError
from harness.untrusted import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.analysis.leaderboard import Asked
    from harness.analysis.table import Table
    from harness.evaluation.per_query import PerQuery


def draw(
    table: Table,
    found: Mapping[str, PerQuery],
    asked: Asked,
    form: str,
    output: Path | None,
    kinds: Sequence[str] | None = None,
) -> None:
    """Pictures of a table into a folder; a line on stderr for each that it has not."""
    if output is None:
        raise UsageError(f"--format {form} writes several files; name a folder for them with -o")
    from harness.report.plots import KINDS, album

    made = album.album(table, found, asked, kinds or KINDS)
    for why in made.missing:
        click.echo(one_line(why), err=True)
    for path in album.write(made.pictures, output, form):
        click.echo(one_line(str(path)))
    if not made.pictures:
        sys.exit(1)
