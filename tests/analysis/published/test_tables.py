"""The shipped tables are read as printed, and a damaged folder is one line that says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.analysis.published import sources, tables
from harness.analysis.published.tables import Hardware, Published
from harness.errors import FileError
from harness.pricing import hardware_profiles
from tests.analysis.published.conftest import Spoil

TABLE_2, TABLE_3A = "table2_minimum_viable.csv", "table3a_msmarco.csv"


def test_all_rows_are_there_with_their_digits(published: Published) -> None:
    assert [len(published.table1), len(published.table2), len(published.table3c)] == [15, 10, 12]
    assert {name: len(lines) for name, lines in published.table3.items()} == {"msmarco": 28, "xortydi": 24}
    assert {name: len(lines) for name, lines in published.table4.items()} == {"msmarco": 28, "xortydi": 24}
    assert str(published.table3["msmarco"][4].cost_usd_per_million) == "14.90"
    assert published.table1[8].latency_ms is None  # RocketQAv2: the paper has none, and none is not 0


def test_every_row_of_table_2_takes_a_latency_and_bm25_the_smaller(published: Published) -> None:
    taken = {line.system: published.latency_of(line) for line in published.table2}
    latency, row = taken["BM25"]
    assert (str(latency), row and row.reference) == ("4", "Lassance and Clinchant 2022")
    assert len(taken) == 10


def test_every_hardware_of_table_3_is_a_profile_here(published: Published) -> None:
    known = hardware_profiles.profiles()
    for line in (each for part in published.table3.values() for each in part):
        profile = known[line.hardware.profile]
        assert (profile.cpus, profile.memory_bytes, profile.gpus) == (line.cpu, line.hardware.memory_bytes, line.gpu)


def test_hardware_is_compared_in_every_part() -> None:
    assert Hardware(0, 1, 4).within(Hardware(0, 1, 4))
    for other in (Hardware(0, 2, 8), Hardware(1, 1, 8), Hardware(1, 2, 4)):
        assert not Hardware(1, 2, 8).within(other)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (TABLE_3A, "m6gd.medium,11,0.14", "m6gd.medium,11,fourteen", f"{TABLE_3A}:2: cost_usd_per_million: 'fourteen'"),
        (TABLE_3A, "m6gd.medium,11,0.14", "m6gd.medium,-11,0.14", f"{TABLE_3A}:2: latency_ms: '-11' is no number"),
        (TABLE_3A, ",14.90", ",14.9", f"{TABLE_3A}:6: cost_usd_per_million: '14.9' has 1 digits behind the point"),
        (TABLE_3A, "m6gd.medium,11,0.14", "m6gd.medium,,0.14", f"{TABLE_3A}:2: latency_ms: is empty"),
        (TABLE_3A, "BM25,0,1,4,", "BM25,none,1,4,", f"{TABLE_3A}:2: gpu: 'none' is no whole number"),
        (TABLE_3A, "BM25,0,1,4,", ",0,1,4,", f"{TABLE_3A}:2: system: is empty"),
        (TABLE_3A, "m6gd.medium,11,0.14", "m6gd.medium,11", f"{TABLE_3A}:2: 6 fields, must be 7"),
        (TABLE_2, "system,gpu", "system,gpus", f"{TABLE_2}:1: the header is"),
        (sources.NAME, "index_gib = 0", "# none", "table1_posthoc.csv:2: index_gib: [decimals] of published.toml"),
        (sources.NAME, "pages =", "page =", "unknown key 'page'; did you mean 'pages'?"),
        (sources.NAME, "year = 2023", 'year = "2023"', "key 'year'"),
        (sources.NAME, "table3a_msmarco.csv", "table3a.csv", "table3a.csv: no such file; published.toml names it"),
    ],
)
def test_a_damaged_folder_is_one_line(altered: Spoil, name: str, old: str, new: str, said: str) -> None:
    with pytest.raises(FileError) as caught:
        altered(name, old, new)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_table_is_no_table(folder: Path) -> None:
    path = folder / TABLE_2
    path.write_text(path.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")
    with pytest.raises(FileError, match="holds no row"):
        tables.read(folder)


def test_a_row_whose_latency_nothing_gives_is_one_line(altered: Spoil) -> None:
    unnamed = altered(TABLE_2, "\nANCE,", "\nAnce,")
    with pytest.raises(FileError, match=r"no \[\[table2\]\] says whose latency 'Ance' has"):
        unnamed.latency_of(unnamed.table2[5])
    without = altered("table1_posthoc.csv", "33.0,12,", "33.0,,")
    with pytest.raises(FileError, match=r"no \[\[table2\]\]"):
        without.latency_of(without.table2[5])


def test_a_source_without_latency_is_one_line(altered: Spoil) -> None:
    without = altered("table1_posthoc.csv", "33.0,12,", "33.0,,")
    with pytest.raises(FileError, match="Table 1 has no latency of 'ANCE'"):
        without.latency_of(without.table2[5])
