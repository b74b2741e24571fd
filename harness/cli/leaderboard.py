"""`harness leaderboard`: what is stored, ranked."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.locations import mirrored
from harness.cli.options import Market, cache_option, market_options, one_line_errors, results_argument
from harness.cli.plots import draw
from harness.cli.report import PAGE, PICTURES, measures_for, page, per_query_of, show, show_page, stored_table
from harness.cli.run_options import instead_of, judging_options
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.analysis.leaderboard import Bound

FORMATS = ("md", "csv", "json", "latex")
WEIGHTS = "accuracy=0.5,cost=0.25,latency=0.25"


@click.command()
@results_argument
@click.option("--dataset", help="Whose rows are ranked.  [default: the only one]")
@click.option("--measure", default="RR@10", show_default=True, help="What accuracy is, as ir_measures writes it.")
@click.option(
    "--weights",
    default=WEIGHTS,
    show_default=True,
    metavar="AXIS=W,...",
    help="They sum to 1.  Axes: accuracy, cost, latency, memory, index, throughput.",
)
@click.option("--mode", type=click.Choice(["reference", "robust"]), default="reference", show_default=True)
@click.option(
    "--amrs", metavar="AXIS=RATE,...", help="Exchange rates that are fixed, e.g. latency=33.0507,cost=10.4392."
)
@click.option(
    "--cutoff", type=click.FloatRange(0), metavar="POINTS", help="Of mode robust.  [default: from the sample]"
)
@click.option("--at-most", metavar="AXIS=X,...", help="Rank only rows up to these, e.g. latency=50,cost=2.")
@click.option("--at-least", metavar="AXIS=X,...", help="Rank only rows from these on, e.g. accuracy=38.")
@click.option("--rank-by", metavar="AXIS", help="Rank by this axis alone instead of the Dynascore.")
@click.option(
    "--front", default="accuracy,cost,latency", show_default=True, help="Two or three axes of the Pareto front."
)
@click.option("--suite", help="Only rows of this suite.")
@click.option("--scenario", help="Only rows of this scenario.")
@judging_options
@market_options
@click.option("--format", "form", type=click.Choice((*FORMATS, PAGE, *PICTURES)), default="md", show_default=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write to this file instead of the terminal; pictures: to this folder.",
)
@cache_option
@one_line_errors
@mirrored("results")
def leaderboard(
    results: Path,
    dataset: str | None,
    measure: str,
    weights: str,
    mode: str,
    amrs: str | None,
    cutoff: float | None,
    at_most: str | None,
    at_least: str | None,
    rank_by: str | None,
    front: str,
    suite: str | None,
    scenario: str | None,
    qrels: Path | None,
    without_queries: Path | None,
    market: Market,
    form: str,
    output: Path | None,
    cache: Path,
) -> None:
    """Rank the stored RESULTS (a folder; default: results) of one dataset.  Runs nothing.

    By Dynascore (accuracy, cost and latency weighed), or by one axis among the rows that keep thresholds.  With it
    stand the exchange rates, how far each rank holds, and the Pareto front.
    """
    from harness.analysis import axes
    from harness.analysis import leaderboard as boards
    from harness.analysis.leaderboard import Asked
    from harness.report import writers
    from harness.report.leaderboard import leaderboard_document

    measures, instead = measures_for(measure), instead_of(qrels, without_queries)
    table = stored_table(results, measures, market, cache, instead=instead)
    if dataset is None:
        dataset = _only({row.dataset for row in table.rows})
    if cutoff is not None and not math.isfinite(cutoff):
        raise UsageError("--cutoff is no number; write points of accuracy, e.g. 0.5")
    asked = Asked(
        dataset=dataset,
        measure=measure,
        weights=_weights(weights),
        mode=mode,
        amrs=_rates(amrs),
        cutoff=cutoff,
        bounds=_bounds(at_most, at_least),
        rank_by=rank_by,
        suite=suite,
        scenario=scenario,
        front=_front(front),
    )
    if form == PAGE:
        from harness.report import page as html_page

        html_page.check(asked)
    found = per_query_of(results, measures, cache, instead)
    board = boards.build(table, found, asked)
    if form in PICTURES:
        there = tuple(row for row in table.rows if axes.of(row) == board.place)
        draw(replace(table, rows=there), found, asked, form, output, ("ranks", "winners", "cost"))
        return
    if form == PAGE:
        view = html_page.fragment(asked, board.place)
        show_page(page(results, measures, market, cache, view=view, instead=instead), output)
        return
    show(writers.write(leaderboard_document(board), form), output)


def _only(datasets: set[str]) -> str:
    if len(datasets) == 1:
        return datasets.pop()
    raise UsageError(
        f"the results are of {len(datasets)} datasets; choose one: --dataset {' | '.join(sorted(datasets))}"
    )


def _weights(text: str) -> dict[str, float]:
    weights = _numbers(text, "--weights")
    total = sum(weights.values())
    if any(weight < 0 for weight in weights.values()) or abs(total - 1) > 1e-6:
        raise UsageError(f"--weights {text}: they are not negative and sum to 1, these to {total:g}; e.g. {WEIGHTS}")
    return weights


def _rates(text: str | None) -> dict[str, float]:
    rates = {} if text is None else _numbers(text, "--amrs")
    for name, rate in rates.items():
        if name == "accuracy" or rate <= 0:
            raise UsageError(f"--amrs {name}={rate:g}: a rate is above 0, and accuracy's is always 1; leave it out")
    return rates


def _bounds(at_most: str | None, at_least: str | None) -> tuple[Bound, ...]:
    from harness.analysis.leaderboard import Bound

    most = {} if at_most is None else _numbers(at_most, "--at-most")
    least = {} if at_least is None else _numbers(at_least, "--at-least")
    return tuple(Bound(name, most.get(name), least.get(name)) for name in dict.fromkeys((*most, *least)))


def _front(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not 2 <= len(names) <= 3:
        raise UsageError(f"--front {text}: name two or three axes, e.g. accuracy,cost")
    return names


def _numbers(text: str, option: str) -> dict[str, float]:
    """``a=1,b=2`` as numbers by axis."""
    from harness.analysis import axes

    found = {}
    for part in text.split(","):
        name, equals, value = (each.strip() for each in part.partition("="))
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not equals or not math.isfinite(number):
            raise UsageError(f"{option} {text}: {part.strip()!r} is no axis=number; write e.g. latency=50")
        if name in found:
            raise UsageError(f"{option} {text}: {name} stands twice; keep one")
        axes.axis(name, "")
        found[name] = number
    return found


COMMANDS = (leaderboard,)
