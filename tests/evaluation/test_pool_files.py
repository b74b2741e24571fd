"""What people judge comes back as it was, whatever texts say and a spreadsheet does; or an error says where."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import FileError, UsageError
from harness.evaluation.pool import COLUMNS, GradedPair, JudgingPool, pair_id, read_graded_pool, write_pool

ids = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=6)
PAIR = pair_id("q1", "d1")


def made(pairs: list[tuple[str, str]], form: str, text: str = "t", query: str = "q") -> str:
    pool = JudgingPool(tuple(pairs), {each: query for each, _ in pairs}, 0, (), 5)
    stream = io.StringIO()
    documents = {document: {"title": text, "text": text} for _, document in pairs}
    write_pool(pool, documents, form, stream)
    return stream.getvalue()


def back(folder: Path, content: str | bytes) -> list[tuple[str, str, int | None]] | None:
    path = folder / "judged"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = read_graded_pool(path)
    return None if found is None else [(each.query_id, each.doc_id, each.grade) for each in found]


@given(
    st.lists(st.tuples(ids.filter("#".__ne__), ids), unique=True, max_size=5),
    st.text(),
    st.sampled_from(["tsv", "jsonl"]),
)
def test_ids_read_back_whatever_the_texts(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], text: str, form: str
) -> None:
    written = made(pairs, form, text, text)
    folder = tmp_path_factory.mktemp("pool")
    assert (back(folder, written) or []) == [(*pair, None) for pair in pairs]
    if form == "tsv":
        assert written.count("\n") == len(pairs) + 1, "one line a pair, whatever breaks a text has"
        cells = [cell for row in csv.reader(io.StringIO(written), dialect="excel-tab") for cell in row]
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells), "nothing is computed"
        assert all(cell.isprintable() for cell in cells)
    else:
        assert written.isascii()
        assert all(json.loads(line)["document"] == text for line in written.splitlines())


def test_nothing_but_pair_texts_and_grade_is_written() -> None:
    assert made([("q1", "d1")], "tsv").splitlines()[0].split("\t") == list(COLUMNS)
    (line,) = made([("q1", "d1")], "jsonl").splitlines()
    assert tuple(json.loads(line)) == COLUMNS and json.loads(line)["grade"] is None


def test_missing_texts_are_missing() -> None:
    stream = io.StringIO()
    write_pool(JudgingPool((("q1", "d1"),), {"q1": ""}, 0, (), 5), {}, "jsonl", stream)
    found = json.loads(stream.getvalue())
    assert (found["query"], found["title"], found["document"]) == (None, None, None)


def test_an_id_that_no_table_holds_is_for_json() -> None:
    assert made([("q1", "d\N{ZERO WIDTH SPACE}1")], "jsonl")
    with pytest.raises(UsageError, match=r"; write it with --format jsonl"):
        made([("q1", "d\N{ZERO WIDTH SPACE}1")], "tsv")


@pytest.mark.parametrize(
    "content",
    [
        f"pair\tquery_id\tdoc_id\tgrade\n{PAIR}\tq1\td1\t2\n",
        f"pair,query_id,doc_id,grade\r\n{PAIR},q1,d1,2\r\n",
        f'"grade";"pair";"doc_id";"query_id"\n 2 ;"{PAIR}";"d1";"q1"\n;;;\n',
        "query_id\tdoc_id\tgrade\nq1\td1\t2\nq1\td1\t\n",
        "\ufeffquery_id\tdoc_id\tgrade\n\nq1\td1\t2\n",
        "query_id\tdoc_id\tgrade\nq1\td1\t2\n".encode("utf-16"),
        '\ufeff\n{"query_id": "q1", "doc_id": "d1", "grade": "2"}\n\n',
        f'{{"pair": "{PAIR}", "query_id": "q1", "doc_id": "d1", "grade": 2, "more": []}}\n',
    ],
)
def test_forms_that_programs_make_of_it(tmp_path: Path, content: str | bytes) -> None:
    assert back(tmp_path, content) == [("q1", "d1", 2)]


def test_a_document_may_be_long(tmp_path: Path) -> None:
    before = csv.field_size_limit(131_072)  # the usual one, whatever a reader of other files left
    try:
        assert back(tmp_path, made([("q1", "d1")], "tsv", "x" * 200_000)) == [("q1", "d1", None)]
        assert csv.field_size_limit() == 131_072
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize("content", ["q1 0 d1 1\n", b"\x1f\x8b\x08\x00", ""])
def test_other_kinds_of_files_are_recognised(tmp_path: Path, content: str | bytes) -> None:
    assert back(tmp_path, content) is None


HEAD = "query_id\tdoc_id\tgrade\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            f"pair\t{HEAD}{pair_id('007', 'd1')}\t7\td1\t1\n",
            r"judged:2: query '7' and document 'd1' are not the pair",
        ),
        (f"{HEAD}q1\td1\t1\nq1\td2\tyes\n", r"judged:3: grade 'yes' is not a whole number of 0 or more"),
        (f"{HEAD}q1\td1\t-1\n", r"judged:2: grade '-1' is not a whole number"),
        (f"{HEAD}q1\td1\t1.0\n", r"judged:2: grade '1.0' is not a whole number"),
        (f"{HEAD}q1\td1\t1\nq1\td1\t2\n", r"judged:3: document 'd1' of query 'q1' has grade 2, and 1 in .*judged:2"),
        (f"{HEAD}q1\td1\n", r"judged:2: 2 fields, must be 3"),
        (f"{HEAD}\td1\t1\n", r"judged:2: .* an id is empty or has a blank"),
        (f"{HEAD}q 1\td1\t1\n", r"judged:2: .* an id is empty or has a blank"),
        (f'{HEAD}q1\t"d1\t1\n', r"judged:\d: not a table"),
        ('{"query_id": "q1", "doc_id": "d1", "grade": true}\n', r"judged:1: grade 'True'"),
        (
            f"{HEAD}#\tq\t1\n",
            r"judged:2: query '#', document 'q': a qrels line that begins with # is a comment",
        ),
        ('{"query_id": " q", "doc_id": "d1", "grade": 1}\n', r"judged:1: .* an id is empty or has a blank"),
        ('{"query_id": "q", "doc_id": "\\ufeffd", "grade": 1}\n', r"judged:1: .* a byte order mark"),
        ('{"query_id": "q", "doc_id": "\\ud800", "grade": 1}\n', r"judged:1: .* half a character"),
        (f'{{"query_id": "q", "doc_id": "{"d" * 70_000}", "grade": 1}}\n', r"judged:1: .* more than 65,536 bytes"),
        ('{"query_id": null, "doc_id": "d1", "grade": 1}\n', r"judged:1: no JSON with .*query_id is not a text"),
        ('{"query_id": "q1", "doc_id": "d1"}\n', r"judged:1: no JSON with query_id, doc_id, grade"),
        ('{"query_id": "q1", "doc_id": "d1", "grade": 1}\n[]\n', r"judged:2: no JSON"),
        (b"query_id\tdoc_id\tgrade\n\xff\n", r"judged: not UTF-8"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, content: str | bytes, why: str) -> None:
    with pytest.raises(FileError, match=why):
        back(tmp_path, content)


def test_a_missing_pool_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="none: cannot be read"):
        read_graded_pool(tmp_path / "none")


def test_each_judgement_has_the_line_it_came_from(tmp_path: Path) -> None:
    (tmp_path / "judged").write_text(f"{HEAD}q1\td1\t1\nq1\td2\t\n")
    place = tmp_path / "judged"
    assert read_graded_pool(place) == (
        GradedPair(f"{place}:2", "q1", "d1", 1),
        GradedPair(f"{place}:3", "q1", "d2", None),
    )
