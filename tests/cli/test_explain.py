"""`harness explain` over stored results."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from harness.cli import main
from harness.launch.fake import FakeLauncher
from tests.conftest import Bench


@pytest.fixture
def harness(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("HARNESS_CACHE", str(bench.cache))
    monkeypatch.chdir(bench.folder)
    return lambda *arguments: CliRunner().invoke(main, arguments, catch_exceptions=False)


def test_row_is_named_by_a_glob_or_by_its_key(harness: Callable[..., Result], bench: Bench) -> None:
    bench.run(FakeLauncher(), bench.suite())
    by_name = harness("explain", "planted")
    assert by_name.stdout.startswith("planted/tiny/single_stream/cpu1-mem256m (fake)\nLatency  "), by_name.output
    key = by_name.stdout.partition("Stored jobs  ")[2].split(",")[0].strip()
    assert harness("explain", key[:8]).stdout == by_name.stdout


@pytest.mark.slow
def test_swept_system_names_all_its_points(harness: Callable[..., Result], bench: Bench) -> None:
    bench.plant("grid", depth=1)
    bench.run(FakeLauncher(), bench.suite("[sweep.grid]\ndepth = [10, 20]\n", systems=["grid", "planted"]))
    lines = harness("explain", "grid").stdout.splitlines()
    titles = [line for line in lines if line.endswith("/single_stream/cpu1-mem256m (fake)")]
    assert [title.partition("/")[0] for title in titles] == ["grid-depth10", "grid-depth20"]
    assert "Curve  depth=10: a point of grid." in lines


def test_finding_is_explained_with_its_rows(harness: Callable[..., Result], bench: Bench) -> None:
    bench.run(FakeLauncher(), bench.suite())
    text = harness("explain", "isolation").stdout
    assert "isolation  No container enforced the limits." in text and "planted/tiny/" in text


def test_list_has_the_findings_of_each_row(harness: Callable[..., Result], bench: Bench) -> None:
    bench.run(FakeLauncher(), bench.suite())
    listed = harness("explain").stdout
    assert (
        "planted/tiny/single_stream/cpu1-mem256m (fake)  isolation, " in listed and ", index build: isolation" in listed
    )


def test_unknown_name_is_one_line_with_the_nearest(harness: Callable[..., Result], bench: Bench) -> None:
    bench.run(FakeLauncher(), bench.suite())
    done = harness("explain", "latnecy")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == ("harness: no result, column or finding 'latnecy'. Did you mean 'latency'?")
