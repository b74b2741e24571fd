"""The tables of Boytsov et al. 2025 as printed: their figures, the gains that follow, and findings beside the rows."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from harness.analysis import published_measures
from harness.analysis.published_measures import measures_table
from harness.analysis.table import Row, Validity
from harness.errors import FileError
from harness.records import Isolation
from tests.support.command_line import call

SHIPPED = Path(__file__).resolve().parents[2] / "results" / "published" / "boytsov2025"
# Of the files when each figure had been compared with the print.
SHA256 = {
    "table1_measures.csv": "0aa028f7980808ce70e0f68c82571f191c01bb77141a18680f163170e7fb22b8",
    "table2_debiased.csv": "1cb9c291e9039f9c1158d7f81ff29698361e6c50b538000eef292807ab2d619c",
    "table4_farrelevant.csv": "83ce4b75391d02d98226b0220bac3033bec5f01f4e2dc971a613855fb66ef980",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(SHIPPED, tmp_path / "paper"))


def alter(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {name}"
    (folder / name).write_text(text.replace(old, new), encoding="utf-8")


def rows(system: str) -> dict[str, Row]:
    table = measures_table(published_measures.read(SHIPPED))
    return {f"{row.suite} {row.dataset}": row for row in table.rows if row.system == system}


def test_files_are_those_that_were_compared_with_the_print() -> None:
    assert {name: hashlib.sha256((SHIPPED / name).read_bytes()).hexdigest() for name in SHA256} == SHA256


def test_all_23_printed_gains_follow_from_printed_figures_and_pairs(folder: Path) -> None:
    paper = published_measures.read(folder)
    assert (len(paper.printed_gains()), [*paper.wrong_gains()]) == (23, [])
    alter(folder, "table1_measures.csv", "PARADE Attn,.416", "PARADE Attn,.426")
    assert [*published_measures.read(folder).wrong_gains()] == [("PARADE Attn", "+5.0", "+5.46 to +5.88")]
    assert "gain of PARADE Attn: stored: +5.0 %; follows: +5.46 to +5.88" in call("verify", str(folder)).stdout


def test_rows_have_figures_marks_and_findings_and_no_cost() -> None:
    found = rows("PARADE Attn ELECTRA")
    assert [*found] == [
        *(f"boytsov2025 {name}" for name in ("msmarco-doc-dev", "trec-dl-2019-2021")),
        *(f"boytsov2025 robust04-{name}" for name in ("title", "description")),
        *(f"boytsov2025-table2 far-relevant{name}" for name in ("", "-debiased")),
        *(f"boytsov2025-table2 msmarco-doc-dev{name}" for name in ("", "-debiased")),
        *(f"boytsov2025-table2 {name}" for name in ("needle", "passkey")),
        *(f"boytsov2025-table4 far-relevant{name}" for name in ("", "-tuned")),
    ]
    row = found["boytsov2025 robust04-description"]
    assert (row.measured("nDCG@20"), row.k, row.isolation) == (0.581, 1000, Isolation.PUBLISHED)
    assert (row.validity, row.latency_mean_s.value) == (Validity.UNKNOWN, None)
    assert [note.partition(":")[0] for note in row.notes[1:]] == [
        "its FirstP is FirstP ELECTRA",
        "finding F2",
        "finding F3",
    ]
    # A dash in the print is no row.
    assert [*rows("LongP RankGPT (Claude 3 Haiku)")] == [
        "boytsov2025 trec-dl-2019-2021",
        "boytsov2025 robust04-description",
        "boytsov2025-table4 far-relevant",
    ]


def test_commands_show_measures_and_refuse_costs(folder: Path) -> None:
    where = str(folder)
    shown = call("report", where).stdout
    assert "| PARADE Attn                    |     .416 |    .652 |  .503 |  .556 | .300 |   +5.0 |" in shown
    assert max(len(line) for line in shown.splitlines() if line.startswith("|")) <= 90, "80, and 10 for Markdown's bars"
    explained = call("explain", "LongP RankGPT (GPT-4o-mini)", "--results", where).stdout
    assert "there is no truncation for RankGPT; but FirstP and LongP both read the first 300 words" in explained
    assert "no cost: published without hardware" in call("leaderboard", where, "--dataset", "far-relevant").stderr
    ranked = call("leaderboard", where, "--dataset", "msmarco-doc-dev", "--rank-by", "accuracy").stdout
    assert "|    1 | PARADE Transf-RAND-L2 ELECTRA | 43.3 |" in ranked
    assert "of latency and cost, which this paper does not print" in call("report", where, "--format", "png").stderr
    page = folder.parent / "page.html"
    call("report", where, "--format", "html", "-o", str(page))
    assert (
        "<td" in page.read_text() and "No system gains more over its FirstP than PARADE Attn: 5 %." in page.read_text()
    )
    assert "published tables: 8 do not follow" in call("verify", where).stdout


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("published.toml", '"SumP" = "FirstP', '"SumQ" = "FirstP', r"\[firstp\] names 'SumQ', which no table has"),
        ("published.toml", '["AvgP", "CEDR-*"]', '["AvgQ"]', "finding F4 concerns no row; correct `systems`"),
        ("published.toml", "year = 2025", "yeer = 2025", "unknown key 'yeer'; did you mean 'year'"),
        ("table2_debiased.csv", "CEDR-KNRM,.055", "CEDR-KNRM,1e3", "'1e3' is no printed number; write digits"),
        ("table4_farrelevant.csv", "zero_shot_rr", "zero_shot", "the header is 'system,zero_shot,fine_tuned_rr'"),
    ],
)
def test_a_damaged_folder_is_one_line(folder: Path, name: str, old: str, new: str, message: str) -> None:
    alter(folder, name, old, new)
    with pytest.raises(FileError, match=message):
        published_measures.read(folder)
