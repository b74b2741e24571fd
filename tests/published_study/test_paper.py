"""A paper's tables in its own shape, for people and for programs."""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis import published as published_tables
from harness.pricing import prices
from results.published.santhanam2023.study import paper
from tests.support.command_line import call
from tests.support.published import SHIPPED, copy

NOW = datetime.date(2026, 7, 20)


def rendered(form: str, folder: Path = SHIPPED) -> str:
    published = published_tables.read(folder)
    return paper.render(published, published.follows(), prices.snapshot(NOW), form)


@pytest.fixture(scope="module")
def text() -> str:
    return rendered("md")


def grid(text: str, title: str) -> list[list[str]]:
    """The cells of the table under a heading, without its rule."""
    (part,) = (part for part in text.split("\n## ") if part.startswith(title))
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


@pytest.mark.slow
def test_tables_have_the_papers_shape(text: str) -> None:
    assert re.findall(r"^## (Table \w+)", text, flags=re.MULTILINE) == [
        *(f"Table {name}" for name in ("1", "2", "3a", "3b", "3c", "5", "6")),
        *(f"Table {name}" for name in ("4a", "7b", "7c", "7d", "4b", "8b", "8c", "8d")),
    ]
    third = grid(text, "Table 3a")
    assert third[0] == ["GPU", "CPU", "RAM, GiB", "instance type", "system", "latency, ms", "US$ per million queries"]
    assert third[2] == ["0", "1", "32", "x2gd.large", "BM25", "10", "0.48"]
    assert third[3] == ["", "", "", "", "DPR", "146", "6.78"], "a hardware stands once"
    assert third[5][-1] == "14.90", "with the printed digits"
    assert len(third) == 29
    assert grid(text, "Table 1")[9] == ["RocketQAv2", "Ren et al. 2021", "—", "—", "—", "37.0", "—", "—"]
    assert grid(text, "Table 3c")[1] == ["BM25", "18.7", "38.6", "26.3", "44.5"]


@pytest.mark.slow
def test_every_score_is_shown_with_the_recomputed_score(text: str) -> None:
    published = published_tables.read(SHIPPED)
    for number, printed_lines in published.scores.items():
        lines = [[cell.partition(" [E")[0] for cell in line] for line in grid(text, f"Table {number}")[1:]]
        assert [(line[1], line[3]) for line in lines] == [(line.system, str(line.dynascore)) for line in printed_lines]
        for *_, printed, again, difference, _ in lines:
            assert float(again) - float(printed) == pytest.approx(float(difference), abs=1e-9)
            assert abs(float(difference)) < 0.04


@pytest.mark.slow
def test_errata_are_marked_at_their_rows_and_listed(text: str) -> None:
    assert grid(text, "Table 3a")[10] == ["", "", "", "", "DPR", "19", "2.97 [E1]"]
    assert grid(text, "Table 2")[3][5] == "0.07 [E2]"
    assert [row[3] for row in grid(text, "Table 3c") if row[0] == "DPR"] == ["16.9 [E16]"]
    marks = re.findall(r"\[E(\d+)\](?! \()", text)
    listed = re.findall(r"^- \[E(\d+)\]", text, flags=re.MULTILINE)
    assert listed == [str(number) for number in range(1, 17)]
    assert sorted(marks, key=int) == listed


def test_costs_are_shown_with_recomputed_costs(text: str) -> None:
    assert "61 of 62 agree." in text
    made = grid(text, "Costs, made again")
    assert made[20] == ["3a", "10", "DPR", "19", "c7g.4xlarge", "0.58", "2.97", "3.06", "2.981", "3.142", "differs"]
    assert sum(row[-1] == "agrees" for row in made) == 61
    moved = grid(text, "Costs, 2022-10-31 to 2026-07-20")
    assert moved[62] == [
        "3b",
        "24",
        "BT-SPLADE-L",
        "147.53",
        "—",  # p3.8xlarge is gone
        "g4dn.4xlarge",
        "14.38",
        "g4dn.4xlarge",
        "14.38",
        "17 → 11",
    ]
    assert "substituted and the latency not re-measured" in text


def test_tables_line_up_within_145_columns(text: str) -> None:
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        widths = {len(line) for line in block.splitlines()}
        assert len(widths) == 1 and widths.pop() <= 145


@pytest.mark.slow
def test_csv_reads_back_as_printed() -> None:
    rows = list(csv.DictReader(io.StringIO(rendered("csv"))))
    assert [sum(row["table"] == table for row in rows) for table in ("1", "2", "3a", "3b")] == [15, 10, 28, 24]
    colbert = next(row for row in rows if (row["table"], row["row"]) == ("3a", "5"))
    assert (colbert["dataset"], colbert["cost_usd_per_million"], colbert["mrr_at_10"]) == ("msmarco", "14.90", "39.7")
    assert float(colbert["cost_lowest"]) < 14.895 < float(colbert["cost_highest"])
    assert [row["system"] for row in rows if row["agrees"] == "false"] == ["DPR"]
    rocket = next(row for row in rows if row["system"] == "RocketQAv2")
    assert (rocket["latency_ms"], rocket["cost_recomputed"]) == ("", ""), "missing is empty, never 0"
    bm25 = next(row for row in rows if (row["table"], row["row"]) == ("2", "1"))
    assert bm25["errata"] == "E9 E12"


@pytest.mark.slow
def test_the_paper_as_json_holds_every_row_and_erratum() -> None:
    whole = json.loads(rendered("json"))
    assert whole["published"]["doi"] == "10.18653/v1/2023.findings-acl.738"
    assert len(whole["rows"]) == 77 and len(whole["errata"]) == 16
    assert sum(len(lines) for lines in whole["scores"].values()) == 4 * 28 + 4 * 24
    assert [len(whole[name]) for name in ("table5", "table6", "settings")] == [2, 3, 13]
    assert whole["table6"][1] == {"system": "PLAID ColBERTv2", "query_tokens": 32, "passage_tokens": 300}
    assert {"subject": "PrimeQA", "value": "7b5aa6c", "kind": "commit", "section": "appendix A"} in whole["settings"]
    assert whole["rows"][8]["latency_ms"] is None
    assert {row["dataset"] for row in whole["rows"]} == {"msmarco", "xortydi"}


@pytest.mark.slow
def test_json_escapes_control_characters(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    toml = folder / "published.toml"
    hostile = "Moving \x9b31m\u202eBeyond"
    toml.write_text(toml.read_text().replace('title = "Moving Beyond', f'title = "{hostile}'), encoding="utf-8")
    made = rendered("json", folder)
    assert made.isascii() and json.loads(made)["published"]["title"].startswith(hostile)


@pytest.mark.slow
def test_report_names_the_successor_of_a_type_without_price() -> None:
    published, now = published_tables.read(SHIPPED), prices.snapshot(NOW)

    def told(*kept: str) -> tuple[str, bool]:
        left = tuple(item for item in now.prices if item[0].instance_type in kept)
        text = paper.render(published, published.follows(), replace(now, prices=left), "md")
        (row,) = (row for row in grid(text, "The same") if row[:2] == ["8 CPU, 32 GiB", "r6a.2xlarge"])
        return row[3], "r6a.2xlarge (now r6a.4xlarge 0.9072)" in text

    assert told("r6a.4xlarge") == ("gone", True)
    assert told("m6g.large") == ("no price, and no type has at least its resources", False)


@pytest.mark.slow
def test_foreign_text_in_published_tables_is_escaped(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    path = folder / "table2_minimum_viable.csv"
    path.write_text(path.read_text().replace("DESSERT,", "<b>|x,"), encoding="utf-8")
    toml = folder / "published.toml"
    toml.write_text(toml.read_text().replace('system = "DESSERT"', 'system = "<b>|x"'), encoding="utf-8")
    text = rendered("md", folder)
    assert "&lt;b&gt;\\|x" in text and "<b>" not in text


@pytest.mark.slow
def test_report_command_prints_the_paper_at_chosen_prices(tmp_path: Path) -> None:
    wide = ["report", str(SHIPPED), "--wide", "--as-of"]
    usual = call(*wide, str(NOW))
    assert (usual.exit_code, usual.stdout) == (0, rendered("md"))
    written = tmp_path / "paper.csv"
    made = ["report", str(SHIPPED), "--format", "csv", "-o", str(written), "--as-of", str(NOW)]
    assert call(*made).exit_code == 0
    assert written.read_text() == rendered("csv")


@pytest.mark.slow
def test_terminal_shows_the_answer_and_wide_the_papers_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    short, wide = (call("report", str(SHIPPED), *more).stdout for more in ([], ["--wide"]))
    assert "runs in" in short and len(short.splitlines()) < 70 and "Table 1" not in short.partition("\n\n")[0]
    assert "## Table 1: what other papers report" in wide
