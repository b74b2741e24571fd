"""The picture of throughput against latency shows each load that the jobs tried."""

from __future__ import annotations

from harness.analysis.table import LoadPoint, Row
from harness.report.plots.load import draw_load
from tests.report.plots.conftest import axes_of, frame, lines, words
from tests.support import sample_records


def loaded(system: str, scenario: str, *points: LoadPoint) -> Row:
    return sample_records.row(system=system, scenario=scenario, load=points, latency_target_s=0.1)


def test_a_rate_that_missed_the_target_is_hollow_and_rates_are_not_joined() -> None:
    tried = (LoadPoint(100, 0.02, True), LoadPoint(300, 0.4, False), LoadPoint(200, 0.05, True))
    figure = draw_load([loaded("a", "server", *tried)], frame("a"), "p95 latency, ms")
    (axes,) = axes_of(figure)
    assert lines(axes, "a") == [([100, 200], [20, 50]), ([300], [400])] and lines(axes, "connections") == []
    (target,) = lines(axes, "the target")
    assert target[1] == [100, 100]
    hollow = [line for line in axes.get_lines() if line.get_markerfacecolor() == "white"]
    assert [line.get_xdata().tolist() for line in hollow] == [[300]]


def test_connections_are_averaged_over_jobs_and_numbered() -> None:
    """Two jobs tried one and two connections."""
    tried = [LoadPoint(rate, latency, True, number) for number, rate, latency in ((1, 90, 0.010), (2, 150, 0.012))]
    tried += [LoadPoint(rate, latency, True, number) for number, rate, latency in ((1, 110, 0.012), (2, 170, 0.014))]
    figure = draw_load([loaded("a", "offline", *tried)], frame("a"), "median latency, ms")
    (axes,) = axes_of(figure)
    ((rates, latencies),) = lines(axes, "connections")
    assert rates == [100, 160] and [round(latency, 6) for latency in latencies] == [11, 13]
    assert {"1", "2"} <= {each.get_text() for each in axes.texts} and "queries a second" in words(figure)
