"""Systems at a size that nobody measured: laws with exams, the machine that holds them, where their order changes."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from harness.analysis import bills, larger_sizes, row_pricing
from harness.analysis.larger_sizes import CPU, INDEX, LATENCY, MEMORY, SizedSystem
from harness.analysis.table import Row, Validity
from harness.driver.records import Outcome
from harness.errors import UsageError
from harness.estimate import Estimate
from harness.pricing.bill import Traffic
from harness.pricing.prices import Snapshot
from harness.report import writers
from harness.report.bill import bill_document
from harness.report.larger_sizes import predicted, sizes_document
from harness.results.schema import split_size
from tests.support import sample_records

GIB = 2**30
SIZES = (10_000, 30_000, 100_000, 300_000)
Law = Callable[[int], float]


def rows_of(system: str, latency_s: Law, memory_bytes: Law, dataset: str = "mine", **more: object) -> list[Row]:
    return [
        sample_records.row(
            system=system,
            dataset=f"{dataset}@{size}",
            key=f"{system}-{size}",
            latency_mean_s=Estimate(latency_s(size)),
            peak_anon_bytes=round(memory_bytes(size)),
            index_bytes=1000 * size,
            index_build_s=1e-3 * size,
            corpus_documents=size,
            **more,
        )
        for size in SIZES
    ]


def processes(rows: list[Row]) -> Mapping[str, list[Row]]:
    """Each row as three processes, one slower and one quicker."""
    return {
        row.per_query_key: [
            replace(
                row, latency=replace(row.latency, mean_s=row.latency.mean_s.map(lambda s, factor=factor: s * factor))
            )
            for factor in (0.99, 1.0, 1.01)
        ]
        for row in rows
    }


def steady(documents: int) -> float:
    return 0.05 + 1e-9 * documents


def linear(documents: int) -> float:
    return 0.001 + 1e-7 * documents


def flat(_: int) -> float:
    return 0.5 * GIB


def growing(documents: int) -> float:
    return 0.1 * GIB + 4096 * documents


@pytest.fixture
def priced(snapshot: Snapshot) -> Callable[[Row], Row]:
    tariff = row_pricing.tariff(snapshot)
    return lambda row: row_pricing.price_row(row, tariff)


def test_names_of_sizes() -> None:
    assert split_size("mine@10000") == ("mine", 10_000) and split_size("mine") == ("mine", None)
    assert split_size("a@b") == ("a@b", None) and split_size("a@0") == ("a@0", None)


def test_planted_laws_are_recovered_with_the_machine_that_holds_them(priced: Callable[[Row], Row]) -> None:
    rows = rows_of("engine", linear, growing)
    (group,) = larger_sizes.groups([*rows, *rows_of("null", linear, flat)], processes(rows))
    (system,) = group.systems
    assert (group.dataset, system.largest) == ("mine", 300_000)
    found = larger_sizes.at_size(system, 10_000_000, priced)
    latency, memory = found.figures[LATENCY], found.figures[MEMORY]
    for estimate, truth in ((latency, linear(10_000_000)), (memory, growing(10_000_000))):
        assert estimate.value == pytest.approx(truth, rel=0.02)
        assert estimate.low is not None and estimate.high is not None and estimate.low < truth < estimate.high
    assert found.row.price is not None and memory.high is not None
    assert found.row.price.memory_bytes >= memory.high, "the machine holds the high end"
    cost = found.row.usd_per_million
    assert cost.value == pytest.approx(found.row.price.usd_per_hour * 1e6 / 3600 * (latency.value or 0))
    assert found.figures[CPU].value is None and "0 have this figure" in str(found.figures[CPU].reason)
    index = found.figures[INDEX]
    assert index.value == pytest.approx(1e10, rel=1e-3) and index.high is not None and index.high < 1.3e10


def test_a_law_that_fails_its_exam_predicts_nothing(priced: Callable[[Row], Row]) -> None:
    rows = rows_of("engine", lambda n: linear(n) * (5 if n > 200_000 else 1), growing)
    (group,) = larger_sizes.groups(rows, {})
    found = larger_sizes.at_size(group.systems[0], 1_000_000, priced)
    assert found.figures[LATENCY].value is None and found.figures[LATENCY].reason == "its law failed the exam"
    assert found.figures[MEMORY].value is not None, "each figure has an exam of its own"
    assert found.row.price is not None and found.row.usd_per_million.value is None


@pytest.mark.parametrize(("documents", "known"), [(30_000_000, True), (30_000_001, False)])
def test_no_law_goes_beyond_a_hundred_times_the_largest_size(documents: int, known: bool) -> None:
    (group,) = larger_sizes.groups(rows_of("engine", linear, growing), {})
    found = group.systems[0].laws[LATENCY].predict(documents)
    assert (found.value is not None) == known
    assert known or "beyond 100 times the largest measured size, 300,000" in str(found.reason)


def test_three_sizes_make_no_law() -> None:
    (group,) = larger_sizes.groups(rows_of("engine", linear, growing)[:3], {})
    assert group.systems[0].laws[LATENCY].predict(300_000).reason == "a law needs 4 sizes, and 3 have this figure"


def test_failed_sizes_and_other_profiles_are_not_in_a_group() -> None:
    rows = rows_of("engine", linear, growing)
    rows[3] = replace(rows[3], outcome=Outcome.OOM)
    others = rows_of("engine", linear, growing, profile="cpu2-mem4")[:1]
    (group,) = larger_sizes.groups([*rows, *others], {})
    assert [row.index.documents for row in group.systems[0].rows] == list(SIZES[:3])


@pytest.mark.slow
def test_the_order_flips_where_the_costs_cross(priced: Callable[[Row], Row]) -> None:
    rows = [*rows_of("even", steady, flat), *rows_of("grows", lambda n: 0.001 + 1e-6 * n, flat)]
    (group,) = larger_sizes.groups(rows, {})
    found = [larger_sizes.at_size(system, 10_000_000, priced) for system in group.systems]
    (flip,) = larger_sizes.flips(found, priced)
    assert (flip.cheaper_before, flip.cheaper_after, flip.sure) == ("grows", "even", True)
    # 0.001 + 1e-6 n = 0.05 + 1e-9 n, between two of 40 steps of 19 % each.
    assert 49_000 <= flip.documents <= 49_000 * 1.2
    assert not list(larger_sizes.flips(found[:1], priced))


def test_a_throughput_is_not_predicted_from_a_latency(priced: Callable[[Row], Row]) -> None:
    rows = rows_of("engine", linear, flat, scenario="offline", throughput_qps=Estimate(100.0))
    (group,) = larger_sizes.groups(rows, {})
    found = larger_sizes.at_size(group.systems[0], 10_000_000, priced).row
    assert found.usd_per_million.value is None and "only the mean latency is predicted" in str(
        found.throughput_qps.reason
    )


def test_a_system_outgrows_the_memory_of_its_profile() -> None:
    system = SizedSystem("engine", tuple(rows_of("engine", linear, growing)), {})
    assert larger_sizes.outgrown(system, GIB, 10_000_000) == pytest.approx(0.9 * GIB / 4096, rel=0.02)
    assert larger_sizes.outgrown(system, GIB, 200_000) is None


def test_no_cost_is_drawn_beyond_the_sizes_that_a_law_predicts(priced: Callable[[Row], Row]) -> None:
    system = SizedSystem("engine", tuple(rows_of("engine", linear, growing)), {})
    known, *beyond = larger_sizes.costs_by_law(system, (1_000_000, 50_000_000, 100_000_000), priced)
    assert known > 0 and beyond == [math.inf, math.inf]


@pytest.mark.slow
def test_the_answer_names_machines_flips_and_what_is_not_predicted(priced: Callable[[Row], Row]) -> None:
    failing = rows_of("fails", lambda n: linear(n) * (5 if n > 200_000 else 1), flat)
    rows = [*rows_of("even", steady, growing), *rows_of("grows", linear, flat), *failing]
    rows[1] = replace(rows[1], validity=Validity.NOISY)
    table = sample_records.table(rows)
    document = sizes_document(predicted(table, {}, 10_000_000, priced))
    assert document.answer is not None
    text = "\n".join(map(writers.markdown_section, document.answer(writers.markdown_escape)))
    assert "predicted at 10,000,000 documents (95 %); measured up to 300,000" in text
    assert "fails, latency: not predicted, its law failed the exam: 0.0" not in text
    assert "its law failed the exam" in text
    assert "in doubt, and they count: even at 30,000 (noisy)" in text
    assert "even outgrows the 1 GiB of cpu1-mem1 at about 240,000 documents" in text
    assert "quality is not predicted" in writers.write(document, "md")
    lines = list(csv.DictReader(io.StringIO(writers.write(document, "csv"))))
    assert len(lines) == 3 * 5 and {line["exam_passed"] for line in lines} == {"true", "false", ""}
    content = json.loads(writers.write(document, "json"))
    assert [flip["cheaper_after"] for flip in content["flips"]] == ["even"]


def test_the_answer_names_systems_that_were_measured_at_fewer_documents(priced: Callable[[Row], Row]) -> None:
    rows = [*rows_of("grows", linear, flat), *rows_of("short", steady, growing)[:3]]
    document = sizes_document(predicted(sample_records.table(rows), {}, 10_000_000, priced))
    assert document.answer is not None
    text = "\n".join(map(writers.markdown_section, document.answer(writers.markdown_escape)))
    assert "measured up to 300,000 (short: 100,000)\n" in text


@pytest.mark.slow
def test_a_bill_at_more_documents_has_the_predicted_row_of_each_system(priced: Callable[[Row], Row]) -> None:
    failing = rows_of("fails", lambda n: linear(n) * (5 if n > 200_000 else 1), flat)
    rows = [priced(row) for row in (*rows_of("grows", linear, growing), *failing)]
    found = larger_sizes.with_predicted(rows, {}, 10_000_000, priced)
    (grows,) = (row for row in found if row.system == "grows")
    assert (grows.dataset, grows.index.documents, grows.predicted_from) == ("mine@10000000", 10_000_000, 300_000)
    assert grows.index.size_bytes == pytest.approx(1e10, rel=1e-3) and grows.price is not None
    assert grows.latency.p95_s.reason == "only the mean latency is predicted"
    (fails,) = (row for row in found if row.system == "fails")
    assert fails.latency.mean_s.value is None and fails.latency.mean_s.reason == "its law failed the exam"
    assert grows.corpus_sha256 == fails.corpus_sha256 != rows[0].corpus_sha256, "they can be compared"
    measured = larger_sizes.with_predicted(rows, {}, 300_000, priced)
    assert [row.key for row in measured] == ["grows-300000", "fails-300000"], "what was measured is not predicted"
    few = larger_sizes.with_predicted(rows_of("few", linear, flat)[:3], {}, 10_000_000, priced)
    assert [(row.key, row.predicted_from) for row in few] == [("few-100000", None)]
    table = replace(sample_records.table(found), price_region="us-east-1", price_date="2026-07-20")
    traffic = Traffic(queries_per_month=1e6, documents=10_000_000)
    groups = bills.find(table, traffic, {})
    text = writers.write(bill_document(groups, traffic, table), "md")
    assert "grows (predicted)" in text
    assert "1 row predicted from up to 300,000 documents" in text and "--at 10000000" in text
    assert "its law failed the exam" in text and "scaled linearly" not in text


@pytest.mark.parametrize(
    ("rows", "documents", "fault"),
    [
        (rows_of("engine", linear, flat)[:1], 10_000_000, r"put `\[sizes\] documents"),
        (rows_of("engine", linear, flat), 30_000_001, "--at 30,000,001 is beyond 100 times the largest measured size"),
        (rows_of("engine", linear, flat), 9_999, "--at 9,999 is below the smallest measured size, 10,000"),
    ],
)
def test_what_cannot_be_predicted_is_refused(
    priced: Callable[[Row], Row], rows: list[Row], documents: int, fault: str
) -> None:
    with pytest.raises(UsageError, match=fault):
        predicted(sample_records.table(rows), {}, documents, priced)


def test_processes_are_read_for_systems_of_several_sizes_alone() -> None:
    alone = sample_records.row(system="alone", corpus_documents=5_000)
    rows = rows_of("engine", linear, flat)
    assert larger_sizes.sized_rows([alone, *rows]) == rows
