"""`harness leakage`: training queries that come again among those that systems are judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from harness.cli.asked import asked_measures
from harness.cli.judged import judged, runs_arguments
from harness.cli.tables import FORMATS, measures_option, output_option, show
from harness.console import cache_option, one_line_errors, write
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.embeddings import Embeddings
    from harness.judged_runs import JudgedRuns
    from harness.leakage import Leakage

# Fewer cosines are there before a bar is.
_MANY = 10**8


@click.command()
@click.argument("training", type=click.Path(path_type=Path), metavar="TRAINING")
@runs_arguments
@click.option(
    "--embeddings",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="SAMPLE TRAINING",
    help="Vectors of the sample's queries and of the training queries, by one encoder: harness embed makes them."
    "  [default: only same texts are found]",
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.9,
    show_default=True,
    help="The least cosine of near duplicates.",
)
@measures_option
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Of the intervals; 0 is that of all other commands.",
)
@click.option(
    "--write",
    "leaked",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the leaked queries' ids, one a line.",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="md", show_default=True)
@output_option
@cache_option
@one_line_errors
def leakage(
    training: Path,
    runs: tuple[Path | str, ...],
    qrels: Path | None,
    queries: Path | None,
    only: str | None,
    embeddings: tuple[Path, Path] | None,
    threshold: float,
    measures: str,
    seed: int,
    leaked: Path | None,
    form: str,
    output: Path | None,
    cache: Path,
) -> None:
    """Find queries of the TRAINING set that come again in the sample, and what measures are without those.

    TRAINING is a file of queries: JSON lines with _id and text, or id<TAB>text.  RUNS are a folder of results (default:
    results), or run files.  Queries leak where texts are the same but for case, punctuation and white space, or, with
    --embeddings, where vectors are near.
    """
    from harness import embeddings as files
    from harness import judged_runs, measure_names
    from harness.report.leakage import render

    given = click.get_current_context().get_parameter_source("threshold")
    if embeddings is None and given is ParameterSource.COMMANDLINE:
        raise UsageError(
            "--threshold is of cosines, and without --embeddings there are none; name vectors, or leave it"
        )
    asked = measure_names.parse(asked_measures(measures))
    taught = judged_runs.read_queries(training)
    vectors = (files.read(embeddings[0]), files.read(embeddings[1])) if embeddings else None
    found = judged(runs, qrels, queries, only, cache)
    made = [_of(each, taught, vectors, threshold, asked, seed) for each in found]
    if leaked is not None:
        write(leaked, "".join(f"{query}\n" for query in dict.fromkeys(query for each in made for query in each.leaked)))
    show(render(made, form), output)


def _of(
    sample: JudgedRuns,
    training: dict[str, str],
    vectors: tuple[Embeddings, Embeddings] | None,
    threshold: float,
    measures: tuple[object, ...],
    seed: int,
) -> Leakage:
    from harness import leakage as leaking

    with _progress(len(sample.queries) * len(training)) as progress:
        leaks = leaking.find(sample.queries, training, vectors, threshold, progress)
    textless = sum(not text for text in sample.queries.values())
    lacking = (f"{textless:,} queries have no text here: name a file of them with --queries.",) if textless else ()
    made = leaking.Leakage(
        dataset=sample.dataset,
        queries=sample.queries,
        training=training,
        leaks=leaks,
        effects=(),
        threshold=None if vectors is None else threshold,
        encoder=None if vectors is None else vectors[0].encoder,
        notes=(*lacking, *sample.said),
    )
    return leaking.with_effects(made, sample, measures, seed)


@contextmanager
def _progress(cosines: int) -> Iterator[Callable[[int, int], None]]:
    """A bar where there is much to compare."""
    from rich.console import Console

    from harness.launch.base import Progress
    from harness.progress import Screen, Watcher

    watchers: list[Watcher] = []
    with ExitStack() as stack:

        def step(done: int, total: int) -> None:
            if cosines < _MANY:
                return
            if not watchers:
                watchers.append(stack.enter_context(Screen(Console(stderr=True)).task("near duplicates")))
            watchers[0](Progress("comparing", done, total))

        yield step


COMMANDS = (leakage,)
