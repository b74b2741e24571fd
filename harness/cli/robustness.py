"""`harness robustness`: how far a leaderboard's order depends on queries, judgements and the measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from harness.analysis import robustness as examining
from harness.analysis.robustness import Robustness, RobustnessOptions
from harness.cli.lines import say
from harness.cli.options import cache_option, parsed_by, record_options
from harness.cli.output import FORMATS, PICTURES, Destination, destination_options
from harness.cli.stored_results import (
    RunSelection,
    measures_option,
    runs_options,
    show_pictures,
    without_queries_option,
)
from harness.evaluation import qrels_subsample
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.qrels_subsample import KeepRule
from harness.progress import bar
from harness.report.plots import order_flips
from harness.report.robustness import robustness_document
from harness.untrusted import one_line


def _keeps(given: tuple[str, ...]) -> tuple[KeepRule, ...]:
    return tuple(dict.fromkeys(map(qrels_subsample.parse_keep, given)))


def _options(
    measures: tuple[str, ...], keeps: tuple[KeepRule, ...], any_grade: bool, resamples: int, draws: int, seed: int
) -> RobustnessOptions:
    keeps = tuple(replace(keep, any_grade=any_grade and keep.share is None) for keep in keeps)
    return RobustnessOptions(measures[0], measures[1:], keeps, resamples, draws, seed)


robustness_options = record_options(
    "options",
    _options,
    measures_option(
        "As ir_measures writes them: the first makes the order, with which those of the others are compared.",
        ("nDCG@10", "RR@10", "AP"),
    ),
    click.option(
        "--keep",
        "keeps",
        multiple=True,
        default=("1", "50%"),
        callback=parsed_by(_keeps),
        metavar="N|SHARE",
        help="Fewer judgements: at most N relevant ones by query, best grades first, or a share of all; repeatable.",
    ),
    click.option("--any-grade", is_flag=True, help="Keep N relevant judgements at random, of any grade."),
    click.option("--resamples", type=click.IntRange(100, 100_000), default=1000, help="Of the queries."),
    click.option(
        "--draws",
        type=click.IntRange(2, 10_000),
        default=100,
        help="Draws of fewer judgements; 100 give shares to 10 points, 1000 to 3.",
    ),
    click.option("--seed", type=click.IntRange(0), default=2023),
)


@click.command()
@runs_options
@without_queries_option
@robustness_options
@destination_options(*FORMATS, *PICTURES, wide=True)
@cache_option
def robustness(runs: RunSelection, options: RobustnessOptions, destination: Destination) -> None:
    """Measure how often two systems swap ranks under other queries, fewer judgements, another measure.  Runs nothing.

    RUNS is a folder of results (default: results), or run files with --qrels.  Shows for each pair of systems the share
    of draws in which they swap, for each system the range of its rank, and for each condition how well the orders agree
    (Kendall's tau).  With png, svg or pdf: draws a matrix into the folder of -o.
    """
    folder = destination.folder if destination.form in PICTURES else None
    examined = _examine(runs.judged(), options)
    if folder is None:
        destination.show_report(robustness_document(examined))
        return
    missing = [
        f"{sample.dataset}: no matrix of {condition.cause.value}, {condition.name}: {condition.reason}"
        for sample in examined
        for condition in sample.conditions
        if condition.reason
    ]
    show_pictures(order_flips.write_flips(examined, folder, destination.form), missing)


def _examine(samples: Sequence[JudgedRuns], options: RobustnessOptions) -> list[Robustness]:
    """Examine samples with two or more systems; name the others on stderr, unless all samples have one system."""
    alone = [sample for sample in samples if len(sample.runs) < 2]
    examined = []
    for sample in [sample for sample in samples if len(sample.runs) > 1] or alone:
        with bar(f"robustness {sample.dataset}", "judging") as step:
            examined.append(examining.examine(sample, options, step))
    for sample in alone:
        say(one_line(f"{sample.dataset}: left out, {', '.join(sample.runs)} is its only system"), err=True)
    return examined
