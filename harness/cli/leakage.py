"""`harness leakage`: training queries that recur among the evaluation queries."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from harness.analysis import rejudge
from harness.cli.lines import say
from harness.cli.options import FiniteRange, cache_option, output_path
from harness.cli.output import FORMATS, Destination, destination_options, write
from harness.cli.stored_results import RunSelection, measures_option, runs_options
from harness.errors import UsageError
from harness.evaluation import embeddings as vector_files
from harness.evaluation import judged_runs, measure_names
from harness.evaluation import leakage as leaking
from harness.evaluation.evaluate_runs import count_and_ids
from harness.evaluation.leakage import queries_without_words
from harness.report.leakage import leakage_document
from harness.untrusted import one_line

_THRESHOLD = 0.9


@click.command()
@click.argument("training", type=click.Path(path_type=Path), metavar="TRAINING")
@runs_options
@click.option(
    "--embeddings",
    nargs=2,
    type=click.Path(path_type=Path),
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
@click.option(
    "--write",
    "leaked",
    type=output_path,
    metavar="FILE",
    help="Write the leaked queries' ids, one a line.",
)
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
    if threshold is not None and embeddings is None:
        raise UsageError("--threshold is of cosines, which need vectors: name those with --embeddings, or leave it out")
    least = _THRESHOLD if threshold is None else threshold
    parsed = measure_names.parse(measures)
    trained = judged_runs.read_queries(training)
    if embeddings is None:
        blank = queries_without_words(
            trained, str(training), "name a file of training queries, or vectors with --embeddings"
        )
        if blank:
            say(
                one_line(f"{training}: {count_and_ids(blank)} queries have no word: nothing is like them"),
                err=True,
            )
    vectors = (vector_files.read(embeddings[0]), vector_files.read(embeddings[1])) if embeddings else None
    samples = runs.judged()
    for sample in samples:
        if not sample.queries:
            raise UsageError(f"{sample.dataset}: no query in it, so nothing can be compared; name those with --queries")
    leakages = [leaking.examine(sample, trained, vectors, least, parsed) for sample in samples]
    if leaked is not None:
        write(leaked, _lines(dict.fromkeys(query for found in leakages for query in found.leaked)))
    destination.show_report(leakage_document(leakages))


def _lines(ids: Iterable[str]) -> str:
    """Write ids, one per line, for --without-queries."""
    queries = tuple(ids)
    for query in queries:
        if "\n" in query or query.strip(rejudge.BLANKS) != query or not query or query.startswith("\ufeff"):
            raise UsageError(
                f"query {query!r}: cannot stand in a list of ids, one a line; correct it, or leave --write out"
            )
    return "".join(f"{query}\n" for query in queries)
