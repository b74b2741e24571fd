"""Which runs a command looks at: those of a results folder, or run files beside judgements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click

from harness import file_content
from harness.cli.places import readable
from harness.console import only_option, results_path
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.judged_runs import JudgedRuns
    from harness.trec_lines import Progress as TrecProgress

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
    from harness import judged_runs, rejudged

    if qrels is None or _is_results(runs):
        if queries is not None:
            raise UsageError("--queries is of run files; name their judgements with --qrels, or leave it out")
        if len(runs) > 1 or any(isinstance(each, Path) and file_content.is_there(each) for each in runs):
            raise UsageError("run files need their judgements; name them with --qrels, or give one folder of results")
        folder = readable(runs[0] if runs else Path("results"), cache)
        assert folder is not None
        found = judged_runs.of_results(folder, only)
        instead = rejudged.read(qrels, without_queries)
        return found if instead is None else rejudged.runs(found, instead)
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
    from harness import judged_runs, rejudged

    instead = rejudged.read(None, without_queries)
    found = judged_runs.of_files(qrels, runs, queries, watch)
    return (found if instead is None else rejudged.runs((found,), instead)[0],)


def _is_results(runs: tuple[Path | str, ...]) -> bool:
    """Whether one folder of results is named, or a place in S3, which no run file has."""
    return len(runs) == 1 and (isinstance(runs[0], str) or runs[0].is_dir())
