"""`harness evaluate`, `frechet`, `leakage`, `robustness`: judge runs, and examine the judgements."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import click

from harness.analysis import rejudge
from harness.analysis import robustness as examining
from harness.analysis.robustness import Robustness, RobustnessOptions
from harness.cli.lines import say
from harness.cli.locations import named_as_given
from harness.cli.options import PATH, FiniteRange, cache_option, check_needs, output_path, parsed_by, record_options
from harness.cli.output import FORMATS, PICTURES, Destination, destination_options, write
from harness.cli.stored_results import (
    RunSelection,
    measures_option,
    queries_option,
    read_run_files,
    runs_options,
    show_pictures,
    without_queries_option,
)
from harness.config import page
from harness.errors import UsageError
from harness.evaluation import embeddings as vector_files
from harness.evaluation import evaluate_runs, judged_runs, measure_names, qrels_subsample
from harness.evaluation import leakage as leaking
from harness.evaluation.embeddings import Embeddings
from harness.evaluation.evaluate import evaluate as evaluate_run
from harness.evaluation.evaluate_runs import count_and_ids
from harness.evaluation.frechet import Distances, Settings, distances, read_vectors, vectors_of
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.leakage import queries_without_words
from harness.progress import Progress, bar
from harness.report.evaluation import evaluation_document
from harness.report.frechet import frechet_document
from harness.report.leakage import leakage_document
from harness.report.plots import frechet as plots
from harness.report.plots import order_flips
from harness.report.robustness import robustness_document
from harness.untrusted import one_line


@click.command()
@click.argument("qrels", type=PATH)
@click.argument("runs", nargs=-1, required=True, type=PATH, metavar="RUN...")
@measures_option()
@click.option("--by-query", is_flag=True, help="One line for each query and measure.")
@queries_option("The queries that count, as JSON lines or id<TAB>text.")
@without_queries_option
@destination_options(*FORMATS)
def evaluate(
    qrels: Path,
    runs: tuple[Path, ...],
    measures: tuple[str, ...],
    by_query: bool,
    queries: Path | None,
    without_queries: Path | None,
    destination: Destination,
) -> None:
    """Evaluate TREC run files by QRELS (both plain or compressed), like trec_eval -c.  Runs nothing.

    All judged queries count; a query without results counts 0, and unjudged queries are named.  Scores decide the
    order, not ranks; equal scores are ordered by document id, the largest first.
    """
    parsed = measure_names.parse(measures)
    with _watching() as (reading, step):
        (judged,) = read_run_files(qrels, runs, queries, without_queries, reading)
        evaluated = evaluate_runs.evaluate_runs(judged, parsed, step)
    destination.show_report(evaluation_document(evaluated, by_query=by_query))


@contextmanager
def _watching() -> Iterator[tuple[Callable[[Path], Progress], Progress]]:
    """Show bars on a terminal: bytes read of each file, and evaluated runs."""
    with ExitStack() as stack:

        def reading(path: Path) -> Progress:
            step, size = stack.enter_context(bar(path.name, "reading")), path.stat().st_size if path.is_file() else 0

            def read(done: int, _total: int = 0, _phase: str = "", /) -> None:
                step(done, size)

            return read

        yield reading, stack.enter_context(bar("evaluated", "judging"))


_MOST = {"1": 1, "5": 5, "10": 10, "all": None}
# Fewer cannot give a 95 % interval.
_LEAST_BOOTSTRAPS = 100


def _bootstraps(count: int) -> int:
    if 0 < count < _LEAST_BOOTSTRAPS:
        raise UsageError(
            f"--bootstraps {count}: an interval of 95 % needs {_LEAST_BOOTSTRAPS} or more; 0 gives no interval"
        )
    return count


@click.command(epilog=f"\b\nWhat it cannot see: {page('docs/method/frechet.md')}")
@runs_options
@click.option(
    "--embeddings",
    "files",
    type=PATH,
    multiple=True,
    help="Vectors of the documents, from `harness embed`; repeatable.  [default: those stored with the results]",
)
@click.option("--encoder", help="Use only the vectors by this system.")
@click.option("-k", "cutoffs", type=click.IntRange(1), multiple=True, default=(1, 10), help="Depth; repeatable.")
@click.option(
    "--judged-per-query",
    "most_judged",
    type=click.Choice(tuple(_MOST)),
    default="10",
    callback=parsed_by(_MOST.__getitem__),
    help="Maximum judged documents of a query, best grades first, equal grades in random order.",
)
@click.option("--relevant-from", type=click.IntRange(1), default=1, help="Minimum grade of a relevant document.")
@click.option("--against", metavar="SYSTEM", help="Subtract this system's distance.  [default: the nearest's]")
@click.option("--unlabelled", is_flag=True, help="Also measure with all judged documents skipped before k are taken.")
@measures_option("Also show these, with Kendall's tau; as ir_measures writes them.", ("nDCG@10", "RR@10"))
@click.option(
    "--bootstraps",
    "resamples",
    type=click.IntRange(0, 100_000),
    default=1000,
    callback=parsed_by(_bootstraps),
    help=f"Resamples of the queries, {_LEAST_BOOTSTRAPS} or more; 0: no intervals.",
)
@click.option("--seed", type=click.IntRange(0), default=2024, help="Seed of all random draws.")
@destination_options(*FORMATS, *PICTURES)
@cache_option
@record_options("settings", Settings)
def frechet(
    runs: RunSelection,
    files: tuple[Path, ...],
    encoder: str | None,
    cutoffs: tuple[int, ...],
    settings: Settings,
    measures: tuple[str, ...],
    destination: Destination,
) -> None:
    """Measure the Frechet distance between judged and retrieved documents.  Runs nothing.

    RUNS: a folder of results (default: results), or run files with --qrels.  FD@k compares the embeddings of all
    relevant documents with the embeddings of a system's first k documents: 0 for equal distributions; smaller is
    better.  With png, svg or pdf: draws each distance against the first measure, into the folder of -o.
    """
    depths = tuple(dict.fromkeys(cutoffs))
    measured, failed = [], False
    with named_as_given(runs.cache):
        samples = runs.judged()
        given = read_vectors(files, samples)
        for each in samples:
            sample = replace(each, notes=(*each.notes, *evaluate_runs.unknown_query_notes(each)))
            try:
                encoded = vectors_of(sample, given, _folder(runs), encoder)
                measured += [_measured(sample, vectors, depths, settings, measures) for vectors in encoded]
            except UsageError as error:
                if len(samples) == 1:
                    raise
                failed = True  # other samples may work
                say(f"harness: {one_line(str(error))}", err=True)
    if measured and destination.pictures:
        show_pictures(plots.pictures(measured), plots.missing(measured), destination)
    elif measured:
        destination.show_report(frechet_document(measured))
    sys.exit(1 if failed else 0)


def _folder(selection: RunSelection) -> Path | None:
    """Return the results folder, which stores vectors; None for run files and S3."""
    named = selection.runs[0] if selection.runs else Path("results")
    return named if isinstance(named, Path) and named.is_dir() else None


def _measured(
    runs: JudgedRuns, vectors: Embeddings, cutoffs: tuple[int, ...], settings: Settings, measures: tuple[str, ...]
) -> tuple[Distances, dict[str, dict[str, float | None]]]:
    """Return the distances by one encoder, and the measures."""
    parsed = measure_names.parse(measures)
    evaluations = {name: evaluate_run(run, runs.qrels, runs.query_ids, parsed) for name, run in runs.runs.items()}
    values = {name: evaluation.values for name, evaluation in evaluations.items()}
    reasons = [f"{name}: {why}" for evaluation in evaluations.values() for name, why in evaluation.reasons.items()]
    for reason in dict.fromkeys(reasons):
        say(one_line(f"{runs.dataset}: {reason}"), err=True)
    with bar(f"{runs.dataset}: {vectors.encoder}", "resamples", line=True) as step:
        sample_distances = distances(runs, vectors, cutoffs, settings, step)
    return sample_distances, values


_THRESHOLD = 0.9


@click.command()
@click.argument("training", type=PATH, metavar="TRAINING")
@runs_options
@click.option(
    "--embeddings",
    nargs=2,
    type=PATH,
    metavar="SAMPLE TRAINING",
    help="Vectors of the sample's and the training queries by one encoder, from `harness embed`."
    "  [default: compare texts only]",
)
@click.option(
    "--threshold",
    type=FiniteRange(0, 1, min_open=True),
    help=f"Minimum cosine of near duplicates, with --embeddings.  [default: {_THRESHOLD}]",
)
@measures_option()
@click.option("--write", "leaked", type=output_path, metavar="FILE", help="Write the leaked queries' ids, one a line.")
@destination_options(*FORMATS)
@cache_option
def leakage(
    training: Path,
    runs: RunSelection,
    embeddings: tuple[Path, Path] | None,
    threshold: float | None,
    measures: tuple[str, ...],
    leaked: Path | None,
    destination: Destination,
) -> None:
    """Find queries of the TRAINING set that recur in the sample, and the measures without them.

    TRAINING is a file of queries: JSON lines with _id and text, or id<TAB>text.  RUNS are a folder of results (default:
    results), or run files.  Queries leak where texts are the same but for case, punctuation and white space, or, with
    --embeddings, where vectors are near.
    """
    check_needs(threshold="embeddings")
    parsed = measure_names.parse(measures)
    trained = judged_runs.read_queries(training)
    if embeddings is None:
        blank = queries_without_words(
            trained, str(training), "name a file of training queries, or vectors with --embeddings"
        )
        if blank:
            say(
                one_line(f"{training}: {count_and_ids(blank)} queries contain no word, so no query can match them"),
                err=True,
            )
    vectors = (vector_files.read(embeddings[0]), vector_files.read(embeddings[1])) if embeddings else None
    samples = runs.judged()
    for sample in samples:
        if not sample.queries:
            raise UsageError(
                f"{sample.dataset}: holds no query, so nothing can be compared; name the queries with --queries"
            )
    leakages = [leaking.examine(sample, trained, vectors, threshold or _THRESHOLD, parsed) for sample in samples]
    if leaked is not None:
        write(leaked, rejudge.id_list(dict.fromkeys(query for found in leakages for query in found.leaked)))
    destination.show_report(leakage_document(leakages))


def _options(
    measures: tuple[str, ...], keeps: tuple[str, ...], any_grade: bool, resamples: int, draws: int, seed: int
) -> RobustnessOptions:
    rules = [
        replace(rule, any_grade=any_grade and rule.share is None)
        for rule in dict.fromkeys(map(qrels_subsample.parse_keep, keeps))
    ]
    return RobustnessOptions(measures[0], measures[1:], tuple(rules), resamples, draws, seed)


robustness_options = record_options(
    "options",
    _options,
    measures_option(
        "As ir_measures writes them. The first makes the order; the orders by the others are compared with it.",
        ("nDCG@10", "RR@10", "AP"),
    ),
    click.option(
        "--keep",
        "keeps",
        multiple=True,
        default=("1", "50%"),
        metavar="N|SHARE",
        help="Fewer judgements: at most N relevant ones by query, best grades first, or a share of all; repeatable.",
    ),
    click.option("--any-grade", is_flag=True, help="Keep N relevant judgements at random, of any grade."),
    click.option("--resamples", type=click.IntRange(100, 100_000), default=1000, help="Resamples of the queries."),
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
    examined = _examine(runs.judged(), options)
    folder = destination.pictures
    if folder is None:
        destination.show_report(robustness_document(examined))
        return
    missing = [
        f"{sample.dataset}: no matrix of {condition.cause.value}, {condition.name}: {condition.reason}"
        for sample in examined
        for condition in sample.conditions
        if condition.reason
    ]
    show_pictures(order_flips.pictures(examined), missing, destination)


def _examine(samples: Sequence[JudgedRuns], options: RobustnessOptions) -> list[Robustness]:
    """Examine samples with two or more systems; name the others on stderr, unless all samples have one system."""
    alone = [sample for sample in samples if len(sample.runs) < 2]
    examined = []
    for sample in [sample for sample in samples if len(sample.runs) > 1] or alone:
        with bar(f"robustness {sample.dataset}", "judging") as step:
            examined.append(examining.examine(sample, options, step))
    for sample in alone:
        say(one_line(f"{sample.dataset}: left out, because {', '.join(sample.runs)} is its only system"), err=True)
    return examined
