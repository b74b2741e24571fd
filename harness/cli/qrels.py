"""`harness qrels`: add judgements to others, and describe a file of judgements."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import click

from harness import datasets
from harness.cli.lines import say
from harness.cli.options import FiniteRange, cache_option
from harness.cli.output import Destination, destination_options, output_option
from harness.commands import option
from harness.datasets.judgements import check_known, judgements_of_dataset
from harness.errors import FileError, UnknownName, UsageError
from harness.evaluation import packages, pool, qrels_merge, trec_lines
from harness.evaluation.packages import PackageCheck
from harness.evaluation.qrels_merge import BaseQrels, MergeRecord
from harness.report.qrels import checks_document, qrels_document
from harness.untrusted import one_line

_accuracy_option = click.option(
    "--accuracy",
    type=FiniteRange(0, 1),
    default=packages.ACCURACY,
    show_default=True,
    help="Least mean share of checked pairs in which reviewers agree with a package.",
)


@click.group()
def qrels() -> None:
    """Add judgements to a file of judgements, or describe one."""


@qrels.command("add")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "base",
    required=True,
    metavar="QRELS|DATASET",
    help="The judgements to add to: a TREC file, or a dataset's.",
)
@output_option("File of judgements to write; may be the file of --to.", required=True)
@click.option("--source", help="Name of the judge, for the record.  [default: the name of FILE]")
@click.option(
    "--conflicts",
    type=click.Choice(["refuse", "keep", "override"]),
    default="refuse",
    help="For a pair with another grade: refuse all, keep the old grade, or take the new one.",
)
@click.option(
    "--dataset", metavar="NAME|FOLDER", help="Refuse judgements of other queries or documents than this dataset's."
)
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
    given = pool.read_graded_pool(file)
    if given is None:
        given = qrels_merge.read_graded_qrels(file)
        if dataset is None and Path(base).is_file():
            say(one_line(f"{file}: its ids are taken as they are; --dataset checks them"), err=True)
    check = None if unchecked else packages.read_check(file, given)
    if check is not None:
        packages.require_accuracy(check, accuracy)
    base_file = Path(base)
    judgements = _read_base(base, cache)
    for note in judgements.notes:
        say(one_line(note), err=True)
    if output.exists() and not (base_file.is_file() and output.samefile(base_file)):
        raise UsageError(f"{output}: is there already; name another file, or add to it with {option('to', output)}")
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
    _report(qrels_merge.write_merged(output, merged), output)


def _read_base(named: str, cache: Path) -> BaseQrels:
    """Return the judgements of a file, or of a dataset."""
    path = Path(named)
    trec_lines.refuse_pipe(path)
    if path.is_file():
        return qrels_merge.read_base(path)
    try:
        dataset = datasets.load_named(named, Path.cwd(), cache)
    except UnknownName as error:
        raise UsageError(f"{named}: no such file, and no dataset either; {error}") from error
    return judgements_of_dataset(dataset)


def _report(record: MergeRecord, output: Path) -> None:
    counts = [f"{record.added:,} added", f"{record.same:,} the same as before", f"{record.unfilled:,} not filled in"]
    if record.conflicts:
        counts.append(
            f"{len(record.conflicts):,} differ ({'new' if record.resolved == 'override' else 'old'} grades stand)"
        )
    say(one_line(f"{output}: {', '.join(counts)}; iteration {record.iteration} by {record.source}"))


@qrels.command("check")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER|PACKAGE...")
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
    pairs = pool.read_graded_pool(path)
    check = None if pairs is None else packages.read_check(path, pairs)
    if check is None:
        raise FileError(f"{path}: has no sheets of reviewers beside it; write both with harness pool --package")
    return check


@qrels.command("show")
@click.argument("file", type=click.Path(path_type=Path))
@destination_options("md", "json")
def show_qrels(file: Path, destination: Destination) -> None:
    """Describe a FILE of judgements: grades, judgements by query, and merges."""
    trec_lines.refuse_pipe(file)
    base = qrels_merge.read_base(file)
    if not base.lines:
        raise FileError(f"{file}: has no judgement; name a TREC file of lines 'query 0 document grade'")
    destination.show_report(qrels_document(file, base))
