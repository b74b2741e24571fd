"""`harness leakage`: training queries that come again among those that systems are judged by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import asked_measures, cache_option, one_line_errors, write
from harness.cli.report import FORMATS, measures_option, output_option, show
from harness.cli.run_options import judged, runs_arguments
from harness.errors import UsageError
from harness.untrusted import one_line

if TYPE_CHECKING:
    from harness.evaluation.embeddings import Embeddings
    from harness.evaluation.judged_runs import JudgedRuns
    from harness.evaluation.leakage import Leakage

# Fewer cosines are there before a bar is.
_MANY = 10**8
_THRESHOLD = 0.9


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
    help=f"The least cosine of near duplicates, with --embeddings.  [default: {_THRESHOLD}]",
)
@measures_option
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
    threshold: float | None,
    measures: str,
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
    from harness.evaluation import embeddings as files
    from harness.evaluation import judged_runs, measure_names
    from harness.evaluation.query_similarity import wordless
    from harness.evaluation.run_notes import count_named
    from harness.report import writers
    from harness.report.leakage import leakage_document

    if threshold is not None and embeddings is None:
        raise UsageError("--threshold is of cosines, which need vectors: name those with --embeddings, or leave it out")
    least = _THRESHOLD if threshold is None else threshold
    if math.isnan(least):  # which click takes for a number between any two
        raise UsageError("--threshold nan is no cosine; say a number above 0, up to 1")
    asked = measure_names.parse(asked_measures(measures))
    taught = judged_runs.read_queries(training)
    if embeddings is None:
        blank = wordless(taught, str(training), "name a file of training queries, or vectors with --embeddings")
        if blank:
            click.echo(
                one_line(f"{training}: {count_named(blank)} queries have no word and are like no other"), err=True
            )
    vectors = (files.read(embeddings[0]), files.read(embeddings[1])) if embeddings else None
    found = judged(runs, qrels, queries, only, cache)
    for each in found:
        if not each.queries:
            raise UsageError(f"{each.dataset}: no query in it, so nothing can be compared; name those with --queries")
    made = [_of(each, taught, vectors, least, asked) for each in found]
    if leaked is not None:
        write(leaked, _lines(dict.fromkeys(query for each in made for query in each.leaked)))
    show(writers.write(leakage_document(made), form), output)


def _lines(ids: Iterable[str]) -> str:
    """One a line, as --without-queries reads them."""
    found = tuple(ids)
    for each in found:
        if each.encode("utf-8", "replace").decode() != each or "\n" in each or each.strip() != each or not each:
            raise UsageError(
                f"query {each!r}: cannot stand in a list of ids, one a line; mend it, or leave --write out"
            )
    return "".join(f"{each}\n" for each in found)


def _of(
    sample: JudgedRuns,
    training: dict[str, str],
    vectors: tuple[Embeddings, Embeddings] | None,
    threshold: float,
    measures: tuple[object, ...],
) -> Leakage:
    from harness.evaluation import leakage as leaking
    from harness.evaluation import run_notes
    from harness.evaluation.query_similarity import wordless

    remedy = "name a file of their texts with --queries, or vectors with --embeddings"
    blank = () if vectors else wordless(sample.queries, sample.dataset, remedy)
    unchecked = _unchecked(sample, training, vectors)
    with _progress(len(sample.queries) * len(training)) as progress:
        leaks = leaking.find(sample.queries, training, vectors, threshold, progress)
    made = leaking.Leakage(
        dataset=sample.dataset,
        queries=sample.queries,
        training=training,
        leaks=leaks,
        effects=(),
        threshold=None if vectors is None else threshold,
        encoder=None if vectors is None else vectors[0].encoder,
        notes=(*unchecked, *run_notes.of_strangers(sample), *sample.said),
        not_compared=blank,
    )
    return leaking.with_effects(made, sample, measures)


def _unchecked(
    sample: JudgedRuns, training: dict[str, str], vectors: tuple[Embeddings, Embeddings] | None
) -> tuple[str, ...]:
    """Why it is not known that vectors are of these texts, where it is not."""
    from harness.evaluation.query_similarity import check_texts

    if vectors is None:
        return ()
    sets = ((vectors[0], sample.queries, "the sample"), (vectors[1], training, "the training set"))
    return tuple(why for each in sets if (why := check_texts(*each)) is not None)


@contextmanager
def _progress(cosines: int) -> Iterator[Callable[[int, int], None]]:
    """A bar where there is much to compare."""
    from rich.console import Console

    from harness.progress import Progress, Screen, Watcher

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
