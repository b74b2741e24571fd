"""Reading run files and judgements: accepted lines, refused lines, and their messages."""

from __future__ import annotations

import bz2
import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import FileError
from harness.evaluation import trec, trec_lines

Reader = Callable[[Path], object]
READERS: dict[str, Reader] = {"by rank": trec.read_run, "by score": trec.read_scored_run, "judgements": trec.read_qrels}


def write(folder: Path, content: bytes, name: str = "file") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def outcome(read: Reader, path: Path) -> object:
    """Return the content, or the message of the refusal."""
    try:
        return read(path)
    except FileError as error:
        return str(error)


def order(folder: Path, lines: str) -> tuple[str, ...]:
    return trec.read_scored_run(write(folder, lines.encode())).rankings["q"]


# By score.


def test_equal_scores_are_ordered_by_id_bytes_descending(tmp_path: Path) -> None:
    ids = ["a", "B", "é", "\U00010000", "\uffff", "10", "9", "ab"]
    lines = "".join(f"q Q0 {name} 1 2.5 x\n" for name in ids)
    assert order(tmp_path, lines) == tuple(sorted(ids, key=str.encode, reverse=True))


def test_scores_equal_in_32_bits_are_ties(tmp_path: Path) -> None:
    lines = "q Q0 a 1 1.00000001 x\nq Q0 b 2 1.0 x\n"
    assert order(tmp_path, lines) == ("b", "a")
    run = trec.read_scored_run(write(tmp_path, lines.encode()))
    assert run.tied_queries == ("q",)
    assert trec.read_run(write(tmp_path, lines.encode())).rankings["q"] == ("a", "b"), "ours go by rank"


def test_lines_of_a_query_may_be_scattered_and_its_first_line_is_recorded(tmp_path: Path) -> None:
    content = b"q1 Q0 a 1 1 x\n\nq2 Q0 b 1 9 x\nq1 Q0 c 2 2 x\n"
    run = trec.read_scored_run(write(tmp_path, content))
    assert run.rankings == {"q1": ("c", "a"), "q2": ("b",)}
    assert run.lines == {"q1": 1, "q2": 3}


# What is the same file.

ROWS = b"q1 Q0 d1 1 3.5 x\nq1 Q0 d2 2 2.5 x\nq2 Q0 d1 1 1e-3 x\n"
SAME = {
    "blanks and tabs mixed": ROWS.replace(b" ", b" \t "),
    "Windows line ends": ROWS.replace(b"\n", b"\r\n"),
    "a byte order mark": b"\xef\xbb\xbf" + ROWS,
    "empty lines": b"\n" + ROWS.replace(b"\n", b"\n \n"),
    "comments": b"# made by hand\n" + ROWS + b"# the end",
    "no last line end": ROWS.rstrip(b"\n"),
    "blanks around": b"  " + ROWS.replace(b"\n", b"  \n"),
}


@pytest.mark.parametrize("content", SAME.values(), ids=SAME)
@pytest.mark.parametrize("name", ["run", "run.gz"])
def test_blanks_comments_and_line_endings_do_not_matter(tmp_path: Path, content: bytes, name: str) -> None:
    expected = {"q1": ("d1", "d2"), "q2": ("d1",)}
    path = write(tmp_path, content, name)
    assert trec.read_run(path).rankings == trec.read_scored_run(path).rankings == expected


# What is refused.

SIX = "must be 6 (query Q0 document rank score tag)"
WRONG_RUNS = [
    (b"q Q0 d 3 1.0", f"4: 5 fields, {SIX}; the file ends there: restore"),
    (b"q Q0 d 3 1.0\n", f"4: 5 fields, {SIX}; correct the line"),
    (b"q,Q0,d,3,1.0,x\n", f"4: 1 fields, {SIX}, separated by blanks or tabs, not commas"),
    (b"q;Q0;d;3;1,0;x\n", f"4: 1 fields, {SIX}, separated by blanks or tabs, not commas"),
    (b"q Q0 my doc 3 1.0 x\n", f"4: 7 fields, {SIX}"),
    (b"q Q0 d 3 nan x\n", "4: score 'nan' is not a finite number; correct or remove the line"),
    (b"q Q0 d 3 -inf x\n", "4: score '-inf' is not a finite number"),
    (b"q Q0 d 3 1e400 x\n", "4: score '1e400' is not a finite number"),
    (b"q Q0 d 3 1_0 x\n", "4: score '1_0' is not a finite number"),
    (b"q Q0 d 3 0x1p3 x\n", "4: score '0x1p3' is not a finite number"),
    (b"q Q0 a 3 0.5 x\n", "4: document 'a'"),
    (b"q Q0 \xe9 3 1.0 x\n", "4: byte 0xe9 is not UTF-8; save the file as UTF-8"),
    (b"q Q0 d\0 3 1.0 x\n", "4: a NUL or a UTF-16 mark: not UTF-8 text; save the file as UTF-8"),
    (b"\xef\xbb\xbfq Q0 d 3 1.0 x\n", "4: a byte order mark inside the file, as joined files have; remove it"),
]


@pytest.mark.parametrize(("line", "what"), WRONG_RUNS)
@pytest.mark.parametrize("reader", ["by rank", "by score"])
def test_a_wrong_line_of_a_run_is_named(tmp_path: Path, line: bytes, what: str, reader: str) -> None:
    path = write(tmp_path, b"q Q0 a 1 2.0 x\nq Q0 b 2 1.0 x\np Q0 c 1 1.0 x\n" + line)
    found = outcome(READERS[reader], path)
    assert isinstance(found, str) and found.startswith(f"{path}:{what}") and "\n" not in found


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("q Q0 d three 1.0 x", "rank 'three' is not a whole number"),
        ("q Q0 d 1 0.1 x", "document 'd' or rank 1 appears twice in query 'q'"),
        ("q Q0 d 3 2.5 x", "'d' scores 2.5, more than the 1.0 ranked above it"),
    ],
)
def test_ranks_of_a_stored_run_must_agree_with_its_scores(tmp_path: Path, line: str, what: str) -> None:
    path = write(tmp_path, f"q Q0 b 2 1.0 x\nq Q0 a 1 2.0 x\n{line}\n".encode())
    assert str(outcome(trec.read_run, path)).startswith(f"{path}:3: {what}")


def test_damaged_and_missing_files_are_named(tmp_path: Path) -> None:
    assert "this file does not exist" in str(outcome(trec.read_run, tmp_path / "none.gz"))
    whole = gzip.compress(ROWS * 2000)
    for content in (whole[: len(whole) // 2], whole[:60] + bytes([whole[60] ^ 0xFF]) + whole[61:]):
        (tmp_path / "damaged.gz").write_bytes(content)
        assert re.search(r":\d+: |: damaged after line ", str(outcome(trec.read_run, tmp_path / "damaged.gz")))


def test_further_fields_belong_to_the_tag_in_scored_runs(tmp_path: Path) -> None:
    content = b"q Q0 a 1 1.5 x\nq Q0 b 2 2.5 my own tag\nq Q0 c 3 0.5 k1 0.9 b 4\nq Q0 d 4 -1 tag 3 0.5\n"
    run = trec.read_scored_run(write(tmp_path, content))
    assert run.rankings == {"q": ("b", "a", "c", "d")}
    assert str(outcome(trec.read_run, write(tmp_path, content))).endswith(f":2: 8 fields, {SIX}; correct the line"), (
        "harness writes no such tag"
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("q Q0 my doc 3 1.0 x", "rank 'doc' is not a whole number of at most 64 bits; is there a blank in"),
        ("my q Q0 doc 3 1.0 x", "rank 'doc' is not a whole number"),
        ("q Q0 d 3 high x y", "score 'high' is not a finite number"),
        ("q Q0 d - 1.5 x y", "rank '-' is not a whole number"),
        ("q Q0 d 12 3 1.5 x", "'d 12' may be one id with a blank"),
        ("q Q0 d 12 13 3 1.5 x", "'d 12' may be one id with a blank"),
        ("q Q0 ISBN 12 3.4 1 9.5 x", "'ISBN 12 3.4' may be one id with a blank, or a line's end is missing"),
        ("q Q0 d 1 2.5 xq1 Q0 c 1 9.5 x", "'d 1 2.5 xq1 Q0 c' may be one id with a blank, or a line's end"),
        ("q,1 Q0 a b c d e", "rank 'b' is not a whole number"),
    ],
)
def test_shifted_columns_are_refused(tmp_path: Path, line: str, why: str) -> None:
    path = write(tmp_path, f"q Q0 a 1 2.0 x\n{line}\n".encode())
    start = f"{path}:2: {len(line.split())} fields, {SIX}: {why}"
    assert str(outcome(trec.read_scored_run, path)).startswith(start)


def test_score_beyond_32_bits_is_refused_if_scores_decide(tmp_path: Path) -> None:
    path = write(tmp_path, b"q Q0 a 1 1e39 x\n")
    assert outcome(trec.read_scored_run, path) == (
        f"{path}:1: score '1e39' does not fit into the 32 bits of trec_eval's scores; correct or remove the line"
    )
    assert trec.read_run(path).rankings == {"q": ("a",)}


FOUR = "must be 4 (query iteration document relevance)"
WRONG_QRELS = [
    (b"q 0 d yes\n", "2: relevance 'yes' is not a whole number"),
    (b"q 0 d 1.5\n", "2: relevance '1.5' is not a whole number"),
    (b"q 0 d 1_0\n", "2: relevance '1_0' is not a whole number"),
    (b"q 0 d \xd9\xa3\n", "2: relevance '\u0663' is not a whole number"),
    (b"q 0 1 8841823\n", "2: relevance '8841823' is beyond 65,535: is it an id?"),
    (b"q 0 1 99999999999999999999\n", "2: relevance '99999999999999999999' is not a whole number of at most 64 bits"),
    (b"q 0 d\n", f"2: 3 fields, {FOUR}, or below a header 'query-id corpus-id score'; correct the line or add"),
    (b"q\t0,d,1\n", f"2: 2 fields, {FOUR}, separated by blanks or tabs, not"),
    (b"q 0 a 2\n", "2: 'a' has two grades for query 'q'; remove one line"),
]


@pytest.mark.parametrize(("line", "what"), WRONG_QRELS)
def test_a_wrong_line_of_judgements_is_named(tmp_path: Path, line: bytes, what: str) -> None:
    path = write(tmp_path, b"q 0 a 1\n" + line)
    found = outcome(trec.read_qrels, path)
    assert isinstance(found, str) and found.startswith(f"{path}:{what}")


def test_negative_grades_are_read_unchanged(tmp_path: Path) -> None:
    assert trec.read_qrels(write(tmp_path, b"q 0 a -2\nq 0 b +1\nq 0 a -2\n")) == {"q": {"a": -2, "b": 1}}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_file_kind_is_recognised_by_its_first_bytes(tmp_path: Path, read: Reader) -> None:
    content = b"q 0 a 1\n" if read is trec.read_qrels else b"q Q0 a 1 2.0 x\n"
    zipped = tmp_path / "zipped"
    zipped.write_bytes(gzip.compress(content))
    assert outcome(read, zipped) == outcome(read, write(tmp_path, content)), "a .gz that lost its ending"
    named = tmp_path / "text.gz"
    named.write_bytes(content)
    if read is trec.read_run:
        assert outcome(read, named) == f"{named}: damaged: it is not gzipped; restore or recreate it", "as stored"
    else:
        assert outcome(read, named) == outcome(read, write(tmp_path, content)), "a text that got one"
    named.write_bytes(pa.compress(content, "zstd", asbytes=True))
    assert outcome(read, named) == outcome(read, write(tmp_path, content)), "zstd under another ending"
    assert outcome(read, tmp_path) == f"{tmp_path}: is a folder; name a file"
    for magic, kind in ((b"PK\x03\x04..", "zip"), (b"\xfd7zXZ..", "xz"), (bz2.compress(b""), "bzip2")):
        packed = write(tmp_path, magic, "packed")
        assert outcome(read, packed) == f"{packed}: a {kind} archive; unpack it, or use gzip or zstd"


def test_file_of_one_overlong_line_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, b"x" * (1 << 21))
    assert str(outcome(trec.read_qrels, path)).endswith("bytes; this is not a TREC file")


def test_first_of_two_wrong_lines_is_named_at_any_block_boundary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [b"q%d Q0 d%d 1 1.5 x\n" % (number // 10, number) for number in range(1000)]
    lines[300], lines[700] = b"q30 Q0 d301 1 1.5 x\n", b"q70 Q0 d701 1 1.5 x\n"  # each stands again in the next line
    path = write(tmp_path, b"".join(lines))
    for size in (64, 1000, 1 << 16):
        monkeypatch.setattr(trec_lines, "BLOCK_BYTES", size)
        assert str(outcome(trec.read_scored_run, path)).startswith(f"{path}:302: document 'd301' appears twice")


# Lines at once, and one by one: the same.

TOKENS = st.sampled_from(
    [
        *("q1", "q2", "d1", "d2", "d3", "Q0", "0", "1", "2", "-1", "3.5", "1e39", "nan"),
        *("x", "#", "é", "\u00a0", "1_0", "a,b"),
    ]
)
SPACES = st.sampled_from([" ", "\t", "  ", " \r", "\x0c"])
ENDS = st.sampled_from(["\n", "\r\n", "\n\n", "\n \n", ""])
REGULAR = st.builds("{} Q0 {} {} {} x\n".format, *(TOKENS, TOKENS, st.integers(-3, 9), st.integers(-3, 9)))
TAGGED = st.builds(
    "{} Q0 {} {} {} {} {}\n".format,
    *(TOKENS, TOKENS, st.integers(-1, 20), st.sampled_from(["3.5", "2", "1e9", "-0.25", "1.x"]), TOKENS, TOKENS),
)
JUDGED = st.builds("{} 0 {} {}\n".format, TOKENS, TOKENS, st.integers(-3, 70_000))
ODD = st.tuples(st.lists(st.tuples(TOKENS, SPACES), max_size=7), ENDS).map(
    lambda made: "".join(token + space for token, space in made[0]) + made[1]
)
BYTES = st.lists(st.one_of(REGULAR, REGULAR, TAGGED, JUDGED, ODD), max_size=12).map(
    lambda lines: "".join(lines).encode()
)
SPOILT = st.tuples(BYTES, st.sampled_from([b"", b"", b"\0", b"\xff", b"\xef\xbb\xbf"]), st.integers(0, 200)).map(
    lambda made: made[0][: made[2]] + made[1] + made[0][made[2] :]
)


@pytest.mark.slow
@given(content=SPOILT, size=st.sampled_from([16, 50, 1 << 16]))
@settings(max_examples=300, deadline=None)
def test_reading_by_block_equals_reading_by_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, size: int
) -> None:
    path = write(tmp_path_factory.mktemp("read"), content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trec_lines, "BLOCK_BYTES", size)
        found = {name: with_lines(outcome(read, path)) for name, read in READERS.items()}
        patch.setattr(trec_lines, "_parse_block", lambda *_: None)
        assert {name: with_lines(outcome(read, path)) for name, read in READERS.items()} == found


def with_lines(content: object) -> object:
    """Return a run with the fields that its equality ignores."""
    return (content, content.lines) if isinstance(content, trec.Run) else content


@pytest.mark.parametrize("read", [trec.read_scored_run, trec.read_qrels])
def test_lines_ended_by_a_bare_carriage_return_are_refused(tmp_path: Path, read: Reader) -> None:
    line = "q Q0 a 1 2.5 x" if read == trec.read_scored_run else "q 0 a 1"
    path = write(tmp_path, f"{line}\r{line.replace(' a ', ' b ')}\r".encode())
    assert str(outcome(read, path)).startswith(f"{path}:1: a carriage return inside the line")
    assert read(write(tmp_path, f"{line}\r\n".encode())) == read(write(tmp_path, f"{line}\n".encode()))


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(-5, 5)), max_size=60))
@settings(max_examples=100, deadline=None)
def test_run_order_matches_its_lines(
    tmp_path_factory: pytest.TempPathFactory, hits: list[tuple[int, int, int]]
) -> None:
    first = {(query, document): score for query, document, score in reversed(hits)}
    content = "".join(f"q{query} Q0 d{document} 0 {score} x\n" for (query, document), score in first.items())
    run = trec.read_scored_run(write(tmp_path_factory.mktemp("read"), content.encode()))
    expected: dict[str, tuple[str, ...]] = {}
    for _, document, query in sorted(((score, f"d{d}", f"q{q}") for (q, d), score in first.items()), reverse=True):
        expected[query] = (*expected.get(query, ()), document)
    assert run.rankings == expected
