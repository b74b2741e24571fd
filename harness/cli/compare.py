"""`harness compare` and `recall`: systems against each other, query by query, and against an exact search."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import click

from harness.analysis import comparison, gate, passport, published, results_folder
from harness.analysis import recall as overlaps
from harness.analysis.axes import comparison_group
from harness.analysis.comparison import Comparison
from harness.analysis.gate import CANNOT_TELL, Pair
from harness.analysis.results_folder import ReadResults
from harness.analysis.table import Row
from harness.cli.lines import say
from harness.cli.locations import mirrored, readable, results_argument
from harness.cli.options import check_needs, given_parameters, price_options, results_option, results_path
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
from harness.errors import UsageError, counted
from harness.evaluation import judged_runs, measure_names, trec_lines
from harness.report import writers
from harness.report.comparison import comparison_document
from harness.report.gate import conditions, gate_document, is_measure, parse
from harness.report.recall import answer, recall_document
from harness.results import reader, suite_record
from harness.untrusted import reason_of

# Names with these endings are run files, even if the file is missing.
_ENDINGS = frozenset({".run", ".trec", ".res", ".txt", ".gz", ".zst"})
# Exit code where a condition cannot be told, by --cannot-tell.
_CANNOT_TELL = {"ok": 0, "fail": 1}
# Options for stored results only, by parameter name.
_OF_RESULTS = {"results": "--results", "others": "--with", "as_of": "--as-of", "region": "--region", "term": "--term"}


@click.command()
@mirrored("results", "others", "baseline")
@click.argument("compared", nargs=-1, required=True, metavar="A [B]... | RESULTS")
@results_option
@click.option("--with", "others", type=results_path, metavar="PATH", help="Look for B here.  [default: --results]")
@click.option(
    "--baseline",
    type=results_path,
    metavar="PATH",
    help="Compare each row of these results (A) with the same row of RESULTS (B), the only argument.",
)
@click.option(
    "--fail-if",
    "limits",
    multiple=True,
    metavar="CONDITION",
    help="A change of a figure that is too much: 'cpu > +5%', 'memory > +10MiB' or 'nDCG@10 < -0.01'; may be"
    " repeated.  Prints an answer for each row: worse, not worse, cannot tell.",
)
@click.option(
    "--cannot-tell",
    "untold",
    type=click.Choice(tuple(_CANNOT_TELL)),
    help="End with 0 or with 1 if nothing is worse and something cannot be decided.  [default: with 3]",
)
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
@stored_results
def compare(
    compared: tuple[str, ...],
    stored: StoredResults,
    others: Path | None,
    queries: Path | None,
    changed: int,
    each_seed: bool,
    baseline: Path | None,
    limits: tuple[str, ...],
    untold: str | None,
    destination: Destination,
) -> None:
    """Compare B with A, query by query: latency and each measure, with intervals and tests.  Runs nothing.

    A and B are globs over system/dataset/scenario/profile, or over any one of them.  Rows with the same dataset, query
    sample and profile are compared, or the only two rows; all comparisons of one command are corrected together.  Shows
    the cost and the worth of B against A, the queries that changed most, and how many queries would show a difference
    of this size.  The seeds of a model ([seeds] of its suite) form one row: means over the seeds, query by query.

    With --qrels, compares run files of other programs, by measures only.  A and B may be globs in quotes: each file of
    A is compared with each file of B. With one glob, or more than two files, all pairs are compared.

    With --fail-if, it is a gate: exit code 1 if B is worse by more than a limit, 0 if it is not, and 3 if the
    measurements cannot tell.  In GitHub's workflows the answers are also in the summary of the job.
    """
    check_needs(untold="limits")
    notes: Sequence[str] = ()
    if _are_run_files(compared, stored) and baseline is None:
        if limits:
            raise UsageError("--fail-if needs stored results, not run files; leave it out")
        pairs = _file_pairs(compared)
        if stored.qrels is None:
            raise UsageError(f"{', '.join(compared)}: run files need their judgements; name them with --qrels")
        comparisons, notes = _run_files(pairs, stored.qrels, queries, stored, changed)
    elif queries is not None:
        raise UsageError("--queries needs run files; name their judgements with --qrels, or leave --queries out")
    else:
        sides = _sides(compared, stored, others, baseline, each_seed=each_seed)
        for side in (sides.a, sides.b):
            if passport.is_in(side.results):
                raise UsageError(f"{side.results}: a passport has no values by query or process; compare whole results")
        if limits:
            sys.exit(_gate(limits, sides, untold, destination))
        alike = [(a, b) for a, b in sides.pairs() if b is not None and comparison_group(a) == comparison_group(b)]
        if not alike:
            raise UsageError("the baseline and the results differ in queries, documents or k; measure the same suite")
        comparisons = comparison.compare_pairs(
            alike,
            (sides.found_a.per_query, sides.found_b.per_query),
            sides.found_a.table.measures,
            (sides.a.results, sides.b.results),
            changed,
        )
        left = len(sides.pairs()) - len(alike)
        notes = (
            *([f"{counted(left, 'row')} of A left out: B has none with the same queries"] if left else ()),
            *sides.notes,
        )
    destination.show_report(comparison_document(comparison.corrected(comparisons), notes))


@dataclass(frozen=True)
class _Sides:
    """Stored results of A and of B, and the globs over their rows; ``None``: each row of A has its own in B."""

    a: StoredResults
    b: StoredResults
    globs: tuple[str, str] | None
    each_seed: bool

    @cached_property
    def found_a(self) -> ReadResults:
        """Rows of A's results, with prices."""
        return self.rows(self.a)

    @cached_property
    def found_b(self) -> ReadResults:
        """Rows of B's results, with prices and A's measures."""
        if self.b is self.a:
            return self.found_a
        return self.rows(replace(self.b, measures=self.found_a.table.measures))

    def rows(self, stored: StoredResults) -> ReadResults:
        """Read rows with prices."""
        found = stored.priced(stored.read())
        return found if self.each_seed else stored.averaged(found)

    def pairs(self) -> Sequence[tuple[Row, Row | None]]:
        """Pair the rows; B may lack one where A is a baseline."""
        rows = self.found_a.table.rows, self.found_b.table.rows
        return gate.same_cells(*rows) if self.globs is None else comparison.pairs(*rows, *self.globs)

    @property
    def notes(self) -> Sequence[str]:
        """Notes on records that could not be read."""
        return tuple(dict.fromkeys((*self.found_a.table.unreadable, *self.found_b.table.unreadable)))


def _sides(
    compared: Sequence[str], stored: StoredResults, others: Path | None, baseline: Path | None, *, each_seed: bool
) -> _Sides:
    if baseline is None:
        if len(compared) > 2:
            raise UsageError(f"name stored rows by A and B, not by {len(compared)} names; put globs in quotes")
        theirs = stored if others is None else replace(stored, results=others)
        return _Sides(stored, theirs, (compared[0], compared[-1]), each_seed)
    for name in ("results", "others"):
        if name in given_parameters():
            raise UsageError(f"{_OF_RESULTS[name]} does not go with --baseline; name B's results after it")
    if len(compared) > 1:
        raise UsageError(f"--baseline compares one folder of results with it, not {len(compared)}; name one")
    theirs = replace(stored, results=readable(results_path(compared[0]), stored.cache))
    return _Sides(replace(stored, results=baseline), theirs, None, each_seed)


def _gate(limits: Sequence[str], sides: _Sides, untold: str | None, destination: Destination) -> int:
    """Show an answer for each condition and pair of rows, and return the exit code."""
    written = [parse(limit) for limit in limits]
    if measures := [each.figure for each in written if is_measure(each.figure)]:
        known = sides.a.measures or results_folder.suite_measures(sides.a.results)
        a = replace(sides.a, measures=tuple(dict.fromkeys((*known, *measures))))
        sides = replace(sides, a=a, b=a if sides.b is sides.a else sides.b)
    table = sides.found_a.table
    wanted = conditions(written, table)
    pairs = sides.pairs()
    alone: tuple[dict[str, tuple[Row, ...]], ...] = ({}, {})
    if any(condition.by_process for condition in wanted):
        of_b = [b for _, b in pairs if b is not None]
        alone = (sides.a.by_process([a for a, _ in pairs]), sides.b.by_process(of_b))
    values = sides.found_a.per_query, sides.found_b.per_query
    checked = gate.check(
        [
            Pair(
                a,
                b,
                (alone[0].get(a.per_query_key, ()), alone[1].get(b.per_query_key, ()) if b else ()),
                (values[0].get(a.per_query_key), values[1].get(b.per_query_key) if b else None),
            )
            for a, b in pairs
        ],
        wanted,
    )
    code = gate.exit_code(checked)
    code = _CANNOT_TELL.get(untold or "", code) if code == CANNOT_TELL else code
    document = gate_document(checked, code, sides.notes)
    destination.show_report(document)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(writers.write(document, "md"))
        except OSError as error:
            say(f"GITHUB_STEP_SUMMARY: {summary} cannot be written: {reason_of(error)}", err=True)
    return code


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
@results_argument()
@click.option("--of", "exact", metavar="EXACT", help="The exact system.  [default: [exact] of the suite]")
@measures_option("As ir_measures writes them; the change of the first is shown.", None)
@destination_options(*FORMATS, wide=True)
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
    destination.show_report(recall_document(found), lambda escape, width: (answer(found, escape, width),))
