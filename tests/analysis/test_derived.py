"""Kept rows are taken for exactly these files, read by exactly this code; for anything else they are made anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.analysis import row_cache
from harness.analysis.cell_cache import Made, Recall
from harness.analysis.table import Measurements
from harness.errors import FileError
from harness.evaluation.per_query import SHARES, PerQuery
from harness.stats import Estimate
from tests.support import sample_records
from tests.support.messages import messages

QUERIES = (
    PerQuery("k1", ("q1", "q2"), np.array([0.1 + 0.2, np.nan]), {"RR@10": np.array([1.0, 1 / 3])}, tuple(SHARES)),
)
MADE = Measurements(
    (sample_records.row(latency_mean_s=Estimate(0.1 + 0.2, 1e-9, None, "said"), notes=("a note",)),), ("RR@10",)
)

SUFFIXES = (".json", ".prices.json", ".queries.parquet", ".cells.json")


class Folder:
    """A results folder whose rows are counted each time they are made."""

    def __init__(self, place: Path) -> None:
        self.root, self.cache = place / "results", place / "cache"
        self.job = self.root / "suite" / "bm25" / "set" / "single_stream" / "cpu1" / "k1"
        self.job.mkdir(parents=True)
        for name in ("result.json", "samples.parquet", "run.trec.gz", "log.txt.gz"):
            (self.job / name).write_text(name)
        for name in ("qrels", "samples"):
            (self.root / "suite" / name).mkdir()
            (self.root / "suite" / name / "x.gz").write_text(name)
        self.made = 0
        self.said: list[str] = []

    def rows(self, *measures: str, root: Path | None = None) -> Measurements:
        def compute(_recall: Recall) -> Made:
            self.made += 1
            return Made(MADE, QUERIES)

        with messages() as said:
            made = row_cache.rows(root or self.root, measures or ("RR@10",), compute, cache=self.cache)
        self.said += said
        return made

    @property
    def kept(self) -> Path:
        (path,) = (each for each in (self.cache / "tables").iterdir() if each.suffixes == [".json"])
        return path


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path)
    assert made.rows() == MADE and made.made == 1
    return made


def test_what_is_kept_comes_back_to_the_last_bit(folder: Folder) -> None:
    assert folder.rows() == MADE
    assert (folder.made, folder.said) == (1, [])


def _rewrite(path: Path) -> None:
    """Other content of the same length, and the time set back."""
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # the kernel's clock ticks every few milliseconds
        path.write_text("y" * before.st_size)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace(path: Path) -> None:
    """Another file of the same name, length and time."""
    before, content = path.stat(), path.read_bytes()
    other = path.with_name("other")
    other.write_bytes(content[::-1])
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


CHANGES: list[Callable[[Folder], object]] = [
    lambda f: (f.job / "result.json").write_text("RESULT.json"),
    lambda f: (f.job / "samples.parquet").write_text("longer than it was"),
    lambda f: os.utime(f.job / "run.trec.gz", ns=(0, 0)),
    lambda f: (f.job / "run.trec.gz").unlink(),
    lambda f: _replace(f.job / "samples.parquet"),
    lambda f: _rewrite(f.job / "samples.parquet"),
    lambda f: f.job.rename(f.job.with_name("k2")),
    lambda f: ((f.job.with_name("k2")).mkdir(), (f.job.with_name("k2") / "result.json").write_text("x")),
    lambda f: (f.root / "suite" / "qrels" / "x.gz").write_text("judged otherwise"),
    lambda f: (f.root / "suite" / "samples" / "x.gz").unlink(),
    lambda f: (f.root / "suite" / "qrels" / "y.gz").write_text("more"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_of_what_is_stored_makes_rows_anew(folder: Folder, change: Callable[[Folder], object]) -> None:
    change(folder)
    folder.rows()
    assert folder.made == 2
    folder.rows()
    assert folder.made == 2, "and they are kept again"


def test_what_rows_are_not_made_of_may_change(folder: Folder) -> None:
    (folder.job / "log.txt.gz").write_text("another log")
    (folder.root / "suite" / "report.md").write_text("a report")
    staging = folder.root / "suite" / ".staging" / "job"
    staging.mkdir(parents=True)
    (staging / "result.json").write_text("in the making")
    folder.rows()
    assert folder.made == 1


def test_judgements_above_the_folder_that_is_asked_for_count_too(folder: Folder) -> None:
    folder.rows(root=folder.job.parent)
    (folder.root / "suite" / "qrels" / "x.gz").write_text("judged otherwise")
    folder.rows(root=folder.job.parent)
    assert folder.made == 3


def test_other_measures_and_other_folders_are_other_rows(folder: Folder) -> None:
    folder.rows("nDCG@10")
    folder.rows(root=folder.root / "suite")
    assert folder.made == 3
    assert len(list((folder.cache / "tables").glob("*.prices.json"))) == 3


def test_other_code_makes_rows_anew(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "_code", lambda: "changed")
    folder.rows()
    assert folder.made == 2


def test_the_code_is_every_source_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "one.py").write_text("a = 1")
    monkeypatch.setattr(row_cache.harness, "__file__", str(tmp_path / "__init__.py"))
    before = row_cache._code.__wrapped__()
    assert row_cache._code.__wrapped__() == before
    (tmp_path / "below" / "one.py").write_text("a = 2")
    assert row_cache._code.__wrapped__() != before


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: content.replace(b'"bm25"', b'"bm26"'),
        lambda content: b"\xff\xfe" + content,
        lambda content: content.partition(b"\n")[0] + b"\n{}",
    ],
)
def test_a_damaged_file_is_as_good_as_none(folder: Folder, damage: Callable[[bytes], bytes]) -> None:
    folder.kept.write_bytes(damage(folder.kept.read_bytes()))
    assert folder.rows() == MADE and folder.made == 2
    folder.rows()
    assert folder.made == 2


def test_another_users_file_is_not_taken(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.getuid() + 1
    monkeypatch.setattr(row_cache.os, "getuid", lambda: uid)
    folder.rows()
    assert folder.made == 2


def test_a_cache_that_cannot_be_written_is_told_once_and_stops_nothing(tmp_path: Path) -> None:
    made = Folder(tmp_path)
    made.cache.write_text("no folder")
    assert made.rows() == MADE
    assert len(made.said) == 1 and "cannot be written: Not a directory" in made.said[0]


def test_rows_of_a_folder_that_changed_meanwhile_are_not_kept(tmp_path: Path) -> None:
    made = Folder(tmp_path)

    def compute(_recall: Recall) -> Made:
        (made.job / "result.json").write_text("a run stored this")
        return Made(MADE, QUERIES)

    row_cache.rows(made.root, ("RR@10",), compute, cache=made.cache)
    assert not (made.cache / "tables").exists()


def test_nothing_is_left_half_written(folder: Folder) -> None:
    names = {path.name for path in (folder.cache / "tables").iterdir()}
    assert names == {folder.kept.with_suffix(suffix).name for suffix in SUFFIXES}


def test_what_rows_are_made_of_by_query_is_kept_beside(folder: Folder) -> None:
    found = row_cache.by_query(folder.root, ("RR@10",), nobody, cache=folder.cache)
    (kept,), (made,) = found.values(), QUERIES
    assert (kept.key, kept.query_ids, kept.quantiles_s) == (made.key, made.query_ids, made.quantiles_s)
    np.testing.assert_array_equal(kept.latency_s, made.latency_s)
    np.testing.assert_array_equal(kept.measures["RR@10"], made.measures["RR@10"])


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"PAR1")])
def test_by_query_is_made_anew_where_it_is_lost(folder: Folder, spoil: Callable[[Path], None]) -> None:
    spoil(folder.kept.with_suffix(".queries.parquet"))
    made = row_cache.by_query(folder.root, ("RR@10",), lambda _recall: Made(MADE, QUERIES), cache=folder.cache)
    assert list(made) == [QUERIES[0].key]


def test_the_part_that_is_priced_is_kept_beside(folder: Folder) -> None:
    part = row_cache.rows(folder.root, ("RR@10",), nobody, cache=folder.cache, for_prices=True)
    assert part == row_cache.priceable(MADE)
    assert part.rows[0].latency_mean_s == MADE.rows[0].latency_mean_s and part.rows[0].notes == ()


def nobody(_recall: Recall) -> Made:
    raise AssertionError("rows were made again")


def test_without_a_cache_rows_are_made_each_time(folder: Folder) -> None:
    made = row_cache.rows(folder.root, ("RR@10",), lambda _recall: Made(MADE, QUERIES), cache=None)
    assert made is MADE


def test_a_folder_that_is_closed_to_us_is_named(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(row_cache.os, "scandir", closed)
    with pytest.raises(FileError, match="results: cannot be read: Permission denied; see to its permissions"):
        folder.rows()
