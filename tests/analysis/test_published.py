"""Published tables: read as printed, turned into marked rows; a damaged folder is one line that says where."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from harness import report
from harness.analysis import published as published_tables
from harness.analysis import row_pricing
from harness.analysis.published import NAME, Hardware, Printed, Published
from harness.analysis.table import Row, Table
from harness.errors import FileError
from harness.estimate import Estimate
from harness.pricing import instances
from harness.pricing.prices import Snapshot
from harness.results.isolation import PUBLISHED
from tests.published_study.conftest import Spoil
from tests.support.published import alter, copy, shipped

TABLE_2, TABLE_3A = "table2_minimum_viable.csv", "table3a_msmarco.csv"


@pytest.fixture(scope="module")
def published() -> Published:
    return shipped()


@pytest.fixture(scope="module")
def follows(published: Published) -> Snapshot:
    return published.follows()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copy(tmp_path)


@pytest.fixture
def altered(folder: Path) -> Spoil:
    return partial(alter, folder)


def test_printed_digits_are_kept() -> None:
    assert str(Printed("14.90")) == "14.90"
    assert Printed("14.90").decimals == 2
    assert Printed("14.90") != Printed("14.9")


@pytest.mark.parametrize("text", ["", "-1", "1e3", "nan", "1,5", ".5", "5.", "٣", " 1", "1\n"])
def test_malformed_figures_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a number as papers print them"):
        Printed(text)


def test_all_rows_are_read_with_their_digits(published: Published) -> None:
    assert [len(published.table1), len(published.table2), len(published.table3c)] == [15, 10, 12]
    assert {name: len(lines) for name, lines in published.table3.items()} == {"msmarco": 28, "xortydi": 24}
    assert {name: len(lines) for name, lines in published.scores.items()} == {
        **dict.fromkeys(("4a", "7b", "7c", "7d"), 28),
        **dict.fromkeys(("4b", "8b", "8c", "8d"), 24),
    }
    assert str(published.table3["msmarco"][4].cost_usd_per_million) == "14.90"
    assert published.table1[8].latency_ms is None  # RocketQAv2: the paper has none, and none is not 0


def test_every_row_of_table_2_has_a_latency_of_table_1(published: Published) -> None:
    taken = {line.system: published.latency_of(line) for line in published.table2}
    latency, row = taken["BM25"]
    assert (str(latency), row and row.reference) == ("4", "Lassance and Clinchant 2022")
    assert len(taken) == 10


def test_every_hardware_of_table_3_is_a_hardware_profile(published: Published) -> None:
    known = instances.hardware_profiles()
    for line in (each for part in published.table3.values() for each in part):
        profile = known[line.hardware.profile]
        assert (profile.cpus, profile.memory_bytes, profile.gpus) == (line.cpu, line.hardware.memory_bytes, line.gpu)


def test_hardware_within_compares_gpus_cpus_and_memory() -> None:
    assert Hardware(0, 1, 4).within(Hardware(0, 1, 4))
    for other in (Hardware(0, 2, 8), Hardware(1, 1, 8), Hardware(1, 2, 4)):
        assert not Hardware(1, 2, 8).within(other)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (TABLE_3A, ",11,0.14", ",11,fourteen", f"{TABLE_3A}:2: key 'cost_usd_per_million': 'fourteen'"),
        (TABLE_3A, ",11,0.14", ",-11,0.14", f"{TABLE_3A}:2: key 'latency_ms': '-11' is not a number"),
        (TABLE_3A, ",14.90", ",14.9", f"{TABLE_3A}:6: cost_usd_per_million: '14.9' has 1 digits behind the point"),
        (TABLE_3A, ",11,0.14", ",,0.14", f"{TABLE_3A}:2: key 'latency_ms' is empty"),
        (TABLE_3A, "BM25,0,1,4,", "BM25,none,1,4,", f"{TABLE_3A}:2: key 'gpu': 'none' is not a whole number"),
        (TABLE_3A, "BM25,0,1,4,", ",0,1,4,", f"{TABLE_3A}:2: key 'system' is empty"),
        (TABLE_3A, ",11,0.14", ",11", f"{TABLE_3A}:2: 6 fields, must be 7"),
        (TABLE_2, "system,gpu", "system,gpus", f"{TABLE_2}:1: the header is"),
        (NAME, "index_gib = 0", "# none", "table1_posthoc.csv:2: index_gib: [decimals] of published.toml"),
        (NAME, "pages =", "page =", "unknown key 'page'. Did you mean 'pages'?"),
        (NAME, "year = 2023", 'year = "2023"', "key 'year'"),
        (NAME, TABLE_3A, "table3a.csv", "table3a.csv: no such file; published.toml names it"),
    ],
)
def test_damaged_folder_raises_one_line(altered: Spoil, name: str, old: str, new: str, message: str) -> None:
    with pytest.raises(FileError) as caught:
        altered(name, old, new)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_empty_table_is_refused(folder: Path) -> None:
    path = folder / TABLE_2
    path.write_text(path.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")
    with pytest.raises(FileError, match="holds no row"):
        published_tables.read(folder)


def test_row_without_latency_source_raises_one_line(altered: Spoil) -> None:
    unnamed = altered(TABLE_2, "\nANCE,", "\nAnce,")
    with pytest.raises(FileError, match=r"no \[\[table2\]\] says whose latency 'Ance' has"):
        unnamed.latency_of(unnamed.table2[5])
    altered(TABLE_2, "\nAnce,", "\nANCE,")
    without = altered("table1_posthoc.csv", "33.0,12,", "33.0,,")
    with pytest.raises(FileError, match="Table 1 has no latency of 'ANCE'"):
        without.latency_of(without.table2[5])


@pytest.fixture(scope="module")
def table(published: Published, follows: Snapshot) -> Table:
    return row_pricing.price(published_tables.published_table(published, follows), row_pricing.tariff(follows))


def of_table_3(table: Table, dataset: str) -> list[Row]:
    return [row for row in table.rows if (row.suite, row.dataset) == ("santhanam2023", dataset)]


def test_every_row_of_table_3_is_marked_published(table: Table) -> None:
    assert len(of_table_3(table, "msmarco")) == 28
    assert len(of_table_3(table, "xortydi")) == 24
    assert sum(row.suite == "santhanam2023-table2" for row in table.rows) == 10
    assert {row.isolation for row in table.rows} == {PUBLISHED}
    assert all(published_tables.NOT_JUDGED in row.notes for row in table.rows)
    assert len({row.key for row in table.rows}) == 62


def test_row_has_the_printed_figures_in_report_units(table: Table) -> None:
    (row,) = (each for each in of_table_3(table, "xortydi") if each.key == "santhanam2023/table3b/5")
    assert (row.system, row.profile, row.published_type) == ("ColBERTv2-L", "cpu1-mem64", "x2gd.xlarge")
    assert row.latency.mean_s == Estimate(1.107)
    assert row.usd_per_million.value == pytest.approx(102.70, abs=0.005), "made again; the paper prints 102.74"
    assert row.measures == {"RR@10": Estimate(0.474), "Success@10": Estimate(0.66)}
    assert (row.cpus, row.memory_limit_bytes, row.gpus) == (1, 64 * 2**30, 0)
    assert (row.queries, row.trials) == (1000, 5)
    assert row.price is not None and row.price.usd_per_hour == 0.334


def test_figures_that_need_samples_are_missing_with_a_reason(table: Table) -> None:
    for row in table.rows:
        for figure in (row.latency.p50_s, row.latency.p95_s, row.latency.p99_s, row.throughput_qps):
            assert (figure.value, figure.reason) == (None, published_tables.NO_SAMPLES)
        assert (row.latency.mean_s.low, row.usd_per_million.low) == (None, None)
        assert row.machine is None and row.started_at is None and row.sample_sha256 is None
        assert row.resources.peak_anon_bytes is None and row.resources.load_s is None


def test_rows_of_table_2_note_the_other_machine(table: Table) -> None:
    (row,) = (each for each in table.rows if each.system == "PLAID ColBERTv2 (CPU)")
    assert row.published_type == "r6a.2xlarge" and row.price is not None and row.price.instance_type == "r6a.2xlarge"
    assert row.notes[1] == (
        "the latency was not measured on this type: Table 1 has it from Santhanam et al. 2022a (CPU only),"
        " on a machine with 56 CPUs"
    )
    assert row.index.size_bytes == 22 * 2**30
    assert row.measures["Success@10"] == Estimate(None, reason="Table 1 does not have it")


def test_errata_are_notes_of_their_rows_only(table: Table) -> None:
    expected = {row.key: [note for note in row.notes if note.startswith("erratum")] for row in table.rows}
    assert [len(expected[f"santhanam2023/table2/{number}"]) for number in range(1, 11)] == [
        *(2, 0, 1, 1, 1, 1, 1, 2, 1, 0)
    ]
    marked = {key for key, notes in expected.items() if notes and "/table3" in key}
    assert marked == {"santhanam2023/table3a/1", "santhanam2023/table3a/10"}
    assert expected["santhanam2023/table3a/10"][0].startswith("erratum (cost): 19 ms, US$ 2.97; US$ 3.06")


def test_gpu_memory_equals_that_of_the_papers_type(table: Table) -> None:
    assert {(row.gpus, row.gpu_memory_bytes) for row in table.rows} == {(0, None), (1, 16 * 2**30)}


@pytest.mark.slow
@pytest.mark.parametrize("form", report.FORMATS)
def test_every_format_shows_published_rows(table: Table, form: str) -> None:
    text = report.render(table, form)
    assert "published" in text and "ColBERTv2-L" in text
    assert "unknown" in text and "clean" not in text
    assert published_tables.NO_SAMPLES in text or form == "csv"
