"""Commands that make tables of stored results, and run nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from harness.cli.asked import Market, market_options
from harness.console import one_line_errors, write
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.orchestrator import Summary
    from harness.table import Table


@click.command()
@click.argument("results", type=click.Path(path_type=Path), default=Path("results"))
@click.option("--format", "form", type=click.Choice(["md", "csv", "json"]), default="md", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file instead of the terminal.")
@click.option("--measures", default="RR@10 Success@10 nDCG@10", show_default=True, help="As ir_measures writes them.")
@market_options
@one_line_errors
def report(results: Path, form: str, output: Path | None, measures: str, market: Market) -> None:
    """Make the table of the stored RESULTS (a folder; default: results).  Runs nothing."""
    text = _published(results, form, market) or _stored(results, form, tuple(measures.split()), market)
    if output is None:
        click.echo(text, nl=False)
    else:
        write(output, text)


def _stored(results: Path, form: str, measures: tuple[str, ...], market: Market) -> str:
    from harness.report import render

    return render(stored_table(results, measures, market), form)


def _published(results: Path, form: str, market: Market) -> str | None:
    """The tables of a paper, where the folder holds those and no jobs."""
    from harness.published import about, tables

    if not (results / about.NAME).is_file():
        return None
    from harness.report import paper

    published = tables.read(results)
    return paper.render(published, published.follows(), market.snapshot(), form)


def stored_table(results: Path, measures: tuple[str, ...], market: Market, keys: frozenset[str] | None = None) -> Table:
    """The table of what is stored there, at these prices."""
    from harness import rows, store

    snapshot = market.snapshot()

    jobs = store.read_jobs(results)
    if not jobs:
        raise UsageError(f"{results}: no finished job in it; run a suite first")
    return rows.build(jobs, snapshot=snapshot, measures=measures, keys=keys)


def finish(folder: Path, measures: tuple[str, ...], summary: Summary) -> None:
    """Print the table, write the report, and say where everything lies."""
    from harness.report import render

    table = stored_table(folder, measures, Market(), summary.keys)
    click.echo(render(table, "terminal", width=Console().width), nl=False)
    write(folder / "report.md", render(table, "md"))
    click.echo(f"\n{len(summary.jobs)} jobs run, {summary.done_before} were done before")
    click.echo(f"results: {folder}\nreport:  {folder / 'report.md'}")


COMMANDS = (report,)
