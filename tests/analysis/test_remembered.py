"""One more stored job costs one more cell: the others are remembered, and rows are as if all were made anew."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.analysis import cell_summary, results_folder
from harness.results.reader import RUN
from tests.support import publisher
from tests.support.publisher import Made


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The systems whose samples are read."""
    seen: list[str] = []
    real = cell_summary.measure

    def measure(stored, *arguments, **options):  # type: ignore[no-untyped-def]
        stored = list(stored)
        seen.append(stored[0].result.spec.cell.system)
        return real(stored, *arguments, **options)

    monkeypatch.setattr(cell_summary, "measure", measure)
    yield seen


@pytest.fixture
def results(tmp_path: Path) -> Path:
    root = tmp_path / "results"
    publisher.put(
        root, Made("a", 2.0, (1, 2)), Made("b", 5.0, (0, 2)), Made("dead", 1.0, outcome=publisher.Outcome.OOM)
    )
    return root


def test_only_what_is_new_is_measured(results: Path, counted: list[str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    results_folder.rows_of(results, cache=cache)
    assert sorted(counted) == ["a", "b", "dead"]
    counted.clear()
    publisher.put(results, Made("c", 9.0))
    after = results_folder.rows_of(results, cache=cache)
    assert sorted(counted) == ["c", "dead"]  # a failed cell has nothing to remember
    counted.clear()
    assert after == results_folder.rows_of(results)
    assert sorted(counted) == ["a", "b", "c", "dead"]
    by_query = results_folder.per_query_of(results, cache=cache)
    anew = results_folder.per_query_of(results)
    assert by_query.keys() == anew.keys()
    for name, each in by_query.items():
        assert each.latency_s.tolist() == anew[name].latency_s.tolist()
        assert each.measures["nDCG@10"].tolist() == anew[name].measures["nDCG@10"].tolist()


def test_a_verdict_that_hangs_on_the_others_is_made_anew(results: Path, tmp_path: Path) -> None:
    """A slow machine is slow against the median of all jobs, so a row's validity may change while its cell does not."""
    cache = tmp_path / "cache"
    results_folder.rows_of(results, cache=cache)
    publisher.put(results, *(Made(f"more{number}", 2.0, canary_s=0.02) for number in range(4)))
    after = results_folder.rows_of(results, cache=cache)
    assert after == results_folder.rows_of(results)


def test_another_job_of_a_cell_makes_it_anew(results: Path, counted: list[str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    results_folder.rows_of(results, cache=cache)
    counted.clear()
    path = next((results / "quick" / "a").rglob(RUN))
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"right", b"other")))
    after = results_folder.rows_of(results, cache=cache)
    assert sorted(counted) == ["a", "dead"]
    counted.clear()
    assert after == results_folder.rows_of(results)


@pytest.mark.parametrize("suffix", [".json", ".queries.parquet", ".cells.json"])
def test_a_memory_that_is_damaged_is_none(results: Path, counted: list[str], tmp_path: Path, suffix: str) -> None:
    cache = tmp_path / "cache"
    results_folder.rows_of(results, cache=cache)
    (kept,) = [path for path in (cache / "tables").iterdir() if path.name.partition(".")[2] == suffix[1:]]
    kept.write_bytes(kept.read_bytes()[:-7])
    counted.clear()
    publisher.put(results, Made("c", 9.0))
    results_folder.rows_of(results, cache=cache)
    assert sorted(counted) == ["a", "b", "c", "dead"]


def test_other_measures_are_another_memory(results: Path, counted: list[str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    results_folder.rows_of(results, cache=cache)
    counted.clear()
    assert results_folder.rows_of(results, ("P@1",), cache=cache).measures == ("P@1",)
    assert len(counted) == 3
