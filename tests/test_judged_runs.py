import gzip
import json
from pathlib import Path

import pytest

from harness import judged_runs
from harness.cli.judged import judged
from harness.errors import FileError, UsageError
from tests import handed_on, shelf
from tests.shelf import Made


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\nq2 0 d2 1\n")
    (tmp_path / "one.run").write_text("q1 Q0 d1 1 2.0 x\n")
    (tmp_path / "two.run").write_text("q1 Q0 d2 1 2.0 x\n")
    return tmp_path


def test_files_are_named_by_their_stems_and_judged_by_all_judged_queries(files: Path) -> None:
    found = judged_runs.of_files(files / "qrels.txt", [files / "one.run", files / "two.run"])
    assert list(found.runs) == ["one", "two"]
    assert found.query_ids == ("q1", "q2")
    assert found.runs["two"].rankings == {"q1": ("d2",)}


def test_two_files_of_one_name_are_refused(files: Path) -> None:
    with pytest.raises(UsageError, match="two runs are called 'one'; rename one"):
        judged_runs.of_files(files / "qrels.txt", [files / "one.run", files / "one.trec"])


@pytest.mark.parametrize(
    "text", ['{"_id": "q1", "text": "a  b"}\n{"_id": "q2", "text": "c"}\n', "q1\ta  b\n\nq2\tc\r\n"]
)
def test_queries_have_two_forms(tmp_path: Path, text: str) -> None:
    (tmp_path / "queries").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert judged_runs.read_queries(tmp_path / "queries") == {"q1": "a  b", "q2": "c"}


@pytest.mark.parametrize("text", ["q1\ta\nq1\tb\n", "q1 a\nq2 b\n", "q0\ta\n{}\n", "q0\ta\n\tb\n"])
def test_wrong_queries_are_named_by_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "queries").write_text(text)
    with pytest.raises(FileError, match=r"queries:[12]: "):
        judged_runs.read_queries(tmp_path / "queries")


def test_stored_results_give_a_run_for_each_system_that_ended_well(results: Path) -> None:
    (found,) = judged_runs.of_results(results)
    assert list(found.runs) == ["planted"], "greedy ran out of memory, and null is no system"
    assert len(found.queries) == handed_on.QUERIES
    assert found.queries["q3"] == "where is number 3"
    assert found.qrels["q3"] == {"d1": 1}
    with pytest.raises(UsageError, match="no finished run in it that matches 'greedy'"):
        judged_runs.of_results(results, "greedy")


def test_profiles_whose_rankings_are_the_same_are_one_system(tmp_path: Path) -> None:
    shelf.put(tmp_path, Made("same", 2.0, (1,)), Made("same", 2.0, (1,), profile="cpu2-mem4"))
    shelf.put(tmp_path, Made("moved", 2.0, (1,)), Made("moved", 2.0, (2,), profile="cpu2-mem4"))
    shelf.put(tmp_path, Made("moved", 2.0, (3,)), suite="other")
    for path in tmp_path.glob("*/same/*/*/cpu2-mem4/*/run.trec.gz"):
        text = gzip.decompress(path.read_bytes()).replace(b"10.0 same", b"10.000001 same")
        path.write_bytes(gzip.compress(text, mtime=0))
        raw = json.loads((path.parent / "result.json").read_text())
        raw["files"]["run.trec.gz"] = "other bytes"
        (path.parent / "result.json").write_text(json.dumps(raw))
    (found,) = judged_runs.of_results(tmp_path)
    assert sorted(found.runs) == [
        "other/moved/cpu1-mem1",
        "quick/moved/cpu1-mem1",
        "quick/moved/cpu2-mem4",
        "same",
    ]


@pytest.mark.parametrize(
    ("runs", "qrels", "queries", "only", "why"),
    [
        (("one.run",), False, False, None, "run files need their judgements"),
        (("one.run", "two.run"), False, False, None, "run files need their judgements"),
        ((), True, False, None, "name at least one"),
        ((), False, True, None, "--queries is of run files"),
        (("one.run",), True, False, "one", "--only is of stored results"),
    ],
)
def test_arguments_that_do_not_go_together(
    files: Path, runs: tuple[str, ...], qrels: bool, queries: bool, only: str | None, why: str
) -> None:
    given = tuple(files / name for name in runs)
    with pytest.raises(UsageError, match=why):
        judged(given, files / "qrels.txt" if qrels else None, files / "q" if queries else None, only, files)
