import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from harness.analysis import rejudge
from harness.analysis.stored_runs import read_stored_runs
from harness.cli.stored_results import RunSelection
from harness.errors import FileError, UsageError
from harness.evaluation import judged_runs, pool
from harness.results import reader
from tests.support import publisher, results_folders
from tests.support.publisher import Made


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\nq2 0 d2 1\n")
    (tmp_path / "one.run").write_text("q1 Q0 d1 1 2.0 x\n")
    (tmp_path / "two.run").write_text("q1 Q0 d2 1 2.0 x\n")
    return tmp_path


def test_runs_are_named_by_file_stem_and_measured_on_all_judged_queries(files: Path) -> None:
    runs = judged_runs.read_runs(files / "qrels.txt", [files / "one.run", files / "two.run"])
    assert list(runs.runs) == ["one", "two"]
    assert runs.query_ids == ("q1", "q2")
    assert runs.runs["two"].rankings == {"q1": ("d2",)}


def test_duplicate_file_names_are_refused_before_reading(files: Path) -> None:
    with pytest.raises(UsageError, match=r"there/one\.run: another run is called 'one\.run' too; rename one"):
        judged_runs.read_runs(files / "qrels.txt", [files / "one.run", files / "there" / "one.run"])


@pytest.mark.parametrize(
    ("names", "called"),
    [
        (("bm25.run", "bm25b.trec.gz", "c.TXT", "d.res", "e.tsv.gz"), ("bm25", "bm25b", "c", "d", "e")),
        (("bm25-0.9", "bm25-0.4.run", "input.aaa", "input.bbb"), ("bm25-0.9", "bm25-0.4", "input.aaa", "input.bbb")),
        (("a.run", "a.trec", "b.run"), ("a.run", "a.trec", "b")),
        (("a.run", "a.run.gz", "a.run.run"), ("a.run", "a.run.gz", "a.run.run")),
        (("plain", ".run", "x.gz", "run"), ("plain", ".run", "x", "run")),
    ],
)
def test_run_name_is_the_file_name_without_a_known_suffix(names: tuple[str, ...], called: tuple[str, ...]) -> None:
    assert judged_runs.run_names([Path("somewhere") / name for name in names]) == called


def test_empty_files_are_refused_by_name(files: Path) -> None:
    for content in ("", "\n", "# q1 0 d1 1\n"):
        (files / "nothing").write_text(content)
        with pytest.raises(FileError, match="nothing: has no judgements; name a file"):
            judged_runs.read_runs(files / "nothing", [files / "one.run"])
        with pytest.raises(FileError, match="nothing: has no results; recreate it, or leave it out"):
            judged_runs.read_runs(files / "qrels.txt", [files / "one.run", files / "nothing"])
    (files / "nothing").write_text(" \n")
    with pytest.raises(FileError, match="nothing: has no query; name a file"):
        judged_runs.read_queries(files / "nothing")
    with pytest.raises(FileError, match="nothing: has no query; name a file"):
        RunSelection((files / "one.run",), files, files / "qrels.txt", files / "nothing").judged()
    assert judged_runs.read_runs(files / "qrels.txt", [files / "one.run"], {}).query_ids == ()


def test_runs_without_judgements_are_read(files: Path) -> None:
    (files / "more.run").write_text("new Q0 d1 1 2.0 my tag\nq1 Q0 d2 1 2.0 x\n")
    runs = judged_runs.read_unjudged_runs("mine", [files / "one.run", files / "more.run"], {"q1": "text"})
    assert (runs.dataset, runs.qrels, list(runs.runs), runs.query_ids) == ("mine", {}, ["one", "more"], ("q1",))
    assert runs.runs["more"].rankings == {"q1": ("d2",)}
    assert runs.unknown == {"more": judged_runs.UnknownQueries(("new",), f"{files}/more.run:1")}
    assert runs.notes == ()


def test_notes_on_files_name_the_first_line(files: Path) -> None:
    (files / "below.txt").write_text("q1 0 d1 1\nq2 0 d3 -2\n\nq1 0 d2 -1\n")
    found = judged_runs.read_runs(files / "below.txt", [files / "one.run"])
    none = "no more relevant than 0 (Bpref and infAP treat them as unjudged)"
    assert found.notes == (f"2 grades are below 0, the first in {files}/below.txt:2: {none}",)
    assert judged_runs.read_runs(files / "qrels.txt", [files / "one.run"]).notes == ()


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


@pytest.mark.slow
def test_stored_results_give_a_run_for_each_successful_system(results: Path) -> None:
    (found,) = read_stored_runs(results)
    assert list(found.runs) == ["planted"], "greedy ran out of memory, and null is no system"
    assert len(found.queries) == results_folders.QUERIES
    assert found.queries["q3"] == "where is number 3"
    assert found.qrels["q3"] == {"d1": 1}
    with pytest.raises(UsageError, match="no finished run in it that matches 'greedy'"):
        read_stored_runs(results, "greedy")


@pytest.mark.slow
def test_stored_negative_grades_have_a_note(results: Path) -> None:
    (path,) = {job.qrels_path() for job in reader.read_jobs(results)}
    text = gzip.decompress(path.read_bytes()).replace(b" d1 1\n", b" d1 -1\n").replace(b" d0 1\n", b" d0 -2\n")
    path.write_bytes(gzip.compress(text))
    (found,) = read_stored_runs(results)
    below = sum(grade < 0 for judged in found.qrels.values() for grade in judged.values())
    message = f"{below} grades are below 0: no more relevant than 0 (Bpref and infAP treat them as unjudged)"
    assert below > 1 and found.notes == (message,)


@pytest.mark.slow
def test_profiles_with_equal_rankings_are_one_system(tmp_path: Path) -> None:
    publisher.put(tmp_path, Made("same", 2.0, (1,)), Made("same", 2.0, (1,), profile="cpu2-mem4"))
    publisher.put(tmp_path, Made("moved", 2.0, (1,)), Made("moved", 2.0, (2,), profile="cpu2-mem4"))
    publisher.put(tmp_path, Made("moved", 2.0, (3,)), suite="other")
    for path in tmp_path.glob("*/same/*/*/cpu2-mem4/*/run.trec.gz"):
        text = gzip.decompress(path.read_bytes()).replace(b"10.0 same", b"10.000001 same")
        path.write_bytes(gzip.compress(text, mtime=0))
        raw = json.loads((path.parent / "result.json").read_text())
        raw["files"]["run.trec.gz"] = "other bytes"
        (path.parent / "result.json").write_text(json.dumps(raw))
    (found,) = read_stored_runs(tmp_path)
    moved = [f"{place}/cpu1-mem1" for place in ("other/moved", "quick/moved")]
    assert sorted(found.runs) == [*moved, "quick/moved/cpu2-mem4", "same"]


@pytest.mark.parametrize(
    ("runs", "qrels", "queries", "only", "why"),
    [
        (("one.run",), False, False, None, "run files need their judgements"),
        (("one.run", "two.run"), False, False, None, "run files need their judgements"),
        ((), True, False, None, "name at least one"),
        ((), False, True, None, "--queries needs run files"),
        (("one.run",), True, False, "one", "--only needs stored results"),
    ],
)
def test_conflicting_arguments_are_refused(
    files: Path, runs: tuple[str, ...], qrels: bool, queries: bool, only: str | None, why: str
) -> None:
    given = tuple(files / name for name in runs)
    with pytest.raises(UsageError, match=why):
        RunSelection(
            given, files, files / "qrels.txt" if qrels else None, files / "q" if queries else None, only
        ).judged()


def test_half_a_character_in_a_query_becomes_a_question_mark(tmp_path: Path) -> None:
    (tmp_path / "queries").write_text('{"_id": "q", "text": "caf\\ud800"}\n')
    assert judged_runs.read_queries(tmp_path / "queries") == {"q": "caf?"}
    (tmp_path / "queries").write_text('{"_id": "q\\ud800", "text": "t"}\n')
    with pytest.raises(FileError, match=r"queries:1: .*half of a surrogate pair"):
        judged_runs.read_queries(tmp_path / "queries")


def test_an_endless_query_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "queries").open("wb") as file:
        file.truncate(1 << 33)
    with pytest.raises(FileError, match="queries:1: the line has more than 16 MiB; shorten it"):
        judged_runs.read_queries(tmp_path / "queries")


def _zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, "zstd", asbytes=True))


@pytest.mark.parametrize("pack", [gzip.compress, _zstd], ids=["gzip", "zstd"])
@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_files_of_a_user_may_be_compressed_under_any_name(
    tmp_path: Path, pack: Callable[[bytes], bytes], ending: str
) -> None:
    texts = {
        "queries": '{"_id": "q", "text": "rivers"}\n',
        "run": "q Q0 d 1 1.0 x\n",
        "qrels": "query-id\tcorpus-id\tscore\nq\td\t1\n",
        "leaked": "q\n",
        "pool": "query_id\tdoc_id\tgrade\nq\td\t1\n",
    }
    paths = {name: tmp_path / f"{name}{ending}" for name in texts}
    for name, text in texts.items():
        paths[name].write_bytes(pack(text.encode()))
    queries = judged_runs.read_queries(paths["queries"])
    runs = judged_runs.read_runs(paths["qrels"], [paths["run"]], queries)
    assert (queries, runs.qrels, runs.runs["run"].rankings) == ({"q": "rivers"}, {"q": {"d": 1}}, {"q": ("d",)})
    override, pairs = rejudge.read(None, paths["leaked"]), pool.read_graded_pool(paths["pool"])
    assert override is not None and override.without == {"q"} and pairs is not None and pairs[0].grade == 1


@pytest.mark.parametrize(
    "header", ["id\ttext", "qid\tquery", "query-id\ttext", "_id\ttext", "Query ID\tQuery", "\ufeffqid\ttext"]
)
def test_a_header_of_queries_is_no_query(tmp_path: Path, header: str) -> None:
    (tmp_path / "queries").write_text(f"{header}\n1\trivers\n", encoding="utf-8")
    assert judged_runs.read_queries(tmp_path / "queries") == {"1": "rivers"}
    (tmp_path / "queries").write_text('1\tid\nid\ttext\n{"_id": 7, "text": "seas"}\n')
    assert judged_runs.read_queries(tmp_path / "queries") == {"1": "id", "id": "text", "7": "seas"}


def test_an_empty_list_of_leaked_queries_leaves_nothing_out(tmp_path: Path) -> None:
    for name, text in (("qrels", "q 0 d 1\n"), ("run", "q Q0 d 1 1.0 x\n"), ("leaked", "\n")):
        (tmp_path / name).write_text(text)
    override = rejudge.read(None, tmp_path / "leaked")
    assert override is not None and not override.without
    runs = judged_runs.read_runs(tmp_path / "qrels", [tmp_path / "run"])
    assert rejudge.override_runs((runs,), override) == (runs,)
    rejudge.check([()], override)
