"""The comparison of shipped tables with a paper's text: what it takes as the same, and what it finds."""

from pathlib import Path

import pytest

from scripts.compare_with_paper import compare, main

TEXT = """# A paper

We use commit 7b5aa6c of PrimeQA and Python 3.9.13. Each model was trained for three epochs.

|       | CPU | Type    | Latency        | Cost               |
|-------|-----|---------|----------------|--------------------|
| BM25  | 1   | m6gd.med| 11             | \\$0.14            |
| BM25<br>DPR | 16 | c7g.4xl | 9<br>1,019 | \\$1.48<br>\\$2.97 |
| SPLADE |    |         | 70             | \\$6.49            |

Table 1: Costs.

System\tMRR\tGain
FirstP (BERT)\t0.394\t-
MaxP\t$0.392^{a} (-1.3\\%)$\t+0.4%

|   | System | Hardware | Score |   |   | System | Hardware |
|---|--------|----------|-------|---|---|--------|----------|
| 1 | A      | 1 CPU    | 9.5   | 1 |   | B      | 2 CPU    |
| 2 | B      | 1 CPU    | 8.5   | 2 |   | A      | 2 CPU    |
| 3 | A      | 2 CPU    | 7.5   | 3 |   | B      | 1 CPU    |
| 4 | C      | 2 CPU    | 6.5   | 4 |   | C      | 2 CPU    |
| 5 | C      | 1 CPU    | 5.5   | 5 |   | C      | 1 CPU    |

Score 15.1 14.1 13.1 12.1 11.1
"""
COSTS = """system,cpu,type,latency_ms,cost
BM25,1,m6gd.medium,11,0.14
BM25,16,c7g.4xlarge,9,1.48
DPR,16,c7g.4xlarge,1019,2.97
SPLADE,16,c7g.4xlarge,70,6.49
"""
GAINS = "system,mrr,gain_percent\nFirstP BERT,.394,\nMaxP,.392,+0.4\n"
CELLS = "system,mrr,gain_percent\nFirstP BERT,0.394,?\nMaxP,0.392a (-1.3%),+0.4\n"
SECOND = """rank,system,hardware,score
1,B,2 CPU,15.1
2,A,2 CPU,14.1
3,B,1 CPU,13.1
4,C,2 CPU,12.1
5,C,1 CPU,11.1
"""
# The last value is in words of our own.
SETTINGS = "subject,value\nPrimeQA,7b5aa6c\nPython,3.9.13\nEach model,3\nits tokenizer,unnamed\n"


def wrong(folder: Path, content: str) -> list[str]:
    (folder / "table.csv").write_text(content)
    return [f"{each.row} {each.cell.column} {each.cell.text}" for each in compare(folder / "table.csv", TEXT).wrong]


@pytest.mark.parametrize("content", [COSTS, GAINS, CELLS, SECOND, SETTINGS])
def test_tables_agree_however_the_text_breaks_their_lines(tmp_path: Path, content: str) -> None:
    assert wrong(tmp_path, content) == []


@pytest.mark.parametrize(
    ("content", "right", "other", "found"),
    [
        (COSTS, "1,m6gd.medium,11", "1,m6gd.medium,12", "1 latency_ms 12"),
        (COSTS, "2.97", "2.98", "3 cost 2.98"),
        (COSTS, "SPLADE,16", "SPLADE,8", "4 cpu 8"),  # of a merged cell
        (COSTS, "9,1.48", "1.48,9", "2 latency_ms 1.48"),  # in another order
        (GAINS, "+0.4", "-0.4", "2 gain_percent -0.4"),
        (GAINS, ".394,", ".394,+1.0", "1 gain_percent +1.0"),  # where the paper has none
        (CELLS, "0.392a", "0.393a", "2 mrr 0.393"),
        (CELLS, "(-1.3%)", "(+1.3%)", "2 mrr, gain +1.3"),
        (SECOND, "13.1", "13.2", "3 score 13.2"),
        (SETTINGS, "3.9.13", "3.9.1", "2 value 3.9.1"),
        (SETTINGS, "model,3", "model,4", "3 value 4"),
    ],
)
def test_a_changed_cell_is_found(tmp_path: Path, content: str, right: str, other: str, found: str) -> None:
    assert right in content
    assert found in wrong(tmp_path, content.replace(right, other))


def test_a_wrong_cell_is_printed_and_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "paper.txt").write_text(TEXT)
    (tmp_path / "costs.csv").write_text(COSTS)
    (tmp_path / "errata.csv").write_text("kind\n77\n")
    assert main([str(tmp_path), str(tmp_path / "paper.txt")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{tmp_path.name}: 12 cells compared, 0 wrong"
    (tmp_path / "costs.csv").write_text(COSTS.replace("6.49", "6.48"))
    assert main([str(tmp_path), str(tmp_path / "paper.txt")]) == 1
    assert "costs.csv, row 4: cost 6.48 is not in the text (line 9 is nearest)" in capsys.readouterr().out


def test_a_text_without_tables_is_compared_by_sentences(tmp_path: Path) -> None:
    (tmp_path / "facts.csv").write_text("fact,value\nlearning rate,3e-5\nqueries,90K\nnobody says,7\n")
    found = compare(tmp_path / "facts.csv", "The learning rate is 3e-5 here. There are 90K queries.")
    assert [(each.row, each.cell.text, each.line) for each in found.wrong] == [(3, "7", None)] and found.numbers == 3
