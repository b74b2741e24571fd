"""Rows of two stages and of language models: the first table, its sentence, columns for programs, explanations."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from harness.analysis.table import FirstStage, Row, Table, TokenPrice
from harness.estimate import Estimate
from harness.report import explain, export, row_figures, sentences, writers
from harness.report.main_table import table_document, table_section
from harness.report.summary import SummaryView, summary_section
from harness.results import reader
from tests.report.test_summary import row, slow
from tests.support import publisher
from tests.support.publisher import Made
from tests.support.sample_records import compare_by

COUNTS = {"pairs": 20.0, "windows": 21.0, "tokens": 3100.0, "padded_tokens": 3500.0, "calls": 2.0, "flop": 6.61e9}
PRICE = TokenPrice("gpt-4o-mini", 0.15, 0.6, 0.5, "2026-11-09", "a list; https://provider.example")


def stage(**changes: object) -> FirstStage:
    plain = FirstStage(
        "bm25",
        True,
        20,
        Estimate(0.81, 0.76, 0.85),
        {"nDCG@10": Estimate(0.648)},
        {"nDCG@10": Estimate(0.031, 0.012, 0.05)},
        {"nDCG@10": Estimate(0.12, 0.08, 0.16)},
    )
    return replace(plain, **changes)


def two_stage(system: str = "minilm", **changes: object) -> Row:
    fields = {"measures": {"nDCG@10": Estimate(0.679)}, "first_stage": stage(), "counts": COUNTS}
    return slow(system, **{**fields, **changes})


def language_model(**changes: object) -> Row:
    fields = {
        "counts": {"pairs": 20.0, "calls": 1.0, "prompt_tokens": 3123.0, "completion_tokens": 80.0},
        "token_model": "gpt-4o-mini",
        "token_price": PRICE,
        "usd_tokens_per_million": Estimate(516.45),
    }
    return two_stage("gpt", **{**fields, **changes})


def table(*rows: Row) -> Table:
    return Table(rows, ("nDCG@10",), "aws", "us-east-1", "2026-07-20")


def said(*rows: Row) -> str:
    (sentence,) = sentences.reranking(table(*rows), "nDCG@10")
    return sentence


def test_one_sentence_says_gain_harm_and_ceiling_of_the_best_second_stage() -> None:
    weaker = two_stage("weak", measures={"nDCG@10": Estimate(0.6)})
    assert said(row("bm25"), weaker, two_stage()) == (
        "minilm adds 3.1 points nDCG@10 [1.2, 5.0] to bm25 and makes 12 % of the queries worse; bm25's first 20 hold "
        "81 % of the relevant documents."
    )
    assert sentences.reranking(table(row("bm25"), slow()), "nDCG@10") == ()


def test_a_gain_that_may_be_chance_and_a_loss_are_called_so() -> None:
    by_chance = stage(gain={"nDCG@10": Estimate(0.004, -0.005, 0.013)})
    assert "minilm adds 0.4 points nDCG@10 [-0.5, 1.3] to bm25, which may be chance, and makes" in said(
        two_stage(first_stage=by_chance)
    )
    loss = stage(gain={"nDCG@10": Estimate(-0.02, -0.04, -0.01)})
    assert "minilm takes 2.0 points nDCG@10 [1.0, 4.0] from bm25 and makes" in said(two_stage(first_stage=loss))
    unknown = stage(gain={}, harm={}, ceiling=Estimate(None, reason="only hits were judged"))
    assert said(two_stage(first_stage=unknown)) == (
        "minilm reranks bm25, and its gain is not known; its ceiling is not known: only hits were judged."
    )


@pytest.mark.parametrize("width", [80, 100])
def test_first_table_fits_the_terminal_and_counts_are_there_where_a_row_has_them(width: int) -> None:
    made = summary_section(table(row("bm25"), two_stage(), language_model()), compare_by(), str, SummaryView(), width)
    (grid,) = made.grids
    assert max(map(cell_len, writers.plain_table(grid))) <= width
    assert "tokens US$/1M" in grid.headers, "what an answer of a language model costs decides most"
    assert {"GFLOP", "R@depth", "windows"}.isdisjoint(grid.headers)
    without = summary_section(table(row("bm25"), slow()), compare_by(), str, SummaryView(), None).grids[0]
    assert {"pairs", "tokens", "tokens US$/1M"}.isdisjoint(without.headers)
    assert {"pairs", "tokens"} <= set(
        summary_section(table(row("bm25"), two_stage()), compare_by(), str).grids[0].headers
    )


def test_columns_by_name_show_ceiling_gain_and_harm() -> None:
    view = SummaryView(columns=("ceiling", "gain", "harm", "GFLOP"), sort="gain")
    (grid,) = summary_section(table(row("bm25"), two_stage()), compare_by(), str, view).grids
    assert grid.headers[:5] == ("system", "R@depth", "gain, points (95 %)", "made worse, %", "GFLOP")
    assert grid.cells[0][:5] == ("minilm", "0.810", "3.1 (1.2–5.0)", "12.0", "6.61"), "the larger gain is first"


def test_encoders_show_work_and_parameters_on_request() -> None:
    encoder = slow("dpr", counts={"flop": 2.75e9, "parameters": 109_482_240.0})
    both = table(row("bm25"), encoder)
    assert {"GFLOP", "M parameters"}.isdisjoint(summary_section(both, compare_by(), str).grids[0].headers)
    view = SummaryView(columns=("parameters", "GFLOP"), sort="parameters")
    (grid,) = summary_section(both, compare_by(), str, view).grids
    assert grid.headers[:3] == ("system", "M parameters", "GFLOP")
    assert [line[:3] for line in grid.cells] == [("dpr", "109", "2.75"), ("bm25", "—", "—")]
    first, second = csv.DictReader(io.StringIO(writers.write_csv(table_document(both))))
    assert (first["parameters"], second["parameters"], second["GFLOP"]) == ("", "109482240.0", "2.75")


def test_a_stored_first_stage_is_said_to_be_unmeasured() -> None:
    stored = two_stage(first_stage=stage(system="dl19-bm25", measured=False))
    made = summary_section(table(stored), compare_by(), str)
    assert "first stage not measured: minilm reranks the stored ranking dl19-bm25" in " ".join(made.notes)
    assert "first stage not measured: dl19-bm25 is a stored ranking" in table_section(table(stored), str).footnotes


def test_csv_has_columns_of_work_and_stages_only_where_rows_have_them() -> None:
    text = writers.write_csv(table_document(table(row("bm25"), two_stage(), language_model())))
    bm25, minilm, gpt = csv.DictReader(io.StringIO(text))
    shown = [minilm[name] for name in ("pairs", "GFLOP", "ceiling", "gain", "harm_high")]
    assert shown == ["20.0", "6.61", "0.81", "0.031", "0.16"]
    assert float(minilm["padding_share"]) == pytest.approx(400 / 3500)
    assert (minilm["first_stage"], minilm["first_stage_measured"], minilm["depth"]) == ("bm25", "yes", "20")
    assert (gpt["usd_tokens_per_million_queries"], gpt["token_price_date"]) == ("516.45", "2026-11-09")
    assert {bm25[name] for name in ("pairs", "gain", "token_model")} == {""}
    plain = {column.name for column in row_figures.table_columns(table(row("bm25")))}
    assert plain.isdisjoint({"pairs", "gain", "token_model"})


def test_row_explains_its_first_stage_its_work_and_the_price_of_its_tokens() -> None:
    made = dict(explain.row_paragraphs(language_model()))
    assert made["First stage"].startswith(
        "bm25 gave its first 20 hits to the second stage. R@20 0.8100 (0.7600–0.8500), which no order of these "
        "documents exceeds. nDCG@10 0.648 alone, gain 0.0310 (0.0120–0.0500) by a paired test; 12 (8–16) % of the "
        "queries made worse."
    )
    assert made["Token prices"].startswith(
        "US$ 516 per million queries = 3123 x US$ 0.15 + 80 x US$ 0.6: prompt and completion tokens of a mean query at "
        "the prices of gpt-4o-mini on 2026-11-09, added to the cost of the instance. Sent as batches: US$ 258."
    )
    work = dict(explain.row_paragraphs(two_stage()))["Work"]
    assert work.startswith("Of a mean query: pairs 20.0, windows 21.0, tokens 3100, padded tokens 3500, calls 2.00")
    assert "11% of the computed tokens only fill up." in work


def test_recorded_answers_name_the_time_that_no_latency_has() -> None:
    recorded = language_model(counts={"prompt_tokens": 10.0, "completion_tokens": 1.0, "provider_ms": 1234.5})
    notes = " ".join(summary_section(table(recorded), compare_by(), str).notes)
    assert "the provider's time, not measured here, is in no latency and no cost: gpt (1,234 ms a query)" in notes
    assert "recorded answers" not in " ".join(summary_section(table(language_model()), compare_by(), str).notes)


def test_samples_of_stored_jobs_have_their_counts(tmp_path: Path) -> None:
    publisher.put(tmp_path, Made("both", 10.0, jobs=1, first=(15,), counts={"pairs": 20}))
    frame = export.samples_frame(reader.read_jobs(tmp_path))
    assert set(frame.loc[frame["part"] == "timed", "count_pairs"]) == {20}
    assert frame.loc[frame["part"] == "warmup", "count_pairs"].isna().all()
    assert "work of this query" in frame.attrs["meanings"]["count_pairs"]
