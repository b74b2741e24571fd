"""How often two systems change places: a matrix for each way of asking again, systems in the leaderboard's order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.pictures import canvas, frame, look
from harness.pictures.canvas import file_name
from harness.pictures.frame import Frame
from harness.report.robustness import name, percent
from harness.robustness import Condition, Robustness

if TYPE_CHECKING:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

# Beyond so many no number is read; the best ones are drawn.
MOST_SYSTEMS = 30
# Up to so many systems two panels stand side by side and cells are numbered; up to so few they are large.
_NUMBERED, _FEW = 15, 6


def write(found: Sequence[Robustness], folder: Path, form: str) -> Iterator[Path]:
    """Draw a picture for each leaderboard that has a matrix, into files of one of ``harness.pictures.canvas.FORMATS``.

    Raises:
        FileError: one cannot be written.
    """
    taken: dict[str, int] = {}
    for each in found:
        if not any(condition.flips for condition in each.conditions):
            continue
        stem = f"{file_name(each.dataset)}-flips"
        taken[stem] = number = taken.get(stem, 0) + 1
        with canvas.settings(9):
            yield canvas.save(draw(each), folder / f"{stem}{f'-{number}' if number > 1 else ''}.{form}")


def draw(found: Robustness, around: Frame | None = None) -> Figure:
    """Draw all conditions that were asked, in columns where systems are few.

    Args:
        found: with a matrix at least.
        around: what stands around them; else its dataset, ``title`` and ``notes``.
    """
    shown = [each for each in found.conditions if each.flips]
    systems = found.systems[:MOST_SYSTEMS]
    columns = 2 if len(systems) <= _NUMBERED and len(shown) > 1 else 1
    lines = -(-len(shown) // columns)
    height = lines * (0.62 + (0.36 if len(systems) <= _FEW else 0.21) * len(systems)) + 0.45
    around = around or Frame(f"{found.dataset}: {title(found)}", notes(found), {})
    sheet = frame.begin(around, height)
    # Small letters are as wide as their pixels: room is made for them as they will be drawn.
    sheet.figure.set_dpi(canvas.DPI)
    drawn = sheet.figure.subplots(lines, columns, squeeze=False)
    labels = list(look.short(systems).values())
    for place, axes in enumerate(drawn.flat):
        if place >= len(shown):
            axes.set_axis_off()
            continue
        _panel(axes, shown[place], labels, first=place % columns == 0)
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scale = ScalarMappable(Normalize(0, 1), _colours())
    bar = sheet.figure.colorbar(scale, ax=list(drawn.flat), orientation="horizontal", aspect=60, shrink=0.7, pad=0.01)
    bar.set_ticks([0, 0.25, 0.5, 0.75, 1], labels=["0 %", "25 %", "50 %", "75 %", "100 %"])
    bar.ax.tick_params(labelsize=7.5, length=2)
    bar.outline.set_visible(False)
    # Matplotlib would make pixels of so many colours, in SVG and PDF as well.
    assert bar.solids is not None
    bar.solids.set(rasterized=False, edgecolor="face")
    return sheet.figure


def _panel(axes: Any, condition: Condition, labels: Sequence[str], *, first: bool) -> None:
    """One matrix; the systems are named where it is the first of its line and numbered elsewhere."""
    import numpy as np

    count = len(labels)
    shares = np.full((count, count), np.nan)
    for one in range(count):
        for other in range(one):
            found = condition.flips[one][other]
            shares[one, other] = np.nan if found is None else found
    colours = _colours()
    edges = np.arange(count + 1) - 0.5
    axes.pcolormesh(
        edges, edges, shares, cmap=colours, vmin=0, vmax=1, edgecolors="white", linewidth=1, rasterized=False
    )
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_ylim(count - 0.5, -0.5)
    size = 8 if count <= _FEW else 6
    for one in range(count if count <= _NUMBERED else 0):
        for other in range(one):
            share = condition.flips[one][other]
            if share is None:
                axes.text(other, one, "=", ha="center", va="center", fontsize=size, color=look.GREY)
                continue
            dark = 0.3 < share <= 0.5 or share > 0.75
            ink = "white" if dark else look.INK
            axes.text(other, one, percent(share), ha="center", va="center", fontsize=size, color=ink)
    numbers = [str(number) for number in range(1, count + 1)]
    named = [f"{label}  {number}" for label, number in zip(labels, numbers, strict=True)]
    axes.set_yticks(range(count), named if first else numbers, fontsize=size)
    axes.set_xticks(range(count - 1), numbers[:-1], fontsize=size)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    tau = condition.tau_whole if condition.tau_whole is not None else condition.tau.value
    said = condition.cause.value if tau is None else f"{condition.cause.value} (tau {tau:.2f})"
    axes.set_title(f"{said}:\n{look.text(condition.name, 34)}", fontsize=8, loc="left")


def _colours() -> LinearSegmentedColormap:
    """Pale to blue up to a half; from there, where the order is oftener the other one, light to dark orange."""
    from matplotlib.colors import LinearSegmentedColormap

    steps = [(0.0, "#eef2f6"), (0.5, "#1f6fb0"), (0.5, "#fbd0a2"), (1.0, "#a63603")]
    return LinearSegmentedColormap.from_list("flips", steps, N=512)


def title(found: Robustness) -> str:
    """What is drawn."""
    return f"share of draws in which two systems change places, by {found.measure}"


def notes(found: Robustness) -> tuple[str, ...]:
    """How it is read, and what of it is not there."""
    more = len(found.systems) - MOST_SYSTEMS
    return (
        f"Systems in the order of {found.measure} over {found.queries:,} queries, 1 the best. Each cell: in how many "
        "per cent of draws its row stands above its column; a tie counts half, 50 is a toss of a coin. = : equal, no "
        "order to lose. tau: Kendall's, with the order shown (mean over draws; of another measure over all queries).",
        *(f"no picture of {name(each)}: {each.reason}." for each in found.conditions if not each.flips),
        *([f"The {MOST_SYSTEMS} best; {more} more are in the table."] if more > 0 else []),
    )
