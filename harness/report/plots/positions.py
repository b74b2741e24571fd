"""Plots of relevant passages by position: histogram, measure by position, and heat map of depth and length."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.analysis.positions import BIN, DatasetPositions, SystemByPosition, histogram, published_histograms
from harness.report.plots import style
from harness.report.plots.style import Frame, Picture, file_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# More bins or panels are illegible.
_MOST_BINS, _MOST_PANELS = 40, 8
_DRAWN = 10
_STARTS, _LENGTHS = "#0072B2", "#c9d3dc"


def pictures(made: Sequence[DatasetPositions]) -> Iterator[Picture]:
    """Yield a histogram of each dataset, and of its systems the measure by position and by depth and length."""
    styles = style.system_styles(system.system for each in made for system in each.systems)
    for each in made:
        stem = file_name(each.passages.dataset)
        measured = [system for system in each.systems if system.bins]
        placed = [system for system in measured if system.placed]
        yield f"{stem}-positions", functools.partial(draw_histogram, each)
        if measured:
            frame = _frame(each, measured, styles)
            yield f"{stem}-by-position", functools.partial(draw_measure, each, measured, frame)
        if placed:
            yield f"{stem}-depth-length", functools.partial(draw_depths, each, placed)


def draw_histogram(made: DatasetPositions) -> Figure:
    """Draw the shares of passages that start, and of documents that end, in each bin, and published shares.

    Published shares are drawn where the bins are theirs.
    """
    passages, width = made.passages, made.width
    counts, ends = histogram(passages.starts, width), histogram(passages.lengths, width)
    shown, lengths = counts[:_MOST_BINS], ends[:_MOST_BINS]
    notes = [
        f"Tokens of bert-base-uncased, bins of {width:,}. The first relevant passage of each query and document, and"
        f" the length of that document. Positions: {passages.origin}."
    ]
    notes += [f"{sum(counts[_MOST_BINS:]):,} passages start later."] if len(counts) > _MOST_BINS else []
    notes += [f"{sum(ends[_MOST_BINS:]):,} documents are longer."] if len(ends) > _MOST_BINS else []
    source, published = published_histograms()
    references = published if width == BIN else ()
    notes += [f"Lines: {source}."] if references else []
    entries = [
        (style.handle(color=_STARTS, linewidth=6, alpha=0.85), "passages start"),
        (style.handle(color=_LENGTHS, linewidth=6), "documents end (their length)"),
    ]
    looks: list[dict[str, Any]] = [
        {"color": colour, "marker": marker, "linestyle": dash, "markersize": 4, "linewidth": 1.1}
        for colour, marker, dash in (("#D55E00", "s", "--"), ("#009E73", "^", ":"))
    ]
    for each, look in zip(references, looks, strict=False):
        entries.append((style.handle(**look), f"{each.name}, published"))
    total = len(passages.firsts)
    frame = Frame(f"{passages.dataset}: where {total:,} relevant passages start", (" ".join(notes),), {})
    figure = style.framed_figure(frame, 2.9, entries, columns=2)
    axes = figure.subplots()
    at = np.arange(len(shown))
    axes.bar(range(len(lengths)), [100 * count / total for count in lengths], width=0.94, color=_LENGTHS)
    axes.bar(at, [100 * count / total for count in shown], width=0.5, color=_STARTS, alpha=0.85)
    for each, look in zip(references, looks, strict=False):
        axes.plot(range(len(each.counts)), [100 * count / each.total for count in each.counts], **look)
    last = max([len(shown), len(lengths), *(len(each.counts) for each in references)])
    step = -(-last // 12)
    edges = range(0, last + 1, step)
    axes.set_xticks([number - 0.5 for number in edges], [f"{number * width:,}" for number in edges])
    axes.set_xlabel("the passage starts, the document ends at token")
    axes.set_ylabel("passages, documents, %")
    axes.set_ylim(bottom=0)
    style.add_grid(axes, "y")
    return figure


def _frame(made: DatasetPositions, systems: Sequence[SystemByPosition], styles: Any) -> Frame:
    absent = [f"{each.system} ({each.reason})" for each in made.systems if not each.bins]
    more = [each.system for each in systems[_DRAWN:]]
    notes = [
        f"Mean over the queries of each bin of {made.width:,} tokens, at its middle, with its 95 % interval; bins of "
        "few queries have none. Vertical line: the last token that a system reads.",
        *style.listed("Not drawn", [*absent, *more]),
    ]
    return Frame(f"{made.passages.dataset}: {made.measure} by where the passage starts", (" ".join(notes),), styles)


def draw_measure(made: DatasetPositions, systems: Sequence[SystemByPosition], frame: Frame) -> Figure:
    """Draw each system's measure over the bins, with intervals, and the end of what it reads."""
    drawn = systems[:_DRAWN]
    entries = style.system_entries([each.system for each in drawn], frame, dashed=frame.styles)
    figure = style.framed_figure(frame, 3.3, entries)
    axes = figure.subplots()
    end = max((each.end or 0) for system in drawn for each in system.bins)
    for number, system in enumerate(drawn):
        look = frame.styles[system.system]
        # Intervals of systems that stand together would hide each other.
        shift = made.width * 0.3 * ((number + 0.5) / len(drawn) - 0.5)
        bins = [each for each in system.bins if each.value.value is not None]
        middles = [(each.start + made.width / 2) + shift for each in bins]
        values = [style.known(each.value) for each in bins]
        settings: dict[str, Any] = {**look.mark, **look.line, "markersize": 4.5, "linewidth": 1.1}
        bars = style.bars_of([each.value for each in bins])
        axes.errorbar(middles, values, yerr=bars, elinewidth=0.8, capsize=2, **settings)
        if system.limit.tokens is not None and system.limit.tokens < end:
            axes.axvline(system.limit.tokens, color=look.colour, linewidth=0.8, alpha=0.5, linestyle=look.dash)
    axes.set_xlim(0, end)
    axes.set_xticks(range(0, end + 1, made.width * -(-end // (made.width * 10))))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(bottom=0)
    style.label_axes(axes, "the passage starts at token", f"{made.measure}")
    return figure


def draw_depths(made: DatasetPositions, systems: Sequence[SystemByPosition]) -> Figure:
    """Draw a heat map for each system: mean measure by depth of the passage and length of the document."""
    drawn = systems[:_MOST_PANELS]
    depths = sorted({cell.depth for system in drawn for cell in system.placed})
    lengths = sorted({cell.length for system in drawn for cell in system.placed})
    lines = -(-len(drawn) // 2)
    notes = (
        "Depth: 0 if the passage is first, 1 if it is last. "
        "Length: the generator's target, in tokens of bert-base-uncased.",
        *style.listed("Not drawn", [each.system for each in systems[_MOST_PANELS:]]),
    )
    frame = Frame(f"{made.passages.dataset}: mean {made.measure} by depth and length", (" ".join(notes),), {})
    figure = style.framed_figure(frame, lines * (0.6 + 0.26 * len(lengths) + 0.35) + 0.35)
    panels = style.panels_of(figure, len(drawn))
    meshes = [_panel(axes, system, depths, lengths) for axes, system in zip(panels, drawn, strict=True)]
    style.add_share_bar(figure, meshes[-1], panels)
    return figure


def _panel(axes: Axes, system: SystemByPosition, depths: Sequence[float], lengths: Sequence[int]) -> Any:
    values = np.full((len(lengths), len(depths)), np.nan)
    for cell in system.placed:
        if cell.value.value is not None:
            values[lengths.index(cell.length), depths.index(cell.depth)] = cell.value.value
    mesh = axes.pcolormesh(
        np.arange(len(depths) + 1) - 0.5,
        np.arange(len(lengths) + 1) - 0.5,
        values,
        cmap="viridis",
        vmin=0,
        vmax=1,
        edgecolors="white",
        linewidth=0.6,
    )
    size = 6.5 if len(depths) <= 11 else 5
    for line, column in np.argwhere(np.isfinite(values)):
        value = values[line, column]
        ink = "white" if value < 0.6 else style.INK
        axes.text(column, line, f"{value:.2f}".lstrip("0") or "0", ha="center", va="center", fontsize=size, color=ink)
    step = -(-len(depths) // 11)
    axes.set_xticks(range(0, len(depths), step), [f"{depth:g}" for depth in depths[::step]], fontsize=7)
    axes.set_yticks(range(len(lengths)), [f"{length:,}" for length in lengths], fontsize=7)
    axes.set_xlabel("depth", fontsize=7.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(style.plain_text(system.system, 34), fontsize=8, loc="left")
    return mesh
