"""Changes to the bytes of a valid file, by its format, and odd things in place of a file.

A change is a name and two numbers, so that a failing example can be printed and repeated.  Numbers beyond what a file
has are taken modulo.
"""

from __future__ import annotations

import copy
import functools
import gzip
import io
import json
import os
import re
import socket
import stat
import tomllib
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomlkit

from tests.fuzz.archive_changes import TAR, ZIP, Edit, tar_of_many, zip_of_many

MOST_NUMBER = 1 << 16
_MOST_BYTES = 24 << 20  # of a changed file
_MIB = 1 << 20
_GZIP_MAGIC, _ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"

# Text that a reader of lines, columns or ids may take amiss.
_TEXTS = (
    *("", "\0", "\ufeff", "\u2028", "\x85", "\x1b[2J", "\u202e", "\r", "\r\n", "\n", "\t", '"', "'", "#"),
    *("..", "/", "../../beside/secret.txt", "/etc/passwd", "x" * 300, "x" * 100_000),
    *("nan", "inf", "1_0", "-1", "0", "1e400", "9" * 25, "9" * 5000, str(1 << 63), str(-(1 << 63)), "٣"),
    *("-", "{}", "[]", "\U0001f600", "con\u0301"),
)
_BYTES = (b"\xff", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\x80", b"\x1f\x8b", b"PK\x03\x04", b"\x00" * 4096)
# Values of the wrong kind or size for almost every key.
_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 1 << 31, (1 << 63) - 1, 1 << 63, 10**25, -(1 << 63) - 1, 1e308, -1.5, 5e-324),
    *([], {}, [[]], [None], {"": None}, [{}] * 3, *_TEXTS, *range(-3, 4)),
)


@dataclass(frozen=True)
class Change:
    """One change of a file's bytes, or of the content that its compression hides (``inside``)."""

    name: str
    at: int
    value: int
    inside: bool = False


def _place(content: bytes, at: int) -> int:
    """Return a place in the content; small numbers are near its start, the largest at its end."""
    return at % (len(content) + 1) if at < MOST_NUMBER // 2 else len(content) * at // MOST_NUMBER


def _flip(content: bytes, at: int, value: int) -> bytes:
    if not content:
        return content
    place = _place(content, at) % len(content)
    return content[:place] + bytes([content[place] ^ (1 << value % 8)]) + content[place + 1 :]


def _cut(content: bytes, at: int, _value: int) -> bytes:
    return content[: _place(content, at)]


def _drop(content: bytes, at: int, value: int) -> bytes:
    place = _place(content, at)
    return content[:place] + content[place + 1 + value % 64 :]


def _double(content: bytes, at: int, value: int) -> bytes:
    place, size = _place(content, at), 1 + value % 256
    piece = content[place : place + size]
    return content[:place] + piece * min(1 + value, _MIB // (size or 1)) + content[place + len(piece) :]


def _splice(content: bytes, at: int, value: int) -> bytes:
    first, second = _place(content, at), _place(content, value)
    return content[:first] + content[second : second + 512] + content[first:]


def _insert_text(content: bytes, at: int, value: int) -> bytes:
    place = _place(content, at)
    return content[:place] + _TEXTS[value % len(_TEXTS)].encode() + content[place:]


def _insert_bytes(content: bytes, at: int, value: int) -> bytes:
    place = _place(content, at)
    return content[:place] + _BYTES[value % len(_BYTES)] + content[place:]


def _replace(pattern: bytes, content: bytes, at: int, value: int, texts: Sequence[bytes] = ()) -> bytes:
    """Replace one of the matches of a pattern by one of these texts, by default of ``_TEXTS``."""
    found = list(re.finditer(pattern, content[: 1 << 20]))
    if not found:
        return content
    match, texts = found[at % len(found)], texts or [text.encode() for text in _TEXTS]
    return content[: match.start()] + texts[value % len(texts)] + content[match.end() :]


def _repeat_lines(content: bytes, at: int, value: int) -> bytes:
    lines = content.splitlines(keepends=True) or [b""]
    line = lines[at % len(lines)]
    return content + line * min(1 + value, _MIB // (len(line) or 1))


def _swap_lines(content: bytes, at: int, value: int) -> bytes:
    lines = content.splitlines(keepends=True) or [b""]
    first, second = at % len(lines), value % len(lines)
    lines[first], lines[second] = lines[second], lines[first]
    return b"".join(lines)


def _nest(content: bytes, at: int, value: int) -> bytes:
    place, (begin, end) = _place(content, at), ((b"[", b"]"), (b'{"a":', b"}"))[value % 2]
    depth = (70, 1000, 200_000)[value % 3]
    return content[:place] + begin * depth + b"1" + end * depth + content[place:]


def _long_line(content: bytes, at: int, value: int) -> bytes:
    place = _place(content, at)
    return content[:place] + (b"x", b"1", b" ", b"\t")[value % 4] * (4 * _MIB) + content[place:]


def _as_text(content: bytes, _at: int, value: int) -> bytes:
    """Write the text in another encoding, or with other line ends."""
    text = content.decode("utf-8", "replace")
    forms = (
        lambda: b"\xef\xbb\xbf" + content,
        lambda: text.encode("utf-16"),
        lambda: text.encode("utf-32"),
        lambda: content.replace(b"\n", b"\r\n"),
        lambda: content.replace(b"\n", b"\r"),
        lambda: text.replace("\n", "\u2028").encode(),
        lambda: text.encode("latin-1", "replace"),
        lambda: content.removesuffix(b"\n"),
    )
    return forms[value % len(forms)]()


def _as_archive(content: bytes, _at: int, value: int) -> bytes:
    """Compress once more, or not at all."""
    forms = (
        lambda: gzip.compress(content, 1),
        lambda: pa.compress(content, "zstd", asbytes=True),
        lambda: zlib.compress(content),
        lambda: unpack(content),
        lambda: content + content,
    )
    return bytes(forms[value % len(forms)]())


ANY: dict[str, Edit] = {
    "flip": _flip,
    "cut": _cut,
    "drop": _drop,
    "double": _double,
    "splice": _splice,
    "insert bytes": _insert_bytes,
    "as archive": _as_archive,
}
TEXT: dict[str, Edit] = {
    "insert text": _insert_text,
    "replace word": functools.partial(_replace, rb"[^\s,;:\[\]{}\"'=]+"),
    "replace number": functools.partial(_replace, rb"-?[0-9]+(?:\.[0-9]+)?"),
    "repeat line": _repeat_lines,
    "swap lines": _swap_lines,
    "nest": _nest,
    "long line": _long_line,
    "as text": _as_text,
}


def _slots(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Yield each container of a value with each of its keys."""
    keys: Any = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        if depth < 20:
            yield from _slots(value[key], depth + 1)


def change_value(value: Any, at: int, number: int) -> Any:
    """Return a copy of a plain value with one part replaced, removed, added or wrapped."""
    changed = copy.deepcopy(value)
    slots = list(_slots(changed))
    new = copy.deepcopy(_VALUES[number % len(_VALUES)])
    if not slots:
        return new
    container, key = slots[at % len(slots)]
    match number // len(_VALUES) % 6:
        case 0 | 1 | 2:
            container[key] = new
        case 3:
            del container[key]
        case 4:
            container[key] = [container[key], new]
        case _ if isinstance(container, dict):
            container[_TEXTS[number % len(_TEXTS)]] = new
        case _:
            container.insert(key, new)
    return changed


def _json_value(content: bytes, at: int, value: int) -> bytes:
    """Change a value of a JSON text, or of one of its lines."""
    try:
        return json.dumps(change_value(json.loads(content), at, value)).encode()
    except (ValueError, RecursionError):
        pass
    lines = content.splitlines(keepends=True)
    number = at % 97 % len(lines) if lines else 0
    try:
        lines[number] = json.dumps(change_value(json.loads(lines[number]), at, value)).encode() + b"\n"
    except (ValueError, RecursionError, IndexError):
        return content
    return b"".join(lines)


def _json_text(content: bytes, at: int, value: int) -> bytes:
    """Replace a value of a JSON text by what JSON may not have, or Python's parser takes amiss."""
    texts = (b"NaN", b"-Infinity", b"1e999", b"-0", b'"\\ud800"', b'"\\u0000"', b"9" * 5000, b"01", b'"a":1,"a":2', b"")
    return _replace(rb'"(?:[^"\\]|\\.)*"|-?[0-9.]+|true|false|null', content, at, value, texts)


def _toml_value(content: bytes, at: int, value: int) -> bytes:
    try:
        raw = change_value(tomllib.loads(content.decode()), at, value)
        return tomlkit.dumps(_without_null(raw)).encode("utf-8", "surrogatepass")
    except (ValueError, TypeError, RecursionError, AttributeError):
        return content


def _without_null(value: Any) -> Any:
    """Return a value that TOML can hold."""
    if isinstance(value, dict):
        return {key: _without_null(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_null(inner) for inner in value if inner is not None]
    return value


def _toml_text(content: bytes, at: int, value: int) -> bytes:
    """Replace a value of a TOML text by a value of another kind."""
    texts = (b"nan", b"-inf", b"1979-05-27T07:32:00Z", b"07:32:00", b"0xffffffffffffffffffff", b"9" * 5000, b"[1, 'a']")
    return _replace(rb"(?<== )[^\n]+", content, at, value, texts)


def _arrow_columns(rows: int) -> tuple[Callable[[], Any], ...]:
    """Return makers of columns that a Parquet file of samples or vectors should not have."""
    return (
        lambda: pa.nulls(rows, pa.int64()),
        lambda: pa.nulls(rows, pa.string()),
        lambda: pa.array([1 << 62] * rows, pa.int64()),
        lambda: pa.array([-1] * rows, pa.int64()),
        lambda: pa.array([0] * rows, pa.int32()),
        lambda: pa.array(["x"] * rows),
        lambda: pa.array(["q" * 2000] * rows),
        lambda: pa.array([b"\xff"] * rows, pa.binary()),
        lambda: pa.array([float("nan")] * rows),
        lambda: pa.array([{"a": 1}] * rows),
        lambda: pa.array([[1.0]] * rows),
        lambda: pa.array([True] * rows),
        lambda: pa.array([0] * rows, pa.timestamp("ns")),
        lambda: pa.array(["x"] * rows).dictionary_encode(),
        lambda: pa.FixedSizeListArray.from_arrays(pa.array([0.5] * rows, pa.float32()), 1),
    )


def _parquet_column(content: bytes, at: int, value: int) -> bytes:
    """Replace, remove, double or add a column of a Parquet file."""
    try:
        table = pq.read_table(io.BytesIO(content))
    except (pa.ArrowException, OSError):
        return content
    makers = _arrow_columns(len(table))
    index, column = at % max(table.num_columns, 1), makers[value % len(makers)]()
    match value // len(makers) % 4:
        case 0 | 1 if table.num_columns:
            changed = table.set_column(index, table.column_names[index], column)
        case 2 if table.num_columns:
            changed = table.remove_column(index)
        case _:
            changed = table.append_column((*table.column_names, *_TEXTS)[value % (table.num_columns + 8)], column)
    return _parquet(changed)


def _parquet_rows(content: bytes, at: int, value: int) -> bytes:
    """Take no rows, one, or each many times."""
    try:
        table = pq.read_table(io.BytesIO(content))
    except (pa.ArrowException, OSError):
        return content
    most = max(1, 1_000_000 // (len(table) or 1))
    forms = (lambda: table[:0], lambda: table[:1], lambda: pa.concat_tables([table] * min(most, 1 + at)))
    return _parquet(forms[value % len(forms)]())


def _parquet_facts(content: bytes, at: int, value: int) -> bytes:
    """Change the metadata of a Parquet file, which may hold JSON."""
    try:
        table = pq.read_table(io.BytesIO(content))
    except (pa.ArrowException, OSError):
        return content
    facts = dict(table.schema.metadata or {})
    if not facts:
        return content
    name = sorted(facts)[at % len(facts)]
    edits: list[Edit] = [_json_value, _json_text, *TEXT.values(), *ANY.values()]
    facts[name] = edits[value % len(edits)](facts[name], at, value)
    return _parquet(table.replace_schema_metadata(facts))


def _parquet(table: pa.Table) -> bytes:
    target = io.BytesIO()
    try:
        pq.write_table(table, target, compression="zstd")
    except (pa.ArrowException, OSError):
        return b""
    return target.getvalue()


def example_parquet() -> bytes:
    """Return a small Parquet file with metadata."""
    table = pa.table({"id": ["a", "b"], "number": pa.array([1, 2], pa.int64())})
    return _parquet(table.replace_schema_metadata({"facts": '{"a": 1}'}))


JSON: dict[str, Edit] = {"JSON value": _json_value, "JSON text": _json_text}
TOML: dict[str, Edit] = {"TOML value": _toml_value, "TOML text": _toml_text}
PARQUET: dict[str, Edit] = {
    "Parquet column": _parquet_column,
    "Parquet rows": _parquet_rows,
    "Parquet facts": _parquet_facts,
}
_PARSED = {**JSON, **TOML, **PARQUET, **TAR, **ZIP}
EDITS = {**ANY, **TEXT, **_PARSED}


def edits_of(name: str) -> tuple[tuple[str, bool], ...]:
    """Return the changes that fit a file of this name, each with whether it is made inside its compression."""
    plain = name.removesuffix(".gz").removesuffix(".zst")
    ending = plain.rpartition(".")[2]
    if ending in ("parquet", "tar", "whl", "npy", "f32", "bin"):
        own: dict[str, Edit] = {"parquet": PARQUET, "tar": TAR, "whl": ZIP}.get(ending, {})
        inner = {**ANY, **own, **own, **own}
    else:
        inner = {**TEXT, **{"json": JSON, "jsonl": JSON, "toml": TOML}.get(ending, {})}
    # Changes of meaning find more than changes of bytes.
    inside = [(edit, plain != name) for edit in inner]
    return (*inside, *inside, *((edit, False) for edit in ANY))


def unpack(content: bytes) -> bytes:
    """Return the content of a compressed file; other content as it is."""
    if content.startswith(_GZIP_MAGIC):
        try:
            return gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            return content
    if content.startswith(_ZSTD_MAGIC):
        try:
            return bytes(pa.CompressedInputStream(io.BytesIO(content), "zstd").read())
        except (OSError, pa.ArrowException):
            return content
    return content


def packed_like(packed: bytes, content: bytes) -> bytes:
    """Compress a content as another file is compressed."""
    if packed.startswith(_GZIP_MAGIC):
        return gzip.compress(content, 1, mtime=0)
    if packed.startswith(_ZSTD_MAGIC):
        return bytes(pa.compress(content, "zstd", asbytes=True))
    return content


def changed(content: bytes, changes: tuple[Change, ...]) -> bytes:
    """Apply changes: first those that parse the file, which is still a valid one, then the others in their order."""
    for change in sorted(changes, key=lambda each: each.name not in _PARSED):
        edit = EDITS[change.name]
        if change.inside:
            new = packed_like(content, edit(unpack(content), change.at, change.value))
        else:
            new = edit(content, change.at, change.value)
        content = new[:_MOST_BYTES]
    return content


_LINE = b"a b c 1 1 d\n"


@functools.cache
def _bomb(piece: bytes) -> bytes:
    """Return some MB that unpack to 2 GiB: members of 64 MiB each."""
    return gzip.compress(piece * (64 * _MIB // len(piece)), 9, mtime=0) * 32


@functools.cache
def _zstd_bomb() -> bytes:
    frame = bytes(pa.compress(b"x" * (64 * _MIB), "zstd", asbytes=True))
    return frame * 32


def _put(content: Callable[[], bytes]) -> Callable[[Path, bytes], object]:
    return lambda path, _content: path.write_bytes(content())


def compress_bombs() -> None:
    """Compress what is kept: a process does so before it forks those that read."""
    _bomb(b"x")
    _bomb(_LINE)
    _zstd_bomb()


def _sparse(path: Path, _content: bytes) -> None:
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)


def _socket(path: Path, _content: bytes) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # a socket's path has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def _link(to: Callable[[Path], str]) -> Callable[[Path, bytes], object]:
    return lambda path, _content: path.symlink_to(to(path))


def _loop_folder(path: Path, content: bytes) -> None:
    path.mkdir()
    (path / "inner").write_bytes(content)
    (path / "loop").symlink_to("..")


# Found by each reader's test: cheap ones.
ODDITIES: dict[str, Callable[[Path, bytes], object]] = {
    "no file": lambda _path, _content: None,
    "an empty file": _put(lambda: b""),
    "a folder": _loop_folder,
    "a pipe": lambda path, _content: os.mkfifo(path),
    "a socket": _socket,
    "a link to a device": _link(lambda _path: "/dev/zero"),
    "a link to itself": _link(lambda path: path.name),
    "a link to nothing": _link(lambda _path: "gone"),
    "a link to a secret": _link(lambda path: os.path.relpath(_secret(path), path.parent)),
    "a device": lambda path, _content: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5)),
    "a line of 4 MiB": _put(lambda: b"x" * (4 * _MIB)),
    "an empty gzip": _put(lambda: gzip.compress(b"", mtime=0)),
    "brackets": _put(lambda: b"[" * 200_000),
    "JSON null": _put(lambda: b"null\n"),
    "a JSON number": _put(lambda: b"9" * 5000),
}
# Costly ones.
BOMBS: dict[str, Callable[[Path, bytes], object]] = {
    "a sparse file of 1 GiB": _sparse,
    "a gzip bomb": _put(lambda: _bomb(b"x")),
    "a gzip bomb of lines": _put(lambda: _bomb(_LINE)),
    "a gzip of empty members": _put(lambda: gzip.compress(b"", mtime=0) * 500_000),
    "a zstd bomb": _put(_zstd_bomb),
    "a gzip of many tar entries": _put(lambda: gzip.compress(tar_of_many(70_000), 1, mtime=0)),
    "a zip of many entries": _put(lambda: zip_of_many(1_200_000)),
}
_NEEDS_ROOT = {"a device"}


def _secret(path: Path) -> Path:
    """Return the secret beside the folder of the reader: ``<base>/beside/secret.txt``."""
    return next(parent / "beside" / "secret.txt" for parent in path.parents if (parent / "beside").is_dir())


def put_oddity(name: str, path: Path, content: bytes) -> bool:
    """Put an odd thing in place of a file; return whether this user may."""
    if name in _NEEDS_ROOT and os.geteuid() != 0:
        return False
    {**ODDITIES, **BOMBS}[name](path, content)
    return True
