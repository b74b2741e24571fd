"""Runs, judgements and vectors -> Frechet distances of systems, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.evaluation.embeddings import Embeddings
from harness.evaluation.frechet import bootstrap, distance
from harness.evaluation.frechet.bootstrap import Placed
from harness.evaluation.frechet.distance import Chosen, judged, retrieved, with_relevant
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.trec import Qrels, Run
from harness.stats import CONFIDENCE, INTERVAL_MIN_QUERIES, Estimate

Floats = NDArray[np.float64]
Report = Callable[[int, int], None]

CUTOFFS = (1, 10)
RESAMPLES = 1000
MOST_JUDGED = 10
# Fourth powers of numbers up to this, and sums of millions of squares in single precision, are finite.
_LARGEST = 1e12


@dataclass(frozen=True)
class Settings:
    """Options of a measurement.

    ``most_judged``: judged documents of one query, ``None``: all.  ``unlabelled``: judged documents are skipped before
    ``k`` are taken (the paper's URR).  No ``resamples``: no intervals.  ``relevant_from``: the least grade of a
    relevant document.  ``against``: the system that the others are subtracted from, ``None``: the nearest.
    """

    most_judged: int | None = MOST_JUDGED
    unlabelled: bool = False
    resamples: int = RESAMPLES
    seed: int = 2024
    relevant_from: int = 1
    against: str | None = None


@dataclass(frozen=True)
class Distance:
    """One system's distance at one cutoff, over the queries for which every compared system retrieved a document.

    ``queries`` are these, ``judged`` their relevant documents.  Of each, every system counts with as many documents as
    the one with the fewest has, ``retrieved`` in all: a smaller cloud is farther by itself.  ``short`` queries have
    fewer than ``k`` documents of this system, ``without`` none at all, of all queries with a relevant document.
    ``difference`` is the distance less that of the system ``against``, by the same resamples.
    """

    k: int
    unlabelled: bool
    figure: Estimate
    queries: int
    judged: int
    retrieved: int
    short: int
    without: int
    against: str | None = None
    difference: Estimate = field(default_factory=lambda: Estimate(None))


@dataclass(frozen=True)
class Distances:
    """All systems of one sample under one encoder.

    ``queries`` have a relevant document, ``judged`` such documents stand for relevance; ``left_out`` queries have no
    judgement of one.  ``source`` names what holds the texts of the vectors; ``source_checked``: those are the documents
    of these very runs.  ``said``: sentences about the files.
    """

    dataset: str
    encoder: str
    checkpoint_sha256: str
    dimensions: int
    settings: Settings
    queries: int
    left_out: tuple[str, ...]
    judged: int
    systems: Mapping[str, tuple[Distance, ...]]
    said: tuple[str, ...] = ()
    source: str = ""
    source_checked: bool = False


def figure(
    run: Run, qrels: Qrels, queries: Sequence[str], found: Embeddings, k: int, settings: Settings | None = None
) -> Estimate:
    """``FD@k`` of one run: smaller is better.

    Raises:
        UsageError: a document has no vector.
    """
    one = JudgedRuns("", dict.fromkeys(queries, ""), qrels, {"": run})
    return distances(one, found, (k,), settings or Settings()).systems[""][0].figure


def distances(
    runs: JudgedRuns,
    found: Embeddings,
    cutoffs: Sequence[int] = CUTOFFS,
    settings: Settings | None = None,
    progress: Report = lambda _done, _total: None,
) -> Distances:
    """The distances of all systems at each cutoff, and skipping what is judged as well where that is asked for.

    Args:
        runs: systems' runs over one sample, and its judgements.
        found: vectors of the documents, by one encoder.
        cutoffs: each ``k``.
        settings: see :class:`Settings`.
        progress: told how much is done, of how much.

    Raises:
        UsageError: a document has no vector, the vectors are of other texts, or no list of relevant documents exists.
    """
    settings = settings or Settings()
    if runs.hits_alone:
        raise UsageError(
            f"{runs.dataset}: only what its systems retrieved was judged, by the answers in the texts; a Frechet"
            " distance needs relevant documents that no system chose"
        )
    check_source(runs, found)
    asked = runs.query_ids
    if settings.against not in (None, *runs.runs):
        raise UsageError(f"{runs.dataset}: no system {settings.against!r}; there are {', '.join(sorted(runs.runs))}")
    queries = with_relevant(runs.qrels, asked, settings.relevant_from)
    reference = judged(runs.qrels, queries, settings.most_judged, settings.seed, settings.relevant_from)
    kinds = [(k, unlabelled) for unlabelled in (False, True)[: 1 + settings.unlabelled] for k in cutoffs]
    sets = {
        kind: {
            name: retrieved(run, runs.qrels, queries, kind[0], unlabelled=kind[1]) for name, run in runs.runs.items()
        }
        for kind in kinds
    }
    every = (each for of_kind in sets.values() for each in of_kind.values())
    _check(found, (reference, *every), runs.dataset if runs.corpus_sha256 else "DATASET")
    by_system: dict[str, list[Distance]] = {name: [] for name in runs.runs}
    for number, (kind, of_kind) in enumerate(sets.items()):

        def tell(done: int, total: int, before: int = number) -> None:
            progress(before * total + done, len(kinds) * total)

        for name, each in _compared(found, reference, kind, of_kind, settings, tell).items():
            by_system[name].append(each)
    return Distances(
        dataset=runs.dataset,
        encoder=found.encoder,
        checkpoint_sha256=found.checkpoint_sha256,
        dimensions=found.vectors.shape[1],
        settings=settings,
        queries=len(queries),
        left_out=tuple(sorted(set(asked) - set(queries))),
        judged=reference.size,
        systems={name: tuple(each) for name, each in by_system.items()},
        said=runs.said,
        source=found.source,
        source_checked=runs.corpus_sha256 is not None,
    )


def check_source(runs: JudgedRuns, found: Embeddings) -> None:
    """Refuse vectors that are of other texts than these runs' documents, as far as that is known.

    Raises:
        UsageError: they are of queries, or of another collection.
    """
    if found.role != "document":
        raise UsageError(f"vectors of {found.role} texts are no documents'; make those with harness embed")
    if runs.corpus_sha256 not in (None, found.source):
        raise UsageError(
            f"vectors of other texts ({found.source[:12]}) than the documents of {runs.dataset}"
            f" ({str(runs.corpus_sha256)[:12]}); make those with harness embed {found.encoder} {runs.dataset}"
        )


def _check(found: Embeddings, sets: Sequence[Chosen], dataset: str) -> None:
    missing = found.missing(name for each in sets for name in each.names())
    if missing:
        raise UsageError(
            f"{len(missing)} documents have no vector of {found.encoder}, e.g. {missing[0]!r}; add them with"
            f" harness embed {found.encoder} {dataset} (--all: the whole corpus)"
        )

    # abs() would take as much memory again.
    largest = max(float(found.vectors.max(initial=0.0)), -float(found.vectors.min(initial=0.0)))
    if largest > _LARGEST:
        raise UsageError(
            f"vectors of {found.encoder} have numbers as large as {largest:.3g}, which no encoder gives and of which no"
            " distance can be computed; make them again with harness embed"
        )


def _compared(
    found: Embeddings,
    reference: Chosen,
    kind: tuple[int, bool],
    sets: Mapping[str, Chosen],
    settings: Settings,
    progress: Report,
) -> dict[str, Distance]:
    """Return the distances of all systems at one cutoff, over common queries at common depths."""
    depths = [min(map(len, each)) for each in zip(*(chosen.documents for chosen in sets.values()), strict=True)]
    judged_there = Chosen(tuple(each for each, depth in zip(reference.documents, depths, strict=True) if depth))
    common = {name: chosen.cut(depths) for name, chosen in sets.items()}
    figures, drawn = _figures(found, judged_there, list(common.values()), settings, progress)
    values = {name: each.value for name, each in zip(sets, figures, strict=True) if each.value is not None}
    against = settings.against or min(values, key=lambda name: (values[name], name), default=None)
    places = {name: place for place, name in enumerate(sets)}
    made = {}
    for name, chosen in sets.items():
        difference = Estimate(None)
        if against in values and name in values and name != against:
            resamples = None if drawn is None else drawn[places[name]] - drawn[places[against]]
            difference = _moved(values[name] - values[against], resamples)
        made[name] = Distance(
            *kind,
            figures[places[name]],
            len(judged_there.documents),
            judged_there.size,
            common[name].size,
            chosen.fewer_than(kind[0]),
            chosen.fewer_than(1),
            None if name == against else against,
            difference,
        )
    return made


def _figures(
    found: Embeddings, reference: Chosen, sets: Sequence[Chosen], settings: Settings, progress: Report
) -> tuple[list[Estimate], Floats | None]:
    """Return the figure of each set, and the resampled distances, shape (sets, resamples), where there are any."""
    one, others = _placed(found, reference), [_placed(found, each) for each in sets]
    values = [_value(found, one, other) for other in others]
    queries = len(reference.documents)
    if queries < INTERVAL_MIN_QUERIES or not settings.resamples or None in values:
        why = f"no interval: {queries} queries, it takes {INTERVAL_MIN_QUERIES}" if settings.resamples else None
        return [Estimate(value, reason=_why(value) or why) for value in values], None
    # Only what is needed goes to other processes.
    there = np.unique(np.concatenate([one.rows, *(other.rows for other in others)]))
    moved = [Placed(np.searchsorted(there, each.rows), each.query) for each in (one, *others)]
    weights = bootstrap.draws(queries, settings.resamples, settings.seed)
    pairs = [(moved[0], each) for each in moved[1:]]
    drawn = bootstrap.resampled(found.vectors[there], pairs, weights, progress)
    figures = [_moved(value, row, 0.0) for value, row in zip(values, drawn, strict=True) if value is not None]
    return figures, drawn


def _moved(value: float, drawn: Floats | None, least: float = -np.inf) -> Estimate:
    """Return the value with the spread of its resamples, moved so that their mean is the value.

    A distance falls with the number of different vectors, and a resample has fewer: all of its distances lie above
    the value.  So neither the resamples' own quantiles nor those reflected at the value (the "basic" interval) say
    anything of samples of this size; docs/method/frechet.md has the coverage of all three.
    """
    if drawn is None:
        return Estimate(value)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, (tail, 1 - tail)) - drawn.mean()
    return Estimate(value, max(value + float(low), least), value + float(high))


def _value(found: Embeddings, one: Placed, other: Placed) -> float | None:
    if min(len(one.rows), len(other.rows)) < 2:
        return None
    return distance.of_points(found.vectors[one.rows], found.vectors[other.rows])


def _why(value: float | None) -> str | None:
    return "a covariance takes two documents on each side" if value is None else None


def _placed(found: Embeddings, chosen: Chosen) -> Placed:
    rows = np.asarray([found.places[name] for name in chosen.names()], dtype=np.int64)
    sizes = [len(each) for each in chosen.documents]
    return Placed(rows, np.repeat(np.arange(len(sizes), dtype=np.int64), sizes))
