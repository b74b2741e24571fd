"""What is exported reads back in one line as what was meant."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import harness
from harness import api
from harness.analysis.table import Row, Table, Timing
from harness.errors import FileError, StoreError
from harness.report.export import export_csv, export_parquet, export_sqlite
from harness.results import reader
from harness.stats import Estimate


@pytest.fixture
def table(results: Path) -> Table:
    return api.table(results)


def test_parquet_is_the_frame_with_units_at_its_columns(table: Table, results: Path) -> None:
    export_parquet(table, Path("out.parquet"))
    pd.testing.assert_frame_equal(pd.read_parquet("out.parquet"), harness.load(results))
    field = pq.read_schema("out.parquet").field("usd_per_million_queries")
    assert field.metadata[b"unit"] == b"US$" and b"a million queries" in field.metadata[b"meaning"]


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


def test_csv_is_that_of_the_report(table: Table) -> None:
    export_csv(table, Path("out.csv"))
    assert len(pd.read_csv("out.csv")) == len(table.rows)


def test_exported_tables_overwrite_nothing(table: Table) -> None:
    Path("out.csv").write_text("mine")
    with pytest.raises(FileError, match=r"out\.csv: is there already, and nothing is overwritten"):
        export_csv(table, Path("out.csv"))
    with pytest.raises(FileError, match=r"none/out\.csv: there is no folder"):
        export_parquet(table, Path("none") / "out.csv")
    assert Path("out.csv").read_text() == "mine"


def with_stages(row: Row, *names: str) -> Row:
    return dataclasses.replace(row, stages_s={name: Timing(Estimate(0.1), Estimate(0.1)) for name in names})


def test_what_a_database_cannot_hold_leaves_none_behind(table: Table) -> None:
    twice = dataclasses.replace(table, rows=(with_stages(table.rows[0], "Encode", "encode"),))
    with pytest.raises(StoreError, match="SQLite cannot hold it"):
        export_sqlite(twice, (), Path("out.db"))
    assert not Path("out.db").exists() and not list(Path().glob("out.db*"))
    export_parquet(twice, Path("out.parquet"))
    assert pd.read_parquet("out.parquet").stage_Encode_mean_ms.tolist() == [100.0]
