"""`harness frechet`: the distance between retrieved and relevant documents."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from harness.cli.lines import say
from harness.cli.locations import named_as_given
from harness.cli.options import cache_option, parsed_by, record_options
from harness.cli.output import FORMATS, PICTURES, Destination, destination_options
from harness.cli.stored_results import RunSelection, measures_option, runs_options, show_pictures
from harness.errors import UsageError
from harness.evaluation import evaluate_runs, measure_names
from harness.evaluation.embeddings import Embeddings
from harness.evaluation.evaluate import evaluate
from harness.evaluation.frechet import Distances, Settings, distances, read_vectors, vectors_of
from harness.evaluation.judged_runs import JudgedRuns
from harness.progress import bar
from harness.report.frechet import frechet_document
from harness.report.plots import frechet as plots
from harness.untrusted import one_line

_MOST = {"1": 1, "5": 5, "10": 10, "all": None}
# Fewer cannot give a 95 % interval.
_LEAST_BOOTSTRAPS = 100


def _bootstraps(count: int) -> int:
    if 0 < count < _LEAST_BOOTSTRAPS:
        raise UsageError(f"--bootstraps {count}: an interval of 95 % takes {_LEAST_BOOTSTRAPS} or more; say 0 for none")
    return count


@click.command()
@runs_options
@click.option(
    "--embeddings",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Vectors of the documents, from `harness embed`; repeatable.  [default: those stored with the results]",
)
@click.option("--encoder", help="Use only the vectors by this system.")
@click.option("-k", "cutoffs", type=click.IntRange(1), multiple=True, default=(1, 10), help="May come again.")
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
    better. docs/method/frechet.md says what it cannot see.  With png, svg or pdf: draws each distance against the first
    measure, into the folder of -o.
    """
    folder = destination.folder if destination.form in PICTURES else None
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
    if measured and folder is not None:
        show_pictures(plots.write_pictures(measured, folder, destination.form), plots.missing(measured))
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
    evaluations = {name: evaluate(run, runs.qrels, runs.query_ids, parsed) for name, run in runs.runs.items()}
    values = {name: evaluation.values for name, evaluation in evaluations.items()}
    reasons = [f"{name}: {why}" for evaluation in evaluations.values() for name, why in evaluation.reasons.items()]
    for reason in dict.fromkeys(reasons):
        say(one_line(f"{runs.dataset}: {reason}"), err=True)
    with bar(f"{runs.dataset}: {vectors.encoder}", "resamples", line=True) as step:
        sample_distances = distances(runs, vectors, cutoffs, settings, step)
    return sample_distances, values
