"""The look of all plots: styles of systems, names, titles, small print, legends, axes, and the files they become.

No display, no settings of the user, no clock: the same plot always gives the same bytes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from harness import errors, extras, filesystem
from harness.driver.records import digest
from harness.estimate import Estimate
from harness.untrusted import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
# The stem of a picture's file, and its drawing.
Picture = tuple[str, Callable[[], "Figure"]]
DPI = 150
_LONGEST_NAME = 60
WIDTH = 6.0
_SMALL = 7
# What a file would say of the time at which it was made.
_UNDATED: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
# Names hold "$": nothing is mathematics.  Fonts in PDFs are those that publishers take.
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "text.parse_math": False,
    "svg.hashsalt": "harness",
    "pdf.fonttype": 42,
    "axes.axisbelow": True,
}


@functools.cache
def _matplotlib() -> ModuleType:
    """Import matplotlib, which reads ``matplotlibrc`` of the working directory; a pipe of that name would hang it."""
    extras.require("matplotlib")
    package = importlib.util.find_spec("matplotlib")
    assert package is not None and package.origin is not None
    with contextlib.chdir(Path(package.origin).parent / "mpl-data"):  # its own defaults
        return importlib.import_module("matplotlib")


@contextlib.contextmanager
def settings(font_size: float = 10) -> Iterator[None]:
    """Apply matplotlib's defaults and ours, without the user's settings."""
    matplotlib = _matplotlib()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_SETTINGS, "font.size": font_size})
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure (in inches) with constrained layout, outside of pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def settle(figure: Figure) -> None:
    """Lay the figure out for good, once it holds all its axes.

    The solver behind the layout may differ in the last digits from one time to the next: they are cut off.
    """
    if figure.get_layout_engine() is None:
        return
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position(tuple(round(float(each), 4) for each in axes.get_position(original=True).bounds))  # type: ignore[arg-type] # length


def save(figure: Figure, path: Path) -> Path:
    """Write a figure in the format of the path's suffix; the file is whole or absent, its folder is made.

    Raises:
        FileError, StoreError: it cannot be written.
    """
    form = path.suffix[1:]
    settle(figure)
    with filesystem.atomic_write(path) as partial:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(partial, format=form, dpi=DPI, metadata=_UNDATED[form])
    return path


def save_each(pictures: Iterable[Picture], folder: Path, form: str) -> Iterator[Path]:
    """Draw pictures one by one into files of one of ``FORMATS``; a repeated stem gets a number.

    Raises:
        FileError: a file cannot be written.
    """
    drawn: Counter[str] = Counter()
    for stem, draw in pictures:
        drawn[stem] += 1
        number = f"-{drawn[stem]}" if drawn[stem] > 1 else ""
        with settings(9):
            yield save(draw(), folder / f"{stem}{number}.{form}")


def panels_of(figure: Figure, count: int, **shared: Any) -> Sequence[Axes]:
    """Return panels in two columns; a place without a panel stays empty."""
    panels = figure.subplots(-(-count // 2), min(2, count), squeeze=False, **shared).flatten()
    for panel in panels[count:]:
        panel.set_visible(False)
    return panels[:count]  # type: ignore[no-any-return] # an array


def add_share_bar(figure: Figure, mesh: Any, panels: Sequence[Axes], labels: Sequence[str] | None = None) -> None:
    """Draw a bar of the colours from 0 to 1 below the panels."""
    bar = figure.colorbar(mesh, ax=list(panels), orientation="horizontal", aspect=60, shrink=0.7, pad=0.015)
    bar.set_ticks([0, 0.25, 0.5, 0.75, 1], labels=labels)
    bar.ax.tick_params(labelsize=7.5, length=2)
    bar.outline.set_visible(False)
    # Matplotlib would rasterise the colours, even in SVG and PDF.
    assert bar.solids is not None
    bar.solids.set(rasterized=False, edgecolor="face")


def bars_of(numbers: Sequence[Estimate]) -> tuple[list[float], list[float]] | None:
    """Return the lengths of error bars down and up, ``nan`` for a number without one; ``None``: there are none."""
    if all(number.low is None and number.high is None for number in numbers):
        return None
    lengths: list[tuple[float, float]] = []
    for number in numbers:
        value, bare = known(number), number.low is None and number.high is None
        below, above = (value if end is None else end for end in (number.low, number.high))
        # A bar of no length would have caps, as if the number were exact.
        lengths.append((math.nan, math.nan) if bare else (max(0.0, value - below), max(0.0, above - value)))
    return [below for below, _ in lengths], [above for _, above in lengths]


def known(number: Estimate) -> float:
    """Return the value of a number that a point is drawn at."""
    assert number.value is not None, "a point without a figure"
    return number.value


def file_name(text: str) -> str:
    """Return a name that is safe in every file system; a changed one ends with a hash."""
    safe = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:_LONGEST_NAME]
    return safe if safe and safe == text.lower() else f"{safe or 'dataset'}-{digest(text)[:8]}"


# Okabe and Ito (2008), without the yellow, which white paper swallows.  The counts below have no common divisor, so
# that pairs repeat late.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
_DASHES: tuple[tuple[int, tuple[float, ...]], ...] = (
    (0, ()),
    (0, (5, 1.5)),
    (0, (1.2, 1.2)),
    (0, (6, 1.5, 1.2, 1.5)),
    (0, (9, 2)),
)
_HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "+++", "ooo")
GREY, INK = "#666666", "#222222"
# The longest name that is written out; and how many are listed.
_LONGEST, _LISTED = 24, 8
# Characters of small print in a line of a picture.
_LINE = 100


@dataclass(frozen=True)
class SystemStyle:
    """Style of a system: colour, marker, dash and hatch."""

    colour: str
    marker: str
    dash: tuple[int, tuple[float, ...]]
    hatch: str

    @property
    def mark(self) -> dict[str, Any]:
        """Return matplotlib's settings of the system's markers without a line."""
        return {"color": self.colour, "marker": self.marker, "linestyle": "none"}

    @property
    def line(self) -> dict[str, Any]:
        """Return matplotlib's settings of the system's line."""
        return {"color": self.colour, "linestyle": self.dash}


def system_styles(systems: Iterable[str]) -> dict[str, SystemStyle]:
    """Return a style for each system of a table's rows, always the same for the same rows.

    The most frequent come first, so that systems that are often seen together share no colour.
    """
    times = Counter(systems)
    return {
        system: SystemStyle(
            _COLOURS[place % len(_COLOURS)],
            _MARKERS[place % len(_MARKERS)],
            _DASHES[place % len(_DASHES)],
            _HATCHES[place % len(_HATCHES)],
        )
        for place, system in enumerate(sorted(times, key=lambda name: (-times[name], name)))
    }


def plain_text(name: str, longest: int = 500) -> str:
    """Return foreign text on one line, with code points for characters that the font lacks."""
    known = _glyphs()
    shown = "".join(each if ord(each) in known else f"[U+{ord(each):04X}]" for each in one_line(name))
    shown = shown if len(shown) <= longest else f"{shown[: longest - 1]}…"
    # A legend leaves out what begins with an underscore.
    return f" {shown}" if shown.startswith("_") else shown


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return a unique label for each name, cut where it is long."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        cut = label = plain_text(name, _LONGEST)
        number = 2
        while label in found.values():
            label, number = f"{cut} ({number})", number + 1
        found[name] = label
    return found


def listed(label: str, items: Sequence[str]) -> list[str]:
    """Return a sentence with the first of some items and the number of the others; none without items."""
    return [f"{label}: {errors.listed(items, _LISTED, separator='; ')}."] if items else []


@functools.cache
def _glyphs() -> frozenset[int]:
    _matplotlib()
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())


@dataclass(frozen=True)
class Frame:
    """Title of a plot, and sentences of small print below it.

    ``styles`` has all systems of the table, by name: a system looks the same in every picture.
    """

    title: str
    notes: tuple[str, ...]
    styles: Mapping[str, SystemStyle]


def framed_figure(frame: Frame, height: float, entries: Sequence[tuple[Any, str]] = (), columns: int = 3) -> Figure:
    """Return a figure with title, legend and small print; its axes are laid out between them.

    Args:
        frame: the title and the small print.
        height: inches of the axes with their labels.
        entries: handles and names of the legend below the axes.
        columns: of the legend.
    """
    lines = [line for note in frame.notes for line in textwrap.wrap(plain_text(note, 1200), _LINE)]
    title, named = 0.3, 0.18 * math.ceil(len(entries) / columns) + 0.06 * bool(entries)
    below = 0.13 * len(lines) + 0.1
    whole = title + height + named + below
    figure = new_figure(WIDTH, whole)
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=0.08, rect=(0, (below + named) / whole, 1, height / whole))
    figure.text(0.5, 1 - 0.08 / whole, plain_text(frame.title, 90), ha="center", va="top", fontsize=10)
    small: dict[str, Any] = {"ha": "left", "va": "top", "fontsize": _SMALL, "color": INK}
    figure.text(0.012, (below - 0.04) / whole, "\n".join(lines), **small)
    if entries:
        legend = figure.legend(
            *zip(*entries, strict=True),
            loc="upper center",
            bbox_to_anchor=(0.5, (below + named) / whole),
            borderaxespad=0,
            ncols=columns,
            fontsize=7.5,
            frameon=False,
            handlelength=2.6,
        )
        legend.set_in_layout(False)  # its room is kept free already
    return figure


def system_entries(
    names: Iterable[str] | Mapping[str, str], frame: Frame, *, dashed: Container[str] = (), **settings: Any
) -> list[tuple[Any, str]]:
    """Return legend entries: each system's marker, with its line if ``dashed`` has it.

    Args:
        names: of the systems, or their texts in the legend by name.
        frame: has their styles.
        dashed: the systems with a line.
        settings: further ones of matplotlib.
    """
    texts = names if isinstance(names, Mapping) else {name: name for name in names}
    labels = short_names(texts[name] for name in sorted(texts))
    entries = []
    for name in sorted(texts):
        look = frame.styles[name]
        drawn = {**look.mark, "markersize": 6, **(look.line if name in dashed else {}), **settings}
        entries.append((handle(**drawn), labels[texts[name]]))
    return entries


def handle(**settings: Any) -> Any:
    """Return a line without points, to stand in a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **settings)


def set_number_axis(axis: Any, values: Iterable[float], *, from_zero: bool = True, narrow: bool = False) -> bool:
    """Set an axis up for numbers: logarithmic where they span more than a decade.  True if it is.

    ``narrow``: there is room for few of them.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    known = [value for value in values if value is not None]
    wide = bool(known) and min(known) > 0 and max(known) > 10 * min(known)
    name = axis.axis_name
    axes = axis.axes
    if wide:
        getattr(axes, f"set_{name}scale")("log")
        decades = math.log10(max(known) / min(known))
        axis.set_major_locator(LogLocator(subs=(1.0,) if decades > (1.3 if narrow else 3) else (1.0, 2.0, 5.0)))
        axis.set_minor_formatter(NullFormatter())
    elif from_zero and known and min(known) >= 0:
        getattr(axes, f"set_{name}lim")(**{"left" if name == "x" else "bottom": 0})
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    return wide


def label_axes(axes: Axes, across: str, up: str) -> None:
    """Name both axes, and draw the grid."""
    axes.set_xlabel(plain_text(across))
    axes.set_ylabel(plain_text(up))
    add_grid(axes)


def add_grid(axes: Axes, which: Any = "both") -> None:
    """Draw faint lines, and no box."""
    axes.grid(axis=which, color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
