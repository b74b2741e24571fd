"""The registry's figures of a query's work and filter, and of what a second stage gains over its first one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.analysis import notes
from harness.analysis.table import Row, Timing
from harness.estimate import Estimate, Varies
from harness.report.columns import Kind
from harness.report.document import MISSING, Footnotes, number
from harness.report.figures import (
    DATA,
    EVERYWHERE,
    FIRST,
    Figure,
    FirstScreen,
    Place,
    amount,
    count_of,
    fact,
    figure_of,
)

# Figures that would crowd the wide table.
DETAIL = frozenset({Place.PROGRAMS, Place.PAGE, Place.ON_REQUEST})
LIKE = "95 % interval, for similar queries"
_NONE = Estimate(None)
# Counts of work by the names that adapters give: column, unit, meaning, factor to that unit.  Each is the mean of a
# query, which no machine changes.
COUNTS: Mapping[str, tuple[str, str, str, float]] = {
    "pairs": ("pairs", "pairs", "query-document pairs scored", 1),
    "windows": ("windows", "sequences", "sequences fed to the model: a long document is cut into several", 1),
    "tokens": ("tokens", "tokens", "tokens fed to the model, without padding", 1),
    "padded_tokens": ("padded_tokens", "tokens", "tokens computed, with padding", 1),
    "calls": ("calls", "calls", "calls of the model", 1),
    "prompt_tokens": ("prompt_tokens", "tokens", "tokens of the prompts to a language model", 1),
    "completion_tokens": ("completion_tokens", "tokens", "tokens that a language model wrote", 1),
    "provider_ms": (
        "provider_ms",
        "ms",
        "time of the provider of recorded answers, not measured here and in no latency",
        1,
    ),
    "flop": (
        "GFLOP",
        "GFLOP",
        "arithmetic of the models by formula, on padded lengths, without heads but those over a vocabulary; searches of"
        " an index are not counted",
        1e-9,
    ),
    "parameters": ("parameters", "parameters", "parameters of the models that a query runs through", 1),
}
_FIRST_SCREEN = {"tokens": 4, "pairs": 5}
_PADDING = figure_of(
    "padding_share",
    "fraction",
    "share of the computed tokens that only fill up",
    "padding_share",
    header="padding, %",
    varies=Varies.NOTHING,
    percent=True,
    optional=True,
    applies=lambda row: row.padding_share is not None,
    told="Work",
    method="1 - tokens / padded_tokens.",
)


def share_of(name: str) -> float:
    """Return the per cent in the name of a band of selectivity."""
    return float(name.partition(" ")[0])


def of_selectivity(name: str) -> tuple[Figure, ...]:
    """Return mean and median latency of the queries whose filters let up to this share of the documents through."""
    mean, median = timings(
        f"selectivity_{name.partition(' ')[0]}",
        f"latency with filters up to {name}",
        f"latency of queries whose filters let up to {name} of the documents through",
        lambda row: row.latency.selectivity_s.get(name),
        header=f"up to {name} filtered, ms ({{}})",
    )
    return replace(mean, places=DETAIL | {Place.WIDE}), median


def timings(
    name: str, label: str, meaning: str, get: Callable[[Row], Timing | None], header: str = ""
) -> tuple[Figure, Figure]:
    """Return the mean and the median of a stage, of service time, or of some queries; ``header`` takes these words."""

    def timing(short: str, word: str, field: str) -> Figure:
        return latency_detail(
            f"{name}_{short}_ms",
            f"{label}: {word}",
            f"{meaning}: {word}",
            lambda row: (found := get(row)) and getattr(found, field).value,
            header.format(word),
        )

    return timing("mean", "mean", "mean_s"), timing("p50", "median", "p50_s")


def latency_detail(name: str, label: str, meaning: str, read: Callable[[Row], Any], header: str = "") -> Figure:
    """Return a latency that would crowd the wide table."""
    return figure_of(name, "ms", meaning, read, 1e3, label=label, header=header, optional=True, places=DETAIL)


def of_count(name: str) -> tuple[Figure, ...]:
    """Return the figure of a count; padded tokens come with the share of padding."""
    column, unit, meaning, scale = COUNTS.get(name, (f"count_{name}", "", "a count of the adapter's own", 1))
    label = column.replace("_", " ")
    header, shown = ("M parameters", 1e-6) if name == "parameters" else (label, scale)
    screen = FirstScreen(
        header,
        cell=lambda row: number(row.counts.get(name), shown),
        heading=lambda cell: f"{cell} {header}",
        dropped=_FIRST_SCREEN.get(name, 0),
    )
    count = figure_of(
        column,
        unit,
        f"{meaning}; mean of a query, the same on every machine",
        lambda row: row.counts.get(name),
        scale,
        header=label,
        optional=True,
        applies=lambda row: name in row.counts,
        screen=screen,
        method=f"{notes.COUNT_METHOD} {notes.FLOP_METHOD}" if name == "flop" else notes.COUNT_METHOD,
        told="Work",
        varies=Varies.NOTHING,
        places=FIRST if name in _FIRST_SCREEN else EVERYWHERE,
    )
    return (count, _PADDING) if name == "padded_tokens" else (count,)


def _first_stage_cell(row: Row, footnotes: Footnotes) -> str:
    stage = row.first_stage
    if stage is None:
        return MISSING
    note = None if stage.measured else f"first stage not measured: {stage.system} is a stored ranking"
    return f"{footnotes.escape(stage.system)}, depth {stage.depth}{footnotes.mark(note)}"


def second_stage(measures: Sequence[str], of: str) -> Iterator[Figure]:
    """Yield what a first stage leaves to find, and gain and harm by the first measure that has them."""

    def of_gain(place: int) -> Callable[[Row], Estimate]:
        return lambda row: _NONE if (found := row.gain(measures)) is None else (found[1], found[2])[place]

    def alone(name: str) -> Callable[[Row], float | None]:
        return lambda row: row.first_stage.measures.get(name, _NONE).value if row.first_stage else None

    def compared(name: str, meaning: str, interval: str, read: Callable[[Row], Any], **more: Any) -> Figure:
        people: dict[str, Any] = {"bounds": "95 %", "optional": True, "told": "First stage"}
        return figure_of(name, "fraction", meaning, read, interval=interval, **people, **more)

    given = "system whose ranking the second stage was given"
    wide = DATA | {Place.WIDE}
    yield figure_of("first_stage", "", given, "first_stage.system", kind=Kind.TEXT, cell=_first_stage_cell, places=wide)
    yield fact(
        "first_stage_measured",
        "no: a stored ranking, so latency and cost are the second stage's alone",
        lambda row: row.first_stage and ("yes" if row.first_stage.measured else "no"),
    )
    yield count_of("depth", "hits", "hits that the first stage was asked for", "first_stage.depth")
    yield compared(
        "ceiling",
        "R@depth of the first stage: no second stage has a better recall (a fraction)",
        LIKE,
        lambda row: row.first_stage.ceiling if row.first_stage else _NONE,
        header="ceiling: R@depth (95 %)",
        decimals=3,
        higher=True,
        method=notes.CEILING_METHOD,
        screen=FirstScreen("R@depth", bounds=False),
    )
    yield compared(
        "gain",
        "first measure less the first stage's own, query by query (a fraction)",
        "paired 95 % interval",
        of_gain(0),
        header=f"gain, points {of} (95 %)",
        decimals=1,
        percent=True,
        higher=True,
        method=notes.GAIN_METHOD,
        screen=FirstScreen("gain, points (95 %)"),
    )
    yield compared(
        "harm",
        "share of judged queries that the second stage makes worse",
        LIKE,
        of_gain(1),
        header="queries made worse (95 %), %",
        decimals=1,
        percent=True,
        method=notes.HARM_METHOD,
        screen=FirstScreen("made worse, %", bounds=False),
    )
    for name in measures:
        yield amount(f"first_stage_{name}", "", "effectiveness of the first stage alone (a fraction)", alone(name))
