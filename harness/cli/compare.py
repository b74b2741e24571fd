"""`harness compare` and `recall`: systems against each other, query by query, and against an exact search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from harness.analysis import comparison, published
from harness.analysis import recall as overlaps
from harness.analysis.comparison import Comparison
from harness.analysis.results_folder import ReadResults
from harness.cli.locations import mirrored
from harness.cli.options import (
    cache_option,
    given_parameters,
    price_options,
    results_argument,
    results_option,
    results_path,
)
from harness.cli.output import FORMATS, Destination, destination_options
from harness.cli.stored_results import (
    StoredResults,
    measures_option,
    qrels_option,
    queries_option,
    read_run_files,
    stored_results,
    without_queries_option,
)
from harness.errors import UsageError
from harness.evaluation import judged_runs, measure_names, trec_lines
from harness.report.comparison import comparison_document
from harness.report.recall import answer, recall_document
from harness.results import reader, suite_record

# Names with these endings are run files, even if the file is missing.
_ENDINGS = frozenset({".run", ".trec", ".res", ".txt", ".gz", ".zst"})
# Options for stored results only, by parameter name.
_OF_RESULTS = {"results": "--results", "others": "--with", "as_of": "--as-of", "region": "--region", "term": "--term"}


@click.command()
@mirrored("results", "others")
@click.argument("compared", nargs=-1, required=True, metavar="A [B]...")
@results_option
@click.option("--with", "others", type=results_path, metavar="PATH", help="Look for B here.  [default: --results]")
@qrels_option("Of run files: their judgements.  Of stored ones: judge by this file, which holds theirs and more.")
@queries_option()
@without_queries_option
@measures_option("As ir_measures writes them; the first is compared with cost.", None)
@click.option("--each-seed", is_flag=True, help="Compare the seeds of a model ([seeds] of the suite) one by one.")
@click.option(
    "--changed",
    type=click.IntRange(0, 1000),
    default=5,
    metavar="N",
    help="Name the N queries with the largest gain of B by the first measure, and the N with the largest loss.",
)
@price_options
@destination_options(*FORMATS, wide=True)
@cache_option
@stored_results
def compare(
    compared: tuple[str, ...],
    stored: StoredResults,
    others: Path | None,
    queries: Path | None,
    changed: int,
    each_seed: bool,
    destination: Destination,
) -> None:
    """Compare B with A, query by query: latency and each measure, with intervals and tests.  Runs nothing.

    A and B are globs over system/dataset/scenario/profile, or over any one of them.  Rows with the same dataset, query
    sample and profile are compared, or the only two rows; all comparisons of one command are corrected together.  Shows
    the cost and the worth of B against A, the queries that changed most, and how many queries would show a difference
    of this size.  The seeds of a model ([seeds] of its suite) form one row: means over the seeds, query by query.

    With --qrels, compares run files of other programs, by measures only.  A and B may be globs in quotes: each file of
    A is compared with each file of B. With one glob, or more than two files, all pairs are compared.
    """
    notes: Sequence[str] = ()
    if _are_run_files(compared, stored):
        pairs = _file_pairs(compared)
        if stored.qrels is None:
            raise UsageError(f"{', '.join(compared)}: run files need their judgements; name them with --qrels")
        comparisons, notes = _run_files(pairs, stored.qrels, queries, stored, changed)
    elif queries is not None:
        raise UsageError("--queries needs run files; name their judgements with --qrels, or leave --queries out")
    else:
        if len(compared) > 2:
            raise UsageError(f"name stored rows by A and B, not by {len(compared)} names; put globs in quotes")
        theirs = stored if others is None else replace(stored, results=others)
        comparisons, notes = _stored(compared[0], compared[-1], stored, theirs, changed, each_seed=each_seed)
    destination.show_report(comparison_document(comparison.corrected(comparisons), notes))


def _stored(
    a: str, b: str, ours: StoredResults, theirs: StoredResults, count: int, *, each_seed: bool
) -> tuple[list[Comparison], Sequence[str]]:
    """Compare pairs of stored rows, A from our results and B from theirs; notes name unreadable records."""

    def rows(stored: StoredResults) -> ReadResults:
        found = stored.priced(stored.read())
        return found if each_seed else stored.averaged(found)

    found = others = rows(ours)
    table = found.table
    if theirs is not ours:
        others = rows(replace(theirs, measures=table.measures))
    pairs = comparison.pairs(table.rows, others.table.rows, a, b)
    values = found.per_query, others.per_query
    comparisons = comparison.compare_pairs(pairs, values, table.measures, ours.results, count)
    return comparisons, tuple(dict.fromkeys((*table.unreadable, *others.table.unreadable)))


def _are_run_files(compared: Sequence[str], stored: StoredResults) -> bool:
    """Return whether the names are run files (existing or not) and not globs over stored rows.

    A system may have the name of a file, so with stored results all names must be files, with qrels.
    """
    files = [trec_lines.is_readable(Path(name)) for name in compared]
    if all(files) and stored.qrels is not None:
        return True
    named = any(Path(name).suffix.lower() in _ENDINGS for name in compared)
    return named or (any(files) and not stored.results.is_dir())


def _file_pairs(compared: Sequence[str]) -> list[tuple[Path, Path]]:
    """Pair the run files; refuse other files, and options of stored results."""
    for name, option in _OF_RESULTS.items():
        if name in given_parameters():
            raise UsageError(f"{option} needs stored results, but {' and '.join(compared)} are run files; leave it out")
    return judged_runs.pair_files(compared)


def _run_files(
    pairs: Sequence[tuple[Path, Path]], qrels: Path, queries: Path | None, options: StoredResults, count: int
) -> tuple[list[Comparison], Sequence[str]]:
    """Compare pairs of run files; also return notes about all pairs."""
    measures = measure_names.parse(options.measures or measure_names.DEFAULT)
    # A file may have several names.
    paths = {path.resolve(): path for pair in pairs for path in pair}
    (runs,) = read_run_files(qrels, tuple(paths.values()), queries, options.without_queries)
    name_of = dict(zip(paths, runs.runs, strict=True))
    named = [(name_of[one.resolve()], name_of[two.resolve()]) for one, two in pairs]
    return comparison.compare_run_pairs(named, runs, measures, count)


@click.command()
@mirrored("results")
@results_argument
@click.option("--of", "exact", metavar="EXACT", help="The exact system.  [default: [exact] of the suite]")
@measures_option("As ir_measures writes them; the change of the first is shown.", None)
@destination_options(*FORMATS, wide=True)
@cache_option
@stored_results
def recall(stored: StoredResults, exact: str | None, destination: Destination) -> None:
    """Show the share of the exact top 10 and top 100 that approximate systems find.  Runs nothing.

    Separates the loss of the search from the quality of the model.  RESULTS (a folder; default: results) hold both
    ranked lists, with the same queries, documents, model and k.  Needs no judgements.
    """
    if published.is_in(stored.results):
        raise UsageError(f"{stored.results}: a paper's figures have no ranked lists; name measured results")
    read, declared = stored.read(), suite_record.read_pairs(stored.results, "exact")
    found = overlaps.compare_with_exact(reader.read_jobs(stored.results), declared, exact, read.table, read.per_query)
    if destination.form == "md" and not destination.wide:
        destination.show_answer(lambda escape, width: (answer(found, escape, width),))
    else:
        destination.show_report(recall_document(found))
