"""Frechet distances of systems, beside measures and with their agreement on the order of systems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.evaluation.frechet import Distance, Distances
from harness.report.document import MISSING, Escape, Grid, ReportDocument, Section, Value, fixed
from harness.stats import kendall_tau

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
            Section(notes=tuple(method(samples))),
        ),
        lines=lambda: _lines(samples),
        content=lambda: {"frechet_version": FRECHET_VERSION, "samples": [_record(*sample) for sample in samples]},
    )


def distance_name(each: Distance) -> str:
    """Return ``FD@10``, or ``FD@10 (URR)`` where judged documents are skipped."""
    return f"FD@{each.k}" + (" (URR)" if each.unlabelled else "")


def taus(made: Distances, values: Values) -> dict[str, dict[str, float | None]]:
    """Return Kendall's tau between minus each distance and each measure: 1 is the same order of systems."""
    by_name: dict[str, dict[str, float]] = {}
    for system, distances in made.systems.items():
        for each in distances:
            known = by_name.setdefault(distance_name(each), {})
            if each.figure.value is not None:
                # Equal documents in another order differ in the last digits: that is a tie, and no order.
                known[system] = -round(each.figure.value, 9)
    measures: dict[str, dict[str, float]] = {}
    for system, row in values.items():
        for measure, value in row.items():
            if value is not None:
                measures.setdefault(measure, {})[system] = value
    return {
        name: {measure: kendall_tau(distances, known) for measure, known in measures.items()}
        for name, distances in by_name.items()
    }


def method(found: Sequence[Sample]) -> list[str]:
    """Return notes on how to read the given figures."""
    every = [each for made, _ in found for distances in made.systems.values() for each in distances]
    interval = any(each.figure.low is not None for each in every)
    return [
        DISTANCE,
        *([INTERVAL] if interval else []),
        *([DIFFERENCE] if any(each.against for each in every) else []),
        *([UNLABELLED] if any(each.unlabelled for each in every) else []),
        TAU,
    ]


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
TAU = "tau: Kendall's tau-b over systems between the order by -FD and that by the measure; 1 where they are the same."


def _section(made: Distances, values: Values, escape: Escape) -> Section:
    rows = _ordered(made)
    against = [
        next((each[place].against for _, each in rows if each[place].against), None) for place in range(len(rows[0][1]))
    ]
    kinds = [distance_name(each) for each in rows[0][1]]
    paired = [f"{kind} less {other}'s" for kind, other in zip(kinds, against, strict=True) if other]
    measures = list(dict.fromkeys(measure for row in values.values() for measure in row))
    cells = tuple(
        (
            escape(system),
            *(fixed(each.figure, 3) for each in distances),
            *(fixed(each.difference, 3) for each, other in zip(distances, against, strict=True) if other),
            *(_value(values[system].get(measure)) for measure in measures),
        )
        for system, distances in rows
    )
    headers = ("system", *kinds, *paired, *measures)
    grids = [Grid("", headers, (False, *(True for _ in headers[1:])), cells)]
    if len(rows) > 1 and measures:
        found = taus(made, values)
        agreed = tuple((name, *(_value(found[name].get(measure)) for measure in measures)) for name in kinds)
        grids.append(Grid("", ("tau with", *measures), (False, *(True for _ in measures)), agreed))
    return Section(
        title=f"dataset {escape(made.dataset)}, embeddings by {escape(made.encoder)}",
        grids=tuple(grids),
        notes=tuple(escape(note) for note in notes(made)),
    )


def _ordered(made: Distances) -> list[tuple[str, tuple[Distance, ...]]]:
    """Return the systems, the nearest first by the last labelled cutoff."""

    def key(item: tuple[str, tuple[Distance, ...]]) -> tuple[bool, float, str]:
        value = [each for each in item[1] if not each.unlabelled][-1].figure.value
        return value is None, value or 0.0, item[0]

    return sorted(made.systems.items(), key=key)


def notes(made: Distances) -> list[str]:
    """Return notes on the data behind the figures and on missing figures."""
    most = made.settings.most_judged
    balance = f"at most {most} a query" if most is not None else "all of each query"
    resamples = f"{made.settings.resamples:,} bootstraps" if made.settings.resamples else "no intervals asked for"
    said = [
        f"{made.queries:,} queries with {made.judged:,} judged relevant documents ({balance}), vectors of"
        f" {made.dimensions} dimensions, checkpoint {made.checkpoint_sha256[:16]}, {resamples},"
        f" seed {made.settings.seed}"
    ]
    if not made.source_checked:
        said.append(
            f"the vectors are of the texts {made.source[:16]}: that these are the documents that were retrieved is not"
            " checked, as run files do not name a collection"
        )
    if made.judged <= made.dimensions:
        said.append(
            f"{made.judged:,} judged documents span fewer than the {made.dimensions} dimensions: most of a distance is"
            " what so small a sample adds; compare systems over these queries alone"
        )
    if made.left_out:
        said.append(f"{len(made.left_out):,} queries without a relevant document are left out, e.g. {made.left_out[0]}")
    for system, distances in made.systems.items():
        for each in distances:
            if each.figure.reason:
                said.append(f"{system}, {distance_name(each)}: {each.figure.reason}")
    return [*said, *_common(made), *made.notes]


def _common(made: Distances) -> Iterator[str]:
    """Say, for each kind of distance, which systems cost the comparison queries or documents."""
    for each_kind in zip(*made.systems.values(), strict=True):
        by_system = dict(zip(made.systems, each_kind, strict=True))
        short = {system: each for system, each in by_system.items() if each.short}
        if not short:
            continue
        first = each_kind[0]
        few = ", ".join(f"{system} ({each.short:,}, none for {each.without:,})" for system, each in short.items())
        yield (
            f"{distance_name(first)}: compared on the {first.queries:,} of {made.queries:,} queries for which"
            f" every system has a document, each with as many as the system with the fewest;"
            f" fewer than {first.k} have {few}."
            " Leave a system out with --only to compare the others over more"
        )


def _value(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f}"


def _lines(samples: Sequence[Sample]) -> Iterator[Sequence[Value]]:
    yield (
        *("dataset", "encoder", "system", "measure", "k", "unlabelled", "value", "low", "high", "documents"),
        *("queries", "queries_short", "reason", "against", "difference", "difference_low", "difference_high"),
    )
    for made, values in samples:
        for system, distances in made.systems.items():
            start = (made.dataset, made.encoder, system)
            for each in distances:
                value, difference = each.figure, each.difference
                yield (
                    *(*start, f"FD@{each.k}", each.k, each.unlabelled, value.value, value.low, value.high),
                    *(each.retrieved, each.queries, each.short, value.reason),
                    *(each.against, difference.value, difference.low, difference.high),
                )
            for measure, measured in values[system].items():
                yield *start, measure, None, None, measured, *(None,) * 10


def _record(made: Distances, values: Values) -> dict[str, Any]:
    facts = ("dataset", "encoder", "checkpoint_sha256", "source", "source_checked", "dimensions", "queries", "judged")
    return {
        **{name: getattr(made, name) for name in facts},
        "settings": asdict(made.settings),
        "left_out": list(made.left_out),
        "systems": [
            {"system": system, "distances": [asdict(each) for each in distances], "measures": dict(values[system])}
            for system, distances in _ordered(made)
        ],
        "tau": taus(made, values),
        "notes": notes(made),
    }
