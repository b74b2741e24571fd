"""Report on the positions of relevant passages: histogram, published shares, unseen passages, measure by position."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.analysis.positions import (
    BIN,
    BOUNDS,
    DatasetPositions,
    PositionBin,
    ReadLimit,
    SystemByPosition,
    UnseenPassages,
    histogram,
    published_histograms,
    share_before,
)
from harness.errors import counted
from harness.estimate import Estimate
from harness.report.document import (
    MISSING,
    Escape,
    Grid,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    bounded,
    brief,
    digits,
    grid_of,
)

# Version of the JSON.
POSITIONS_VERSION = 1
# Bins of the first screen, and the characters of the largest bar.
_MOST_BINS, _BAR = 8, 24

METHOD = (
    "Tokens: bert-base-uncased's, of the document's text, without [CLS], [SEP] and the title; a system that "
    "reads the title first, or has another tokenizer, reaches less or more.",
    "The first relevant passage of each query and document counts; of a query with several documents, the earliest. "
    "Intervals of shares: Clopper-Pearson; of means: t with Hall's correction for skew.",
    "Slope: least squares of the measure over where the passage starts, in points for each bin; 95 % interval of 1,000 "
    "resamples of the queries. Below 0 the system ranks worse the later the passage starts.",
    "Unseen: passages that start (end) beyond what the system's parameters let it read, known before anything runs. "
    "In two stages it is the reranker's; a first stage of whole documents still finds them.",
)
POINTERS = {
    False: "every bin: --wide   pictures: --format png -o DIR   what a suite would not see: --suite FILE",
    True: "every bin with its interval: --wide   pictures: --format png -o DIR",
}


def positions_document(datasets: Sequence[DatasetPositions]) -> ReportDocument:
    """Return the document; CSV has a line for each bin, of the dataset and of each system, JSON all that is known."""
    source, published = published_histograms()
    notes = (*METHOD, f"Published shares: {source}.")
    return ReportDocument(
        sections=lambda escape: (*(_section(each, escape, wide=True) for each in datasets), Section(notes=notes)),
        lines=lambda: _lines(datasets),
        answer=lambda escape: brief((*(_section(each, escape, wide=False) for each in datasets), Section(notes=notes))),
        content=lambda: {
            "positions_version": POSITIONS_VERSION,
            "datasets": [_record(each) for each in datasets],
            "published": [each.model_dump() | {"bin_tokens": BIN} for each in published],
            "published_source": source,
        },
    )


def _section(made: DatasetPositions, escape: Escape, *, wide: bool) -> Section:
    passages = made.passages
    title = f"{escape(passages.dataset)}: where {counted(len(passages.firsts), 'relevant passage')} start, in tokens"
    grids = [] if made.systems and not wide else [_histogram(made, wide=wide)]
    grids.append(_shares(made, escape, wide=wide))
    if made.readers:
        grids.append(grid_of(made.readers, _reach(lambda each: escape(each.name))))
    if made.systems:
        grids.append(_systems(made, escape, wide=wide))
        if wide:
            grids.append(_fine(made, escape))
    notes = [escape(f"Positions: {passages.origin}.")]
    if passages.pairs is not None and passages.pairs > len(passages.firsts):
        missing = passages.pairs - len(passages.firsts)
        notes.append(
            f"{missing:,} of {passages.pairs:,} pairs of query and document have no passage; they are left out."
        )
    notes += [escape(f"{each.system}: no measure: {each.reason}") for each in made.systems if each.reason is not None]
    return Section(title, grids=tuple(grids), after=() if wide else (POINTERS[bool(made.systems)],), notes=tuple(notes))


def _histogram(made: DatasetPositions, *, wide: bool) -> Grid:
    width, both = made.width, _both(made)
    total, so_far = max(1, len(made.passages.firsts)), 0
    most = len(both) if wide else _MOST_BINS
    rest = both[most - 1 :]
    shown = (
        both
        if len(both) <= most
        else [*both[: most - 1], (sum(each[0] for each in rest), sum(each[1] for each in rest))]
    )
    largest = max((count for count, _ in shown), default=1)
    cells = []
    for number, (count, documents) in enumerate(shown):
        so_far += count
        last = number == len(shown) - 1 < len(both) - 1
        name = f"from {number * width:,}" if last else f"{number * width:,}-{(number + 1) * width - 1:,}"
        bar = "#" * round(_BAR * count / max(1, largest)) or ("." if count else "")
        figures = (f"{count:,}", _percent(count / total), _percent(so_far / total), _percent(documents / total))
        cells.append((name, *figures, bar))
    headers = ("tokens", "passages start", "share", "so far", "documents end", "")
    return Grid("", headers, (True, True, True, True, True, False), tuple(cells))


def _both(made: DatasetPositions) -> list[tuple[int, int]]:
    """Return for each bin how many passages start there, and how many of their documents end there."""
    starts, lengths = histogram(made.passages.starts, made.width), histogram(made.passages.lengths, made.width)
    return [*itertools.zip_longest(starts, lengths, fillvalue=0)]


def _shares(made: DatasetPositions, escape: Escape, *, wide: bool) -> Grid:
    """Return the shares before the bounds, and published shares if the bins are as wide as theirs."""
    bounds = [bound * made.width for bound in BOUNDS]
    own = [_share(share_before(made.passages, bound), wide=wide) for bound in bounds]
    cells = [(escape(made.passages.dataset), f"{len(made.passages.firsts):,}", *own)]
    if made.width == BIN:
        cells += [
            (f"{each.name}, published", f"{each.total:,}", *(_percent(each.share_before(bound)) for bound in BOUNDS))
            for each in published_histograms()[1]
        ]
    headers = ("start before", "passages", *(f"{bound:,}" for bound in bounds))
    return Grid("", headers, (False, *(True,) * (len(headers) - 1)), tuple(cells))


def _share(share: Estimate, *, wide: bool) -> str:
    if share.value is None:
        return MISSING
    return f"{bounded(share, 100, 1)} %" if wide else _percent(share.value)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _reach(system: Callable[[Any], str]) -> list[GridColumn[Any]]:
    """Return the columns on what a system reads, of readers and of measured systems."""
    return [
        ("system", False, system),
        ("reads", True, lambda each: _limit(each.limit)),
        ("unseen", True, lambda each: _unseen(each.unseen)),
        ("cut or unseen", True, lambda each: _unseen(each.unseen, ends=True)),
    ]


def _limit(limit: ReadLimit) -> str:
    if not limit.known:
        return MISSING
    return "all" if limit.tokens is None else f"{'' if limit.exact else '~'}{limit.tokens:,}"


def _unseen(unseen: UnseenPassages | None, *, ends: bool = False) -> str:
    return MISSING if unseen is None else _percent(unseen.ends if ends else unseen.starts)


def _systems(made: DatasetPositions, escape: Escape, *, wide: bool) -> Grid:
    caption = f"{made.measure} by the token at which the passage starts; slope in points for each {made.width:,} tokens"
    edges = sorted({(each.start, each.end or 0) for system in made.systems for each in system.coarse})

    def column(start: int, end: int) -> GridColumn[SystemByPosition]:
        name = f"{start:,} on" if not end else f"{start:,}-{end - 1:,}"
        return name, True, lambda system: _in_bin(system.coarse, start)

    reach = _reach(lambda system: escape(system.system))
    columns: list[GridColumn[SystemByPosition]] = [
        *(reach if wide else reach[:-1]),
        (f"{made.measure}", True, lambda system: digits(system.value.value, ".3f")),
        *(column(*edge) for edge in edges),
        ("slope", True, lambda system: _slope(system.slope)),
    ]
    return grid_of(made.systems, columns, caption=caption)


def _slope(slope: Estimate) -> str:
    """Return ``-13.9 (-15.5 to -12.5)``, in points."""
    if slope.value is None:
        return MISSING
    ends = "" if slope.low is None or slope.high is None else f" ({100 * slope.low:.1f} to {100 * slope.high:.1f})"
    return f"{100 * slope.value:.1f}{ends}"


def _in_bin(bins: Sequence[PositionBin], start: int) -> str:
    return next((digits(each.value.value, ".3f") for each in bins if each.start == start), MISSING)


def _fine(made: DatasetPositions, escape: Escape) -> Grid:
    lines = [(system, each) for system in made.systems for each in system.bins]
    columns: list[GridColumn[tuple[SystemByPosition, PositionBin]]] = [
        ("system", False, lambda line: escape(line[0].system)),
        ("starts at", True, lambda line: f"{line[1].start:,}-{(line[1].end or 0) - 1:,}"),
        ("queries", True, lambda line: f"{line[1].queries:,}"),
        (f"{made.measure} (95 %)", True, lambda line: bounded(line[1].value, 1, 3)),
    ]
    return grid_of(lines, columns, caption="every bin", keys=2)


_LIMITS = ("reads", "reads_exact", "unseen_starts", "unseen_ends")


def _lines(datasets: Sequence[DatasetPositions]) -> Iterator[Sequence[Value]]:
    """Yield a line for each bin of a dataset (no system), for each reader, and for each bin of each system."""
    yield (
        *("dataset", "kind", "system", "start", "end", "passages", "queries", "measure", "value", "low", "high"),
        *("depth", "target_length", *_LIMITS, "slope", "slope_low", "slope_high", "reason", "documents"),
    )
    for made in datasets:
        name = made.passages.dataset
        for number, (count, documents) in enumerate(_both(made)):
            start = number * made.width
            yield name, "passages", None, start, start + made.width, count, *(None,) * 15, documents
        for reader in made.readers:
            yield name, "reads", reader.name, *(None,) * 10, *_limits(reader.limit, reader.unseen), *(None,) * 5
        for system in made.systems:
            rest = (*_limits(system.limit, system.unseen), system.slope.value, system.slope.low, system.slope.high)
            rest = (*rest, system.reason, None)
            whole = (name, "all", system.system, None, None, None, system.queries, made.measure)
            yield *whole, *_ends(system.value), None, None, *rest
            for each in system.bins:
                place = (name, "bin", system.system, each.start, each.end, None, each.queries, made.measure)
                yield *place, *_ends(each.value), None, None, *rest
            for cell in system.placed:
                spot = (name, "placed", system.system, None, None, None, cell.queries, made.measure)
                yield *spot, *_ends(cell.value), cell.depth, cell.length, *rest


def _ends(value: Estimate) -> tuple[float | None, float | None, float | None]:
    return value.value, value.low, value.high


def _limits(limit: ReadLimit, unseen: UnseenPassages | None) -> tuple[Value, ...]:
    reads = "all" if limit.known and limit.tokens is None else limit.tokens
    return reads, limit.exact, *((unseen.starts, unseen.ends) if unseen else (None, None))


def _record(made: DatasetPositions) -> dict[str, Any]:
    passages = made.passages
    return {
        "dataset": passages.dataset,
        "origin": passages.origin,
        "passages": len(passages.firsts),
        "pairs": passages.pairs,
        "bin_tokens": made.width,
        "histogram": list(histogram(passages.starts, made.width)),
        "length_histogram": list(histogram(passages.lengths, made.width)),
        "shares_before": {
            str(bound * made.width): dataclasses.asdict(share_before(passages, bound * made.width)) for bound in BOUNDS
        },
        "readers": [dataclasses.asdict(each) for each in made.readers],
        "measure": made.measure,
        "systems": [dataclasses.asdict(each) for each in made.systems],
    }
