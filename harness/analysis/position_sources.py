"""Find the positions of relevant passages: stored with results or a dataset, or of judged passages or chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness import datasets
from harness.analysis import positions
from harness.analysis.positions import BIN, DatasetPositions, FirstPassages
from harness.analysis.table import Row, Table
from harness.datasets import Dataset, DatasetLocation, dataset_name
from harness.datasets.passage_matching import JudgedPassage, match_passages, read_chunks, read_passages
from harness.datasets.passage_positions import POSITIONS, find_positions, read_positions
from harness.errors import FileError, UnknownName, UsageError
from harness.evaluation.per_query import PerQuery
from harness.evaluation.trec import read_stored_qrels
from harness.results import reader
from harness.results.reader import StoredJob
from harness.results.suite_record import read_positions_path


@dataclass(frozen=True)
class PositionSources:
    """Sources of positions other than ``positions.jsonl``, and the width of bins in tokens.

    ``named`` are datasets whose positions are taken instead of those that were stored with results.  ``passages`` is a
    file, or the name of a dataset.
    """

    named: tuple[str, ...] = ()
    passages: str | None = None
    chunks: Path | None = None
    width: int = BIN

    def __post_init__(self) -> None:
        if self.passages is not None and self.chunks is not None:
            raise UsageError("--passages and --chunks both give positions; name one of them")

    @property
    def matched(self) -> bool:
        """True if positions are made from judged passages or chunks."""
        return self.passages is not None or self.chunks is not None


def of_dataset(name: str, location: DatasetLocation, sources: PositionSources, cache: Path) -> FirstPassages:
    """Return a dataset's first relevant passages with their positions.

    Raises:
        UsageError: it has no positions and none are named, or no passage is relevant.
        FileError: a file is missing or wrong.
    """
    shown = dataset_name(name)
    if sources.chunks is not None:
        found = read_chunks(sources.chunks)
        origin = f"judged chunks of {sources.chunks.name}"
        passages = positions.first_passages(shown, origin, found.records, found.pairs)
    elif sources.passages is not None:
        dataset = datasets.load_named(name, Path.cwd(), cache)
        relevant = _relevant(dataset)
        texts = dataset.corpus.texts(sorted({doc for _, doc in relevant}))
        found = match_passages(texts, _passages(sources.passages, cache), relevant)
        origin = f"passages of {Path(sources.passages).name}, found in judged documents"
        passages = positions.first_passages(shown, origin, found.records, found.pairs)
    else:
        path = _positions_file(location)
        if path is None:
            raise UsageError(
                f"{name}: has no {POSITIONS}; name judged passages with --passages or judged chunks with --chunks"
            )
        passages = positions.first_passages(shown, POSITIONS, read_positions(path))
    if not passages.firsts:
        raise UsageError(f"{name}: no relevant passage has a position; look at {passages.origin}")
    return passages


def _relevant(dataset: Dataset) -> list[tuple[str, str]]:
    """Return the pairs of a query and a document that are judged relevant."""
    return [(query, doc) for query, doc, grade in dataset.graded() if grade > 0]


def _passages(name: str, cache: Path) -> list[JudgedPassage]:
    if Path(name).is_file():
        return list(read_passages(Path(name)))
    dataset = datasets.load_named(name, Path.cwd(), cache)
    relevant = _relevant(dataset)
    texts = dict(dataset.corpus.texts(sorted({doc for _, doc in relevant})))
    return [JudgedPassage(query, texts[doc]) for query, doc in relevant if doc in texts]


def of_results(
    results: Path, table: Table, per_query: Mapping[str, PerQuery], sources: PositionSources, cache: Path
) -> tuple[list[DatasetPositions], list[str]]:
    """Return the datasets of results with each system by position, and the names of those without positions here.

    Args:
        results: the folder.
        table: its rows; the first measure counts.
        per_query: the rows' values by query.
        sources: of positions that were not stored with the results.
        cache: of corpora.

    Raises:
        UsageError: no positions are here, or a named dataset is another one or has no results.
        UnknownName: a named dataset does not exist.
        FileError: a file is missing or wrong.
    """
    jobs = {job.result.key: job for job in reader.read_jobs(results)}
    given = {dataset_name(name): name for name in sources.named}
    made, missing = [], []
    for name, rows in _by_dataset(table.rows).items():
        passages = _of_jobs(name, [jobs[row.key] for row in rows if row.key in jobs], given.get(name), sources, cache)
        if passages is None:
            missing.append(name)
            continue
        systems = tuple(
            positions.by_position(
                row,
                per_query.get(row.per_query_key),
                jobs[row.key].result.spec.params if row.key in jobs else None,
                passages,
                table.measures[0],
                sources.width,
            )
            for row in rows
        )
        made.append(DatasetPositions(passages, sources.width, (), table.measures[0], systems))
    if unknown := sorted(given.keys() - {each.passages.dataset for each in made}):
        raise UsageError(f"{results}: has no results of the dataset {', '.join(unknown)}; leave --dataset out")
    if not made:
        raise UsageError(
            f"{results}: has no positions of {', '.join(missing)}; name the dataset's folder with --dataset"
        )
    return made, missing


def _of_jobs(
    name: str, jobs: Sequence[StoredJob], given: str | None, sources: PositionSources, cache: Path
) -> FirstPassages | None:
    """Return the first passages of stored jobs' dataset, or of the dataset ``given`` instead; None: none are here."""
    if jobs and given is None and not sources.matched:
        with suppress(FileError):  # the table has named the damaged record
            if (kept := read_positions_path(jobs[0].suite_folder, name)) is not None:
                return positions.first_passages(name, "stored with the results", read_positions(kept))
    location = _location(given or name, required=given is not None)
    if location is None or not (sources.matched or _positions_file(location)):
        return None
    passages = of_dataset(given or name, location, sources, cache)
    _check_same(passages, jobs, str(location))
    return passages


def _check_same(passages: FirstPassages, jobs: Sequence[StoredJob], location: str) -> None:
    """Raise UsageError if the stored judgements call none of these documents relevant: it is another dataset."""
    for path in dict.fromkeys(job.qrels_path() for job in jobs):
        qrels = read_stored_qrels(path)
        if not any(qrels.get(each.query, {}).get(each.doc, 0) > 0 for each in passages.firsts):
            raise UsageError(
                f"{location}: no passage of it is relevant for a query of these results; "
                "name their dataset with --dataset"
            )


def _by_dataset(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    """Return one row for each system of each dataset: hardware and scenario change no ranking."""
    chosen: dict[str, dict[str, Row]] = {}
    for row in rows:
        known = chosen.setdefault(row.dataset, {}).get(row.system)
        if known is None or (not known.measures and row.measures):
            chosen[row.dataset][row.system] = row
    return {name: list(of_system.values()) for name, of_system in chosen.items()}


def _location(name: str, *, required: bool) -> DatasetLocation | None:
    """Return a dataset's location; ``None``: none of this name is here."""
    try:
        return datasets.find(name, Path.cwd())
    except UnknownName:
        if required:
            raise
        return None


def _positions_file(location: DatasetLocation) -> Path | None:
    folder = datasets.folder_of(location)
    return folder and find_positions(folder)
