"""`harness evaluate`: measures of TREC run files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from harness.cli.output import FORMATS, Destination, destination_options
from harness.cli.stored_results import measures_option, queries_option, read_run_files, without_queries_option
from harness.evaluation import evaluate_runs, measure_names
from harness.progress import Progress, bar
from harness.report.evaluation import evaluation_document

_file = click.Path(path_type=Path)


@click.command()
@click.argument("qrels", type=_file)
@click.argument("runs", nargs=-1, required=True, type=_file, metavar="RUN...")
@measures_option()
@click.option("--by-query", is_flag=True, help="One line for each query and measure.")
@queries_option("The queries that count, as JSON lines or id<TAB>text.")
@without_queries_option
@destination_options(*FORMATS)
def evaluate(
    qrels: Path,
    runs: tuple[Path, ...],
    measures: tuple[str, ...],
    by_query: bool,
    queries: Path | None,
    without_queries: Path | None,
    destination: Destination,
) -> None:
    """Evaluate TREC run files by QRELS (both plain or compressed), like trec_eval -c.  Runs nothing.

    All judged queries count; a query without results counts 0, and unjudged queries are named.  Scores decide the
    order, not ranks; equal scores are ordered by document id, the largest first.
    """
    parsed = measure_names.parse(measures)
    with _watching() as (reading, step):
        (judged,) = read_run_files(qrels, runs, queries, without_queries, reading)
        evaluated = evaluate_runs.evaluate_runs(judged, parsed, step)
    destination.show_report(evaluation_document(evaluated, by_query=by_query))


@contextmanager
def _watching() -> Iterator[tuple[Callable[[Path], Progress], Progress]]:
    """Show bars on a terminal: bytes read of each file, and evaluated runs."""
    with ExitStack() as stack:

        def reading(path: Path) -> Progress:
            step, size = stack.enter_context(bar(path.name, "reading")), path.stat().st_size if path.is_file() else 0

            def read(done: int, _total: int = 0, _phase: str = "", /) -> None:
                step(done, size)

            return read

        yield reading, stack.enter_context(bar("evaluated", "judging"))
