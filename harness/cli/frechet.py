"""`harness frechet`: how far what systems retrieve lies from what was judged relevant."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.locations import named_as_given
from harness.cli.options import cache_option, one_line_errors
from harness.cli.report import FORMATS, output_option, show
from harness.cli.run_options import judged, runs_arguments
from harness.errors import UsageError
from harness.untrusted import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.evaluation.embeddings import Embeddings
    from harness.evaluation.frechet.systems import Distances, Settings
    from harness.evaluation.judged_runs import JudgedRuns

_MOST = {"1": 1, "5": 5, "10": 10, "all": None}
# Fewer have no 95 %.
_LEAST_BOOTSTRAPS = 100


@click.command()
@runs_arguments
@click.option(
    "--embeddings",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Vectors of the documents, from `harness embed`; may come again.  [default: those kept beside the results]",
)
@click.option("--encoder", help="Of several, the vectors by this system alone.")
@click.option(
    "-k", "cutoffs", type=click.IntRange(1), multiple=True, default=(1, 10), show_default=True, help="May come again."
)
@click.option(
    "--judged-per-query",
    "most",
    type=click.Choice(tuple(_MOST)),
    default="10",
    show_default=True,
    help="Judged documents of one query at most, best grades first, among equal ones by seed.",
)
@click.option(
    "--relevant-from",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="The least grade of a relevant document.",
)
@click.option("--against", metavar="SYSTEM", help="Subtract this system's distance.  [default: the nearest's]")
@click.option(
    "--unlabelled", is_flag=True, help="Beside it, with all judged documents of a query skipped before k are taken."
)
@click.option(
    "--measures",
    default="nDCG@10 RR@10",
    show_default=True,
    help="Beside it, with Kendall's tau; as ir_measures writes them.",
)
@click.option(
    "--bootstraps",
    type=click.IntRange(0, 100_000),
    default=1000,
    show_default=True,
    help=f"Resamples of the queries, {_LEAST_BOOTSTRAPS} or more; 0: no intervals.",
)
@click.option("--seed", type=click.IntRange(0), default=2024, show_default=True, help="Of all that is drawn.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="md", show_default=True)
@output_option
@cache_option
@one_line_errors
def frechet(
    runs: tuple[Path | str, ...],
    qrels: Path | None,
    queries: Path | None,
    only: str | None,
    files: tuple[Path, ...],
    encoder: str | None,
    cutoffs: tuple[int, ...],
    most: str,
    relevant_from: int,
    against: str | None,
    unlabelled: bool,
    measures: str,
    bootstraps: int,
    seed: int,
    form: str,
    output: Path | None,
    cache: Path,
) -> None:
    """Frechet distance between judged and retrieved documents, for systems with few labels.  Runs nothing.

    RUNS: a folder of results (default: results), or run files with --qrels.  FD@k compares the embeddings of all judged
    relevant documents with those of all that a system has in its first k: 0 where they spread alike, and smaller is
    better.  See docs/method/frechet.md for what it cannot see.
    """
    from harness.evaluation import run_notes
    from harness.evaluation.frechet.systems import Settings
    from harness.report import writers
    from harness.report.frechet import frechet_document

    if 0 < bootstraps < _LEAST_BOOTSTRAPS:
        raise UsageError(
            f"--bootstraps {bootstraps}: an interval of 95 % takes {_LEAST_BOOTSTRAPS} or more; say 0 for none"
        )
    settings = Settings(_MOST[most], unlabelled, bootstraps, seed, relevant_from, against)
    asked = tuple(dict.fromkeys(cutoffs))
    made, failed = [], False
    with named_as_given(cache):
        found = judged(runs, qrels, queries, only, cache)
        given = _read(files, found)
        for each in (replace(one, said=(*one.said, *run_notes.of_strangers(one))) for one in found):
            try:
                vectors = _vectors(each, given, _folder(runs), encoder)
                made += [_measured(each, one, asked, settings, tuple(measures.split())) for one in vectors]
            except UsageError as error:
                if len(found) == 1:
                    raise
                failed = True  # the other samples may do
                click.echo(f"harness: {one_line(str(error))}", err=True)
    if made:
        show(writers.write(frechet_document(made), form), output)
    sys.exit(1 if failed else 0)


def _folder(runs: tuple[Path | str, ...]) -> Path | None:
    """Where results lie, with what is kept beside them; run files have no such place, and S3 keeps no vectors."""
    given = runs[0] if runs else Path("results")
    return given if isinstance(given, Path) and given.is_dir() else None


def _read(files: tuple[Path, ...], found: Sequence[JudgedRuns]) -> tuple[Embeddings, ...]:
    """The vectors of files that were named, each of which must be of the documents of some sample.

    Raises:
        FileError: a file cannot be read.
        UsageError: one is of other texts.
    """
    from harness.evaluation import embeddings
    from harness.evaluation.frechet.systems import check_source

    given = []
    for path in files:
        vectors = embeddings.read(path)
        if not any(_fits(each, vectors) for each in found):
            try:
                check_source(found[0], vectors)
            except UsageError as error:
                raise UsageError(f"{path}: {error}") from error
        given.append(vectors)
    return tuple(given)


def _fits(runs: JudgedRuns, vectors: Embeddings) -> bool:
    return vectors.role == "document" and runs.corpus_sha256 in (None, vectors.source)


def _vectors(
    runs: JudgedRuns, given: tuple[Embeddings, ...], folder: Path | None, encoder: str | None
) -> list[Embeddings]:
    """Those of the files that were named, else those that are kept, that are of the runs' documents.

    Raises:
        UsageError: there are none, or none by the encoder that was asked for.
    """
    from harness.evaluation import embeddings

    kept = folder if not given and runs.corpus_sha256 else None
    paths = embeddings.kept(kept, "document", runs.corpus_sha256 or "") if kept else ()
    found = [*(each for each in given if _fits(runs, each)), *map(embeddings.read, paths)]
    if not found:
        if not runs.corpus_sha256:
            raise UsageError(
                "run files need vectors of their documents; name a file of harness embed with --embeddings"
            )
        where = "among the files" if given else f"kept{f' in {folder}/embeddings' if folder else ''}"
        raise UsageError(
            f"{runs.dataset}: no vectors of its documents are {where}; make"
            f" them with harness embed {encoder or 'minilm'} {runs.dataset}{f' --results {folder}' if folder else ''},"
            " or name a file with --embeddings"
        )
    asked = [each for each in found if encoder in (None, each.encoder)]
    if not asked:
        raise UsageError(f"no vectors by {encoder!r} among the files; make them with harness embed {encoder}")
    return asked


def _measured(
    runs: JudgedRuns, found: Embeddings, cutoffs: tuple[int, ...], settings: Settings, measures: tuple[str, ...]
) -> tuple[Distances, dict[str, dict[str, float | None]]]:
    """Distances and measures under one encoder."""
    from rich.console import Console

    from harness.evaluation import measure_names
    from harness.evaluation.evaluate import evaluate
    from harness.evaluation.frechet.systems import distances
    from harness.progress import Progress, Screen

    parsed = measure_names.parse(measures)
    judged = {name: evaluate(run, runs.qrels, runs.query_ids, parsed) for name, run in runs.runs.items()}
    values = {name: each.values for name, each in judged.items()}
    for said in dict.fromkeys(f"{name}: {why}" for each in judged.values() for name, why in each.reasons.items()):
        click.echo(one_line(f"{runs.dataset}: {said}"), err=True)  # why a measure beside has no value
    with Screen(Console(stderr=True)).task(f"{runs.dataset}: {found.encoder}") as watcher:
        made = distances(
            runs, found, cutoffs, settings, lambda done, total: watcher(Progress("resamples", done, total))
        )
    return made, values


COMMANDS = (frechet,)
