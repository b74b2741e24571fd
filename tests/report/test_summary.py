"""The answer of a table: columns, heading, sentence, doubts, widths."""

from __future__ import annotations

import functools
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from harness import estimate
from harness.analysis.table import Cause, Finding, Machine, Price, Row, Table, Validity
from harness.driver.records import Envelope, Outcome
from harness.errors import UnknownName
from harness.estimate import Estimate
from harness.evaluation.per_query import PerQuery
from harness.report import hardware, sentences, summary, writers
from harness.report.currency import USD
from harness.report.document import MOST_LINES, Section
from harness.report.summary import SummaryView, summary_section
from harness.results.isolation import PROCESS
from harness.results.schema import DataFault, FaultKind
from harness.untrusted import ForeignText, one_line
from tests.support import sample_records
from tests.support.sample_records import compare_by

MIB, GIB = 2**20, 2**30
QUERIES = tuple(f"q{number}" for number in range(200))


def row(system: str, **changes: object) -> Row:
    """A measured row on one CPU and 1 GiB."""
    values = {
        "suite": "demo",
        "system": system,
        "key": system,
        "started_at": None,
        "machine": None,
        "queries": 300,
        "trials": 3,
        "latency_mean_s": Estimate(0.00107, 0.00088, 0.00126),
        "p95_s": Estimate(0.00472),
        "measures": {"nDCG@10": Estimate(0.679)},
        "peak_anon_bytes": 102 * MIB,
        "index_bytes": 1 * MIB,
        "usd_per_million": Estimate(0.0076),
    }
    return sample_records.row(**(values | changes))


def slow(system: str = "minilm", **changes: object) -> Row:
    values = {
        "latency_mean_s": Estimate(0.0102, 0.0079, 0.0125),
        "measures": {"nDCG@10": Estimate(0.645)},
        "index_bytes": 8 * MIB,
        "usd_per_million": Estimate(0.0724),
    }
    return row(system, **(values | changes))


_BOTH = ((functools.partial(row, "bm25"), 0.6), (slow, 0.5))


def table(*rows: Row) -> Table:
    return Table(rows, ("nDCG@10",), "aws", "us-east-1", "2026-07-20")


def by_query(system: str, mean: float, seed: int = 1) -> PerQuery:
    values = np.clip(np.random.default_rng(seed).normal(mean, 0.05, len(QUERIES)), 0, 1)
    return PerQuery(system, QUERIES, np.full(len(QUERIES), 0.001), {"nDCG@10": values})


def section(*rows: Row, values: dict[str, PerQuery] | None = None, width: int | None = None, **view: object) -> Section:
    return summary_section(table(*rows), compare_by(values), one_line, SummaryView(**view), width)


def test_heading_counts_timed_and_judged_queries_where_they_differ() -> None:
    some = {"queries_judged": 30, "queries_unjudged": ("q1",)}
    assert ", 300 queries timed x 3 trials, 30 judged, " in section(row("bm25", **some), slow(**some)).lead[0]
    assert ", 300 queries x 3 trials, prices" in section(row("bm25", **some), slow(queries_judged=300)).lead[0]
    assert ", 300 queries x 3 trials, prices" in section(row("bm25", queries_judged=300)).lead[0]


def test_columns_that_are_the_same_are_part_of_the_heading() -> None:
    made = section(row("bm25"), slow(index_bytes=1 * MIB))
    assert made.lead == (
        "scifact, on 1 CPU, 1 GiB, index 1 MiB, 300 queries x 3 trials, prices aws us-east-1 2026-07-20",
    )
    assert "hardware" not in made.grids[0].headers and "index" not in made.grids[0].headers


def test_one_row_keeps_all_its_figures_as_columns() -> None:
    headers = section(row("bm25")).grids[0].headers
    assert headers == ("system", "nDCG@10", "latency ms (95 %)", "p95", "memory", "index", "US$/1M queries", "")


def test_cells_show_the_figures_of_a_row() -> None:
    (first, second) = section(row("bm25"), slow()).grids[0].cells
    assert first[:4] == ("bm25", "0.679", "1.07 (0.88–1.26)", "4.72")
    assert second[:3] == ("minilm", "0.645", "10.2 (7.9–12.5)")


def test_failed_row_says_why_in_place_of_its_figures() -> None:
    failed = slow(
        outcome=Outcome.OOM,
        memory_limit_bytes=256 * MIB,
        latency_mean_s=Estimate(None),
        usd_per_million=Estimate(None),
        measures={},
    )
    made = section(row("bm25"), row("bm25", memory_limit_bytes=256 * MIB), failed)
    cells = next(cells for cells in made.grids[0].cells if cells[0] == "minilm")
    assert cells[1:4] == ("1 CPU, 256 MiB", "out of memory at 256 MiB", "")
    assert made.grids[0].tones[made.grids[0].cells.index(cells)] == summary.BAD


_KILLED = "the kernel killed the job at the memory limit of 32 MiB"
_CUDA = "AcceleratorError: CUDA error: out of memory (shared/encoder/backends.py:83)"


@pytest.mark.parametrize(
    ("outcome", "detail", "words"),
    [
        (Outcome.OOM, f"index build: {_KILLED}", "index build out of memory: raise build_profile"),
        (Outcome.OOM, _CUDA, "out of GPU memory: end other processes there, or take a larger GPU"),
        (Outcome.OOM, f"index build: {_CUDA}", "index build out of GPU memory: lower batch_size, or take a larger GPU"),
        (Outcome.CRASH, "word " * 40, "crashed: " + "word " * 11 + "word ..."),
    ],
)
def test_failure_names_the_limit_that_ran_out_and_is_cut_between_words(
    outcome: Outcome, detail: str, words: str
) -> None:
    assert summary.failure(row("bm25", outcome=outcome, memory_limit_bytes=256 * MIB, detail=detail)) == words


def test_markdown_has_the_message_in_the_last_column() -> None:
    failed = slow(outcome=Outcome.OOM, memory_limit_bytes=256 * MIB, measures={})
    text = writers.markdown_section(section(row("bm25"), failed))
    line = next(line for line in text.splitlines() if line.startswith("| minilm"))
    assert line.rstrip(" |").endswith("out of memory at 256 MiB") and line.count("|") == text.splitlines()[2].count("|")


def test_cheapest_row_is_marked_but_an_invalid_one_never_is() -> None:
    invalid = row("fast", validity=Validity.INVALID, usd_per_million=Estimate(0.0001))
    grid = section(row("bm25"), slow(), invalid).grids[0]
    assert [cells[-1] for cells in grid.cells] == ["cheapest", "", "invalid"]
    assert grid.tones == (summary.GOOD, "", summary.BAD)


def test_cheapest_is_marked_among_comparable_rows() -> None:
    elsewhere = [
        sample_records.row_with(each, sample_sha256="b" * 64, usd_per_million=Estimate(9.0))
        for each in (row("bm25"), slow())
    ]
    grid = section(row("bm25"), slow(), *elsewhere).grids[0]
    assert [cells[-1] for cells in grid.cells] == [
        "cheapest (queries s)",
        "",
        "cheapest (queries bbbbbbbb)",
        "cheapest (queries bbbbbbbb)",
    ], "two share the price of the second sample"


def test_rows_of_two_launchers_show_which_rows_are_compared() -> None:
    """One suite, measured in containers and without: each has its cheapest row, and the sentence names its rows."""
    there = {"isolation": PROCESS, "usd_per_million": Estimate(0.005)}
    made = section(row("bm25"), slow(), row("bm25", **there), row("bm25s", isolation=PROCESS))
    (grid,) = made.grids
    assert {(cells[1], cells[-1]) for cells in grid.cells} == {
        ("1 CPU, 1 GiB", "cheapest (container)"),
        ("1 CPU, 1 GiB", ""),
        ("1 CPU, 1 GiB (process)", "cheapest (process)"),
        ("1 CPU, 1 GiB (process)", ""),
    }
    (sentence,) = made.after
    assert sentence.startswith("container: bm25 costs 9.5x less than minilm"), "of equal groups the first"
    assert "suite" not in sentence and "(1)" not in sentence
    matrix = section(
        *(each for name in ("a", "b") for each in (row("bm25", dataset=name), row("bm25", dataset=name, **there)))
    )
    assert matrix.grids[0].headers == ("system", "rows", "a", "b", "runs in")
    assert {cells[:2] for cells in matrix.grids[0].cells} == {("bm25", "container"), ("bm25", "process")}


def test_sentence_names_the_cheaper_system_and_the_tested_difference() -> None:
    values = {"bm25": by_query("bm25", 0.68), "minilm": by_query("minilm", 0.60, 2)}
    rows = row("bm25", measures={"nDCG@10": Estimate(0.68)}), slow(measures={"nDCG@10": Estimate(0.60)})
    (sentence,) = sentences.answers(table(*rows), compare_by(values), "nDCG@10")
    assert sentence.startswith("bm25 costs 9.5x less than minilm and is 8.0 points nDCG@10 better [")
    scope = " This tests nDCG@10 alone (95 %, over queries); harness compare tests every measure and latency together"
    assert sentence.endswith(f"] on these queries.{scope} (Holm), and may show less.")


def test_more_than_two_datasets_have_one_sentence_that_counts() -> None:
    def pair(dataset: str, bm25: float, minilm: float) -> list[Row]:
        values = {"bm25": bm25, "minilm": minilm}
        return [
            replace(each, dataset=dataset, measures={"nDCG@10": Estimate(values[each.system])})
            for each in (row("bm25"), slow())
        ]

    rows = [*pair("a", 0.6, 0.7), *pair("b", 0.6, 0.7), *pair("c", 0.8, 0.7), replace(row("bm25"), dataset="d")]
    (sentence,) = sentences.answers(table(*rows), compare_by(), "nDCG@10")
    assert sentence == (
        "Of 3 datasets bm25 is cheapest on 3; minilm has the best nDCG@10 on 2, bm25 on 1 "
        "(not tested: harness compare '*')."
    )
    assert sentences.answers(table(*(each for each in rows if each.system == "bm25")), compare_by(), "nDCG@10") == ()


def test_systems_that_are_equal_tie_and_a_value_of_0_is_not_the_worst() -> None:
    def trio(dataset: str, *values: float, spent: tuple[float, ...] = (0.1, 0.2, 0.3)) -> list[Row]:
        return [
            sample_records.row_with(
                row(name), dataset=dataset, measures={"RR@10": Estimate(value)}, usd_per_million=Estimate(usd)
            )
            for name, value, usd in zip(("pisa", "tantivy", "bm25s"), values, spent, strict=True)
        ]

    same = [each for dataset in "abc" for each in trio(dataset, 0.6, 0.6, 0.6, spent=(0.1, 0.1, 0.1))]
    (sentence,) = sentences.answers(table(*same), compare_by(), "RR@10")
    assert sentence == (
        "Of 3 datasets bm25s, pisa and tantivy tie as the cheapest on 3; bm25s, pisa and tantivy tie for the best "
        "RR@10 on 3 (not tested: harness compare '*')."
    )
    mixed = [*trio("a", 0.6, 0.1 + 0.2, 0.3), *trio("b", 0.2, 0.3, 0.1 + 0.2), *trio("c", 0.5, 0.4, 0.3)]
    (sentence,) = sentences.answers(table(*mixed), compare_by(), "RR@10")
    assert "pisa has the best RR@10 on 2, bm25s and tantivy tie on 1 (" in sentence, "last digits differ by rounding"
    below = [each for dataset in "abc" for each in trio(dataset, -0.1, 0.0, -0.2)]
    (sentence,) = sentences.answers(table(*below), compare_by(), "RR@10")
    assert "tantivy has the best RR@10 on 3 (" in sentence
    (sentence,) = sentences.answers(table(*trio("a", 0.1, 0.0, -0.2)), compare_by(), "RR@10")
    assert "less than tantivy" in sentence, "the best of the others has 0"
    (sentence,) = sentences.answers(table(*trio("a", 0.1, 0.3, 0.3, spent=(0.1, 0.3, 0.2))), compare_by(), "RR@10")
    assert "less than bm25s" in sentence, "of equal ones the cheapest"


def test_sentence_says_that_a_lead_may_be_chance() -> None:
    values = {"bm25": by_query("bm25", 0.6), "minilm": by_query("minilm", 0.6, 2)}
    (sentence,) = sentences.answers(table(row("bm25"), slow()), compare_by(values), "nDCG@10")
    assert "and is 3.4 points nDCG@10 better, which may be chance [" in sentence


@pytest.mark.parametrize(
    ("usd", "gap"),
    [
        (0.0076, "costs about as much as minilm"),
        (0.0079, "costs about as much as minilm"),
        (0.0084, "costs 1.1x less than minilm"),
        (0.0758, "costs 10x less than minilm"),
        (0.76, "costs 100x less than minilm"),
    ],
)
def test_sentence_writes_the_factor_in_plain_digits(usd: float, gap: str) -> None:
    (sentence,) = sentences.answers(table(row("bm25"), slow(usd_per_million=Estimate(usd))), compare_by(), "nDCG@10")
    assert sentence.startswith(f"bm25 {gap} and is ") and sentence.endswith(" (not tested).")


def test_sentence_without_prices_compares_times() -> None:
    rows = (row("bm25", usd_per_million=Estimate(None)), slow(usd_per_million=Estimate(None)))
    same = sample_records.row_with(rows[1], latency_mean_s=rows[0].latency.mean_s)
    assert sentences.answers(table(*rows), compare_by(), "nDCG@10")[0].startswith(
        "bm25 takes 9.5x less than minilm and is "
    )
    assert sentences.answers(table(rows[0], same), compare_by(), "nDCG@10")[0].startswith(
        "bm25 takes about as long as minilm "
    )


def test_costs_are_not_compared_with_latencies() -> None:
    unpriced = row("quick", latency_mean_s=Estimate(1e-6), usd_per_million=Estimate(None))
    assert sentences.answers(table(row("bm25"), unpriced), compare_by(), "nDCG@10") == ()
    (sentence,) = sentences.answers(table(row("bm25"), slow(), unpriced), compare_by(), "nDCG@10")
    assert sentence.startswith("bm25 costs 9.5x less than minilm ")
    assert summary._cheapest([replace(unpriced, system="bm25"), row("bm25")], USD).usd_per_million.value == 0.0076


def test_best_of_many_systems_is_corrected_for_their_number() -> None:
    rng = np.random.default_rng(3)
    base = rng.normal(0.6, 0.05, len(QUERIES))
    values = {"bm25": PerQuery("bm25", QUERIES, np.full(len(QUERIES), 0.001), {"nDCG@10": base})}
    rows = [row("bm25", measures={"nDCG@10": Estimate(float(base.mean()))})]
    for number in range(30):
        column = base + rng.normal(0.004, 0.1, len(QUERIES))
        values[f"s{number}"] = PerQuery(f"s{number}", QUERIES, np.full(len(QUERIES), 0.01), {"nDCG@10": column})
        rows.append(slow(f"s{number}", measures={"nDCG@10": Estimate(float(column.mean()))}))
    (sentence,) = sentences.answers(table(*rows), compare_by(values), "nDCG@10")
    assert "worse, which may be chance [" in sentence
    best = max((each for each in rows if each.system != "bm25"), key=lambda each: each.measures["nDCG@10"].value or 0)
    (alone,) = sentences.answers(table(rows[0], best), compare_by(values), "nDCG@10")
    assert "worse [" in alone, "alone it would be claimed"
    ends = [tuple(map(float, text.split("[")[1].split("]")[0].split(", "))) for text in (sentence, alone)]
    assert ends[0][0] < 0 < ends[0][1] and 0 < ends[1][0] < ends[1][1], "each prints the interval that decides it"


def test_rows_of_another_sample_are_not_compared() -> None:
    other = slow(sample_sha256="b" * 64)
    assert sentences.answers(table(row("bm25", sample_sha256="a" * 64), other), compare_by(), "nDCG@10") == ()


def doubtful(system: str, cause: Cause = Cause.PLACEMENT, **changes: object) -> Row:
    finding = Finding(cause, Validity.NOISY, "2 of 2 CPUs")
    return row(system, validity=Validity.NOISY, findings=(finding,), **changes)


def test_fault_of_the_data_is_said_once() -> None:
    fault = DataFault(FaultKind.UNKNOWN_DOCUMENTS, 2, 300, ForeignText("d<7>"))
    made = section(*(row(name, data_faults=(fault,)) for name in "ab"), row("c", dataset="other"))
    said = "2 of 300 judgements are of documents that the corpus lacks, such as 'd<7>'; no system can find them."
    assert [note for note in made.notes if "judgements" in note] == [f"scifact: {said}"]


def test_finding_of_several_rows_is_said_once() -> None:
    rows = [doubtful(name, cpus=2) for name in ("a", "b")] + [row("c")]
    lines = [line for line in section(*rows).notes if line.startswith("noisy")]
    assert lines == [
        "noisy: a and b on 2 CPUs, 1 GiB (the harness shared its CPUs). "
        "Take a machine with more CPUs, or a smaller profile, then measure again."
    ]


def test_causes_of_the_same_rows_share_a_line() -> None:
    several = (Cause.FOREIGN_CPU, Cause.CANARY, Cause.FEW_SAMPLES)
    findings = tuple(Finding(cause, Validity.NOISY, "x") for cause in several)
    rows = [row(name, validity=Validity.NOISY, findings=findings) for name in ("a", "b")]
    (line,) = (line for line in section(*rows).notes if line.startswith("noisy"))
    assert line == (
        "noisy: all rows (other processes took CPU time, and 2 more causes). "
        "Stop other work on this machine, then run the suite again with --retry-noisy 3."
    )


def test_cell_measured_again_in_part_is_named_with_its_jobs() -> None:
    rows = row("bm25", measured_again=1, jobs=3), slow(measured_again=2, jobs=3), row("pisa", jobs=3)
    (line,) = (note for note in summary.doubts(rows, one_line) if "again" in note)
    assert line == (
        "3 of 6 noisy jobs were measured again (bm25, minilm); the earlier measurement is shown until all are: run the"
        " same command, with --retry-noisy, to go on"
    )


def test_row_with_five_causes_has_one_sentence_and_rows_with_one_remedy_share_it() -> None:
    five = (Cause.FOREIGN_CPU, Cause.CANARY, Cause.WARMUP, Cause.DRIFT, Cause.FEW_SAMPLES)
    findings = tuple(Finding(cause, Validity.NOISY, "x") for cause in five)
    rows = [row("a", validity=Validity.NOISY, findings=findings), doubtful("b", Cause.DRIFT), row("c")]
    assert [line for line in section(*rows).notes if line.startswith("noisy")] == [
        "noisy: a, b (other processes took CPU time, and 4 more causes). "
        "Stop other work on this machine, then run the suite again with --retry-noisy 3."
    ]
    swapped = Finding(Cause.SWAP, Validity.INVALID, "x")
    worst = row("d", validity=Validity.INVALID, findings=(*findings, swapped))
    first, *others = [line for line in section(worst, *rows).notes if "more cause" in line]
    assert first.startswith("invalid: d (memory was swapped to disk, and 5 more causes). Switch swap off")
    assert [line[:11] for line in others] == ["noisy: a, b"], "a row is named once"


_P95 = estimate.percentile_of_too_few("p95", 30)
_MORE = (
    "Raise protocol.sample_size if the dataset judges more queries; else judge more, time others too"
    " (protocol.unjudged), or take another dataset."
)


def test_dash_has_its_reason_and_what_to_do_once_for_all_rows() -> None:
    few = {"queries": 30, "p95_s": Estimate(None, reason=_P95)}
    made = section(row("bm25", **few), slow(**few))
    assert [line for line in made.notes if line.startswith("no ")] == [
        f"no p95: p95 needs 130 queries, timed 30. {_MORE}"
    ]
    made = section(row("bm25", **few), slow())
    assert f"no p95 of bm25: p95 needs 130 queries, timed 30. {_MORE}" in made.notes
    assert not any(line.startswith("no ") for line in section(row("bm25"), slow()).notes)


def test_dashes_with_one_remedy_share_a_line_and_other_reasons_have_their_own() -> None:
    interval = estimate.interval_of_too_few(estimate.LATENCY_MIN_QUERIES, 5)
    mean = Estimate(0.001, reason=interval)
    few = {
        "queries": 5,
        "p95_s": Estimate(None, reason=estimate.percentile_of_too_few("p95", 5)),
        "latency_mean_s": mean,
    }
    unpriced = {"usd_per_million": Estimate(None), "price_note": "no type has 9 GPUs"}
    made = section(row("bm25", **few), row("minilm", **few, **unpriced))
    assert [line for line in made.notes if line.startswith("no ")] == [
        "no cost of minilm: no type has 9 GPUs",
        "no p95: p95 needs 130 queries, timed 5; no interval of the latency: an interval needs 30 queries, there are 5."
        f" {_MORE}",
    ]


def test_interval_of_too_few_processes_says_how_to_get_more() -> None:
    few = {"latency_mean_s": Estimate(0.001, reason=estimate.too_few_processes(2))}
    made = section(row("bm25", **few), slow(**few))
    said = "no interval of the latency: an interval needs 3 whole processes, there are 2"
    assert f"{said}. Set protocol.trials to 3 or more, with protocol.name = interleaved." in made.notes
    assert not any("interval" in line for line in section(row("bm25", **few), slow(**few), width=40).notes[:-1])


@pytest.mark.parametrize(("width", "hidden"), [(80, "no room for p95, memory and index   "), (120, ""), (None, "")])
def test_pointer_names_the_columns_that_the_terminal_has_no_room_for(width: int | None, hidden: str) -> None:
    rows = (row("bm25", memory_limit_bytes=256 * MIB), row("bm25"), slow())
    made = section(*rows, width=width, pointers=("all columns and notes: --wide", "page: report.html"))
    assert made.notes[-2:] == (f"{hidden}all columns and notes: --wide", "page: report.html")


def test_narrowest_terminal_names_the_interval_too() -> None:
    rows = (row("bm25-with-a-long-name", memory_limit_bytes=256 * MIB), slow("minilm-with-a-long-name"))
    assert section(*rows, width=66).notes[-1] == (
        "no room for p95, memory, index and the interval of the latency   --wide"
    )


def test_noisy_row_is_not_the_cheapest_without_a_word() -> None:
    made = section(doubtful("bm25"), slow())
    assert [cells[-1] for cells in made.grids[0].cells] == ["cheapest, noisy", ""]
    assert made.after[0].endswith(". The latency behind the cost of bm25 is noisy.")
    unpriced = [sample_records.row_with(each, usd_per_million=Estimate(None)) for each in (doubtful("bm25"), slow())]
    assert section(*unpriced).after[0].endswith(". The latency of bm25 is noisy.")
    many = [replace(each, dataset=name) for name in "abc" for each in (row("bm25"), slow())]
    many[0] = replace(many[0], validity=Validity.NOISY)
    assert section(*many).after[0].endswith(" The latency of a cheapest system is noisy on 1 dataset.")
    assert "~: noisy" in section(*many).lead[0] and "noisy" not in section(*many[1:]).lead[0]


def test_null_system_is_explained_where_it_has_a_row() -> None:
    said = "null answers at once, without a search: its latency is what harness itself adds to a query."
    assert said in section(row("null")).notes and said not in section(row("bm25")).notes


def test_notes_are_at_most_five_lines_with_the_pointers() -> None:
    causes = (Cause.PLACEMENT, Cause.DRIFT, Cause.STEAL, Cause.WARMUP, Cause.CANARY, Cause.SWAP)
    rows = [doubtful(f"s{number}", cause) for number, cause in enumerate(causes)]
    made = section(*rows, pointers=("page: report.html",))
    assert len(made.after) + len(made.notes) == MOST_LINES
    assert made.notes[-2:] == ("3 more notes: --wide", "page: report.html")


def test_several_datasets_are_matrices_of_measure_latency_and_cost() -> None:
    rows = [made(dataset=name) for made in (functools.partial(row, "bm25"), slow) for name in ("b", "a")]
    made = section(*rows)
    assert [grid.caption for grid in made.grids] == ["nDCG@10", "mean latency, ms", "US$/1M queries"]
    assert made.grids[0].headers == ("system", "a", "b")
    assert made.grids[0].cells == (("bm25", "0.679", "0.679"), ("minilm", "0.645", "0.645"))


def test_sentence_has_the_figures_of_the_matrix_below_it_where_rows_may_not_be_compared() -> None:
    other = {"suite": "other", "sample_sha256": "b" * 64, "usd_per_million": Estimate(0.001)}
    rows = [row("bm25"), slow(), slow("dpr"), row("bm25", dataset="b"), slow(dataset="b")]
    made = section(*rows, row("bm25", **other, measures={"nDCG@10": Estimate(0.9)}))
    matrix, _, costs = made.grids
    assert matrix.headers == ("system", "suite", "b", "scifact")
    assert ("bm25", "demo", "0.679", "0.679") in matrix.cells and ("bm25", "other", "—", "0.900") in matrix.cells
    assert ("bm25", "other", "—", "0.00100") in costs.cells
    # 0.0724 / 0.0076, both of suite demo; the other sample's bm25 costs less.
    sentences_ = made.after
    assert sentences_[1].startswith(
        "scifact, suite demo: bm25 costs 9.5x less than minilm and is 3.4 points nDCG@10 better"
    )
    assert sentences_[0].startswith("b: bm25 costs 9.5x less than minilm")


def test_matrix_shows_a_valid_row_before_a_cheaper_invalid_one() -> None:
    cheap = {"usd_per_million": Estimate(0.001), "profile": "small", "memory_limit_bytes": 256 * MIB}
    rows = [row("bm25", dataset=name) for name in ("a", "b")]
    rows += [row("bm25", dataset=name, **cheap, validity=Validity.INVALID) for name in ("a", "b")]
    assert section(*rows).grids[2].cells[0][1:3] == ("0.00760", "0.00760")


def test_matrix_says_the_smallest_hardware_that_every_dataset_passes_on() -> None:
    small = {"memory_limit_bytes": 256 * MIB}
    rows = [row("bm25", dataset=name) for name in ("a", "b")]
    rows += [row("bm25", dataset="a", **small), row("bm25", dataset="b", **small, outcome=Outcome.OOM)]
    assert section(*rows).grids[0].cells == (("bm25", "0.679", "0.679", "1 CPU, 1 GiB"),)


def test_price_of_another_gpu_is_marked() -> None:
    for model, cell in (("NVIDIA H100 80GB HBM3", "0.00760 (t4)"), ("Tesla T4", "0.00760")):
        machine = sample_records.as_record(Machine, "CPU", "x86_64", "6", 2, None, "1", None, (model,), None, 2)
        price = Price("g.one", "x86_64", 4, 16 * GIB, "us-east-1", "on-demand", 0.5, "2026-07-20", 1, "t4")
        made = section(row("bm25", machine=machine, price=price, gpus=1), slow(machine=machine))
        (found,) = (cells for cells in made.grids[0].cells if cells[0] == "bm25")
        assert cell in found
        assert ("(t4), *: priced there" in made.lead[0]) == ("(t4)" in cell)


def test_machine_that_prices_a_row_is_shown_and_marked_where_it_did_not_measure_it() -> None:
    def on(measured: str | None, memory: int = 4 * GIB) -> Row:
        machine = sample_records.as_record(Machine, "CPU", "x86_64", "6", 2, None, "1", None, (), measured, 2)
        price = Price("c7a.medium", "x86_64", 1, 4 * GIB, "us-east-1", "on-demand", 0.0513, "2026-07-20")
        return row("bm25", machine=machine, price=price, memory_limit_bytes=memory, nominal_memory_bytes=4 * GIB)

    assert "priced on c7a.medium, " in section(on("c7a.medium")).lead[0]
    elsewhere = section(on(None)).lead[0]
    assert "priced on c7a.medium*, " in elsewhere and elsewhere.endswith(", *: priced there, measured elsewhere")
    both = section(on("c7a.medium"), on(None))
    assert both.grids[0].headers[1] == "priced on"
    assert [cells[1] for cells in both.grids[0].cells] == ["c7a.medium", "c7a.medium*"]
    assert "1 CPU, 4 GiB (limit 3.3), " in section(on(None, int(3.3 * GIB))).lead[0]


def printed(made: Section, width: int) -> list[str]:
    stream = io.StringIO()
    writers.print_answer(made, Console(file=stream, width=width, force_terminal=False, _environ={}))
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_table_fits_the_terminal(width: int) -> None:
    rows = (row("bm25", memory_limit_bytes=256 * MIB), row("bm25"), slow())
    made = section(*rows, width=width)
    lines = [line for line in printed(made, width) if line.startswith(("system", "bm25", "minilm"))]
    assert len(lines) >= 4 and max(map(len, lines[:4])) <= width
    assert ("index" in made.grids[0].headers) == (width > 80)


def test_narrow_terminal_shows_the_latency_without_its_interval() -> None:
    rows = (row("bm25-with-a-long-name", memory_limit_bytes=256 * MIB), slow("minilm-with-a-long-name"))
    wide, narrow = section(*rows, width=100).grids[0], section(*rows, width=66).grids[0]
    assert "latency ms (95 %)" in wide.headers and "latency ms" in narrow.headers
    assert "(" not in narrow.cells[0][narrow.headers.index("latency ms")]


def test_wide_message_does_not_widen_its_column() -> None:
    failed = slow(outcome=Outcome.CRASH, detail="a long reason for it", measures={})
    with_it, without = (
        writers.plain_table(section(*rows).grids[0]) for rows in ((row("a"), slow(), failed), (row("a"), slow()))
    )
    assert with_it[0] == without[0]


def test_view_chooses_columns_and_order() -> None:
    made = section(row("bm25"), slow(), columns=("latency", "cost"), sort="latency")
    assert made.grids[0].headers == ("system", "latency ms (95 %)", "US$/1M queries", "")
    made = section(row("bm25"), slow(), sort="nDCG@10")
    assert [cells[0] for cells in made.grids[0].cells] == ["bm25", "minilm"]


def test_build_is_shown_only_where_it_is_asked_for_with_its_doubts() -> None:
    loud = Finding(Cause.FOREIGN_CPU, Validity.NOISY, "x")
    envelope = Envelope("e", 1, 1 << 30)
    built: dict[str, Any] = {
        "usd_build_per_million_documents": Estimate(1.5),
        "index_build_s": 3.0,
        "build_envelope": envelope,
    }
    doubted = row("bm25", **built, build_validity=Validity.NOISY, build_findings=(loud,))
    elsewhere = slow(**built, build_machine=replace(sample_records.MACHINE, instance_type="r6g.large"))
    usual = section(doubted, elsewhere)
    assert not any("build" in text for text in (*usual.grids[0].headers, *usual.notes))
    asked = section(doubted, elsewhere, columns=("build",))
    assert asked.grids[0].headers[:2] == ("system", "build US$/1M docs")
    assert [cells[1:] for cells in asked.grids[0].cells] == [("1.50 ~", ""), ("1.50", "")], "none is the cheapest"
    assert asked.notes[0].startswith("Index builds ran on 2 kinds of machine: do not compare their times or costs (")
    assert asked.notes[1] == (
        "noisy builds: bm25 (other processes took CPU time). Each was measured once: build again with --fresh-index."
    )


def test_unknown_column_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"unknown column 'latnecy'. Did you mean 'latency'"):
        section(row("bm25"), columns=("latnecy",))


def test_chosen_measures_are_all_shown() -> None:
    rows = [made(measures={"nDCG@10": Estimate(value), "RR@10": Estimate(value / 2)}) for made, value in _BOTH]
    headers = section(*rows, measures=("RR@10", "nDCG@10")).grids[0].headers
    assert headers[:3] == ("system", "RR@10", "nDCG@10")


def test_empty_results_say_so() -> None:
    assert section().lead == ("No stored results.",)


def test_colours_follow_the_console() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=120, force_terminal=True, color_system="standard", _environ={})
    writers.print_answer(section(row("bm25"), doubtful("b")), console)
    assert "\x1b[33m" in stream.getvalue()
    stream = io.StringIO()
    plain = Console(file=stream, width=120, force_terminal=True, color_system="standard", _environ={"NO_COLOR": "1"})
    writers.print_answer(section(row("bm25"), doubtful("b")), plain)
    assert "\x1b[3" not in stream.getvalue()


def test_sizes_are_short() -> None:
    shown = [hardware.hardware(row("x", memory_limit_bytes=size)) for size in (256 * MIB, GIB, 3 * GIB // 2)]
    assert shown == ["1 CPU, 256 MiB", "1 CPU, 1 GiB", "1 CPU, 1.50 GiB"]
    assert hardware.hardware(replace(row("x"), gpus=2, cpus=8)) == "8 CPUs, 2 GPUs, 1 GiB"


def test_sentence_escapes_names_alone() -> None:
    rows, values = (row("bm25"), slow()), {}
    (sentence,) = sentences.answers(table(*rows), compare_by(values), "nDCG@10", lambda name: f"<{name}>")
    assert sentence.startswith("<bm25> costs ")
    assert "<minilm> and is " in sentence
