"""Stored results as data frames and files: typed columns, units and meanings; files are complete or absent."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import io
import sqlite3
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import harness
from harness import api
from harness.analysis.table import Row, Table, Timing
from harness.errors import FileError, StoreError, UsageError
from harness.estimate import Estimate
from harness.pricing.prices import PriceSelection
from harness.report import render, row_figures
from harness.report.columns import JOBS, SAMPLES, Kind
from harness.report.export import export_csv, export_parquet, export_sqlite
from harness.results import reader
from scripts.docs import generate
from tests.support import publisher, sample_records
from tests.support.command_line import call
from tests.support.publisher import Made
from tests.support.results_folders import QUERIES, job, put, replace

SHIPPED = Path(__file__).parents[2] / "results" / "published" / "santhanam2023"


@pytest.mark.slow
def test_frame_equals_the_csv_with_types(results: Path) -> None:
    made = harness.load(results, measures=["RR@10", "P@1"], as_of="2022-12-05")
    text = render(api.table(results, "RR@10 P@1", PriceSelection(datetime.date(2022, 12, 5))), "csv")
    lines = list(csv.reader(io.StringIO(text)))
    assert list(made.columns) == lines[0]
    assert len(made) == len(lines) - 1 == 6
    for cells, (_, row) in zip(lines[1:], made.iterrows(), strict=True):
        for name, cell in zip(lines[0], cells, strict=True):
            value = row[name]
            if cell == "":
                assert pd.isna(value), name
            elif isinstance(value, float):
                assert repr(value) == cell, name
            elif isinstance(value, pd.Timestamp):
                assert value == pd.Timestamp(cell), name
            else:
                assert str(value) == cell, name
    assert {str(dtype) for dtype in made.dtypes} >= {"string", "Float64", "Int64"}
    assert str(made.started_at.dt.tz) == "UTC" and made.price_date.dt.year.eq(2022).all()


@pytest.mark.slow
def test_missing_figure_is_never_0(results: Path) -> None:
    made = harness.load(results).set_index(["system", "scenario"])
    failed = made.loc[("greedy", "single_stream")]
    assert failed["outcome"] == "oom"
    for name in ("latency_mean_ms", "RR@10", "queries", "peak_anon_mib", "usd_per_million_queries"):
        assert failed[name] is pd.NA, name
    assert made.loc[("planted", "single_stream"), "throughput_qps"] is pd.NA
    assert made.loc[("planted", "offline"), "throughput_qps"] > 0


def test_frame_carries_units_prices_and_notes(results: Path) -> None:
    attrs = harness.load(results, as_of="2022-12-05").attrs
    assert attrs["units"]["latency_mean_ms"] == "ms" and attrs["units"].keys() == attrs["meanings"].keys()
    assert attrs["prices"]["date"] == "2022-12-05" and attrs["prices"]["region"] == "us-east-1"
    assert any(note.startswith("Latency mean") for note in attrs["notes"])


@pytest.mark.slow
def test_rows_are_cached_in_the_folder_of_the_command_line(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = harness.load(results)
    assert list((results.parent / "cache" / "tables").iterdir())
    monkeypatch.setattr(reader, "read_jobs", lambda *_: pytest.fail("rows were made again"))
    pd.testing.assert_frame_equal(harness.load(str(results)), before)
    with pytest.raises(pytest.fail.Exception):
        harness.load(results, cache=results.parent / "elsewhere")


@pytest.mark.slow
def test_published_tables_are_rows_too() -> None:
    made = harness.load(SHIPPED, as_of="2022-12-05")
    first = made[(made.suite == "santhanam2023") & (made.system == "BM25")].iloc[0]
    assert (first["RR@10"], first["latency_mean_ms"], first["instance_type"]) == (0.187, 11.0, "m6gd.medium")
    assert made.started_at.isna().all() and made.p50_ms.isna().all()
    assert {str(each.date()) for each in harness.load(SHIPPED).price_date} == {"2022-10-31"}, "of the paper's date"
    with pytest.raises(UsageError, match="published tables have rows alone"):
        harness.load_samples(SHIPPED)


def test_every_raw_sample_names_its_job(results: Path) -> None:
    made = harness.load_samples(results)
    jobs = reader.read_jobs(results)
    assert len(made) == sum(len(each.samples()) for each in jobs)
    assert {each.name for each in SAMPLES} <= set(made.columns)
    assert made.attrs["units"]["latency_s"] == "s"
    one = next(each for each in jobs if each.result.spec.cell.scenario == "server" and each.samples().num_rows)
    mine = made[(made.key == one.result.key)]
    raw = one.samples().to_pandas()
    assert mine.latency_s.tolist() == [value / 1e9 for value in raw.latency_ns]
    service_s = pd.array(raw.service_ns / 1e9, dtype="Float64")
    pd.testing.assert_extension_array_equal(mine.service_s.array, service_s)
    assert mine.service_s.notna().any()
    single = made[(made.scenario == "single_stream") & (made.system == "planted")]
    assert single.groupby("part").size().to_dict() == {"repeat": 8, "timed": 2 * (QUERIES - 2), "warmup": 4}
    assert single.batch.isna().all() and set(single.trial) == {-2, -1, 0, 1}


def test_damaged_samples_are_named_and_left_out(results: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole, folder = harness.load_samples(results), job(results)
    put(folder / reader.SAMPLES, b"no parquet")
    made = harness.load_samples(results)
    assert 0 < len(made) < len(whole) and folder.name not in set(made.key)
    assert f"{folder.name}/samples.parquet: cannot be read" in caplog.text
    for path in results.rglob(reader.SAMPLES):
        put(path, b"no parquet")
    with pytest.raises(UsageError, match=r"samples\.parquet: cannot be read: .* \(\d+ records more cannot be read\)"):
        harness.load_samples(results)


def test_malformed_date_is_refused(results: Path) -> None:
    with pytest.raises(UsageError, match="'soon' is not a date; write YYYY-MM-DD"):
        harness.load(results, as_of="soon")


def test_package_import_does_not_import_pandas() -> None:
    message = "import sys, harness; print('pandas' in sys.modules, 'load' in dir(harness)); harness.loaf"
    done = subprocess.run([sys.executable, "-c", message], capture_output=True, text=True, check=False)
    assert done.stdout == "False True\n"
    assert "module 'harness' has no attribute 'loaf'" in done.stderr


def test_every_column_is_documented_with_unit_and_meaning(results: Path) -> None:
    page = generate.columns_page()
    stored = row_figures.table_columns(api.table(results))
    known = {f"`{each.name}`" for each in row_figures.all_columns(["<measure>"], ["<stage>"])}
    for each in (*row_figures.all_columns([], []), *JOBS, *SAMPLES):
        assert f"| `{each.name}` | {each.unit} | {each.kind.value} | {each.meaning} |" in page
        assert each.meaning, each.name
        if each.kind is Kind.NUMBER and "(a fraction)" not in each.meaning:
            assert each.unit, f"{each.name}: a number without a unit"
    of_all = {f"`{each.name}`" for each in stored}
    measured = {f"`{name}{end}`" for name in ("RR@10", "Success@10", "nDCG@10") for end in ("", "_low", "_high")}
    assert of_all - measured <= known


@pytest.fixture
def table(results: Path) -> Table:
    return api.table(results)


@pytest.mark.slow
def test_parquet_holds_the_frame_with_units_on_its_columns(table: Table, results: Path) -> None:
    export_parquet(table, Path("out.parquet"))
    pd.testing.assert_frame_equal(pd.read_parquet("out.parquet"), harness.load(results))
    field = pq.read_schema("out.parquet").field("usd_per_million_queries")
    assert field.metadata[b"unit"] == b"US$" and b"a million queries" in field.metadata[b"meaning"]


@pytest.mark.slow
def test_sqlite_has_types_and_documents_itself(table: Table, results: Path) -> None:
    jobs = reader.read_jobs(results)
    export_sqlite(table, jobs, Path("out.db"), samples=True)
    connection = sqlite3.connect("out.db")
    rows = pd.read_sql("select * from rows", connection)
    assert list(rows.columns) == list(harness.load(results).columns)
    ok = rows[rows.outcome == "ok"]
    assert ok["RR@10"].dtype == float and ok["queries"].tolist() == [38.0] * 3
    ask = connection.execute
    types = "select typeof(queries), typeof(latency_mean_ms), typeof(price_date) from rows where p50_ms > 0"
    assert set(ask(types)) == {("integer", "real", "text")}
    assert ask("select count(*) from rows where outcome = 'oom' and latency_mean_ms is null").fetchone() == (3,)
    assert ask("select distinct price_date from rows").fetchall() == [("2026-07-20",)]
    started = ask("select started_at from jobs").fetchone()[0]
    assert pd.Timestamp(started) in {pd.Timestamp(each.result.started_at) for each in jobs}
    assert ask("select count(*) from jobs").fetchone() == (len(jobs),)
    assert ask("select count(*) from samples").fetchone() == (len(harness.load_samples(results)),)
    documented = set(ask('select "table", "column" from columns'))
    for name in ("rows", "jobs", "samples"):
        assert {column for each, column in documented if each == name} == {
            column for _, column, *_ in ask(f"pragma table_info({name})")
        }
    connection.close()


@pytest.mark.slow
def test_exported_tables_overwrite_nothing(table: Table) -> None:
    Path("out.csv").write_text("mine")
    with pytest.raises(FileError, match=r"out\.csv: exists already, and harness does not overwrite it"):
        export_csv(table, Path("out.csv"))
    with pytest.raises(FileError, match=r"none/out\.csv: the folder \S+ does not exist"):
        export_parquet(table, Path("none") / "out.csv")
    assert Path("out.csv").read_text() == "mine"


def with_stages(row: Row, *names: str) -> Row:
    return sample_records.row_with(row, stages_s={name: Timing(Estimate(0.1), Estimate(0.1)) for name in names})


@pytest.mark.slow
def test_failed_sqlite_export_leaves_no_file(table: Table) -> None:
    twice = dataclasses.replace(table, rows=(with_stages(table.rows[0], "Encode", "encode"),))
    with pytest.raises(StoreError, match="SQLite cannot hold it"):
        export_sqlite(twice, (), Path("out.db"))
    assert not Path("out.db").exists() and not list(Path().glob("out.db*"))
    export_parquet(twice, Path("out.parquet"))
    assert pd.read_parquet("out.parquet").stage_Encode_mean_ms.tolist() == [100.0]


def _store_samples(folder: Path, table: pa.Table) -> None:
    """Replace a job's samples, and the checksum that belongs to them."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    replace(folder, reader.SAMPLES, sink.getvalue().to_pybytes())


def _with_samples(folder: Path, columns: dict[str, list[int] | list[str]]) -> None:
    """Give a job samples with these values again and again."""
    table = pq.read_table(folder / reader.SAMPLES)
    for name, values in columns.items():
        column = pa.array(
            [values[row % 3] for row in range(len(table))], pa.string() if name == "query_id" else pa.int64()
        )
        place = table.column_names.index(name) if name in table.column_names else None
        table = table.append_column(name, column) if place is None else table.set_column(place, name, column)
    _store_samples(folder, table)


_MOST = (1 << 63) - 1
# Column -> the values of three samples.
EXTREMES: dict[str, dict[str, list[int] | list[str]]] = {
    "numbers": {
        "latency_ns": [_MOST, (1 << 53) + 1, -_MOST],
        "stage_x_ns": [_MOST, 0, -_MOST],
        "service_ns": [_MOST, 1, 2],
        "scheduled_ns": [_MOST, 1, 2],
        "count_tokens": [_MOST, -_MOST, 0],
        "batch": [_MOST, -_MOST, 0],
    },
    "ids": {"query_id": ["", "a\0b", "x" * 1024]},
    "other signs": {"query_id": ['=1+"1"', "a\nb\u2028c", "\U0010ffff"], 'stage_a"]; drop_ns': [1, 2, 3]},
    "stage with a zero byte": {"stage_a\0b_ns": [1, 2, 3]},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_samples_are_exported_as_they_are_or_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    publisher.put(Path("results"), Made("a", 2.0, jobs=1), queries=("q1", "q2", "q3"), measures=("RR@10",))
    _with_samples(job(Path("results"), "a"), EXTREMES[name])
    for form in ("csv", "parquet", "ir_metadata"):
        assert call("export", "results", "--format", form, "-o", form).exit_code == 0
    done = call("export", "results", "--format", "sqlite", "--samples", "-o", "out.db")
    if "\0" in "".join(EXTREMES[name]):
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1) and "export it as parquet" in done.stderr
        return
    assert done.exit_code == 0, done.stderr
    frame, connection = harness.load_samples("results"), sqlite3.connect("out.db")
    for column, values in EXTREMES[name].items():
        kept = f"{column[:-3]}_s" if column.endswith("_ns") else column
        if kept == column:
            assert frame[kept].tolist()[:3] == values
        else:
            assert frame[kept].tolist()[:3] == pytest.approx([int(value) / 1e9 for value in values], rel=1e-15)
        quoted = kept.replace('"', '""')
        stored = [value for (value,) in connection.execute(f'select "{quoted}" from samples')]
        assert stored == frame[kept].tolist()
    connection.close()


@pytest.mark.slow
def test_id_that_is_not_utf_8_is_named_and_its_job_left_out(results: Path) -> None:
    folder = job(results)
    table = pq.read_table(folder / reader.SAMPLES)
    ids = [b"\xff\xed\xa0\x80"] * len(table)
    column = pa.Array.from_buffers(pa.string(), len(ids), pa.array(ids, pa.binary()).buffers())
    _store_samples(folder, table.set_column(table.column_names.index("query_id"), "query_id", column))
    done = call("export", "results", "--format", "sqlite", "--samples", "-o", "out.db")
    assert (done.exit_code, done.stderr.count("\n")) == (0, 1), done.stderr
    assert "left out: " in done.stderr and "samples.parquet: cannot be read" in done.stderr


@pytest.mark.slow
def test_whole_numbers_beside_holes_stay_whole_beyond_2_53(results: Path) -> None:
    folder, most = job(results), 2**63 - 1
    table = pq.read_table(folder / reader.SAMPLES)
    numbers = pa.array([None, *[most] * (len(table) - 1)], pa.int64())
    _store_samples(folder, table.append_column("count_x", numbers).append_column("batch", numbers))
    done = call("export", "results", "--format", "sqlite", "--samples", "-o", "out.db")
    assert done.exit_code == 0, done.output
    assert sqlite3.connect("out.db").execute("select max(batch), max(count_x) from samples").fetchone() == (most, most)
