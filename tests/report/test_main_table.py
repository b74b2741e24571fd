"""The table of results in every format."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path

import pytest

from harness import report, untrusted
from harness.analysis.table import Table
from harness.errors import UnknownName
from harness.estimate import Estimate, too_few_processes
from harness.report import main_table, writers
from harness.report.document import Section
from harness.untrusted import ForeignText
from tests.support import sample_records


def cells_of(section: Section, place: int) -> dict[str, str]:
    """The cells of a row by their headers."""
    (sheet, *_) = section.grids
    return dict(zip(sheet.headers, sheet.cells[place], strict=True))


@pytest.mark.parametrize("format", ["md", "csv", "json"])
def test_report_renders_the_golden_files(table: Table, golden: Path, format: str) -> None:
    assert report.render(table, format).encode() == (golden / f"report.{format}").read_bytes()


def test_report_does_not_depend_on_the_environment(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {format: report.render(table, format) for format in report.FORMATS}
    for name, value in {"COLUMNS": "33", "NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "dumb", "LC_ALL": "C"}.items():
        monkeypatch.setenv(name, value)
    assert {format: report.render(table, format) for format in report.FORMATS} == before


def test_report_refuses_an_unknown_format(table: Table) -> None:
    with pytest.raises(UnknownName, match=r"unknown format 'mdd'. Did you mean 'md'"):
        report.render(table, "mdd")


def test_gpu_memory_has_a_column_only_with_a_gpu(table: Table) -> None:
    assert not any("GPU" in header for header in main_table.table_section(table, str).grids[0].headers)
    with_gpu = sample_records.row_with(table.rows[2], gpus=1, peak_gpu_bytes=3 << 30)
    unread = dataclasses.replace(table.rows[3], gpus=1)
    section = main_table.table_section(dataclasses.replace(table, rows=(with_gpu, unread, table.rows[4])), str)
    sheet = section.grids[0]
    column = sheet.headers.index("peak GPU, MiB")
    first, second, third = (row[column] for row in sheet.cells)
    assert first == "3072"
    assert second.startswith("— [")
    assert third == "—"


def test_engine_of_the_rows_is_named_once(table: Table) -> None:
    def text(version: str) -> str:
        rows = [
            dataclasses.replace(
                row, machine=row.machine and dataclasses.replace(row.machine, docker_version=ForeignText(version))
            )
            for row in table.rows
        ]
        return report.render(dataclasses.replace(table, rows=tuple(rows)), "md")

    assert "Docker 27.1, " in text("27.1")
    assert "Podman 4.3.1, " in text("Podman 4.3.1") and "Docker" not in text("Podman 4.3.1")


def test_row_of_the_papers_warm_up_is_marked_in_its_cell(table: Table) -> None:
    rows = (*table.rows[:2], dataclasses.replace(table.rows[2], one_pass_warmup=10), *table.rows[3:])
    section = main_table.table_section(dataclasses.replace(table, rows=rows), untrusted.one_line)
    cells = [cells_of(section, place)["latency mean (95 %), ms"] for place in range(len(rows))]
    assert cells[2] == "1.63 (1.56–1.72) after 10 warm-up queries"
    assert not any("warm-up" in cell for cell in (*cells[:2], *cells[3:]))


def test_interval_of_too_few_processes_is_a_dash_with_its_reason(table: Table) -> None:
    reason = too_few_processes(2)
    few = sample_records.row_with(table.rows[2], jobs=2, latency_mean_s=Estimate(0.0016, reason=reason))
    alone = dataclasses.replace(table, rows=(*table.rows[:2], few, *table.rows[3:]))
    section = main_table.table_section(alone, str)
    assert cells_of(section, 2)["latency mean (95 %), ms"].startswith("1.60 (—)")
    assert any(reason in each for each in section.footnotes)
    record = json.loads(report.render(alone, "json"))["rows"][2]
    assert record["latency"]["mean_s"] == {"value": 0.0016, "low": None, "high": None, "reason": reason}
    (line,) = [
        each for each in csv.DictReader(io.StringIO(report.render(alone, "csv"))) if each["latency_mean_ms"] == "1.6"
    ]
    assert (line["latency_mean_ms_low"], line["latency_mean_ms_high"]) == ("", "")


def test_throughput_has_a_column_only_if_a_scenario_measures_it(table: Table) -> None:
    assert not any("throughput" in header for header in main_table.table_section(table, str).grids[0].headers)
    batches = Estimate(812.25, 800.0, 825.0, reason="interval for these queries, over 5 jobs")
    offline = dataclasses.replace(table.rows[2], scenario="offline", throughput_qps=batches)
    none = dataclasses.replace(table.rows[3], scenario="server", throughput_qps=Estimate(None, reason="no rate"))
    one_end = dataclasses.replace(none, throughput_qps=Estimate(55.5, None, 60.0, reason="in 1 of 5 jobs no rate"))
    section = main_table.table_section(dataclasses.replace(table, rows=(offline, none, one_end, table.rows[4])), str)
    sheet = section.grids[0]
    column = sheet.headers.index("throughput (interval), queries/s")
    cells = [row[column].partition(" [")[0] for row in sheet.cells]
    assert cells == ["812 (800–825)", "—", "55.5 (?–60.0)", "—"]
    assert {"interval for these queries, over 5 jobs", "no rate", "in 1 of 5 jobs no rate"} <= set(section.footnotes)


def test_each_cost_has_a_column_and_saturated_cost_only_if_a_scenario_measures_it(table: Table) -> None:
    offline = sample_records.row_with(
        table.rows[2],
        scenario="offline",
        usd_per_million=Estimate(None, reason="batches price no query"),
        usd_per_million_saturated=Estimate(0.0123, 0.0120, 0.0126, reason="no latency target"),
    )
    single = sample_records.row_with(
        table.rows[3], usd_per_million_saturated=Estimate(None, reason="measure scenario server")
    )
    section = main_table.table_section(dataclasses.replace(table, rows=(offline, single)), str)
    first, second = cells_of(section, 0), cells_of(section, 1)
    one, other = (f"US$ per million queries (interval), {name}" for name in ("sequential", "saturated"))
    assert (first[other].partition(" [")[0], first[one].partition(" ")[0]) == ("0.0123 (0.0120–0.0126)", "—")
    assert (second[one], second[other].partition(" ")[0]) == ("0.0868 (0.0826–0.0911)", "—")
    assert {"no latency target", "batches price no query", "measure scenario server"} <= set(section.footnotes)


def test_build_of_an_index_has_its_machine_and_doubts_as_footnotes(table: Table) -> None:
    section = main_table.table_section(table, str)
    assert cells_of(section, 2)["index build, s"].startswith("12.5 ~ [")
    assert "built on 2 CPUs, 4 GiB of AMD EPYC 9B14" in section.footnotes
    assert "built on 2 CPUs, 4 GiB of an unknown machine, or several" in section.footnotes
    bare = tuple(sample_records.row_with(row, index_build_s=None) for row in table.rows)
    headers = main_table.table_section(dataclasses.replace(table, rows=bare), str).grids[0].headers
    assert "index build, s" not in headers


def test_several_datasets_have_a_column(table: Table) -> None:
    other = dataclasses.replace(table.rows[2], dataset="arg|uana")
    section = main_table.table_section(dataclasses.replace(table, rows=(table.rows[2], other)), writers.markdown_escape)
    sheet = section.grids[0]
    assert sheet.caption == "suite quickstart, scenario single_stream"
    assert sheet.headers[:3] == ("system", "dataset", "hardware profile")
    assert [row[1] for row in sheet.cells] == ["scifact", r"arg\|uana"]
    assert sheet.keys == 3


def test_differing_machines_have_a_footnote_at_their_rows(table: Table) -> None:
    other = dataclasses.replace(table.rows[4].machine, cpu_model=ForeignText("Other CPU"))
    rows = (table.rows[2], dataclasses.replace(table.rows[4], machine=other))
    section = main_table.table_section(dataclasses.replace(table, rows=rows), untrusted.one_line)
    assert not any(note.startswith("Measured on") for note in section.notes)
    content = [note for note in section.footnotes if note.startswith("Measured on")]
    assert [note.split(" (")[0] for note in content] == ["Measured on: AMD EPYC 9B14", "Measured on: Other CPU"]


def test_report_of_empty_results_says_that_nothing_is_stored(empty: Table) -> None:
    assert report.render(empty, "md") == "No stored results.\n"
    assert json.loads(report.render(empty, "json"))["rows"] == []
    assert report.render(empty, "csv").count("\n") == 1


def test_report_marks_a_changed_checkout(table: Table) -> None:
    first = table.rows[2]
    changed = dataclasses.replace(
        first, machine=dataclasses.replace(first.machine, harness_commit="0123456789abcdef-dirty")
    )
    assert "harness 0.1.0 (0123456789ab with changes)" in report.render(
        dataclasses.replace(table, rows=(changed,)), "md"
    )
    assert "harness 0.1.0 (0123456789ab)" in report.render(dataclasses.replace(table, rows=(first,)), "md")
