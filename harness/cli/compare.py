"""`harness compare`: two systems, query by query."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from harness.cli.locations import mirrored
from harness.cli.options import (
    Market,
    asked_measures,
    cache_option,
    market_options,
    one_line_errors,
    results_option,
    results_path,
)
from harness.cli.report import FORMATS, measures_option, output_option, per_query_of, show, stored_table
from harness.cli.run_options import instead_of, of_files, without_queries_option
from harness.errors import FileError, UnknownName, UsageError
from harness.evaluation import input_files
from harness.progress import bar

if TYPE_CHECKING:
    from harness.analysis.comparison import Comparison
    from harness.analysis.rejudge import Instead
    from harness.analysis.table import Row

# What is called so is a run file, even one that is not there.
_ENDINGS = frozenset({".run", ".trec", ".res", ".txt", ".gz"})
# Options that say nothing of run files, by the names of their parameters.
_OF_RESULTS = {
    "results": "--results",
    "others": "--with",
    "as_of": "--as-of",
    "region": "--region",
    "term": "--term",
}


@click.command()
@click.argument("compared", nargs=-1, required=True, metavar="A [B]...")
@results_option
@click.option(
    "--with", "others", type=results_path, metavar="PATH", help="Look for B in this folder.  [default: --results]"
)
@click.option(
    "--qrels",
    type=click.Path(path_type=Path),
    help="Of run files: their judgements.  Of stored ones: judge by this file, which holds theirs and more.",
)
@click.option(
    "--queries",
    type=click.Path(path_type=Path),
    help="With run files: the queries that count, as JSON lines or id<TAB>text.  [default: those judged]",
)
@without_queries_option
@measures_option
@click.option("--by", metavar="MEASURE", help="What is set against cost.  [default: the first of --measures]")
@click.option(
    "--changed",
    type=click.IntRange(0, 1000),
    default=5,
    show_default=True,
    metavar="N",
    help="Name so many queries that B does better, by that measure, and as many that it does worse.",
)
@market_options
@click.option("--format", "form", type=click.Choice(FORMATS), default="md", show_default=True)
@output_option
@cache_option
@one_line_errors
@mirrored("results", "others")
def compare(
    compared: tuple[str, ...],
    results: Path,
    others: Path | None,
    qrels: Path | None,
    queries: Path | None,
    without_queries: Path | None,
    measures: str,
    by: str | None,
    changed: int,
    market: Market,
    form: str,
    output: Path | None,
    cache: Path,
) -> None:
    """Compare B with A, query by query: latency and each measure, with intervals and tests.  Runs nothing.

    A and B are globs over system/dataset/scenario/profile, or over any one of them.  Rows of the same dataset, query
    sample and profile are compared, or the only two; all that one command compares is corrected together.  Says what B
    costs and is worth against A, which queries changed most, and how many queries would show a difference of that size.

    With --qrels, run files that others made are compared; they have measures, and neither latency nor cost.  A and B
    may be globs in quotes: each file of A with each of B.  Of one glob, or of more than two files, all pairs.
    """
    from harness.analysis import comparison
    from harness.report import writers
    from harness.report.comparison import comparison_document

    names = asked_measures(measures)
    said: Sequence[str] = ()
    if _are_run_files(compared, qrels, results):
        pairs = _file_pairs(compared)
        if qrels is None:
            raise UsageError(f"{', '.join(compared)}: run files need their judgements; name them with --qrels")
        made, said = _run_files(_Files(pairs, qrels, queries, without_queries), names, by, changed)
    elif queries is not None:
        raise UsageError("--queries is of run files; name their judgements with --qrels, or leave it out")
    else:
        if len(compared) > 2:
            raise UsageError(f"stored rows are named by A and B, not by {len(compared)} names; put globs in quotes")
        a, b = compared[0], compared[-1]
        instead = instead_of(qrels, without_queries)
        made = _stored(a, b, results, others, names, by, changed, market, cache, instead)
    show(writers.write(comparison_document(comparison.corrected(made), said), form), output)


def _stored(
    a: str,
    b: str,
    results: Path,
    others: Path | None,
    names: tuple[str, ...],
    by: str | None,
    count: int,
    market: Market,
    cache: Path,
    instead: Instead | None,
) -> list[Comparison]:
    from harness.analysis import comparison
    from harness.analysis.paired_differences import Asked

    ours = stored_table(results, names, market, cache, instead=instead)
    theirs, found = ours, per_query_of(results, names, cache, instead)
    found_there = found
    if others is not None:
        theirs = stored_table(others, names, market, cache, instead=instead)
        found_there = per_query_of(others, names, cache, instead)
    pairs = comparison.pairs(ours.rows, theirs.rows, a, b)
    chosen = _chosen(by, ours.measures)
    texts: dict[str | None, Mapping[str, str]] = {}
    made = []
    with bar("compare", "pairs") as step:
        for number, (one, two) in enumerate(pairs):
            step(number, len(pairs))
            if count and one.sample_sha256 not in texts:
                texts[one.sample_sha256] = _texts(results, one)
            asked = Asked(chosen, count, texts.get(one.sample_sha256, {})) if chosen else None
            each, other = comparison.of(found, one), comparison.of(found_there, two)
            made.append(comparison.compare(one, two, each, other, ours.measures, asked))
    return made


def _texts(results: Path, row: Row) -> Mapping[str, str]:
    """The texts of a row's queries; none where they are not there: what is compared does not depend on them."""
    from harness.results import reader

    try:
        job = reader.of_key(results, row.key)
        return job.sample_texts() if job else {}
    except FileError:
        return {}


def _are_run_files(compared: Sequence[str], qrels: Path | None, results: Path) -> bool:
    """Whether run files are named, be they there or not, rather than globs over stored rows.

    A system may be called like a file that lies here: where there are results, all must be files and have judgements.
    """
    files = [input_files.is_there(Path(each)) for each in compared]
    if all(files) and qrels is not None:
        return True
    named = any(Path(each).suffix.lower() in _ENDINGS for each in compared)
    return named or (any(files) and not results.is_dir())


def _file_pairs(compared: Sequence[str]) -> list[tuple[Path, Path]]:
    """The run files to compare with one another; refuse other files, and options that are of stored results alone."""
    context = click.get_current_context()
    for name, option in _OF_RESULTS.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{option} is of stored results, and {' and '.join(compared)} are run files; leave it out")
    # Path.glob takes no absolute patterns.
    found = [[Path(path) for path in sorted(glob.glob(each)) or [each]] for each in compared]  # noqa: PTH207
    for number, paths in enumerate(found):
        for path in paths:
            if not input_files.is_there(path):
                why = "is a folder" if path.is_dir() else "no such file"
                side = f" for {'AB'[number]}" if len(found) == 2 else ""
                raise FileError(f"{path}: {why}; name a run file{side}, or stored rows for A and B")
    sides = found if len(found) == 2 else [[path for paths in found for path in paths]] * 2
    pairs: dict[frozenset[Path], tuple[Path, Path]] = {}
    for one in sides[0]:
        for other in sides[1]:
            if not one.samefile(other):
                pairs.setdefault(frozenset((one.resolve(), other.resolve())), (one, other))
    if not pairs:
        what = f"{Path(compared[0])} and {Path(compared[-1])} are one and the same file"
        raise UsageError(f"{what}: there is nothing to compare; name another run")
    return list(pairs.values())


@dataclass(frozen=True)
class _Files:
    """Pairs of run files, and what they are judged by."""

    pairs: Sequence[tuple[Path, Path]]
    qrels: Path
    queries: Path | None
    without_queries: Path | None


def _run_files(
    files: _Files, names: tuple[str, ...], by: str | None, count: int
) -> tuple[list[Comparison], Sequence[str]]:
    """Compare pairs of run files; with what is to know of all of them."""
    from harness.analysis import comparison
    from harness.analysis.paired_differences import Asked
    from harness.evaluation import evaluate_runs, judged_runs, measure_names, run_notes

    measures = measure_names.parse(names)
    texts = judged_runs.read_queries(files.queries) if files.queries else None
    # A file may be named in several ways.
    paths = {path.resolve(): path for pair in files.pairs for path in pair}
    (runs,) = of_files(files.qrels, tuple(paths.values()), texts, files.without_queries)
    name_of = dict(zip(paths, runs.runs, strict=True))
    with bar("compare", "judging") as step:
        values = evaluate_runs.query_values(runs, measures, step)
    chosen = _chosen(by, values.measures)
    asked = Asked(chosen, count, runs.queries) if chosen else None
    made = []
    for pair in files.pairs:
        one, two = (name_of[path.resolve()] for path in pair)
        each = comparison.compare_runs(
            (f"{one}/{runs.dataset}", f"{two}/{runs.dataset}"),
            (values.evaluations[one], values.evaluations[two]),
            (values.by_query[one], values.by_query[two]),
            values.measures,
            asked,
        )
        a, b = replace(each.a, set_apart=values.set_apart[one]), replace(each.b, set_apart=values.set_apart[two])
        made.append(replace(each, a=a, b=b))
    return made, run_notes.every(runs, values.evaluations, measures)


def _chosen(by: str | None, measures: Sequence[str]) -> str | None:
    if by is None:
        return measures[0] if measures else None
    from harness.evaluation import measure_names

    (measure,) = measure_names.parse((by,))
    if str(measure) not in measures:
        raise UnknownName("measure", str(measure), measures, "name it in --measures too")
    return str(measure)


COMMANDS = (compare,)
