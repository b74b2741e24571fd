"""Which runs a command looks at: those of a results folder, or run files beside judgements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click

from harness.analysis.stored_runs import runs_of_results
from harness.cli.locations import readable
from harness.cli.options import only_option, results_path
from harness.errors import UsageError
from harness.evaluation import input_files

if TYPE_CHECKING:
    from harness.analysis.rejudge import Instead
    from harness.evaluation.judged_runs import JudgedRuns
    from harness.evaluation.trec_parser import Progress as TrecProgress


P = ParamSpec("P")


def runs_arguments(command: Callable[P, None]) -> Callable[P, None]:
    """``RUNS...``, ``--qrels``, ``--queries`` and ``--only``: what :func:`judged` takes."""
    for option in (
        only_option,
        click.option(
            "--queries",
            type=click.Path(path_type=Path),
            help="With run files: the queries that count, as JSON lines or id<TAB>text.  [default: those judged]",
        ),
        click.option(
            "--qrels",
            type=click.Path(path_type=Path),
            help="With run files: their judgements.  With results: judge by this file, which holds the stored ones and"
            " more.",
        ),
        click.argument("runs", nargs=-1, type=results_path, metavar="[RUNS]..."),
    ):
        command = option(command)
    return command


def judged(
    runs: tuple[Path | str, ...],
    qrels: Path | None,
    queries: Path | None,
    only: str | None,
    cache: Path,
    without_queries: Path | None = None,
) -> tuple[JudgedRuns, ...]:
    """What to compare, one entry for each dataset, query sample and collection.

    Args:
        runs: one folder of results (or its URI in S3; by default ``results``), or run files.
        qrels: of run files; or what takes the place of stored judgements.
        queries: of run files.
        only: of stored results.
        cache: where results that are in S3 are mirrored.
        without_queries: ids of queries that do not count.

    Raises:
        UsageError: the arguments do not go together, there is no run, or no such query.
        FileError: a file is missing or damaged.
    """
    from harness.analysis import rejudge
    from harness.evaluation import judged_runs

    if qrels is None or _is_results(runs):
        if queries is not None:
            raise UsageError("--queries is of run files; name their judgements with --qrels, or leave it out")
        if len(runs) > 1 or any(isinstance(each, Path) and input_files.is_there(each) for each in runs):
            raise UsageError("run files need their judgements; name them with --qrels, or give one folder of results")
        folder = readable(runs[0] if runs else Path("results"), cache)
        assert folder is not None
        found = runs_of_results(folder, only)
        instead = rejudge.read(qrels, without_queries)
        return found if instead is None else rejudge.runs(found, instead)
    if only is not None:
        raise UsageError("--only is of stored results; leave it out, or leave --qrels out")
    if not runs:
        raise UsageError("--qrels needs run files beside it; name at least one")
    texts = judged_runs.read_queries(queries) if queries else None
    return of_files(qrels, [Path(each) for each in runs], texts, without_queries)


def of_files(
    qrels: Path,
    runs: Sequence[Path],
    queries: Mapping[str, str] | None,
    without_queries: Path | None,
    watch: Callable[[Path], TrecProgress | None] = lambda _: None,
) -> tuple[JudgedRuns]:
    """Run files and their judgements, arguments and errors as of :func:`judged`; ``watch``: who is told of reading."""
    from harness.analysis import rejudge
    from harness.evaluation import judged_runs

    instead = rejudge.read(None, without_queries)
    found = judged_runs.of_files(qrels, runs, queries, watch)
    return (found if instead is None else rejudge.runs((found,), instead)[0],)


def _is_results(runs: tuple[Path | str, ...]) -> bool:
    """Whether one folder of results is named, or a place in S3, which no run file has."""
    return len(runs) == 1 and (isinstance(runs[0], str) or runs[0].is_dir())


# MERGED harness.cli.run_options: By what else than by what was stored a command judges stored runs.


without_queries_option = click.option(
    "--without-queries",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Leave these queries out of the measures: ids, one a line (harness leakage writes such).",
)


def judging_options(command: Callable[P, None]) -> Callable[P, None]:
    """``--qrels`` and ``--without-queries``, which :func:`instead_of` reads."""
    for option in (
        without_queries_option,
        click.option(
            "--qrels",
            type=click.Path(path_type=Path),
            help="Judge by this file, which holds the stored judgements and more (harness qrels add makes such);"
            " nothing is measured again.",
        ),
    ):
        command = option(command)
    return command


def instead_of(qrels: Path | None, without_queries: Path | None) -> Instead | None:
    """By what else than by what was stored runs are judged; ``None``: by nothing else."""
    if qrels is None and without_queries is None:
        return None  # nothing to import for
    from harness.analysis import rejudge

    return rejudge.read(qrels, without_queries)
