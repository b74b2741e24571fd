"""`harness s3-index`: what makes the first look at many results in S3 fast."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.places import watching
from harness.console import cache_option, one_line_errors


@click.command("s3-index")
@click.argument("results", metavar="s3://BUCKET/PREFIX")
@cache_option
@one_line_errors
def s3_index(results: str, cache: Path) -> None:
    """Make the index of each suite in S3 anew: one object with every result.json, for whoever reads them first.

    It is made from the objects themselves, which alone are believed: an index that is old, wrong or not there costs
    time and changes nothing.  Reading many results makes it too, where that is permitted.
    """
    from harness.s3 import opening

    with watching(results) as watch:
        made = opening.index(results, cache.expanduser().absolute(), watch)
    for suite, held in made.items():
        click.echo(f"{suite}: {held:,} results")


COMMANDS = (s3_index,)
