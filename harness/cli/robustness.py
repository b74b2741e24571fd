"""`harness robustness`: what would move a leaderboard."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import cache_option, one_line_errors
from harness.cli.report import FORMATS, PICTURES, show
from harness.cli.run_options import judged, runs_arguments, without_queries_option
from harness.errors import UsageError
from harness.progress import bar
from harness.untrusted import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.analysis.robustness import Asked, Robustness
    from harness.evaluation.judged_runs import JudgedRuns


@click.command()
@runs_arguments
@without_queries_option
@click.option("--measure", default="nDCG@10", show_default=True, help="What the order is by, as ir_measures writes it.")
@click.option(
    "--against", default="RR@10 AP", show_default=True, help="Measures whose orders are held against it; '' for none."
)
@click.option(
    "--keep",
    multiple=True,
    default=("1", "50%"),
    show_default=True,
    metavar="N|SHARE",
    help="Fewer judgements: at most N relevant ones a query, or a share of all; may stand several times.",
)
@click.option("--resamples", type=click.IntRange(100, 100_000), default=1000, show_default=True, help="Of the queries.")
@click.option(
    "--draws",
    type=click.IntRange(2, 10_000),
    default=100,
    show_default=True,
    help="Of fewer judgements; 100 give shares to 10 points, 1000 to 3.",
)
@click.option("--seed", type=click.IntRange(0), default=2023, show_default=True)
@click.option("--format", "form", type=click.Choice((*FORMATS, *PICTURES)), default="md", show_default=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write to this file instead of the terminal; pictures: to this folder.",
)
@cache_option
@one_line_errors
def robustness(
    runs: tuple[Path | str, ...],
    qrels: Path | None,
    queries: Path | None,
    only: str | None,
    without_queries: Path | None,
    measure: str,
    against: str,
    keep: tuple[str, ...],
    resamples: int,
    draws: int,
    seed: int,
    form: str,
    output: Path | None,
    cache: Path,
) -> None:
    """How often two systems change places: with other queries, fewer judgements, another measure.  Runs nothing.

    RUNS is one folder of results (default: results), or run files with their --qrels.  For each two systems it says in
    how many draws they stand the other way round, for each system between which ranks it moves, and for each way of
    asking how far its order agrees (Kendall's tau).  With png, svg or pdf: a matrix picture into the folder of -o.
    """
    from harness.analysis.robustness import Asked
    from harness.evaluation import qrels_subsample

    if form in PICTURES and output is None:
        raise UsageError(f"--format {form} writes files; name a folder for them with -o")
    keeps = tuple(dict.fromkeys(qrels_subsample.parse(each) for each in keep))
    asked = Asked(measure, tuple(against.split()), keeps, resamples, draws, seed)
    found = _examine(judged(runs, qrels, queries, only, cache, without_queries), asked)
    if form in PICTURES:
        from harness.report.plots import order_flips

        assert output is not None
        for each in found:
            for condition in each.conditions:
                if condition.reason:
                    why = f"{each.dataset}: no matrix of {condition.cause.value}, {condition.name}: {condition.reason}"
                    click.echo(one_line(why), err=True)
        paths = [*order_flips.write(found, output, form)]
        for path in paths:
            click.echo(one_line(str(path)))
        if not paths:
            sys.exit(1)
        return
    from harness.report import writers
    from harness.report.robustness import robustness_document

    show(writers.write(robustness_document(found), form), output)


def _examine(sets: Sequence[JudgedRuns], asked: Asked) -> list[Robustness]:
    """All that have an order; a line on stderr for each other one, unless there are only such."""
    from harness.analysis import robustness as examining

    alone = [each for each in sets if len(each.runs) < 2]
    found = []
    for each in [each for each in sets if len(each.runs) > 1] or alone:
        with bar(f"robustness {each.dataset}", "judging") as step:
            found.append(examining.examine(each, asked, step))
    for each in alone:
        click.echo(one_line(f"{each.dataset}: left out, {', '.join(each.runs)} is its only system"), err=True)
    return found


COMMANDS = (robustness,)
