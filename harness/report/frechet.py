"""Frechet distances of systems, next to measures, and how far both agree on the order of systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.evaluation.frechet import Distance, Distances
from harness.report.document import Escape, Grid, ReportDocument, Section, Value, bounded, digits
from harness.stats import kendall_p, kendall_tau

# Version of the JSON.
FRECHET_VERSION = 1

# By system, then by measure.
Values = Mapping[str, Mapping[str, float | None]]
Sample = tuple[Distances, Values]


def frechet_document(samples: Sequence[Sample]) -> ReportDocument:
    """Return the document of distances and measures of one or more samples and encoders."""
    return ReportDocument(
        sections=lambda escape: (
            *(_section(distances, values, escape) for distances, values in samples),
            *_between_encoders(samples, escape),
            Section(notes=tuple(method(samples))),
        ),
        lines=lambda: _lines(samples),
        content=lambda: {"frechet_version": FRECHET_VERSION, "samples": [_record(*sample) for sample in samples]},
    )


def distance_name(distance: Distance) -> str:
    """Return ``FD@10``, or ``FD@10 (URR)`` where judged documents are skipped."""
    return f"FD@{distance.k}" + (" (URR)" if distance.unlabelled else "")


# Kendall's tau of two orders of systems, or its p value.
_Agreement = Callable[[Mapping[str, float], Mapping[str, float]], float | None]
# Systems' figures by the name of a distance or a measure.
_Orders = Mapping[str, Mapping[str, float]]


def taus(sample: Distances, values: Values, agreement: _Agreement = kendall_tau) -> dict[str, dict[str, float | None]]:
    """Return Kendall's tau between minus each distance and each measure: 1 is the same order of systems."""
    measures: dict[str, dict[str, float]] = {}
    for system, row in values.items():
        for measure, value in row.items():
            if value is not None:
                measures.setdefault(measure, {})[system] = value
    return _agreements(_nearness(sample), measures, agreement)


def _agreements(nearness: _Orders, others: _Orders, agreement: _Agreement) -> dict[str, dict[str, float | None]]:
    """Return how far the order of systems by each distance agrees with each other order."""
    return {
        name: {other: agreement(mine, theirs) for other, theirs in others.items() if other != name}
        for name, mine in nearness.items()
    }


def _nearness(sample: Distances) -> dict[str, dict[str, float]]:
    """Return minus each distance, by its name and by system."""
    nearness: dict[str, dict[str, float]] = {}
    for system, distances in sample.systems.items():
        for distance in distances:
            by_system = nearness.setdefault(distance_name(distance), {})
            if distance.figure.value is not None:
                # Equal documents in another order differ in the last digits: that is a tie, and no order.
                by_system[system] = -round(distance.figure.value, 9)
    return nearness


def _between_encoders(samples: Sequence[Sample], escape: Escape) -> Iterator[Section]:
    """Yield, for each dataset with vectors of several encoders, the matrix of all its distances."""
    for dataset in dict.fromkeys(sample.dataset for sample, _ in samples):
        encoded = [sample for sample, _ in samples if sample.dataset == dataset]
        if len({sample.encoder for sample in encoded}) < 2:
            continue
        found = {f"{name} {each.encoder}": near for each in encoded for name, near in _nearness(each).items()}
        yield Section(title=f"dataset {escape(dataset)}, encoders compared", grids=(_tau_grid({}, (), found, escape),))


def _tau_grid(
    agreed: Mapping[str, Mapping[str, float | None]],
    measures: Sequence[str],
    nearness: _Orders,
    escape: Escape,
) -> Grid:
    """Return the matrix of tau: distances by measures and by the distances before them."""
    between, kinds = _agreements(nearness, nearness, kendall_tau), list(nearness)
    cells = tuple(
        (
            escape(kind),
            *(digits(agreed[kind].get(measure), ".3f") for measure in measures),
            *(digits(between[kind][other], ".3f") if place < number else "" for place, other in enumerate(kinds[:-1])),
        )
        for number, kind in enumerate(kinds)
        if measures or number
    )
    headers = ("tau with", *measures, *map(escape, kinds[:-1]))
    return Grid("", headers, (False, *(True for _ in headers[1:])), cells)


def method(samples: Sequence[Sample]) -> list[str]:
    """Return notes on how to read the given figures."""
    distances = [distance for sample, _ in samples for of_system in sample.systems.values() for distance in of_system]
    notes = {
        DISTANCE: True,
        INTERVAL: any(distance.figure.low is not None for distance in distances),
        DIFFERENCE: any(distance.against for distance in distances),
        UNLABELLED: any(distance.unlabelled for distance in distances),
        TAU: True,
    }
    return [note for note, applies in notes.items() if applies]


DISTANCE = (
    "FD@k: Frechet distance between the embeddings of judged relevant documents and of the first k that a system"
    " retrieved, each query's counted; 0 where the two spread alike, smaller is better. It does not see which query a"
    " document was retrieved for, falls as the number of queries grows, and has another scale under another encoder."
)
INTERVAL = (
    "In brackets: at least 95 %, for as many queries like these: the spread of bootstraps over queries, moved to the"
    " value."
)
DIFFERENCE = (
    "Difference: the distance less the named system's, over the same queries, with the interval of the paired"
    " difference; the two intervals of its parts overstate its spread."
)
UNLABELLED = "URR: all judged documents of a query are skipped before k are taken."
TAU = (
    "tau: Kendall's tau-b over systems between the order by -FD and that by the measure, or by the other distance; 1"
    " where they are the same."
)


_SystemDistances = tuple[str, tuple[Distance, ...]]


def _section(sample: Distances, values: Values, escape: Escape) -> Section:
    rows = _ordered(sample)
    kinds = [distance_name(distance) for distance in rows[0][1]]
    by_kind = zip(*(distances for _, distances in rows), strict=True)
    against = [next((distance.against for distance in distances if distance.against), None) for distances in by_kind]
    paired = [f"{kind} less {other}'s" for kind, other in zip(kinds, against, strict=True) if other]
    measures = list(dict.fromkeys(measure for row in values.values() for measure in row))
    cells = tuple(
        (
            escape(system),
            *(bounded(distance.figure, decimals=3) for distance in distances),
            *(bounded(distances[kind].difference, decimals=3) for kind, other in enumerate(against) if other),
            *(digits(values[system].get(measure), ".3f") for measure in measures),
        )
        for system, distances in rows
    )
    headers = ("system", *kinds, *paired, *measures)
    grids = [Grid("", headers, (False, *(True for _ in headers[1:])), cells)]
    if len(rows) > 1 and (measures or len(kinds) > 1):
        grids.append(_tau_grid(taus(sample, values), measures, _nearness(sample), escape))
    return Section(
        title=f"dataset {escape(sample.dataset)}, embeddings by {escape(sample.encoder)}",
        grids=tuple(grids),
        notes=tuple(map(escape, notes(sample))),
    )


def _ordered(sample: Distances) -> list[_SystemDistances]:
    """Return the systems, the nearest first by the last labelled cutoff."""

    def key(row: _SystemDistances) -> tuple[bool, float, str]:
        value = [distance for distance in row[1] if not distance.unlabelled][-1].figure.value
        return value is None, value or 0.0, row[0]

    return sorted(sample.systems.items(), key=key)


def notes(sample: Distances) -> list[str]:
    """Return notes on the data behind the figures and on missing figures."""
    settings, left_out = sample.settings, sample.left_out
    balance = f"at most {settings.most_judged} a query" if settings.most_judged is not None else "all of each query"
    resamples = f"{settings.resamples:,} bootstraps" if settings.resamples else "no intervals asked for"
    facts = {
        f"{sample.queries:,} queries with {sample.judged:,} judged relevant documents ({balance}), vectors of"
        f" {sample.dimensions} dimensions, checkpoint {sample.checkpoint_sha256[:16]}, {resamples},"
        f" seed {settings.seed}": True,
        f"the vectors were made from the texts {sample.source[:16]}; whether the systems retrieved these texts was not"
        " checked, as run files do not name a collection": not sample.source_checked,
        f"{sample.judged:,} judged documents span fewer than the {sample.dimensions} dimensions: most of a distance is"
        " what so small a sample adds; compare systems over these queries alone": sample.judged <= sample.dimensions,
        f"{len(left_out):,} queries without a relevant document are left out, e.g. {', '.join(left_out[:1])}": bool(
            left_out
        ),
    }
    reasons = [
        f"{system}, {distance_name(distance)}: {distance.figure.reason}"
        for system, distances in sample.systems.items()
        for distance in distances
        if distance.figure.reason
    ]
    return [*(fact for fact, holds in facts.items() if holds), *reasons, *_short(sample), *sample.notes]


def _short(sample: Distances) -> Iterator[str]:
    """Say, for each kind of distance, which systems cost the comparison queries or documents."""
    for distances in zip(*sample.systems.values(), strict=True):
        first = distances[0]
        few = ", ".join(
            f"{system} ({distance.short:,}, none for {distance.without:,})"
            for system, distance in zip(sample.systems, distances, strict=True)
            if distance.short
        )
        if few:
            yield (
                f"{distance_name(first)}: compared on the {first.queries:,} of {sample.queries:,} queries for which"
                f" every system has a document, each with as many as the system with the fewest;"
                f" fewer than {first.k} have {few}."
                " Leave a system out with --only to compare the others over more"
            )


def _lines(samples: Sequence[Sample]) -> Iterator[Sequence[Value]]:
    yield (
        *("dataset", "encoder", "system", "measure", "k", "unlabelled", "value", "low", "high", "documents"),
        *("queries", "queries_short", "reason", "against", "difference", "difference_low", "difference_high"),
    )
    for sample, values in samples:
        for system, distances in sample.systems.items():
            start = (sample.dataset, sample.encoder, system)
            for distance in distances:
                k, value, difference = distance.k, distance.figure, distance.difference
                yield (
                    *(*start, f"FD@{k}", k, distance.unlabelled, value.value, value.low, value.high),
                    *(distance.retrieved, distance.queries, distance.short, value.reason),
                    *(distance.against, difference.value, difference.low, difference.high),
                )
            for measure, measured in values[system].items():
                yield *start, measure, None, None, measured, *(None,) * 10


def _record(sample: Distances, values: Values) -> dict[str, Any]:
    nearness = _nearness(sample)
    facts = ("dataset", "encoder", "checkpoint_sha256", "source", "source_checked", "dimensions", "queries", "judged")
    return {
        **{name: getattr(sample, name) for name in facts},
        "settings": asdict(sample.settings),
        "left_out": list(sample.left_out),
        "systems": [
            {
                "system": system,
                "distances": list(map(asdict, distances)),
                "measures": dict(values[system]),
            }
            for system, distances in _ordered(sample)
        ],
        "tau": taus(sample, values),
        "tau_between": _agreements(nearness, nearness, kendall_tau),
        "tau_p": taus(sample, values, kendall_p),
        "tau_between_p": _agreements(nearness, nearness, kendall_p),
        "notes": notes(sample),
    }
