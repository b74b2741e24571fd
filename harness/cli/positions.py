"""`harness positions`: where relevant passages start, and how well systems rank them by that place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from harness import datasets
from harness.analysis import positions as placing
from harness.analysis import published
from harness.analysis.positions import BIN, DatasetPositions, PassagePlaces, ReadLimit
from harness.analysis.table import Row
from harness.cli.lines import say
from harness.cli.locations import readable
from harness.cli.options import cache_option, parsed_by, record_options, results_path
from harness.cli.output import FORMATS, PICTURES, Destination, destination_options
from harness.cli.stored_results import StoredResults, load_dataset, show_pictures, stored_measures_option
from harness.datasets import Dataset, DatasetLocation, IrDataset
from harness.datasets.judged_passages import read_chunks, read_passages
from harness.datasets.passage_matching import JudgedPassage, match_passages
from harness.datasets.positions import POSITIONS, has_positions, read_positions, read_positions_file
from harness.driver.records import Scalar
from harness.errors import FileError, UnknownName, UsageError
from harness.evaluation.trec import read_stored_qrels
from harness.jobs import suite as suites
from harness.jobs.inputs import suite_systems
from harness.jobs.suite import dataset_name
from harness.report.plots import positions as plots
from harness.report.positions import positions_document
from harness.results import reader
from harness.results.reader import StoredJob
from harness.results.suite_record import read_positions_path


@dataclass(frozen=True)
class PlaceOptions:
    """Sources of positions other than ``positions.jsonl``, and the width of bins in tokens."""

    named: tuple[str, ...] = ()
    passages: str | None = None
    chunks: Path | None = None
    width: int = BIN

    def __post_init__(self) -> None:
        if self.passages is not None and self.chunks is not None:
            raise UsageError("--passages and --chunks are two sources of positions; name one")


place_options = record_options(
    "options",
    PlaceOptions,
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
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Take the first relevant chunk: JSON lines {query, doc, chunk, grade}, chunks of 256 tokens from 0.",
    ),
    click.option("--bin", "width", type=click.IntRange(1), default=BIN, metavar="TOKENS", help="Width of bins."),
)


def _reads(given: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(set(given)))


@click.command()
@click.argument("source", type=results_path, metavar="DATASET|RESULTS")
@place_options
@click.option(
    "--reads",
    multiple=True,
    type=click.IntRange(1),
    callback=parsed_by(_reads),
    metavar="TOKENS",
    help="With DATASET: the share that a system which reads so many tokens does not see; repeatable.",
)
@click.option(
    "--suite",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With DATASET: the share that each system of this suite would not see.",
)
@stored_measures_option("As ir_measures writes them; the first counts.")
@destination_options(*FORMATS, *PICTURES, wide=True)
@cache_option
def positions(
    source: Path | str,
    options: PlaceOptions,
    reads: tuple[int, ...],
    suite: Path | None,
    measures: tuple[str, ...],
    destination: Destination,
    cache: Path,
) -> None:
    """Show where relevant passages start in documents, and how each system ranks them by that place.  Runs nothing.

    DATASET is a dataset with positions.jsonl (harness generate writes it), or any with --passages or --chunks.  RESULTS
    is a folder of results: each system's measure by position, its slope, and the share of relevant passages beyond
    what it reads.  Tokens are those of bert-base-uncased.
    """
    folder = destination.folder if destination.form in PICTURES else None
    stored = readable(source, cache) if isinstance(source, str) or _is_results(source) else None
    if isinstance(source, Path) and published.is_in(source):
        raise UsageError(
            f"{source}: a paper's figures have no runs and no passages; name a dataset or measured results"
        )
    if stored is None:
        if options.named:
            raise UsageError(f"--dataset is of RESULTS; {source} is a dataset: leave it out")
        location = datasets.find(str(source), Path.cwd())
        if (missing := datasets.missing_folder(location)) is not None:
            raise missing
        made = [_before_running(str(source), location, options, reads, suite, cache)]
    else:
        if reads or suite is not None:
            raise UsageError("--reads and --suite are of a DATASET; stored results say what their systems read")
        made = _of_results(StoredResults(stored, cache, measures), options)
    if folder is not None:
        show_pictures(plots.write_pictures(made, folder, destination.form), [])
    else:
        destination.show_report(positions_document(made))


def _is_results(path: Path) -> bool:
    """Return whether a folder holds stored jobs."""
    return path.is_dir() and next(path.rglob(reader.RESULT), None) is not None


def _before_running(
    name: str, location: DatasetLocation, options: PlaceOptions, reads: Sequence[int], suite: Path | None, cache: Path
) -> DatasetPositions:
    places = _places(name, location, options, cache)
    limits = {f"{tokens:,} tokens": ReadLimit(tokens) for tokens in reads}
    if suite is not None:
        systems = suite_systems(suites.load(suite))
        limits |= {name: placing.read_limit(system.params) for name, system in systems.items()}
    readers = tuple(placing.reader_of(each, limit, places) for each, limit in limits.items())
    return DatasetPositions(places, options.width, readers)


def _places(name: str, location: DatasetLocation, options: PlaceOptions, cache: Path) -> PassagePlaces:
    """Return the places of a dataset's first relevant passages.

    Raises:
        UsageError: it has no positions and no source of them is named, or there is no relevant passage.
    """
    shown = dataset_name(name)
    if options.chunks is not None:
        found = read_chunks(options.chunks)
        places = placing.first_passages(shown, f"judged chunks of {options.chunks.name}", found.records, found.pairs)
    elif options.passages is not None:
        dataset = load_dataset(name, cache)
        relevant = _relevant(dataset)
        texts = dataset.corpus.texts(sorted({doc for _, doc in relevant}))
        found = match_passages(texts, _passages(options.passages, cache), relevant)
        places = placing.first_passages(
            shown, f"passages of {Path(options.passages).name}, found in judged documents", found.records, found.pairs
        )
    else:
        folder = None if isinstance(location, IrDataset) else datasets.folder_of(location)
        if folder is None or not has_positions(folder):
            raise UsageError(
                f"{name}: has no {POSITIONS}; name judged passages with --passages or judged chunks with --chunks"
            )
        places = placing.first_passages(shown, POSITIONS, read_positions(folder))
    if not places.firsts:
        raise UsageError(f"{name}: no relevant passage has a place; look at {places.origin}")
    return places


def _relevant(dataset: Dataset) -> list[tuple[str, str]]:
    """Return the pairs of a query and a document that are judged relevant."""
    fields = (line.split() for line in dataset.qrels.decode("utf-8").splitlines())
    return [(query, doc) for query, _, doc, grade in fields if int(grade) > 0]


def _passages(name: str, cache: Path) -> list[JudgedPassage]:
    if Path(name).is_file():
        return list(read_passages(Path(name)))
    dataset = load_dataset(name, cache)
    relevant = _relevant(dataset)
    texts = dict(dataset.corpus.texts(sorted({doc for _, doc in relevant})))
    return [JudgedPassage(query, texts[doc]) for query, doc in relevant if doc in texts]


def _of_results(stored: StoredResults, options: PlaceOptions) -> list[DatasetPositions]:
    found = stored.read()
    table, per_query = found.table, found.per_query
    measure, width = table.measures[0], options.width
    jobs = {job.result.key: job for job in reader.read_jobs(stored.results)}
    given = {dataset_name(name): name for name in options.named}
    made, missing = [], []
    for name, rows in _by_dataset(table.rows).items():
        theirs = [jobs[row.key] for row in rows if row.key in jobs]
        other_source = name in given or options.passages or options.chunks
        kept = None
        if theirs and not other_source:
            with suppress(FileError):  # the table has named the damaged record
                kept = read_positions_path(theirs[0].suite_folder, name)
        if kept is not None:
            places = placing.first_passages(name, "stored with the results", read_positions_file(kept))
        else:
            location = _location(given.get(name, name), required=name in given)
            if location is None or not (options.passages or options.chunks or _has_positions(location)):
                missing.append(name)
                continue
            places = _places(given.get(name, name), location, options, stored.cache)
            _check_same(places, theirs, str(location))
        systems = tuple(
            placing.by_position(row, per_query.get(row.per_query_key), _params(jobs, row), places, measure, width)
            for row in rows
        )
        made.append(DatasetPositions(places, width, (), measure, systems))
    if unknown := sorted(given.keys() - {each.places.dataset for each in made}):
        raise UsageError(f"{stored.results}: has no results of the dataset {', '.join(unknown)}; leave --dataset out")
    if not made:
        raise UsageError(
            f"{stored.results}: no positions of {', '.join(missing)} are here; name the dataset's folder with --dataset"
        )
    for name in missing:
        say(f"{name}: left out, no positions of it are here; name its folder with --dataset", err=True)
    return made


def _check_same(places: PassagePlaces, jobs: Sequence[StoredJob], location: str) -> None:
    """Raise UsageError if the stored judgements call none of these documents relevant: it is another dataset."""
    for path in dict.fromkeys(job.qrels_path() for job in jobs):
        qrels = read_stored_qrels(path)
        if not any(qrels.get(each.query, {}).get(each.doc, 0) > 0 for each in places.firsts):
            raise UsageError(
                f"{location}: no passage of it is relevant for a query of these results; "
                "name their dataset with --dataset"
            )


def _params(jobs: Mapping[str, StoredJob], row: Row) -> dict[str, Scalar] | None:
    return jobs[row.key].result.spec.params if row.key in jobs else None


def _by_dataset(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    """Return one row for each system of each dataset: hardware and scenario change no ranking."""
    chosen: dict[str, dict[str, Row]] = {}
    for row in rows:
        known = chosen.setdefault(row.dataset, {}).get(row.system)
        if known is None or (not known.measures and row.measures):
            chosen[row.dataset][row.system] = row
    return {name: list(of_system.values()) for name, of_system in chosen.items()}


def _location(name: str, *, required: bool) -> DatasetLocation | None:
    """Return a dataset's place; ``None``: none of this name is here."""
    try:
        return datasets.find(name, Path.cwd())
    except UnknownName:
        if required:
            raise
        return None


def _has_positions(location: DatasetLocation) -> bool:
    return not isinstance(location, IrDataset) and has_positions(datasets.folder_of(location))
