"""Published rows beside measured ones: marked, with what is printed, and a reason for all that is not."""

from __future__ import annotations

import pytest

from harness import report
from harness.analysis import results_folder, row_pricing
from harness.analysis.published import published_rows
from harness.analysis.published.tables import Published
from harness.analysis.table import Row, Table, Validity
from harness.pricing.prices import Snapshot
from harness.records import Isolation
from harness.stats import Estimate


@pytest.fixture(scope="module")
def table(published: Published, follows: Snapshot) -> Table:
    return results_folder.priced(published_rows.measurements(published, follows), row_pricing.tariff(follows))


def of_table_3(table: Table, dataset: str) -> list[Row]:
    return [row for row in table.rows if (row.suite, row.dataset) == ("santhanam2023", dataset)]


def test_every_row_of_table_3_is_there_and_marked(table: Table) -> None:
    assert len(of_table_3(table, "msmarco")) == 28
    assert len(of_table_3(table, "xortydi")) == 24
    assert sum(row.suite == "santhanam2023-table2" for row in table.rows) == 10
    assert {row.isolation for row in table.rows} == {Isolation.PUBLISHED}
    assert all(published_rows.NOT_JUDGED in row.notes for row in table.rows)
    assert len({row.key for row in table.rows}) == 62


def test_a_row_has_what_the_paper_prints_in_the_units_of_a_report(table: Table) -> None:
    (row,) = (each for each in of_table_3(table, "xortydi") if each.key == "santhanam2023/table3b/5")
    assert (row.system, row.profile, row.published_type) == ("ColBERTv2-L", "cpu1-mem64", "x2gd.xlarge")
    assert row.latency_mean_s == Estimate(1.107)
    assert row.usd_per_million.value == pytest.approx(102.70, abs=0.005), "made again; the paper prints 102.74"
    assert row.measures == {"RR@10": Estimate(0.474), "Success@10": Estimate(0.66)}
    assert (row.cpus, row.memory_limit_bytes, row.gpus) == (1, 64 * 2**30, 0)
    assert (row.queries, row.trials) == (1000, 5)
    assert row.price is not None and row.price.usd_per_hour == 0.334


def test_what_needs_samples_says_that_there_are_none(table: Table) -> None:
    for row in table.rows:
        for figure in (row.p50_s, row.p95_s, row.p99_s, row.throughput_qps):
            assert (figure.value, figure.reason) == (None, published_rows.NO_SAMPLES)
        assert (row.latency_mean_s.low, row.usd_per_million.low) == (None, None)
        assert row.machine is None and row.started_at is None and row.sample_sha256 is None
        assert row.peak_anon_bytes is None and row.load_s is None


def test_table_2_was_not_measured_where_it_is_priced(table: Table) -> None:
    (row,) = (each for each in table.rows if each.system == "PLAID ColBERTv2 (CPU)")
    assert row.published_type == "r6a.2xlarge" and row.price is not None and row.price.instance_type == "r6a.2xlarge"
    assert row.notes[1] == (
        "the latency was not measured on this type: Table 1 has it from Santhanam et al. 2022a (CPU only),"
        " on a machine with 56 CPUs"
    )
    assert row.index_bytes == 22 * 2**30
    assert row.measures["Success@10"] == Estimate(None, reason="Table 1 does not have it")


def test_an_erratum_stands_at_its_row_and_at_no_other(table: Table) -> None:
    told = {row.key: [note for note in row.notes if note.startswith("erratum")] for row in table.rows}
    assert [len(told[f"santhanam2023/table2/{number}"]) for number in range(1, 11)] == [2, 0, 1, 1, 1, 1, 1, 2, 1, 0]
    marked = {key for key, notes in told.items() if notes and "/table3" in key}
    assert marked == {"santhanam2023/table3a/1", "santhanam2023/table3a/10"}
    assert told["santhanam2023/table3a/10"][0].startswith("erratum (cost): 19 ms, US$ 2.97; US$ 3.06")


@pytest.mark.slow
def test_nothing_of_them_can_be_judged(table: Table) -> None:
    assert {row.validity for row in table.rows} == {Validity.UNKNOWN}
    for form in ("md", "csv", "json", "terminal"):
        text = report.render(table, form)
        assert "unknown" in text and "clean" not in text


def test_gpus_are_as_large_as_those_of_the_papers_type(table: Table) -> None:
    assert {(row.gpus, row.gpu_memory_bytes) for row in table.rows} == {(0, None), (1, 16 * 2**30)}


def test_other_prices_give_other_costs_on_the_same_types(
    published: Published, follows: Snapshot, now: Snapshot
) -> None:
    later = results_folder.priced(published_rows.measurements(published, follows), row_pricing.tariff(now))
    assert later.price_date == "2026-07-20"
    (row,) = (each for each in later.rows if each.key == "santhanam2023/table3b/5")
    assert row.usd_per_million.value == pytest.approx(1.107 * 0.334 / 3600 * 1e6, rel=1e-12)
    assert row.price is not None and row.price.date == "2026-07-20"


@pytest.mark.slow
@pytest.mark.parametrize("form", report.FORMATS)
def test_every_format_shows_published_rows(table: Table, form: str) -> None:
    text = report.render(table, form)
    assert "published" in text and "ColBERTv2-L" in text
    assert published_rows.NO_SAMPLES in text or form == "csv"
