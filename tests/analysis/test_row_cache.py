"""Cached rows are used for exactly these files, read by exactly this code; otherwise only changed cells are rebuilt."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.analysis import cell_summary, results_folder, row_cache
from harness.analysis.row_cache import CellRow, RowCache, RowSet
from harness.analysis.table import Latency, Overhead, Row, Table, Timing, Validity
from harness.analysis.verdict import ComparisonVerdict, QualityDifference
from harness.driver.records import Envelope, Outcome
from harness.errors import FileError
from harness.estimate import Estimate
from harness.evaluation import per_query
from harness.evaluation.per_query import SHARES, PerQuery
from harness.results.isolation import CONTAINER
from harness.results.reader import RUN
from tests.support import publisher, sample_records
from tests.support.publisher import Made

VALUES = PerQuery("k1", ("q1", "q2"), np.array([0.1 + 0.2, np.nan]), {"RR@10": np.array([1.0, 1 / 3])}, tuple(SHARES))
ROW = sample_records.row(
    latency_mean_s=Estimate(0.1 + 0.2, 1e-9, None, "said"),
    stages_s={"search": Timing(Estimate(1e-3), Estimate(None, reason="none"))},
    measures={"RR@10": Estimate(1 / 3, 0.1, 0.5)},
    build_envelope=Envelope("cpu2-mem4", 2, 4 << 30),
    build_machine=sample_records.MACHINE,
    notes=("a note", 'ä \u2028 and , ] " \\'),
    index_bytes=(1 << 53) + 1,
)
TAKEN = Latency(mean_s=Estimate(1e-4))
OVERHEAD = Overhead("suite", "cpu1", CONTAINER, Outcome.OK, None, Validity.CLEAN, (), "k0", TAKEN)
TABLE = Table((ROW, sample_records.row(key="k2", suite="other")), ("RR@10",), overhead=(OVERHEAD,))
BUILT = RowSet(TABLE, (CellRow(ROW, "stamp", replace(VALUES, key=ROW.per_query_key)), CellRow(TABLE.rows[1])))


class Folder:
    """A results folder whose rows are counted each time they are built."""

    def __init__(self, place: Path) -> None:
        self.root, self.home = place / "results", place / "cache"
        self.job = self.root / "suite" / "bm25" / "set" / "single_stream" / "cpu1" / "k1"
        self.job.mkdir(parents=True)
        for name in ("result.json", "samples.parquet", "run.trec.gz", "log.txt.gz"):
            (self.job / name).write_text(name)
        for name in ("qrels", "samples"):
            (self.root / "suite" / name).mkdir()
            (self.root / "suite" / name / "x.gz").write_text(name)
        self.built = 0

    def cache(self, *measures: str, root: Path | None = None) -> RowCache:
        return RowCache(self.home, root or self.root, measures or ("RR@10",))

    def rows(self, *measures: str, root: Path | None = None) -> Table:
        cache = self.cache(*measures, root=root)
        if (table := cache.table()) is not None:
            return table
        self.built += 1
        cache.write(BUILT)
        return BUILT.table

    @property
    def file(self) -> Path:
        (path,) = (self.home / "tables").glob("*.rows.cache")
        return path


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path)
    assert made.rows() == TABLE and made.built == 1
    return made


def test_cached_rows_read_back_bit_for_bit(folder: Folder) -> None:
    assert folder.rows() == TABLE
    assert folder.built == 1
    for row, again in zip(TABLE.rows, folder.rows().rows, strict=True):
        assert {field.name: type(getattr(again, field.name)) for field in fields(Row)} == {
            field.name: type(getattr(row, field.name)) for field in fields(Row)
        }


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
def test_change_to_a_stored_file_rebuilds_rows_once(folder: Folder, change: Callable[[Folder], object]) -> None:
    change(folder)
    folder.rows()
    assert folder.built == 2
    folder.rows()
    assert folder.built == 2


def test_change_to_an_unrelated_file_keeps_the_cache(folder: Folder) -> None:
    (folder.job / "log.txt.gz").write_text("another log")
    (folder.root / "suite" / "report.md").write_text("a report")
    staging = folder.root / "suite" / ".staging" / "job"
    staging.mkdir(parents=True)
    (staging / "result.json").write_text("in the making")
    folder.rows()
    assert folder.built == 1


def test_change_to_judgements_above_the_folder_rebuilds_rows(folder: Folder) -> None:
    folder.rows(root=folder.job.parent)
    (folder.root / "suite" / "qrels" / "x.gz").write_text("judged otherwise")
    folder.rows(root=folder.job.parent)
    assert folder.built == 3


def test_other_measures_folders_and_judgements_have_separate_rows(folder: Folder) -> None:
    folder.rows("nDCG@10")
    folder.rows(root=folder.root / "suite")
    assert folder.built == 3
    assert len(list((folder.home / "tables").glob("*.rows.cache"))) == 3
    assert RowCache(folder.home, folder.root, ("RR@10",), "other qrels").table() is None


@pytest.mark.parametrize(("name", "value"), [("_code", "changed"), ("os.getuid", os.getuid() + 1)])
def test_changed_code_and_another_user_rebuild_rows(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(f"harness.analysis.row_cache.{name}", lambda: value)
    folder.rows()
    assert folder.built == 2


def test_code_hash_covers_every_source_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "one.py").write_text("a = 1")
    monkeypatch.setattr(row_cache.harness, "__file__", str(tmp_path / "__init__.py"))
    before = row_cache._code.__wrapped__()
    assert row_cache._code.__wrapped__() == before
    (tmp_path / "below" / "one.py").write_text("a = 2")
    assert row_cache._code.__wrapped__() != before


def _flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: _flip(content, 60),
        lambda content: _flip(content, len(content) // 4),
        lambda content: b"\xff\xfe" + content,
        lambda content: content[:-9] + b"\x00" * 9,
        lambda content: b'{"rows": []}',
    ],
)
def test_damaged_cache_is_ignored_and_rewritten(folder: Folder, damage: Callable[[bytes], bytes]) -> None:
    folder.file.write_bytes(damage(folder.file.read_bytes()))
    assert folder.rows() == TABLE and folder.built == 2
    folder.rows()
    assert folder.built == 2


def test_cache_with_other_records_is_ignored(folder: Folder) -> None:
    header, _, packed = folder.file.read_bytes().partition(b"\n")
    table, evidence = gzip.decompress(packed).split(b"\n")
    for other in (table.replace(b'"system":"bm25"', b'"system":1'), table.replace(b'"measures":{', b'"measures":[{')):
        assert other != table
        folder.file.write_bytes(header + b"\n" + gzip.compress(other + b"\n" + evidence))
        assert folder.cache().table() is None
    folder.file.write_bytes(header + b"\n" + gzip.compress(table))
    assert folder.cache().table() is None


def test_unwritable_cache_is_logged_once_and_rows_are_still_built(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    made = Folder(tmp_path)
    made.home.write_text("no folder")
    assert made.rows() == TABLE
    assert [message.partition(": ")[2].partition(";")[0] for message in caplog.messages] == [
        "cannot be written: Not a directory"
    ]


def test_rows_are_not_cached_if_the_folder_changes_during_the_build(tmp_path: Path) -> None:
    made = Folder(tmp_path)
    cache = made.cache()
    (made.job / "result.json").write_text("a run stored this")
    cache.write(BUILT)
    assert not (made.home / "tables").exists()


def test_cached_values_by_query_read_back_bit_for_bit(folder: Folder) -> None:
    (again,) = (folder.cache().per_query() or {}).values()
    assert (again.key, again.query_ids, again.quantiles_s) == (ROW.key, VALUES.query_ids, VALUES.quantiles_s)
    np.testing.assert_array_equal(again.latency_s, VALUES.latency_s)
    np.testing.assert_array_equal(again.measures["RR@10"], VALUES.measures["RR@10"])


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"PAR1")])
def test_damaged_values_by_query_are_missing_not_empty(folder: Folder, spoil: Callable[[Path], None]) -> None:
    spoil(folder.file.with_name(folder.file.name.replace(".rows.cache", ".queries.parquet")))
    assert folder.cache().per_query() is None
    assert folder.cache().cells() == {}


def test_unreadable_folder_is_named(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(row_cache.os, "scandir", closed)
    with pytest.raises(FileError, match="results: cannot be read: Permission denied; see to its permissions"):
        folder.rows()


@pytest.fixture
def summarised(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The systems whose samples are read."""
    systems: list[str] = []
    real = cell_summary.summarise

    def summarise(jobs: Any, **options: Any) -> Any:
        systems.append(jobs[0].result.spec.cell.system)
        return real(jobs, **options)

    monkeypatch.setattr(cell_summary, "summarise", summarise)
    yield systems


@pytest.fixture
def results(tmp_path: Path) -> Path:
    root = tmp_path / "results"
    publisher.put(
        root, Made("a", 2.0, (1, 2)), Made("b", 5.0, (0, 2)), Made("dead", 1.0, outcome=publisher.Outcome.OOM)
    )
    return root


@pytest.mark.slow
def test_rows_and_values_come_from_one_reading(
    results: Path, summarised: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anew = results_folder.read(results)
    assert anew.per_query.keys() == {row.per_query_key for row in anew.table.rows if row.outcome is Outcome.OK}
    assert sorted(summarised) == ["a", "b"], "each cell once, without a cache too"
    results_folder.read(results, cache=tmp_path / "cache")
    walks = []
    stamp = row_cache.folder_stamp
    monkeypatch.setattr(row_cache, "folder_stamp", lambda folder: walks.append(folder) or stamp(folder))
    cached = results_folder.read(results, cache=tmp_path / "cache")
    assert cached.table == anew.table and cached.per_query.keys() == anew.per_query.keys()
    assert walks == [results]


def _compared(results: Path, cache: Path | None, candidates: int = 1) -> QualityDifference:
    """Read the folder, and compare its system b with a."""
    found = results_folder.read(results, cache=cache)
    rows = {row.system: row for row in found.table.rows}
    return found.compare(rows["a"], rows["b"], "nDCG@10", candidates)


def _kept(cache: Path) -> Path:
    (path,) = (cache / "tables").glob("*.tests.cache")
    return path


@pytest.mark.slow
def test_a_kept_test_needs_no_values_by_query(results: Path, summarised: list[str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = _compared(results, cache)
    assert first == _compared(results, None) and first.verdict is ComparisonVerdict.WORSE
    assert (first.a, first.b) == (pytest.approx((1 + 1 / np.log2(3)) / 2), pytest.approx(1 / np.log2(3) / 2))
    summarised.clear()
    values = _kept(cache).with_name(_kept(cache).name.replace(".tests.cache", ".queries.parquet"))
    values.unlink()
    assert _compared(results, cache) == first
    assert summarised == [] and not values.exists(), "the rows' values were neither read nor made"


@pytest.mark.slow
def test_other_inputs_have_tests_of_their_own(results: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    alone, of_many = _compared(results, cache), _compared(results, cache, 200)
    assert of_many == _compared(results, None, 200) != alone == _compared(results, cache)
    found = results_folder.read(results, cache=cache)
    a, b = (next(row for row in found.table.rows if row.system == name) for name in "ab")
    assert found.compare(b, a, "nDCG@10", 1).verdict is ComparisonVerdict.BETTER
    other = found.compare(a, replace(b, measures={"nDCG@10": Estimate(0.25)}), "nDCG@10", 1)
    assert other.b == 0.25, "a row that is not the cached one"


@pytest.mark.slow
def test_a_changed_run_is_tested_again(results: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    before = _compared(results, cache)
    for path in (results / "quick" / "a").rglob(RUN):
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"right", b"other")))
    after = _compared(results, cache)
    assert (after.a, after.verdict) == (0.0, ComparisonVerdict.BETTER) != (before.a, before.verdict)
    assert after == _compared(results, None) == _compared(results, cache)


def _with_other_record(content: bytes) -> bytes:
    stamp, _, packed = content.partition(b"\n")
    return stamp + b"\n" + gzip.compress(gzip.decompress(packed).replace(b'"verdict":"worse"', b'"verdict":"fine"'))


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: _flip(content, 3),
        lambda content: content.partition(b"\n")[0] + b"\n" + gzip.compress(b"{}\n{}"),
        _with_other_record,
    ],
)
def test_a_damaged_kept_test_is_ignored_and_replaced(
    results: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    cache = tmp_path / "cache"
    first, whole = _compared(results, cache), _kept(cache).read_bytes()
    _kept(cache).write_bytes(damage(whole))
    assert _kept(cache).read_bytes() != whole
    assert _compared(results, cache) == first
    assert gzip.decompress(_kept(cache).read_bytes().partition(b"\n")[2]) == gzip.decompress(whole.partition(b"\n")[2])


def test_a_test_is_not_kept_if_the_folder_changes_meanwhile(folder: Folder) -> None:
    made = QualityDifference(0.5, 0.25, Estimate(-0.25), ComparisonVerdict.NONE, "none")

    def compute() -> QualityDifference:
        (folder.job / "result.json").write_text("a run stored this")
        return made

    assert folder.cache().test(("first",), compute) == made
    assert list((folder.home / "tables").glob("*.tests.cache")) == []
    assert folder.cache().test(("first",), lambda: made) == made
    assert _kept(folder.home).is_file()


@pytest.mark.slow
def test_another_users_kept_test_is_ignored(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    first = _compared(results, cache)
    stamp, _, packed = _kept(cache).read_bytes().partition(b"\n")
    planted = gzip.decompress(packed).replace(b'"verdict":"worse"', b'"verdict":"better"')
    _kept(cache).write_bytes(stamp + b"\n" + gzip.compress(planted))
    assert _compared(results, cache).verdict is ComparisonVerdict.BETTER, "the planted test is whole"
    monkeypatch.setattr("harness.analysis.row_cache.os.getuid", lambda: os.geteuid() + 1)
    assert _compared(results, cache) == first


@pytest.mark.slow
@pytest.mark.parametrize("odd", [os.mkfifo, Path.mkdir])
def test_an_odd_thing_in_place_of_kept_tests_is_no_obstacle(
    results: Path, tmp_path: Path, odd: Callable[[Path], object]
) -> None:
    cache = tmp_path / "cache"
    first = _compared(results, cache)
    path = _kept(cache)
    path.unlink()
    odd(path)
    assert _compared(results, cache) == _compared(results, cache) == first


@pytest.mark.slow
def test_only_cells_with_new_files_are_rebuilt(results: Path, summarised: list[str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    results_folder.read(results, cache=cache)
    assert sorted(summarised) == ["a", "b"]
    summarised.clear()
    publisher.put(results, Made("c", 9.0))
    after = results_folder.read(results, cache=cache).table
    assert summarised == ["c"]
    summarised.clear()
    assert after == results_folder.read(results, cache=cache).table == results_folder.read(results).table
    assert sorted(summarised) == ["a", "b", "c"], "without a cache rows are built each time"
    by_query = results_folder.read(results, cache=cache).per_query
    anew = results_folder.read(results).per_query
    assert by_query.keys() == anew.keys()
    for name, values in by_query.items():
        assert values.latency_s.tolist() == anew[name].latency_s.tolist()
        assert values.measures["nDCG@10"].tolist() == anew[name].measures["nDCG@10"].tolist()


@pytest.mark.slow
def test_verdict_that_depends_on_other_cells_is_rebuilt(results: Path, tmp_path: Path) -> None:
    """A slow machine is slow against the median of all jobs, so a row's validity may change while its cell does not."""
    cache = tmp_path / "cache"
    results_folder.read(results, cache=cache)
    publisher.put(results, *(Made(f"more{number}", 2.0, canary_s=0.02) for number in range(4)))
    after = results_folder.read(results, cache=cache).table
    assert after == results_folder.read(results).table


@pytest.mark.slow
def test_a_changed_run_rebuilds_its_cell(results: Path, summarised: list[str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    results_folder.read(results, cache=cache)
    summarised.clear()
    path = next((results / "quick" / "a").rglob(RUN))
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"right", b"other")))
    after = results_folder.read(results, cache=cache).table
    assert summarised == ["a"]
    assert after == results_folder.read(results).table


@pytest.mark.slow
@pytest.mark.parametrize("odd", [os.mkfifo, Path.mkdir])
def test_rows_are_made_anew_where_their_cache_is_an_odd_thing(results: Path, odd: Callable[[Path], object]) -> None:
    cache = results.parent / "cache"
    rows = results_folder.read(results, cache=cache).table
    (path,) = (cache / "tables").glob("*.rows.cache")
    path.unlink()
    odd(path)
    assert results_folder.read(results, cache=cache).table == rows


@pytest.mark.parametrize("odd", [os.mkfifo, Path.mkdir])
def test_an_odd_thing_in_place_of_values_by_query_holds_none(tmp_path: Path, odd: Callable[[Path], object]) -> None:
    odd(tmp_path / "x.queries.parquet")
    assert per_query.read(tmp_path / "x.queries.parquet", "stamp") is None
