"""`harness pool` and `qrels`: list unjudged documents, and add judgements to others."""

from __future__ import annotations

import datetime
import io
import sys
from dataclasses import replace
from pathlib import Path

import click

from harness import datasets
from harness.cli.lines import say
from harness.cli.options import PATH, FiniteRange, cache_option, check_needs, record_options
from harness.cli.output import Destination, destination_options, output_option, write
from harness.cli.stored_results import RunSelection, runs_options
from harness.commands import command, option
from harness.datasets import Dataset
from harness.datasets.judgements import check_known, dataset_of_runs, documents_of, read_base
from harness.errors import FileError, UsageError, counted
from harness.evaluation import evaluate_runs, judged_runs, packages, qrels_merge, trec, trec_lines
from harness.evaluation import pool as pools
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.packages import CHECKED, PAIRS, REVIEWERS, CheckPlan, PackageCheck
from harness.evaluation.pool import Ensemble, JudgingPool
from harness.report.qrels import checks_document, qrels_document
from harness.untrusted import one_line

# Hits of each run to look at, and the number with rerankers, which choose a few (Qiu et al. 2022, section 2.3).
SHALLOW, DEEP, KEPT = 5, 50, 5


def _check_plan(
    package: int | None, checked: int | None, reviewers: int | None, check_round: int | None
) -> CheckPlan | None:
    """Return how to divide the pool into packages; ``None``: one file."""
    check_needs(checked="package", reviewers="package", check_round="package")
    if package is None:
        return None
    return CheckPlan(package, checked or CHECKED, reviewers or REVIEWERS, check_round or 1)


_package_options = record_options(
    "plan",
    _check_plan,
    click.option(
        "--package",
        type=click.IntRange(1),
        metavar="PAIRS",
        help=f"Write packages of this many pairs, and sheets to check them, into the folder -o.  (paper: {PAIRS})",
    ),
    click.option("--check", "checked", type=click.IntRange(1), help=f"Pairs of a sheet.  [default: {CHECKED}]"),
    click.option("--reviewers", type=click.IntRange(REVIEWERS), help=f"Sheets of a package.  [default: {REVIEWERS}]"),
    click.option(
        "--round",
        "check_round",
        type=click.IntRange(1),
        help="Round of the sheets; from 2 on for packages in -o.  [default: 1]",
    ),
)


@click.command()
@runs_options
@click.option("--depth", type=click.IntRange(1), help="Hits of each run to look at.  [default: 5; with --reranker: 50]")
@click.option("--dataset", metavar="NAME|FOLDER", help="For documents' texts.  [default: the stored results' own]")
@click.option("--no-texts", is_flag=True, help="Only ids of the documents; needs no dataset.")
@click.option("--seed", type=int, default=1, help="Seed of the order.")
@click.option(
    "--reranker",
    "rerankers",
    multiple=True,
    type=PATH,
    metavar="RUN",
    help="A run that scores all candidates; repeat it.  Their mean score chooses what to judge.",
)
@click.option("--keep", type=click.IntRange(1), help="With --reranker: documents a query to choose.  [default: 5]")
@click.option("--candidates", type=PATH, metavar="RUN", help="Write all candidates as a run for rerankers, and stop.")
@click.option("--again", is_flag=True, help="List judged documents too, to be judged again.")
@_package_options
@destination_options("tsv", "jsonl")
@cache_option
def pool(
    runs: RunSelection,
    depth: int | None,
    dataset: str | None,
    no_texts: bool,
    seed: int,
    destination: Destination,
    rerankers: tuple[Path, ...],
    keep: int | None,
    candidates: Path | None,
    again: bool,
    plan: CheckPlan | None,
) -> None:
    """List the unjudged documents among the first hits of all RUNS, each pair once.

    RUNS are a folder of results (default: results), or run files.  The order hides which system found a document.  Fill
    in the column grade, then run `harness qrels add`.  If there are no judgements yet, leave --qrels out, and name the
    queries with --queries or --dataset.  With --reranker, a deep pool is reduced to the documents to judge.
    """
    check_needs(keep="rerankers")
    if no_texts and dataset is not None:
        raise UsageError("--no-texts leaves out the texts that --dataset gives; remove one of the two")
    if plan is not None:
        packages.check_folder(destination.folder, plan)
    elif destination.output is not None and destination.output.is_file():
        raise UsageError(f"{destination.output}: exists already and may hold grades; name another file")
    depth = depth or (DEEP if rerankers or candidates else SHALLOW)
    samples, holder = _samples(runs, dataset)
    if candidates is not None:
        _write_candidates(candidates, samples, depth)
        return
    scores = dict(zip(judged_runs.run_names(rerankers), map(trec.read_scores, rerankers), strict=True))
    ensemble = Ensemble(scores, keep or KEPT) if scores else None
    judging_pool = pools.build_pool(samples, depth, seed, ensemble, again=again)
    if not any(hits.hits for _, hits in judging_pool.systems):
        count = sum(len(sample.queries) for sample in samples)
        raise UsageError(f"none of the {count:,} queries has a hit in these runs; are these the runs of these queries?")
    documents = {} if no_texts else _texts(judging_pool, holder or dataset_of_runs(dataset, samples, runs.cache))
    if plan is not None:
        packages.write_packages(judging_pool, documents, plan, seed, destination.folder, destination.form)
        _say_packages(plan, len(judging_pool.pairs), destination.folder)
    elif destination.on_terminal:
        say(f"Not for a terminal, with whole documents: write the pairs with -o pool.{destination.form}")
    else:
        stream = io.StringIO()
        pools.write_pool(judging_pool, documents, destination.form, stream)
        destination.show(stream.getvalue())
    for line in pools.summary_lines(judging_pool, len(rerankers)):
        say(line, err=True)
    notes = [one_line(note) for sample in samples for note in sample.notes]
    notes += [f"  {one_line(note)}" for sample in samples for note in evaluate_runs.unknown_query_notes(sample)]
    for note in dict.fromkeys(notes):
        say(note, err=True)


def _samples(runs: RunSelection, dataset: str | None) -> tuple[tuple[JudgedRuns, ...], Dataset | None]:
    """Return the runs, and the named dataset if its queries were read."""
    if not runs.names_run_files:
        return tuple(map(_judged_alone, runs.judged())), None
    if not _is_without_judgements(runs.qrels):
        return runs.judged(), None
    if runs.only is not None:
        raise UsageError("--only needs stored results; leave it out")
    holder = None if dataset is None else datasets.load_named(dataset, Path.cwd(), runs.cache)
    if runs.queries is not None:
        texts = judged_runs.read_queries(runs.queries)
    elif holder is not None:
        texts = {query.query_id: query.text for query in holder.queries}
    else:
        raise UsageError(
            "without judgements the queries to pool for are unknown; name them with --queries or --dataset, or name"
            " judgements with --qrels"
        )
    return (judged_runs.read_unjudged_runs("runs", [*map(Path, runs.runs)], texts),), holder


def _judged_alone(sample: JudgedRuns) -> JudgedRuns:
    """Leave out the queries that a suite only timed, with a note."""
    judged = sample.judged_ids
    left_out = len(sample.queries) - len(judged)
    if not judged or not left_out:
        return sample
    note = f"{sample.dataset}: {counted(left_out, 'query')} without judgements left out"
    return replace(sample, queries={query: sample.queries[query] for query in judged}, notes=(*sample.notes, note))


def _texts(judging_pool: JudgingPool, holder: Dataset) -> dict[str, dict[str, str]]:
    """Return the documents of a pool by id, and add the texts of its queries."""
    for query in holder.queries:
        if not judging_pool.queries.get(query.query_id, "?"):
            judging_pool.queries[query.query_id] = query.text
    return documents_of(judging_pool.pairs, holder)


def _is_without_judgements(qrels: Path | None) -> bool:
    if qrels is None:
        return True
    trec_lines.refuse_pipe(qrels)  # opened here, read later
    return not trec.read_qrels(qrels)


def _write_candidates(path: Path, samples: tuple[JudgedRuns, ...], depth: int) -> None:
    if path.exists():
        raise UsageError(f"{path}: exists already; name another file")
    found = pools.pool_candidates(samples, depth)
    stream = io.StringIO()
    pools.write_candidates(found, stream)
    write(path, stream.getvalue())
    counts = [*map(len, found.values()), 0]
    queries = counted(len(found), "query")
    say(one_line(f"{path}: {counted(sum(counts), 'candidate')} of {queries}, at most {max(counts)} a query"))


def _say_packages(plan: CheckPlan, pairs: int, folder: Path) -> None:
    sheets = f"{counted(plan.reviewers, 'sheet')} of {min(plan.checked, plan.pairs):,} pairs each, round {plan.round}"
    count = counted(-(-pairs // plan.pairs), "package")
    say(one_line(f"{folder}: {count} of {plan.pairs:,} pairs, {sheets}"))
    say(f"When all are filled in: {command('qrels check', folder)}")


_accuracy_option = click.option(
    "--accuracy",
    type=FiniteRange(0, 1),
    default=packages.ACCURACY,
    show_default=True,
    help="Minimum share of checked pairs in which reviewers agree with a package, on average.",
)


@click.group()
def qrels() -> None:
    """Add judgements to a file of judgements, or describe one."""


@qrels.command("add")
@click.argument("file", type=PATH)
@click.option("--to", "base", required=True, metavar="QRELS|DATASET", help="Add to this TREC file or dataset.")
@output_option("File of judgements to write; may be the file of --to.", required=True)
@click.option("--source", help="Name of the judge, for the record.  [default: the name of FILE]")
@click.option(
    "--conflicts",
    type=click.Choice(["refuse", "keep", "override"]),
    default="refuse",
    help="For a pair with another grade: refuse all, keep the old grade, or take the new one.",
)
@click.option("--dataset", metavar="NAME|FOLDER", help="Refuse other queries or documents than this dataset's.")
@_accuracy_option
@click.option("--unchecked", is_flag=True, help="Add a package without looking at its reviewers' sheets.")
@cache_option
def add(
    file: Path,
    base: str,
    output: Path,
    source: str | None,
    conflicts: str,
    dataset: str | None,
    accuracy: float,
    unchecked: bool,
    cache: Path,
) -> None:
    """Add the judgements of FILE: a pool that was filled in, or a TREC file of judgements.

    The record NAME.provenance.jsonl, next to the new file, names date, source and file of each judgement.  Empty grades
    are skipped.  A package from `harness pool --package` must pass its check first.
    """
    trec_lines.refuse_pipe(file)
    given = pools.read_graded_pool(file)
    if given is None:
        given = qrels_merge.read_graded_qrels(file)
        if dataset is None and Path(base).is_file():
            say(one_line(f"{file}: its ids are taken as they are; --dataset checks them"), err=True)
    check = None if unchecked else packages.read_check(file, given)
    if check is not None:
        packages.require_accuracy(check, accuracy)
    base_file = Path(base)
    judgements = read_base(base, cache)
    for note in judgements.notes:
        say(one_line(note), err=True)
    if output.exists() and not (base_file.is_file() and output.samefile(base_file)):
        raise UsageError(f"{output}: exists already; name another file, or add to it with {option('to', output)}")
    if dataset is not None or not base_file.is_file():
        check_known(given, datasets.load_named(dataset or base, Path.cwd(), cache))
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    merged = qrels_merge.merge_qrels(
        judgements,
        given,
        conflicts,
        source=source or file.name,
        date=date,
        file=file,
        reviews=check.reviews if check is not None else (),
    )
    record = qrels_merge.write_merged(output, merged)
    say(one_line(f"{output}: {record.summary()}; iteration {record.iteration} by {record.source}"))


@qrels.command("check")
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FOLDER|PACKAGE...")
@_accuracy_option
@destination_options("md", "json")
def check_packages(files: tuple[Path, ...], accuracy: float, destination: Destination) -> None:
    """Compare packages with their reviewers' sheets, which `harness pool --package` wrote.

    Exit code 1: the mean accuracy of a package is too low, and it must be revised.
    """
    paths = [path for file in files for path in (packages.find_packages(file) if file.is_dir() else [file])]
    checks = [_read_check(path) for path in paths]
    failed = [check for check in checks if check.accuracy < packages.exact(accuracy)]
    destination.show_report(checks_document(checks, accuracy))
    if failed:
        again = max(check.round for check in failed) + 1
        low = f"Revise the packages below {packages.limit(accuracy)}"
        say(f"{low}, then check other pairs: `harness pool` with {option('round', again)}", err=True)
        sys.exit(1)


def _read_check(path: Path) -> PackageCheck:
    pairs = pools.read_graded_pool(path)
    check = None if pairs is None else packages.read_check(path, pairs)
    if check is None:
        raise FileError(f"{path}: has no reviewers' sheets next to it; write both with harness pool --package")
    return check


@qrels.command("show")
@click.argument("file", type=PATH)
@destination_options("md", "json")
def show_qrels(file: Path, destination: Destination) -> None:
    """Describe a FILE of judgements: grades, judgements by query, and merges."""
    trec_lines.refuse_pipe(file)
    base = qrels_merge.read_base(file)
    if not base.lines:
        raise FileError(f"{file}: has no judgement; name a TREC file of lines 'query 0 document grade'")
    destination.show_report(qrels_document(file, base))
