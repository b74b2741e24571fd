"""`harness positions`: where relevant passages start, and how well systems rank them by that position."""

from __future__ import annotations

from pathlib import Path

import click

from harness import datasets
from harness.analysis import position_sources, published
from harness.analysis.position_sources import PositionSources
from harness.analysis.positions import BIN, DatasetPositions, DocumentReader, ReadLimit, read_limit, unseen_passages
from harness.cli.lines import say
from harness.cli.locations import readable
from harness.cli.options import PATH, SUITE_FILE, cache_option, record_options, results_path
from harness.cli.output import FORMATS, PICTURES, Destination, destination_options
from harness.cli.stored_results import StoredResults, measures_option, show_pictures
from harness.errors import UsageError
from harness.jobs import suite as suites
from harness.jobs.inputs import suite_systems
from harness.report.plots import positions as plots
from harness.report.positions import positions_document
from harness.results import reader

sources_options = record_options(
    "sources",
    PositionSources,
    click.option(
        "--dataset",
        "named",
        multiple=True,
        metavar="DATASET",
        help="With RESULTS: take the positions of this dataset instead of those stored with them; repeatable.",
    ),
    click.option(
        "--passages",
        metavar="FILE|DATASET",
        help="Find these relevant passages in the judged documents: JSON lines {query, text}, or a dataset of passages"
        " with the same queries.",
    ),
    click.option(
        "--chunks",
        type=PATH,
        metavar="FILE",
        help="Take the first relevant chunk: JSON lines {query, doc, chunk, grade}, chunks of 256 tokens from 0.",
    ),
    click.option("--bin", "width", type=click.IntRange(1), default=BIN, metavar="TOKENS", help="Width of bins."),
)


@click.command()
@click.argument("source", type=results_path, metavar="DATASET|RESULTS")
@sources_options
@click.option(
    "--reads",
    multiple=True,
    type=click.IntRange(1),
    metavar="TOKENS",
    help="With DATASET: the share that a system does not see if it reads this many tokens; repeatable.",
)
@click.option(
    "--suite", type=SUITE_FILE, metavar="FILE", help="With DATASET: the share that its systems would not see."
)
@measures_option("As ir_measures writes them; the first counts.", None)
@destination_options(*FORMATS, *PICTURES, wide=True)
@cache_option
def positions(
    source: Path | str,
    sources: PositionSources,
    reads: tuple[int, ...],
    suite: Path | None,
    measures: tuple[str, ...],
    destination: Destination,
    cache: Path,
) -> None:
    """Show where relevant passages start in documents, and how each system ranks them by that place.  Runs nothing.

    DATASET is a dataset with positions.jsonl (harness generate writes it), or any with --passages or --chunks.  RESULTS
    is a folder of results: each system's measure by position, its slope, and the share of relevant passages beyond
    what it reads.  Tokens are tokens of bert-base-uncased.
    """
    is_results = isinstance(source, str) or (source.is_dir() and any(source.rglob(reader.RESULT)))
    stored = readable(source, cache) if is_results else None
    if isinstance(source, Path) and published.is_in(source):
        raise UsageError(
            f"{source}: a paper's figures have no runs and no passages; name a dataset or measured results"
        )
    if stored is None:
        if sources.named:
            raise UsageError(f"--dataset needs RESULTS, but {source} is a dataset; leave it out")
        location = datasets.find(str(source), Path.cwd())
        if (missing := datasets.missing_folder(location)) is not None:
            raise missing
        passages = position_sources.of_dataset(str(source), location, sources, cache)
        limits = {f"{tokens:,} tokens": ReadLimit(tokens) for tokens in sorted(set(reads))}
        systems = suite_systems(suites.load(suite)) if suite is not None else {}
        limits |= {name: read_limit(system.params) for name, system in systems.items()}
        readers = tuple(DocumentReader(name, limit, unseen_passages(passages, limit)) for name, limit in limits.items())
        made = [DatasetPositions(passages, sources.width, readers)]
    else:
        if reads or suite is not None:
            raise UsageError("--reads and --suite need a DATASET; stored results record what their systems read")
        found = StoredResults(stored, cache, measures).read()
        made, left_out = position_sources.of_results(stored, found.table, found.per_query, sources, cache)
        for name in left_out:
            say(f"{name}: left out, because its positions are not here; name its folder with --dataset", err=True)
    if destination.pictures:
        show_pictures(plots.pictures(made), [], destination)
    else:
        destination.show_report(positions_document(made))
