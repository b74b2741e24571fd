"""How a number was made: texts of rows, columns and causes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.analysis import causes
from harness.analysis.table import Cause, Cost, CpuUse, Finding, Price, Row, Validity
from harness.driver.records import Envelope, Outcome
from harness.estimate import Estimate
from harness.pricing import cost
from harness.pricing.bill import Traffic
from harness.report import explain
from harness.results.isolation import PUBLISHED
from harness.results.schema import SweepPoint
from tests.report.test_summary import row, table
from tests.support import sample_records

PRICE = Price("m7a.medium", "x86_64", 1, 4 << 30, "us-east-1", "on-demand", 0.05796, "2026-07-20")


def texts(row: Row) -> dict[str, str]:
    return dict(explain.row_paragraphs(row))


def test_latency_names_its_samples_and_the_parts_of_its_interval() -> None:
    parts = {"like_queries_s": {"mean": Estimate(0.00107, 0.0009, 0.0012)}, "these_queries_s": {}}
    text = texts(row("bm25", jobs=3, **parts))["Latency"]
    assert text.startswith("1.07 (0.88–1.26) ms: the mean of 900 samples, 300 queries in each of 3 trials, in 3 fresh")
    assert "other such queries 1.07 (0.90–1.20)" in text


def test_published_latency_claims_no_samples_of_ours() -> None:
    text = texts(row("bm25", isolation=PUBLISHED))["Latency"]
    assert text.endswith(" ms, as published: there are no samples.")


def test_cost_repeats_the_calculation_with_its_numbers() -> None:
    usd = cost.usd_per_million(0.00107, PRICE.usd_per_hour)
    text = texts(row("bm25", price=PRICE, usd_per_million=Estimate(usd)))["Cost"]
    assert text.startswith("US$ 0.0172 per million queries = 0.00107 s x US$ 0.05796 / 3600 x 1,000,000: ")
    assert "m7a.medium (x86_64, 1 vCPU, 4 GiB) costs US$ 0.05796 an hour, on-demand in us-east-1 on 2026-07-20." in text


def test_bill_shows_its_arithmetic_at_three_million_queries() -> None:
    # 42.3108 = 0.05796 x 730; 14.1036 = 42.3108 / 3.
    assert texts(row("bm25", price=PRICE))["Monthly bill"] == (
        "3,000,000 queries / 2,628,000 s x peak 3 = 3.425 queries/s in the busiest hour. One machine answers"
        " 1 / 0.00107 s = 934.6 a second, one after the other. 3.425 / 934.6 = 0.003664, rounded up: 1 x m7a.medium."
        " Search: 1 x US$ 0.05796 x 730 h = US$ 42.3108. The cost of builds and storage is not known; the sum leaves it"
        " out. The sum is US$ 42.3108 a month; / 3,000,000 x 1,000,000 = US$ 14.1036 per million queries."
    )
    assert texts(row("bm25"))["Monthly bill"] == "There is no bill: it has no price."


def test_bill_of_a_larger_service_shows_every_part() -> None:
    # 100 queries a second on average, 300 in the busiest hour.  A build of 1,000 documents costs 20 / 1,000 = US$ 0.02,
    # of 10,000 ten times that.  169.2432 + 0.4 + 0.02 + 2 = 171.6632; / 262.8 = 0.653209.
    known = {"price": PRICE, "corpus_documents": 1000, "scenario": "server", "throughput_qps": Estimate(100.0)}
    costs = Cost(build=Estimate(20.0), storage_per_month=Estimate(0.05))
    traffic = Traffic(queries_per_month=262.8e6, machines=4, documents=10_000, builds=2, changed=0.1)
    assert dict(explain.row_paragraphs(replace(row("bm25", **known), cost=costs), traffic))["Monthly bill"] == (
        "262,800,000 queries / 2,628,000 s x peak 3 = 300 queries/s in the busiest hour. One machine answers 100 a"
        " second under load. 300 / 100 = 3, rounded up, and at least 4: 4 x m7a.medium. Search: 4 x US$ 0.05796 x 730 h"
        " = US$ 169.243. Builds and storage count 10 times, for 10,000 documents in place of 1,000. Builds: 2 x US$ 0.2"
        " = US$ 0.4. Changed documents: 0.1 x US$ 0.2 = US$ 0.02. Storage: 4 x US$ 0.5 = US$ 2. The sum is US$ 171.663"
        " a month; / 262,800,000 x 1,000,000 = US$ 0.653209 per million queries."
    )


def test_memory_of_a_whole_machine_names_both_figures() -> None:
    whole = row("bm25", memory_limit_bytes=3379 << 20, nominal_memory_bytes=4 << 30)
    assert "limit of 3,379 MiB (what the host leaves of the 4,096 MiB of a whole machine)" in texts(whole)["Memory"]
    assert "whole machine" not in texts(row("bm25"))["Memory"]


def test_index_of_a_hybrid_names_the_build_time_of_each_component() -> None:
    built = {"index_build_s": 30.0, "build_envelope": Envelope("cpu2-mem4", 2, 4 << 30), "corpus_documents": 5183}
    text = texts(row("hybrid", index_bytes=3 << 20, index_parts_s={"bm25": 3.5, "minilm": 26.0}, **built))["Index"]
    assert text == (
        "3.0 MiB. Built of 5,183 documents in 30.0 s on 2 CPUs, 4 GiB of an unknown machine, or several"
        " (bm25 3.50 s + minilm 26.0 s + joining 0.500 s; its size counts them too): one measurement, without an"
        " interval. Its time could not be checked: nothing is stored of its machine."
    )


def test_backends_of_an_encoder_are_named() -> None:
    assert texts(row("a", backend="onnxruntime", document_backend="torch"))["Encoder"] == (
        "queries under onnxruntime, documents under torch."
    )
    assert "Encoder" not in texts(row("bm25"))


def test_point_of_a_sweep_names_the_swept_system_and_its_values() -> None:
    swept = texts(row("bm25-k1_0.9-b0.4", sweep=SweepPoint("bm25", {"k1": 0.9, "b": 0.4})))
    assert swept["Curve"] == "k1=0.9 b=0.4: a point of bm25."
    assert "Sweep" not in texts(row("bm25"))


def test_failed_row_says_why_and_has_no_numbers() -> None:
    made = texts(row("minilm", outcome=Outcome.OOM, memory_limit_bytes=256 << 20, detail="killed by the kernel"))
    assert made["Outcome"] == "Out of memory at 256 MiB. This row has no numbers: killed by the kernel."
    assert "Latency" not in made and "Cost" not in made


def test_finding_has_its_figures_and_its_effect() -> None:
    finding = Finding(Cause.PLACEMENT, Validity.NOISY, "the harness had to share the job's CPUs (2 of 2)")
    text = texts(replace(row("bm25"), validity=Validity.NOISY, findings=(finding,)))["noisy: placement"]
    assert text == f"The harness had to share the job's CPUs (2 of 2). {causes.TEXTS[Cause.PLACEMENT].effect}"


def test_index_names_its_build_with_its_machine_its_cost_and_its_doubts() -> None:
    finding = Finding(Cause.FOREIGN_CPU, Validity.NOISY, "other processes had 12.0% of the build's CPU time")
    made = row(
        "bm25",
        index_build_s=12.5,
        build_envelope=Envelope("cpu2-mem4", 2, 4 << 30),
        build_machine=sample_records.MACHINE,
        build_price=PRICE,
        build_validity=Validity.NOISY,
        build_findings=(finding,),
        corpus_documents=5183,
        usd_build_per_million_documents=Estimate(cost.build_usd_per_million_documents(12.5, 0.05796, 5183)),
    )
    assert (
        " Built of 5,183 documents in 12.5 s on 2 CPUs, 4 GiB of AMD EPYC 9B14: one measurement, without an interval. "
        "Its time is noisy, for the reasons below."
    ) in texts(made)["Index"]
    assert texts(made)["Index cost"] == (
        "US$ 0.0388 per million documents = 12.5 s x US$ 0.05796 / 3600 / 5,183 x 1,000,000, on m7a.medium."
    )
    assert texts(made)["Build, noisy: foreign_cpu"] == "Other processes had 12.0% of the build's CPU time."
    named = dict(explain.cause_paragraphs(Cause.FOREIGN_CPU, [made]))
    assert any(name.endswith(", index build") for name in named)
    unknown = sample_records.row_with(made, build_machine=None, build_validity=Validity.UNKNOWN, build_findings=())
    assert "an unknown machine, or several" in texts(unknown)["Index"]
    assert "could not be checked" in texts(unknown)["Index"]


def test_cause_names_the_rows_that_have_it() -> None:
    finding = Finding(Cause.DRIFT, Validity.NOISY, "the slowest trial took 1.5 times the fastest")
    made = list(explain.cause_paragraphs(Cause.DRIFT, [row("a"), row("b", findings=(finding,))]))
    assert [title for title, _ in made] == ["drift", "What to do", "b/scifact/single_stream/cpu1-mem1"]


def test_column_has_its_meaning_and_its_method() -> None:
    (meaning, method) = explain.column_paragraphs("cost", table(row("bm25")))
    assert meaning[0] == "cost (US$)"
    assert method[1].startswith(cost.SEQUENTIAL.formula)
    (meaning, method) = explain.column_paragraphs("nDCG@10", table(row("bm25")))
    assert "ir_measures" in method[1]


@pytest.mark.slow
def test_every_column_of_the_summary_can_be_explained() -> None:
    made = table(row("bm25"))
    for name in explain.names(made):
        if name not in {cause.value for cause in Cause}:
            assert list(explain.column_paragraphs(name, made)), name


def test_cpu_time_is_told_with_the_part_of_harness_and_the_idle_share() -> None:
    cpu = CpuUse(per_query_s=Estimate(0.0002, 0.00015, 0.00025), busy_cpus=0.8, driver_s=0.00005)
    told = texts(row("bm25", cpu=cpu, price=PRICE))["CPU time"]
    # 0.2 less 0.05 ms; three quarters of 0.8 CPUs.
    assert told.startswith("0.150 (0.100–0.200) ms a query = 0.200 ms counted - 0.0500 ms of harness itself (null).")
    assert "The trials kept 0.600 CPUs busy on average: of the 1 vCPU of m7a.medium 40% stayed idle." in told
