"""Reading a job's files follows no link, never blocks and is bounded."""

from __future__ import annotations

import copy
import gzip
import hashlib
import io
import json
import os
import pickle
import socket
import tomllib
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from harness import config, untrusted
from harness.compression import Codec, unpacked
from harness.datasets import source
from harness.driver.records import Query, to_json
from harness.errors import FileError
from harness.evaluation import answer_recall, trec
from harness.report.writers import csv_cell
from harness.untrusted import ForeignText, max_output_bytes, open_regular, parse_json, read_start, read_whole, sha256
from tests.support import hostile
from tests.support.job_fixtures import FULL_SPEC


def test_regular_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_start(tmp_path / "file", 4) == b"0123"
    assert read_start(tmp_path / "file", 100) == b"0123456789"
    with open_regular(tmp_path / "file") as file:
        assert file.read(2) == b"01"


def plant(path: Path, kind: str) -> None:
    if kind == "a link":
        path.symlink_to("/etc/passwd")
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif kind == "a device":
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", ["nothing", "a link", "a pipe", "a folder", "a socket", "a device"])
def test_other_file_types_are_errors_and_leave_nothing_open(tmp_path: Path, kind: str) -> None:
    plant(tmp_path / "x", kind)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match=r"."):
        open_regular(tmp_path / "x")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_too_large_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(OSError, match=r"has 8,796,093,022,208 bytes, at most 1,048,576 make sense"):
        read_whole(tmp_path / "hole", 1 << 20)
    with pytest.raises(OSError, match="make sense"):
        sha256(tmp_path / "hole")


def test_packed_file_is_read_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "packed").write_bytes(gzip.compress(b"x" * 1000))
    assert sha256(tmp_path / "packed", packed=True) == hashlib.sha256(b"x" * 1000).hexdigest()
    with open_regular(tmp_path / "packed") as file:
        assert unpacked(file, 1000).read() == b"x" * 1000
    with open_regular(tmp_path / "packed") as file, pytest.raises(OSError, match="more than 999 bytes, unpacked"):
        unpacked(file, 999).read()


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        '{"a": [-Infinity]}',
        "1e999",
        "9223372036854775808",
        '"\\ud800"',
        '{"\\udfff": 1}',
        "[" * 65 + "]" * 65,
        "[" * 100_000,
        "",
    ],
)
def test_malformed_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text.encode())


def test_valid_json_is_parsed_as_python_does() -> None:
    sound = {"a": [1, -2.5, None, True, "ü", 9223372036854775807], "b": {"c": []}}
    assert parse_json(json.dumps(sound).encode()) == sound
    assert parse_json(b"[" * 64 + b"]" * 64)


def test_output_limit_grows_with_the_spec() -> None:
    least = max_output_bytes(FULL_SPEC)
    assert least > 16 << 20
    many = replace(FULL_SPEC, sample=tuple(Query(f"q{n}", "x") for n in range(1000)))
    # The longest honest line: 256 characters an id, each escaped as six bytes.
    assert max_output_bytes(many) - least > 999 * FULL_SPEC.trials * FULL_SPEC.k * (6 * 256 + 30)


@pytest.mark.parametrize(
    ("fail", "reason"),
    [
        (lambda: json.loads('{"a": 1,, }'), "wrong from column 9 on"),
        (lambda: json.loads('{"a": '), "ends too early"),
        (b"ab\xff".decode, "byte 0xff is not UTF-8"),
        (lambda: tomllib.loads("= 3"), "not valid TOML at line 1, column 1: invalid statement"),
        (lambda: {}["build_heap_mib"], "key 'build_heap_mib' is missing"),
        (lambda: float("ten"), "'ten' is not a number"),
        (lambda: int("ten"), "'ten' is not a number"),
        (lambda: float(b"ten"), "'ten' is not a number"),
        (lambda: int(b"t'n"), '"t\'n" is not a number'),
        (lambda: gzip.GzipFile(fileobj=io.BytesIO(b"PK\3\4")).read(), "the compressed file is damaged or cut short"),
        (lambda: gzip.decompress(b"\x1f\x8b\x08\x00"), "the compressed file is damaged or cut short"),
        (lambda: (3).items, "a value has the wrong type"),
        (lambda: pq.ParquetFile(io.BytesIO(b"PAR1 and PAR1")), "the file is damaged, or of another format"),
        (Path("/nowhere").read_text, "No such file or directory"),
    ],
)
def test_reason_of_a_librarys_error_is_in_our_words(fail: Callable[[], object], reason: str) -> None:
    with pytest.raises(Exception) as caught:
        fail()
    assert untrusted.reason_of(caught.value) == reason


def test_decode_names_the_line_of_the_first_wrong_byte() -> None:
    assert untrusted.decode("wärm".encode(), "f") == "wärm"
    with pytest.raises(FileError, match=r"^f:8: byte 0xff is not UTF-8; save the file as UTF-8$"):
        untrusted.decode(b"a\nb\nc\xff", "f", 6)


class _Some(BaseModel):
    name: str = Field(pattern="^[a-z0-9][a-z0-9._-]{0,62}$")
    params: dict[str, str | int | float | bool] = {}
    few: tuple[int, ...] = Field(default=(1,), min_length=1)


@pytest.mark.parametrize(
    ("raw", "mistake"),
    [
        ({"name": "A"}, "key 'name' is \"A\"; write 1 to 63 lower-case letters, digits, '.', '_' or '-'"),
        ({}, "key 'name' is missing; add it"),
        ({"name": "a", "few": ()}, "key 'few' has 0 entries; write 1 or more"),
        (
            {"name": "a", "params": {"k1": [1]}},
            "key 'params.k1' is [1]; write text in quotes, a finite number, true or false",
        ),
        ({"name": "x\u202e" * 90}, None),
    ],
)
def test_mistake_names_key_value_and_what_is_allowed(raw: dict[str, Any], mistake: str | None) -> None:
    with pytest.raises(ValidationError) as caught:
        _Some.model_validate(raw, strict=True)
    found = untrusted.mistake(caught.value)
    assert found == mistake if mistake else len(found) < 200 and found.isprintable()


HOSTILE = ForeignText(hostile.TEXT)


@pytest.mark.parametrize("form", [str, format, repr, "{}".format, lambda text: f"{text}"])
def test_a_strangers_text_is_written_on_one_line_without_control_characters(form: Callable[[Any], str]) -> None:
    text = form(HOSTILE)
    assert "owned" in text and "\n" not in text
    assert [character for character in hostile.FORBIDDEN if character in text] == []


def test_a_strangers_text_is_no_str_that_could_be_joined_or_added() -> None:
    assert not isinstance(HOSTILE, str)
    for wrong in (
        lambda: "a" + HOSTILE,
        lambda: HOSTILE + "a",
        lambda: "".join([HOSTILE]),
        lambda: json.dumps(HOSTILE),
    ):
        with pytest.raises(TypeError):
            wrong()


def test_a_strangers_text_equals_its_plain_text_and_sorts_with_it() -> None:
    assert ForeignText("a") == "a" == ForeignText("a") != ForeignText("b") != "c"
    assert {ForeignText("a"): 1}["a"] == 1 and sorted([ForeignText("b"), "a"]) == ["a", "b"]
    assert not ForeignText("") and "a" in ForeignText("bab") and ForeignText("bab").startswith("ba")
    assert pickle.loads(pickle.dumps(HOSTILE)) == copy.deepcopy(HOSTILE) == HOSTILE


@dataclass(frozen=True)
class Stored:
    text: ForeignText
    parts: tuple[ForeignText, ...] = ()
    other: ForeignText | None = None


def test_stored_json_of_a_strangers_text_is_that_of_plain_text() -> None:
    raw = {"text": hostile.TEXT, "parts": ["a", "é"], "other": None}
    stored = TypeAdapter(Stored).validate_python(raw)
    assert untrusted.to_json(stored) == to_json(raw)
    assert TypeAdapter(Stored).dump_python(stored) == {**raw, "parts": ("a", "é")}
    assert json.loads(TypeAdapter(Stored).dump_json(stored)) == raw
    assert json.loads(json.dumps(stored.text, default=untrusted.raw_text)) == hostile.TEXT
    assert TypeAdapter(ForeignText).json_schema() == {"type": "string"}
    with pytest.raises(ValidationError):
        TypeAdapter(ForeignText).validate_json("3", strict=True)
    with pytest.raises(TypeError, match="object is not for JSON"):
        untrusted.raw_text(object())


@pytest.mark.parametrize(
    "invisible", "\u034f\u115f\u1160\u17b4\u180b\u2800\u3164\ufe0f\uffa0\U000e0100\u200b\u2060\ufeff"
)
def test_characters_without_a_glyph_are_escaped(invisible: str) -> None:
    assert invisible not in untrusted.one_line(f"a{invisible}b") and "\\" in untrusted.one_line(f"a{invisible}b")


# What int() or float() takes, and no format means.
ODD_NUMBERS = ["1_0", "1_0.0", " 1", "1 ", "1\n", "\u0661", "\uff11", "\u00b9", "nan", "inf", "-Infinity", "1e999"]
ODD_NUMBERS += ["", "0x1", "1\u2028"]


@pytest.mark.parametrize("text", ODD_NUMBERS)
def test_number_that_only_python_reads_is_refused(text: str) -> None:
    for read in (untrusted.whole_number, untrusted.finite_number):
        with pytest.raises(ValueError, match=r"^is not a "):
            read(text)


def test_numbers_of_formats_are_read() -> None:
    numbers = {"0": 0, "-7": -7, "+7": 7, "007": 7, str((1 << 63) - 1): (1 << 63) - 1, str(-(1 << 63)): -(1 << 63)}
    assert {text: untrusted.whole_number(text) for text in numbers} == numbers
    for text in (str(1 << 63), "9" * 5000, "1.0", "1e3"):
        with pytest.raises(ValueError, match="whole number of at most 64 bits"):
            untrusted.whole_number(text)
    assert [untrusted.finite_number(text) for text in ("1", "-.5", "+2.5e-3", "5.")] == [1, -0.5, 0.0025, 5]


def test_only_ascii_white_space_separates_fields() -> None:
    assert untrusted.fields_of(" q1\t0 \x0bd\u00a0\u2028\u00851\r\n") == ["q1", "0", "d\u00a0\u2028\u00851"]


# Each reader of a foreign file, with an odd number in it: a line that names it, or a number that is not read so.
@pytest.mark.parametrize("number", ["1_0", "\u0661", "1\u2028"])
def test_readers_refuse_numbers_that_only_python_reads(tmp_path: Path, number: str) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(gzip.compress(f"q1\t-\t{number}\n".encode()))
    with pytest.raises(FileError, match="is not a whole number"):
        answer_recall.read_depths(path)
    path.write_text(f"q1 0 d1 {number}\n", encoding="utf-8")
    with pytest.raises(FileError, match="is not a whole number"):
        source.collect_qrels(trec.judgement_rows(path))
    lines = {trec.read_qrels: f"q1 0 d1 {number}\n", trec.read_run: f"q1 Q0 d1 1 {number} x\n"}
    for read, line in lines.items():
        path.write_text(line, encoding="utf-8")
        with pytest.raises(FileError, match="is not a "):
            read(path)
    with pytest.raises(FileError, match="write a number above 0"):
        config.csv_number("prices.csv:2", {"usd": number}, "usd")


@pytest.mark.parametrize("parts", [[b"one"], [b"one", b"", b"two" * 100_000], [b"", b""], [b"x" * 20] * 2000])
@pytest.mark.parametrize("padding", [b"", b"\0" * 10_000])
def test_gzipped_parts_are_one_content(parts: list[bytes], padding: bytes) -> None:
    packed = b"".join(map(gzip.compress, parts)) + padding
    assert unpacked(io.BytesIO(packed)).read() == b"".join(parts) == gzip.decompress(packed)


@pytest.mark.slow
def test_gzipped_file_of_very_many_parts_is_refused_before_its_end() -> None:
    packed = io.BytesIO(gzip.compress(b"") * 2_000_000)
    with pytest.raises(OSError, match="holds more than 65,536 small gzipped parts"):
        unpacked(packed).read()
    assert packed.tell() < 4 << 20


@pytest.mark.slow
def test_gzipped_file_may_have_many_parts_of_blocked_gzip() -> None:
    part = gzip.compress(b"q1 Q0 d1 1 0.5 x\n" * 64)
    assert sum(1 for _ in unpacked(io.BytesIO(part * 70_000), 1 << 30)) == 64 * 70_000


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_small_file_that_unpacks_to_very_much_is_refused(codec: Codec) -> None:
    content = b"q1 Q0 d1 1 0.5 x\n" * (4 << 20)
    packed = gzip.compress(content) if codec == "gzip" else bytes(pa.compress(content, "zstd", asbytes=True))
    with pytest.raises(OSError, match="unpacks to more than 100 times its size"):
        unpacked(io.BytesIO(packed), codec=codec).read()


@pytest.mark.parametrize("kept", [1, 12, -9, -1])
def test_gzipped_file_that_is_cut_is_damaged(kept: int) -> None:
    with pytest.raises((EOFError, zlib.error)):
        unpacked(io.BytesIO(gzip.compress(b"one" * 1000)[:kept])).read()


@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a device"])
def test_link_is_followed_to_a_regular_file_alone(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "good").symlink_to("file")
    assert read_whole(tmp_path / "good", 10, links=True) == b"x"
    with pytest.raises(OSError, match="is a link"):
        read_whole(tmp_path / "good", 10)
    plant(tmp_path / "odd", kind)
    (tmp_path / "bad").symlink_to("odd")
    with pytest.raises(OSError, match="no regular file"):
        read_whole(tmp_path / "bad", 10, links=True)


@pytest.mark.parametrize(
    ("text", "is_one"), [("-123", False), ("+1.5e-3", False), ("-1+2", True), ("=1", True), ("@a", True), ("-", True)]
)
def test_a_number_is_no_formula(text: str, is_one: bool) -> None:
    assert untrusted.is_formula(text) is is_one
    assert csv_cell(text) == (f"'{text}" if is_one else text)
