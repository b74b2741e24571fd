"""`harness explain` over stored results."""

from __future__ import annotations

import pytest

from harness.launch.fake import FakeLauncher
from tests.conftest import Bench
from tests.support.command_line import Call, assert_refused


def test_row_is_named_by_a_glob_or_by_its_key(harness: Call, bench: Bench) -> None:
    bench.run(FakeLauncher(), bench.suite())
    by_name = harness("explain", "planted")
    assert by_name.stdout.startswith("planted/tiny/single_stream/cpu1-mem256m (fake)\nLatency  "), by_name.output
    key = by_name.stdout.partition("Stored jobs  ")[2].split(",")[0].strip()
    assert harness("explain", key[:8]).stdout == by_name.stdout


@pytest.mark.slow
def test_swept_system_names_all_its_points(harness: Call, bench: Bench) -> None:
    bench.plant("grid", depth=1)
    bench.run(FakeLauncher(), bench.suite("[sweep.grid]\ndepth = [10, 20]\n", systems=["grid", "planted"]))
    lines = harness("explain", "grid").stdout.splitlines()
    titles = [line for line in lines if line.endswith("/single_stream/cpu1-mem256m (fake)")]
    assert [title.partition("/")[0] for title in titles] == ["grid-depth10", "grid-depth20"]
    assert "Curve  depth=10: a point of grid." in lines


@pytest.mark.slow
def test_findings_are_listed_and_explained_with_their_rows(harness: Call, bench: Bench) -> None:
    bench.run(FakeLauncher(), bench.suite())
    listed = harness("explain").stdout
    assert "(fake)  isolation (not measured in a Docker container); " in listed
    assert "; index build: isolation (not measured in a Docker container)" in listed
    text = harness("explain", "isolation").stdout
    assert "isolation  Not measured in a Docker container." in text and "planted/tiny/" in text
    assert_refused(harness("explain", "latnecy"), "no result, column or finding 'latnecy'. Did you mean 'latency'?")
