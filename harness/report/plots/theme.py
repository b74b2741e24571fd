"""How systems look: a colour, a marker, a dash and a hatch of their own, the same in every picture; and their names."""

from __future__ import annotations

import functools
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import filesystem
from harness.records import digest
from harness.untrusted import one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# MERGED harness.report.plots.theme: What every picture is drawn on and how it becomes a file: no display, no settings
# but ours, no clock.


FORMATS = ("png", "svg", "pdf")
DPI = 150
_LONGEST_NAME = 60
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


@contextmanager
def settings(font_size: float = 10) -> Iterator[None]:
    """Within it a figure is made and written: matplotlib's defaults and ours, whatever the user's own are."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_SETTINGS, "font.size": font_size})
        yield


def blank(width: float, height: float) -> Figure:
    """An empty figure, in inches, whose parts make room for each other; no window and no list holds it."""
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
        axes.set_position(tuple(round(float(each), 4) for each in axes.get_position(original=True).bounds))  # type: ignore[arg-type]


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


def file_name(text: str) -> str:
    """A name that any file system takes and that leads nowhere; one that had to change says so by a hash."""
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
class Look:
    """One system's."""

    colour: str
    marker: str
    dash: tuple[int, tuple[float, ...]]
    hatch: str


def looks(systems: Iterable[str]) -> dict[str, Look]:
    """A look for each system of a table's rows; given the same rows, always the same.

    The most frequent come first, so that those which are often seen together share no colour.
    """
    times = Counter(systems)
    return {
        system: Look(
            _COLOURS[place % len(_COLOURS)],
            _MARKERS[place % len(_MARKERS)],
            _DASHES[place % len(_DASHES)],
            _HATCHES[place % len(_HATCHES)],
        )
        for place, system in enumerate(sorted(times, key=lambda name: (-times[name], name)))
    }


def text(name: str, longest: int = 500) -> str:
    """A stranger's text as the picture's font can show it: one line, code points for what it has no glyph for."""
    known = _glyphs()
    shown = "".join(each if ord(each) in known else f"[U+{ord(each):04X}]" for each in one_line(name))
    shown = shown if len(shown) <= longest else f"{shown[: longest - 1]}…"
    # A legend leaves out what begins with an underscore.
    return f" {shown}" if shown.startswith("_") else shown


def short(names: Iterable[str]) -> dict[str, str]:
    """What each name is called in a picture: cut where it is long, and never as another one is."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        cut = label = text(name, _LONGEST)
        number = 2
        while label in found.values():
            label, number = f"{cut} ({number})", number + 1
        found[name] = label
    return found


def listed(items: Iterable[str]) -> str:
    """Some of many, with how many there are besides."""
    every = list(items)
    more = f" and {len(every) - _LISTED} more" if len(every) > _LISTED else ""
    return "; ".join(every[:_LISTED]) + more


def small_print(sentences: Iterable[str]) -> list[str]:
    """Sentences in lines that fit below a picture."""
    return [line for each in sentences for line in textwrap.wrap(text(each, 1200), _LINE)]


@functools.cache
def _glyphs() -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())
