"""The memory-latency curve as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.experiments.viability.curve import Curve
from harness.experiments.viability.probe import MIB
from harness.records import digest
from harness.report.plots import style
from harness.report.plots.style import plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg")
_BLUE, _ORANGE, _RED, _GREY = "#1f5f99", "#d1812c", "#b3261e", "#666666"


def default_name(cpus: int, gpus: int, queries: int, limits: Sequence[int]) -> str:
    """Names a curve by what was asked, so that no other one is written over it; without suffix."""
    name = f"curve-cpu{cpus}{f'-gpu{gpus}' if gpus else ''}-q{queries}"
    return f"{name}-{digest(sorted(set(limits)))[:8]}" if limits else name


def draw(curve: Curve, stem: Path) -> tuple[Path, ...]:
    """Write ``<stem>.png`` and ``<stem>.svg``.

    Raises:
        FileError: one cannot be written.
    """
    with style.settings():
        figure = style.new_figure(8, 4.8)
        axes = figure.add_subplot()
        _points(axes, curve)
        _marks(axes, curve)
        _frame(axes, curve)
        return tuple(style.save(figure, stem.with_name(f"{stem.name}.{form}")) for form in FORMATS)


def _points(axes: Axes, curve: Curve) -> None:
    ran = [point for point in curve.points if point.mean_s is not None and not point.unconstrained]
    sizes = [point.limit_bytes / MIB for point in ran]
    means = [_ms(point.mean_s) for point in ran]
    below = [mean - _ms(point.mean_low_s, mean) for point, mean in zip(ran, means, strict=True)]
    above = [_ms(point.mean_high_s, mean) - mean for point, mean in zip(ran, means, strict=True)]
    axes.errorbar(
        sizes, means, yerr=(below, above), color=_BLUE, marker="o", capsize=3, label="mean, with 95 % interval"
    )
    tails = [(point.limit_bytes / MIB, _ms(point.p95_s)) for point in ran if point.p95_s is not None]
    if tails:
        axes.plot(*zip(*tails, strict=True), color=_ORANGE, marker="s", markersize=4, linestyle=":", label="p95")
    dead = [point for point in curve.points if point.mean_s is None]
    if dead:
        ends = ", ".join(sorted({point.outcome for point in dead}))
        axes.plot(
            [point.limit_bytes / MIB for point in dead],
            [0.04] * len(dead),
            transform=axes.get_xaxis_transform(),
            color=_RED,
            marker="x",
            markersize=9,
            markeredgewidth=2,
            linestyle="none",
            label=f"no answer ({ends})",
        )


def _marks(axes: Axes, curve: Curve) -> None:
    free = curve.points[-1]
    axes.axhline(
        _ms(free.mean_s), color=_GREY, linewidth=1, label=f"unconstrained mean ({free.limit_bytes // MIB:,} MiB)"
    )
    axes.axhline(curve.bar_s * 1e3, color=_GREY, linewidth=1, linestyle="--", label="25 % slower")
    peak = curve.peak_anon_bytes / MIB
    axes.axvline(peak, color=_RED, linewidth=1, linestyle="-.", label=f"anonymous peak, {peak:,.0f} MiB")
    if curve.knee_bytes:
        knee = curve.knee_bytes / MIB
        axes.axvline(knee, color=_BLUE, linewidth=1.5, linestyle="--", label=f"knee, {knee:,.0f} MiB")


def _frame(axes: Axes, curve: Curve) -> None:
    rungs = [point for point in curve.points if not point.unconstrained]
    axes.set_xscale("log", base=2)
    axes.set_xticks([point.limit_bytes / MIB for point in rungs], [f"{point.limit_bytes // MIB:,}" for point in rungs])
    axes.minorticks_off()
    axes.tick_params(axis="x", rotation=45)
    means = [_ms(point.mean_s) for point in curve.points if point.mean_s is not None]
    if max(means) > 10 * min(means):
        axes.set_yscale("log")
        for each in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            each(lambda value, _: f"{value:g}")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel("memory limit, MiB")
    axes.set_ylabel("latency, ms")
    knee = "" if curve.knee_bytes else " (no knee)"
    name = f"{curve.system} on {curve.dataset}, {curve.cpus} CPU{'s' if curve.cpus > 1 else ''}{knee}"
    axes.set_title(plain_text(name, 90))
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.legend(loc="best", fontsize=8)


def _ms(seconds: float | None, otherwise: float = 0.0) -> float:
    return otherwise if seconds is None else seconds * 1e3
