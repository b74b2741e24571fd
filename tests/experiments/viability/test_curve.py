"""The ladder, the knee by its formula, and the picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.driver.records import Outcome
from harness.errors import UsageError
from harness.experiments.viability import curve, render
from harness.experiments.viability.curve import CurvePoint
from harness.experiments.viability.probe import MIB
from harness.report import writers
from tests.experiments.viability.conftest import STIRRED, Life, Questions, needs


def points(*means_ms: float | None) -> list[CurvePoint]:
    """Return points at limits of 100, 200 ... MiB, the last one unconstrained; ``None``: killed."""
    return [
        CurvePoint(
            number * 100 * MIB, number == len(means_ms), "oom" if mean is None else "ok", mean_s=mean and mean / 1e3
        )
        for number, mean in enumerate(means_ms, 1)
    ]


def test_knee_is_above_the_slow_limits() -> None:
    assert curve.find_knee(points(None, 50, 20, 12.4, 10, 10)) == (400 * MIB, None)
    assert curve.find_knee(points(50, 12, 20, 12.5, 10)) == (400 * MIB, None), "one that is slow again moves it up"
    assert curve.find_knee(points(50, 12, None, 11, 10)) == (400 * MIB, None), "and so does one that is killed"


def test_flat_curve_has_no_knee_and_names_its_end() -> None:
    knee, why = curve.find_knee(points(None, None, 11, 9, 10))
    assert knee is None
    assert why == (
        "flat: each that ran, from 300 MiB on, is within 25% of the unconstrained mean, and up to 200 MiB the system"
        " ended oom before it slowed"
    )
    knee, why = curve.find_knee(points(11, 9, 10))
    assert knee is None and why is not None and why.endswith("the unconstrained mean")


def test_curve_that_is_slow_to_its_end_has_no_knee() -> None:
    knee, why = curve.find_knee(points(50, 40, 10))
    assert knee is None and why is not None and "name larger --limits" in why
    assert curve.find_knee(points(None, None, 10))[0] is None


@pytest.mark.parametrize(("anonymous", "peak"), [(100, 150), (12, 413), (100, 100), (8000, 90_000), (1, 1)])
def test_ladder_spans_both_peaks(anonymous: int, peak: int) -> None:
    rungs = curve.ladder(anonymous * MIB, peak * MIB, 200_000 * MIB)
    assert len(rungs) >= 6 and list(rungs) == sorted(set(rungs))
    assert all(rung % (4 * MIB) == 0 for rung in rungs)
    assert 16 * MIB <= rungs[0] <= max(16, anonymous) * MIB < rungs[-1] and rungs[-1] >= 1.05 * peak * MIB
    assert all(rung < peak * MIB for rung in curve.ladder(anonymous * MIB, peak * MIB, peak * MIB)), "within the host"


def bending(limit: int | None, _before: int) -> Life:
    """Killed below 90, three times as slow up to 120."""
    if limit is not None and limit < 90:
        return Life(Outcome.OOM)
    return Life(ms=30 if limit is not None and limit < 120 else 10)


@pytest.mark.slow
def test_a_curve_is_measured_once_and_drawn(questions: Questions, tmp_path: Path) -> None:
    question, launcher = questions(bending)
    limits = tuple(size * MIB for size in (140, 80, 100, 120))
    measured = curve.measure_curve(question, 1, limits)
    assert launcher.limits == [None] * 3 + [80, 100, 120, 140]
    assert [point.outcome for point in measured.points] == ["oom", "ok", "ok", "ok", "ok"]
    assert measured.points[-1].unconstrained and measured.knee_bytes == 120 * MIB
    paths = curve.draw_curve(measured, tmp_path / "deep" / "curve")
    assert [path.name for path in paths] == ["curve.png", "curve.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    drawn = paths[1].read_text()
    for words in ("planted on tiny, 1 CPU", "knee, 120 MiB", "no answer (oom)", "anonymous peak, 100 MiB"):
        assert words in drawn
    text = writers.write(render.curve_document(measured), "md")
    assert "Knee: 120 MiB" in text and "| 15,872 MiB (unconstrained) |" in text and "| 80 MiB " in text
    question, launcher = questions(needs(1))
    again = curve.measure_curve(question, 1, limits)
    assert again == measured and launcher.limits == [], "all of it is stored"
    curve.draw_curve(again, tmp_path / "again")
    assert (tmp_path / "again.svg").read_text() == drawn


@pytest.mark.slow
def test_flat_curve_is_drawn_with_a_note(questions: Questions, tmp_path: Path) -> None:
    question, _ = questions(needs(110))
    measured = curve.measure_curve(question, 1)
    assert measured.knee_bytes is None
    assert "No knee: flat: each that ran, from" in writers.write(render.curve_document(measured), "md")
    assert "(no knee)" in curve.draw_curve(measured, tmp_path / "flat")[1].read_text()


@pytest.mark.slow
def test_slightly_slow_rung_is_repeated_and_the_fastest_job_is_shown(questions: Questions) -> None:
    question, launcher = questions(
        lambda limit, before: Life(ms=20 - before, canary=STIRRED) if limit == 120 else Life()
    )
    (point, _) = curve.measure_curve(question, 1, (120 * MIB,)).points
    assert launcher.limits[3:] == [120, None] * 3
    assert point.mean_s == pytest.approx(0.018) and point.disturbed is not None
    again = render.curve_document(curve.measure_curve(question, 1, (120 * MIB,)))
    assert "120 MiB: measured on a disturbed machine: " in writers.write(again, "md")


@pytest.mark.slow
def test_invalid_limits_are_one_line(questions: Questions) -> None:
    question, _ = questions(needs(1))
    with pytest.raises(UsageError, match="8 MiB start no container; name 16 MiB or more"):
        curve.measure_curve(question, 1, (8 * MIB,))
    with pytest.raises(UsageError, match="20,480 MiB constrain nothing here: this host leaves 15,872 MiB"):
        curve.measure_curve(question, 1, (20 << 30,))
