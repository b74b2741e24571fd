"""What every picture is drawn on and how it becomes a file: no display, no settings but ours, no clock."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import whole_file
from harness.records import digest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    with whole_file.writing(path) as partial:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(partial, format=form, dpi=DPI, metadata=_UNDATED[form])
    return path


def file_name(text: str) -> str:
    """A name that any file system takes and that leads nowhere; one that had to change says so by a hash."""
    safe = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:_LONGEST_NAME]
    return safe if safe and safe == text.lower() else f"{safe or 'dataset'}-{digest(text)[:8]}"
