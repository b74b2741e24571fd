"""Bounded reads of files and text that measured systems and other people wrote.

Only regular files are read, never more bytes than an honest file has, and through a link only where a caller asks.
"""

from __future__ import annotations

import errno
import functools
import gzip
import json
import os
import re
import stat
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from io import BufferedReader
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from pydantic import GetCoreSchemaHandler, ValidationError
from pydantic_core import core_schema

from harness import filesystem
from harness.compression import MAX_UNPACKED_BYTES, unpacked
from harness.driver.records import MAX_PROBES, JobSpec, most_first_stage, values_of
from harness.driver.update_plan import planned_updates
from harness.errors import FileError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

Parsed = TypeVar("Parsed")

# Characters of a foreign text in a table or a message; JSON reports have all of it.
MAX_TEXT = 500


_HIT_BYTES = 2048  # an id of 256 characters, escaped, and a score
_SAMPLE_BYTES = 4096
_FREE_BYTES = 16 << 20
MAX_UPDATE_BYTES = 4096  # of a line of updates.jsonl

# The largest stored file that is read or hashed.
MAX_FILE_BYTES = 1 << 30
_MAX_LEVELS = 64
_LARGEST = 1 << 63
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


# Letters and marks without a glyph, which Python takes for printable: fillers, joiners, variation selectors.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def escaped(text: str) -> str:
    """Write characters that no one can see, or that move others, as escapes."""
    if text.isprintable() and (text.isascii() or not _INVISIBLE.search(text)):
        return text
    return "".join(
        character
        if character.isprintable() and not _INVISIBLE.match(character)
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def one_line(text: str | ForeignText, max_length: int | None = None) -> str:
    """Make foreign text safe to show on one line.

    White space becomes single spaces; control, bidirectional and other invisible characters become escapes, so that no
    text can move a cursor or reorder its surroundings.
    """
    text = text.raw if isinstance(text, ForeignText) else text
    if max_length is not None:
        text = text[: 8 * max_length]  # a log may be megabytes long
    text = escaped(" ".join(text.split()))
    return text if max_length is None or len(text) <= max_length else f"{text[: max_length - 1]}…"


@functools.total_ordering
class ForeignText:
    """Text that a stranger wrote. It is not a ``str``, so that it cannot be written unescaped by mistake.

    ``str()`` and f-strings give the form of :func:`one_line`; it equals the same text as a ``str``.  ``raw`` is for
    what programs read (JSON, CSV, Parquet, hashes) alone; ``tests/test_architecture.py`` lists the modules that may
    use it.
    """

    __slots__ = ("_raw",)

    def __init__(self, raw: str) -> None:
        self._raw = raw

    @property
    def raw(self) -> str:
        """The text as it was written."""
        return self._raw

    def __str__(self) -> str:
        return one_line(self._raw, MAX_TEXT)

    def __repr__(self) -> str:
        return repr(str(self))

    def __format__(self, form: str) -> str:
        return format(str(self), form)

    def __len__(self) -> int:
        return len(self._raw)

    def __eq__(self, other: object) -> bool:
        return self._raw == (other._raw if isinstance(other, ForeignText) else other)

    def __lt__(self, other: Text) -> bool:
        return self._raw < (other._raw if isinstance(other, ForeignText) else other)

    def __hash__(self) -> int:
        return hash(self._raw)

    def __contains__(self, part: str) -> bool:
        return part in self._raw

    @property
    def last_word(self) -> str:
        """Its last word, safe to show: of an author's name, the surname."""
        return str(self).rpartition(" ")[2]

    def startswith(self, start: str) -> bool:
        """Return whether it begins with a text."""
        return self._raw.startswith(start)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        text = core_schema.str_schema()
        return core_schema.no_info_before_validator_function(
            lambda value: value.raw if isinstance(value, cls) else value,
            core_schema.no_info_after_validator_function(cls, text),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value.raw, return_schema=text),
        )


# Tables whose values may be any text: a system's parameters (prompts, paths), which a job's key hashes, and the suite
# of a cloud run, which the suite's own reader checks.
FREE_FIELDS = frozenset(
    {"params", "build_params", "search_params", "with_gpus", "lean_if", "lean_search_if", "sweep", "suite"}
)
_MOST_NAME = 4096


def check_names(record: object, name: str = "") -> None:
    """Refuse a record of a stranger with a ``str`` that is not a printable line: free text is :class:`ForeignText`.

    Keys of tables count, and all values except in ``FREE_FIELDS``.  ``name``: the record's field.

    Raises:
        ValueError: names the field and the text.
    """
    if isinstance(record, str):
        if not record.isprintable() or len(record) > _MOST_NAME:
            limit = f"at most {_MOST_NAME:,} printable characters on one line"
            raise ValueError(f"key '{one_line(name, 80)}' is {one_line(record, 80)!r}; write {limit}")
    elif isinstance(record, Mapping):
        for key, value in record.items():
            check_names(key, name)
            if name not in FREE_FIELDS:
                check_names(value, name)
    elif isinstance(record, tuple | list):
        for value in record:
            check_names(value, name)
    elif hasattr(record, "__dict__") and not isinstance(record, Enum):
        for each, value in vars(record).items():
            check_names(value, each)


# Text that a writer escapes: a stranger's text, or a sentence of harness that may quote one.
Text = str | ForeignText


def foreign(text: str | None) -> ForeignText | None:
    """Mark a text as a stranger's; ``None`` stays missing."""
    return None if text is None else ForeignText(text)


def raw_text(value: Any) -> Any:
    """Return a stranger's text for JSON (``json.dumps(..., default=raw_text)``).

    Raises:
        TypeError: it is something else that JSON cannot hold.
    """
    if isinstance(value, ForeignText):
        return value.raw
    raise TypeError(f"{type(value).__name__} is not for JSON")


def to_json(record: Any, *, indent: int | None = None) -> str:
    """Write a record as :func:`harness.driver.records.to_json` does; strangers' texts in it as they are."""

    def plain(value: Any) -> Any:
        if isinstance(value, ForeignText):
            return value.raw
        return values_of(value)

    return json.dumps(record, default=plain, indent=indent, sort_keys=True, ensure_ascii=False, allow_nan=False)


def max_line_bytes(spec: JobSpec) -> int:
    """Return the bytes of the longest honest line of ``samples.jsonl``."""
    return _SAMPLE_BYTES + (spec.k + most_first_stage(spec)) * _HIT_BYTES


def max_samples(spec: JobSpec) -> int:
    """Return the number of queries that a job may run, warm-up included."""
    return max(len(spec.warmup), spec.warmup_cap) + max_trials(spec) * len(spec.sample) + 2 * spec.repeats


def max_trials(spec: JobSpec) -> int:
    """Return the number of trials that a job may run."""
    return MAX_PROBES if spec.probes else spec.trials


def max_output_bytes(spec: JobSpec) -> int:
    """Return a generous bound of the bytes that an honest job leaves in ``out/``."""
    updates = max_updates(spec) * MAX_UPDATE_BYTES
    return _FREE_BYTES + max_samples(spec) * max_line_bytes(spec) + updates


def max_updates(spec: JobSpec) -> int:
    """Return the number of updates and checks that a job may report."""
    if spec.updates is None:
        return 0
    planned = planned_updates(spec.seed, spec.first_trial, spec.updates, len(spec.sample))
    return len(planned) + len(spec.updates.documents)


@dataclass(frozen=True)
class FileLimits:
    """The maximum lines of a file, and its maximum bytes, packed and unpacked."""

    lines: int
    file_bytes: int = MAX_FILE_BYTES
    unpacked_bytes: int = MAX_UNPACKED_BYTES


def open_regular(path: Path, max_bytes: int | None = None, *, links: bool = False) -> BufferedReader:
    """Open a regular file for reading; refuse a pipe, a device or a socket before opening.

    Args:
        path: the file.
        max_bytes: the most that it may have.
        links: follow a symbolic link; only for files of this user's own, never in a folder that strangers fill.

    Raises:
        OSError: it is missing, a link or no regular file, or it has more than ``max_bytes``.
    """
    _check(path, path.stat() if links else path.lstat(), None)
    link = 0 if links else os.O_NOFOLLOW
    descriptor = os.open(path, os.O_RDONLY | link | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(path, os.fstat(descriptor), max_bytes)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


@contextmanager
def parquet_file(file: IO[bytes], **options: Any) -> Iterator[pq.ParquetFile]:
    """Open an open file again as Parquet, which pyarrow then reads without Python.

    A thread of pyarrow that needs Python while the process ends would abort it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pa.OSFile(f"/proc/self/fd/{file.fileno()}") as native, pq.ParquetFile(native, **options) as parquet:
        yield parquet


def _check(path: Path, status: os.stat_result, max_bytes: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        number = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(number, f"is {kind}, no regular file", str(path))
    if max_bytes is not None and status.st_size > max_bytes:
        text = f"has {status.st_size:,} bytes, at most {max_bytes:,} make sense"
        raise OSError(errno.EFBIG, text, str(path))


def bounded_lines(file: IO[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yield lines of at most ``max_bytes``; a longer line is cut, has no newline, and is the last."""
    while line := file.readline(max_bytes):
        yield line
        if not line.endswith(b"\n"):
            return


def read_fields(path: Path, parse: Callable[[list[str]], Parsed], max_line_bytes: int, max_lines: int) -> list[Parsed]:
    """Return what ``parse``, which may raise ValueError, makes of the tab-separated fields of a gzipped file's lines.

    Raises:
        FileError: the file is missing or damaged; names the line.
    """
    number, parsed = 0, []
    try:
        with open_regular(path, MAX_FILE_BYTES) as file:
            for line in bounded_lines(unpacked(file), max_line_bytes):
                number += 1
                if number > max_lines:
                    raise ValueError(f"more than {max_lines:,} lines make no sense")
                parsed.append(parse(line.decode("utf-8").rstrip("\n").split("\t")))
        return parsed
    except FileNotFoundError:
        raise FileError(f"{path}: this file does not exist; measure again or restore it") from None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise FileError(f"{path}:{number}: damaged: {reason_of(error)}; restore it or measure again") from error


LAST_BYTES = 4096  # of a log that are searched for its last words


def last_line(log: bytes) -> str:
    """Return the last line of a log, as the end of a sentence."""
    lines = log[-LAST_BYTES:].decode("utf-8", "replace").strip().splitlines()
    return f"its last line: {one_line(lines[-1].strip()[:200], MAX_TEXT)}" if lines else "it printed nothing"


def read_start(path: Path, max_bytes: int) -> bytes:
    """Read at most ``max_bytes`` from the start of a regular file."""
    with open_regular(path) as file:
        return file.read(max_bytes)


def read_whole(path: Path, max_bytes: int, *, links: bool = False) -> bytes:
    """Read a regular file; OSError if it has more than ``max_bytes``.  ``links``: see :func:`open_regular`."""
    with open_regular(path, max_bytes, links=links) as file:
        return file.read(max_bytes)


def sha256(path: Path, *, packed: bool = False) -> str:
    """Hash a stored file, or its unpacked content; OSError, EOFError or zlib.error if damaged."""
    with open_regular(path, MAX_FILE_BYTES) as file:
        return filesystem.sha256(unpacked(file) if packed else file)


def whole_number(text: str) -> int:
    """Parse a whole number of at most 64 bits in ASCII digits.

    Raises:
        ValueError: anything else that ``int`` takes: ``1_0``, blanks, another script's digits.
    """
    if not re.fullmatch("[+-]?[0-9]{1,19}", text) or not -_LARGEST <= int(text) < _LARGEST:
        raise ValueError("is not a whole number of at most 64 bits")
    return int(text)


# A spreadsheet computes a cell that begins with one of these signs, unless it is a number.
FORMULA_SIGNS = ("=", "+", "-", "@")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def is_formula(text: str) -> bool:
    """Return whether a spreadsheet may take a text for a formula; ``-123`` is a number."""
    return text.startswith(FORMULA_SIGNS) and not _NUMBER.fullmatch(text)


def finite_number(text: str) -> float:
    """Parse a finite number in ASCII digits.

    Raises:
        ValueError: anything else that ``float`` takes: ``1_0``, ``nan``, blanks, another script's digits.
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if value - value != 0 or not text.isascii() or "_" in text or text != text.strip():
        raise ValueError("is not a finite number")
    return value


def fields_of(line: str) -> list[str]:
    """Split a line at ASCII white space alone: other white space may be part of a field."""
    return [field.decode("utf-8") for field in line.encode("utf-8").split()]


_LISTED = re.compile(r"""(?:\([^()]*\)|\[[^\]]*\]|'[^']*'|"[^"]*"|[^,\s])+""")


def split_list(text: str) -> tuple[str, ...]:
    """Split a list that a person writes: at commas and white space outside brackets and quotes."""
    return tuple(_LISTED.findall(text))


def parse_json(content: bytes) -> Any:
    """Parse JSON, more strictly than Python does.

    Raises:
        ValueError: not JSON, or it has NaN, a number beyond 64 bits, half a surrogate pair, or too many levels.
    """
    try:
        value = json.loads(content.decode("utf-8"))
    except RecursionError:
        raise ValueError(f"more than {_MAX_LEVELS} levels deep") from None
    check_storable(value)
    return value


def check_storable(value: Any) -> None:
    """Refuse plain values that no stored record may hold.

    Raises:
        ValueError: NaN, a number beyond 64 bits, half a surrogate pair, or too many levels.
    """
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        part, level = waiting.pop()
        if isinstance(part, dict):
            waiting += ((inner, level + 1) for pair in part.items() for inner in pair)
        elif isinstance(part, list):
            waiting += ((inner, level + 1) for inner in part)
        elif isinstance(part, str):
            part.encode("utf-8")
        elif isinstance(part, int | float) and not -_LARGEST < part < _LARGEST:
            raise ValueError(f"the number {str(part)[:20]} is not finite, or beyond 64 bits")
        if level >= _MAX_LEVELS:
            raise ValueError(f"more than {_MAX_LEVELS} levels deep")


def decode(content: bytes, path: Path | str, line: int | None = 1, encoding: str = "utf-8") -> str:
    """Decode UTF-8 text that begins at a line of a file; ``None``: at no known line.

    Raises:
        FileError: it is something else; names file and line.
    """
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        before = content.count(b"\n", 0, error.start)
        place = path if line is None else f"{path}:{line + before}"
        raise FileError(f"{place}: {reason_of(error)}; save the file as UTF-8") from None


@contextmanager
def reading(
    place: Path | str, remedy: str, *, fault: str = "cannot be read", damage: tuple[type[Exception], ...] = (OSError,)
) -> Iterator[None]:
    """Turn errors of reading a file into a FileError that names the place, the reason and the remedy."""
    try:
        yield
    except damage as error:
        raise FileError(f"{place}: {fault}: {reason_of(error)}; {remedy}") from error


def reason_of(error: Exception) -> str:
    """Say in our own words why something cannot be read, for every library that may complain."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte 0x{error.object[error.start]:02x} is not UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return "half of a surrogate pair, which UTF-8 cannot hold"
    if isinstance(error, json.JSONDecodeError):
        whole = bool(error.doc[error.pos :].strip())
        return f"wrong from column {error.colno} on" if whole else "ends too early"
    if isinstance(error, tomllib.TOMLDecodeError):
        return _toml_fault(str(error))
    if isinstance(error, ValidationError):
        return mistake(error).partition("; ")[0]
    if type(error).__module__.startswith("pyarrow"):
        return "the file is damaged, or of another format"
    if isinstance(error, KeyError):
        return "a column is missing" if " " in str(error) else f"key {error} is missing"
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        return "the compressed file is damaged or cut short"
    if isinstance(error, OSError):
        return error.strerror or "the file is damaged"
    if isinstance(error, TypeError | AttributeError):
        return "a value has the wrong type"
    if "integer string conversion" in str(error):
        return "a number has too many digits"
    # Python writes bytes as b'...', which people cannot read.
    text = re.sub(r"""\bb(?=['"])""", "", str(error))
    number = re.search("could not convert string to float: (.*)|invalid literal for int.*?: (.*)", text)
    return f"{number[1] or number[2]} is not a number" if number else text


def _toml_fault(text: str) -> str:
    """Say what the TOML parser refuses, and on which line."""
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", text, flags=re.DOTALL)
    what, line, column = match.groups() if match else (text, None, None)
    where = f"line {line}, column {column}" if line else "the end of the file"
    return f"not valid TOML at {where}: {what[:1].lower()}{what[1:]}"


# What pydantic finds, by its type of error: in our words, with the values of its context.
_MISTAKES = {
    "json_invalid": "not valid JSON: {error}",
    "missing": "is missing; add it",
    **dict.fromkeys(("tuple_type", "list_type"), 'expected a list, e.g. ["a", "b"]'),
    **dict.fromkeys(
        ("model_type", "dict_type", "model_attributes_type", "dataclass_type"),
        "expected a table: [{key}] and its keys below",
    ),
    "string_type": 'is {value}; write text in quotes, e.g. "a"',
    "bool_type": "is {value}; write true or false",
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing"), "is {value}; write a whole number"),
    "int_parsing_size": "is {value}; write a smaller number",
    **dict.fromkeys(("float_type", "float_parsing"), "is {value}; write a number"),
    "finite_number": "is {value}; write a finite number",
    "too_short": "has {actual_length} entries; write {min_length} or more",
    "too_long": "has {actual_length} entries; write at most {max_length}",
    "string_too_short": "is {value}; write {min_length} characters or more",
    "string_too_long": "is {value}; write at most {max_length} characters",
    "string_pattern_mismatch": "is {value}; write {pattern}",
    "greater_than": "is {value}; write a number above {gt}",
    "greater_than_equal": "is {value}; write {ge} or more",
    "less_than": "is {value}; write a number below {lt}",
    "less_than_equal": "is {value}; write {le} or less",
    **dict.fromkeys(("literal_error", "enum"), "is {value}; write {expected}"),
    "extra_forbidden": "is unknown; remove it",
}
_FORMS = {
    r"^[a-z0-9][a-z0-9._-]{0,62}$": "1 to 63 lower-case letters, digits, '.', '_' or '-'",
    r"^[0-9a-f]{64}$": "64 digits of 0-9 and a-f",
    r"^[0-9a-f]{40}$": "40 digits of 0-9 and a-f",
    r"^[a-z_][a-z0-9_.]*$": "a module, e.g. engine.prepare",
    r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$": "a model of the hub, e.g. org/model",
    r"^https://download\.pytorch\.org/whl/[a-z0-9]+$": "an index of PyTorch, https://download.pytorch.org/whl/...",
}
# The names of the kinds of a union: pydantic puts them behind the key.
_SCALAR_KINDS = frozenset({"str", "int", "float", "bool"})


def _as_text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def mistake(error: ValidationError, prefix: str = "") -> str:
    """Return the first mistake that pydantic found, as ``key 'K': what is wrong; what is allowed``."""
    errors = error.errors(include_url=False)
    # A misspelt required key is both unknown and missing; the unknown one is the mistake.
    first = next((item for item in errors if item["type"] == "extra_forbidden"), errors[0])
    location = list(first["loc"])
    union = len(errors) > 1 and location and location[-1] in _SCALAR_KINDS
    key = ".".join(map(str, (*filter(None, [prefix]), *(location[:-1] if union else location))))
    value = "nan or infinite" if isinstance(first["input"], float) and first["input"] - first["input"] != 0 else None
    value = value or one_line(json.dumps(first["input"], default=_as_text, ensure_ascii=False), 80)
    if union:
        text = f"is {value}; write text in quotes, a finite number, true or false"
    elif first["type"] in _MISTAKES:
        allowed = {name: _FORMS.get(str(limit), limit) for name, limit in first.get("ctx", {}).items()}
        text = _MISTAKES[first["type"]].format(**{"key": key, "value": value, **allowed})
    elif first["type"] == "value_error":
        text = first["msg"].removeprefix("Value error, ")
    else:
        text = f"is {value}; write another value"
    key = one_line(key, 80)
    if not key:
        return text
    return f"key '{key}' {text}" if text.startswith(("is ", "has ")) else f"key '{key}': {text}"
