"""Published tables of measures as printed: figures, what follows from them, findings and errata beside the rows."""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from harness.analysis import published_measures
from harness.analysis.published_measures import LOST, measures_table
from harness.analysis.table import Row, Validity
from harness.errors import FileError
from harness.results import isolation
from harness.stats import kendall_p, kendall_tau
from tests.support.command_line import call

PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "published"
SHIPPED, FRECHET = PUBLISHED / "boytsov2025", PUBLISHED / "arabzadeh2024"
# Of all tables when each figure had been compared with the print.
SHA256 = {
    "boytsov2025": "39209d48c5f8054fb781e183bd8befa1cf15ecd7c9c25a678765bae42458e01b",
    "arabzadeh2024": "3e3e77622794112c2a6623de439b854839ff8a6572bbba574e32f7236021dc07",
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


@pytest.mark.parametrize("name", SHA256)
def test_files_are_those_that_were_compared_with_the_print(name: str) -> None:
    found = hashlib.sha256()
    for path in sorted((PUBLISHED / name).glob("*.csv")):
        found.update(f"{path.name}\n".encode() + path.read_bytes())
    assert found.hexdigest() == SHA256[name]


@pytest.mark.parametrize("name", SHA256)
def test_every_table_of_both_papers_ships(name: str) -> None:
    paper = published_measures.read(PUBLISHED / name)
    numbers = [table.number for table in paper.about.tables]
    last = {"boytsov2025": 11, "arabzadeh2024": 5}[name]
    facts = {"boytsov2025": ["text"], "arabzadeh2024": []}[name]
    assert numbers == [*(str(number) for number in range(1, last + 1)), *facts]
    assert {path.name for path in paper.folder.glob("*.csv")} == {table.file for table in paper.about.tables}


def gain_ends(pairs: Sequence[tuple[str, str]]) -> tuple[Fraction, Fraction]:
    """Return the least and the largest mean gain in per cent that rounded figures over rounded baselines allow."""

    def mean(sign: int) -> Fraction:
        ends = [(Fraction(a) + sign * half(a)) / (Fraction(b) - sign * half(b)) for a, b in pairs]
        return 100 * (sum(ends) / Fraction(len(ends)) - 1)

    return mean(-1), mean(1)


def half(printed: str) -> Fraction:
    """Return half a unit of the last printed digit."""
    return Fraction(1, 2 * 10 ** len(printed.partition(".")[2]))


def test_all_498_printed_gains_follow_from_printed_figures_and_baselines() -> None:
    paper = published_measures.read(SHIPPED)
    gains: list[tuple[str, list[tuple[str, str]]]] = []
    for table in paper.about.tables:
        by_system = {line[table.key]: line for line in paper.lines[table.number]}
        for system, line in by_system.items():
            base = by_system.get(paper.baseline(table, system) or "", {})
            cells, of_base = table.cells(line), table.cells(base) if base else {}
            pairs = {name: (cell.figure, of_base[name].figure) for name, cell in cells.items() if name in of_base}
            gains += [(cell.gain, [pairs[name]]) for name, cell in cells.items() if cell.gain and base[name] != LOST]
            if table.gain and line[table.gain] and LOST not in (*line.values(), *base.values()):
                gains.append((line[table.gain], [*pairs.values()]))
    assert len(gains) == 498
    for printed, figures in gains:
        low, high = gain_ends(figures)
        assert low - half(printed) <= Fraction(printed) <= high + half(printed), (printed, figures)
    assert (len(paper.printed_gains()), paper.printed_gains()["LongP RankGPT (GPT-4o-mini)"]) == (24, -0.1)


@pytest.mark.slow
def test_facts_of_the_positional_bias_study_and_what_follows_from_them() -> None:
    paper = published_measures.read(SHIPPED)
    value = {line["fact"]: line["value"] for line in paper.lines["text"]}
    hours, used, large = (
        int(value[fact]) for fact in ("to have spent only about", "hours using NVIDIA A10", "hours using NVIDIA A6000")
    )
    follows = {each.name: each.follows for each in paper.about.errata}
    assert used + large == hours and follows["E7"] == f"{100 * used / hours} % and {100 * large / hours} %"
    doubled = [
        256 << power for power in range(16) if 256 << power <= int(value["extrapolated to rank documents up to"])
    ]
    assert follows["E6"] == f"doubling gives {len(doubled)}: 256, 512, ... {doubled[-1]:,}"
    done = call("report", str(SHIPPED), "--wide")
    assert "PARADE Transf-RAND-L2 and Transf-PRETR-LATEIR-L6" in done.stdout and "E6" in done.stdout
    assert "**Text: training, what was tried and left out, Gov2**" in done.stdout
    assert "Tables 1, 5, 7 and 8 (Tables 1, 5, 7, 8: MaxP DEBERTA)" in done.stdout and "(to generate 16" in done.stdout


@pytest.mark.slow
def test_rows_stand_in_the_tables_that_print_them_with_marks_gains_and_findings() -> None:
    found = rows("PARADE Attn ELECTRA")
    collections = ("msmarco-doc-dev", "trec-dl-2019-2021", "robust04-title", "robust04-description")
    assert [name for name in found if name.startswith("boytsov2025 ")] == [
        f"boytsov2025 {each}" for each in collections
    ]
    assert [*found][4:10] == [
        *(f"boytsov2025-table2 {name}" for name in ("msmarco-doc-dev", "trec-dl-2019-2021")),
        *(f"boytsov2025-table2 far-relevant{name}" for name in ("", "-tuned")),
        *(f"boytsov2025-table2 {name}" for name in ("needle", "passkey")),
    ]
    row = found["boytsov2025 robust04-description"]
    assert (row.measured("nDCG@20"), row.k, row.isolation) == (0.581, 1000, isolation.PUBLISHED)
    assert (row.validity, row.latency.mean_s.value) == (Validity.UNKNOWN, None)
    assert [note.partition(":")[0] for note in row.notes[1:]] == [
        "its FirstP is FirstP ELECTRA",
        "printed with nDCG@20",
        "finding F2",
        "finding F3",
    ]
    assert row.notes[2].startswith("printed with nDCG@20: +5.3 % over FirstP ELECTRA; differs from its FirstP: p below")
    # Measures of one collection in one table make one row.
    assert found["boytsov2025-table7 trec-dl-2019-2021"].measures.keys() == {"nDCG@10", "P@10", "AP"}
    # A dash in the print is no row, and Table 1 does not print this system.
    assert [*rows("LongP RankGPT (Claude 3 Haiku)")] == [
        "boytsov2025-table4 far-relevant",
        "boytsov2025-table7 trec-dl-2019-2021",
        "boytsov2025-table8 robust04-description",
    ]
    assert not any(name.startswith("boytsov2025 ") for name in rows("PARADE Transf-PRETR-LATEIR-L6"))


def test_a_lost_figure_is_no_row() -> None:
    paper = published_measures.read(SHIPPED)
    lost = [
        (table.number, line[table.key], column)
        for table in paper.about.tables
        for line in paper.lines[table.number]
        for column in table.columns
        if line[column] == LOST
    ]
    assert len(lost) == 27 and {number for number, _, _ in lost} == {"4", "5", "6", "8"}
    assert "boytsov2025-table6 msmarco-doc-dev" not in rows("PARADE Attn, 1 chunk")


def taus(one: list[float], other: list[float]) -> tuple[float, float]:
    """Return the least and largest Kendall's tau that figures may have which round to these: equal ones either way."""
    signs = [
        np.sign(round(a - b, 6)) * np.sign(round(c - d, 6))
        for (a, c), (b, d) in itertools.combinations(zip(one, other, strict=True), 2)
    ]
    ties = signs.count(0)
    ends = (sum(signs) - ties, sum(signs) + ties)
    # Without ties, and with one in the unrounded figures (tau-b).
    least, *_, most = sorted(end / size for end in ends for size in (len(signs), len(signs) - 0.5))
    return least, most


def test_table4_of_the_frechet_study_follows_and_the_heads_of_table5_are_exchanged() -> None:
    paper = published_measures.read(FRECHET)

    def column(number: str, name: str) -> list[float]:
        return [float(line[name]) for line in paper.lines[number]]

    columns = {"rr10": column("1", "rr10"), "fd1": column("1", "fd1"), "fd1_urr": column("3", "fd1")}
    columns |= {"fd10": column("1", "fd10"), "fd10_urr": column("3", "fd10")}
    for line, name in zip(paper.lines["4"], columns, strict=True):
        for other in columns.keys() - {name}:
            low, high = taus(columns[name], columns[other])
            assert low - 0.0005 <= float(line[other]) <= high + 0.0005, (name, other)
    # 23 of 66 pairs in reverse: the least tau of 12 systems that is not below the printed 0.29.
    orders = [range(12), (*reversed(range(7)), 8, 7, 10, 9, 11)]
    one, other = ({str(number): float(rank) for number, rank in enumerate(order)} for order in orders)
    tau, p = kendall_tau(one, other), kendall_p(one, other)
    assert tau == pytest.approx(20 / 66) and p is not None and p > 0.19
    assert "(FD@1 and FD@10 URR) has p above 0.19" in paper.about.errata[3].follows
    assert columns["fd10"] == column("5", "fd10_plain")
    low, high = taus(columns["rr10"], column("5", "fd10_msmarco"))
    assert -0.612 < low < high < -0.57, "far from -0.788 and -0.739"
    assert [each.name for _, each in paper.contradictions("5", "SPLADE")] == ["E1", "E2"]
    text = call("report", str(FRECHET), "--wide").stdout
    assert "erratum E3: printed: MRR@10 of 0.334 (ColBERT) and 0.343 (ColBERT V2) in section 4; but Tables 1, 3" in text


def test_a_distance_ranks_no_leaderboard_and_stands_on_the_first_screen() -> None:
    shown = call("report", str(FRECHET)).stdout
    assert shown.startswith("Arabzadeh and Clarke 2024, as published\n")
    assert "| SPLADE       | 0.368 | 1.328 | 0.964 |    2.300 |     1.117 |" in shown
    assert "7 errata, all tables: --wide" in shown
    explained = call("explain", "ColBERT", "--results", str(FRECHET)).stdout
    assert "Erratum E1" in explained and "FD@10 0.9800" in explained


@pytest.mark.slow
def test_commands_show_measures_and_refuse_costs(folder: Path) -> None:
    where = str(folder)
    shown = call("report", where).stdout
    assert "| PARADE Attn                   |    0.416 |   0.652 | 0.503 | 0.556 | 0.300 |   +5.0 |" in shown
    assert max(len(line) for line in shown.splitlines() if line.startswith("|")) <= 90, "80, and 10 for Markdown's bars"
    explained = call("explain", "LongP RankGPT (GPT-4o-mini)", "--results", where).stdout
    assert "there is no truncation for RankGPT; but FirstP and LongP both read the first 300 words" in explained
    assert "no cost: published without hardware" in call("leaderboard", where, "--dataset", "far-relevant").stderr
    ranked = call("leaderboard", where, "--dataset", "msmarco-doc-dev", "--rank-by", "accuracy").stdout
    assert "|    1 | PARADE Transf-RAND-L2 ELECTRA | 43.3 |" in ranked
    drawn = call("report", where, "--format", "png", "-o", str(folder / "pictures"))
    assert "of latency and cost, which this paper does not print" in drawn.stderr
    page = folder.parent / "page.html"
    call("report", where, "--format", "html", "-o", str(page))
    assert "<td" in page.read_text() and "gains more over its FirstP than PARADE Attn: 5 %." in page.read_text()
    assert "published tables: 14 do not follow" in call("verify", where).stdout


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("published.toml", '"SumP" = "FirstP', '"SumQ" = "FirstP', r"\[firstp\] names 'SumQ', which no table has"),
        ("published.toml", '"SumP" = "MaxP"', '"SumP" = "MaxQ"', r"\[tables 4, over\] names 'MaxQ', which no table"),
        ("published.toml", '["AvgP", "CEDR-*"]', '["AvgQ"]', "finding F4 concerns no row; correct `systems`"),
        ("published.toml", 'systems = ["MaxP DEBERTA"]', 'systems = ["MaxQ"]', "erratum E4 concerns no row"),
        ("published.toml", "year = 2025", "yeer = 2025", "unknown key 'yeer'. Did you mean 'year'"),
        ("published.toml", 'facts = { parameters = "parameters" }', "", "neither columns nor facts"),
        ("table2_debiased.csv", "CEDR-KNRM,0.379", "CEDR-KNRM,1e3", "'1e3' is not a printed figure; write it as"),
        ("table2_debiased.csv", "FirstP ELECTRA", "CEDR-KNRM", "'CEDR-KNRM' has a row already"),
        ("table4_farrelevant.csv", "zero_shot_rr", "zero_shot", "the header is 'system,zero_shot,fine_tuned_rr'"),
    ],
)
def test_a_damaged_folder_is_one_line(folder: Path, name: str, old: str, new: str, message: str) -> None:
    alter(folder, name, old, new)
    with pytest.raises(FileError, match=message):
        published_measures.read(folder)
