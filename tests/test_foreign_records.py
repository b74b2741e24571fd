"""Texts in records of strangers: free text has a type of its own, and every other text is a printable line."""

from __future__ import annotations

import ast
import datetime
import importlib
import json
import pkgutil
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

import harness
from harness.analysis.published import Printed, TableLine
from harness.config import ConfigModel, csv_rows
from harness.driver.records import EffectiveEnvelope, Measurement
from harness.errors import FileError, RemoteError
from harness.jobs import indexes
from harness.remote import records
from harness.results import suite_record
from harness.results.reader import parse_result
from harness.results.schema import IndexFacts, JobProvenance, RentedMachine, Result, SweepPoint
from harness.untrusted import FREE_FIELDS, ForeignText, check_names, to_json
from tests.support import sample_records

ROOT = Path(harness.__file__).parent
HOSTILE = "\x1b[2J"
# Records of strangers beside those of TOML and CSV files; each of their readers calls `check_names`.
CHECKED = {
    "harness.driver.records.EffectiveEnvelope",
    "harness.results.schema.Result",
    "harness.results.schema.IndexFacts",
    "harness.remote.records.RemoteRun",
    "harness.remote.records.PlannedPart",
    "harness.remote.records.Launch",
    "harness.remote.records.WorkerPart",
    "harness.remote.records.Heartbeat",
    "harness.remote.records.WorkerEnd",
    "harness.remote.shipment.LedgerEntry",
}
# Adapters of records whose bare texts may be anything, and why that does no harm.
UNCHECKED = {
    "MergeRecord": "provenance of the user's own judgements; `qrels show` writes it through the report's writers",
    "JudgedPassage": "ids and a text to find in documents; none of them is shown",
    "JudgedChunk": "ids, none of which is shown",
    "RelevantPosition": "ids, which are joined with those of runs, and none of which is shown",
    "Table": "this user's own cache of rows",
    "list[tuple[str | None, SampleFacts | None, int | None]]": "this user's own cache of rows",
    "dict[str, QualityDifference]": "this user's own cache of rows",
}
PLAIN = (int, float, bool, type(None), ForeignText, Printed, Path, datetime.date)


def _modules() -> Iterator[str]:
    for found in pkgutil.walk_packages([str(ROOT)], "harness."):
        if ".driver" not in found.name and ".agent" not in found.name and not found.name.endswith("__main__"):
            yield found.name


def _subclasses(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


def _records() -> list[type]:
    """Return all types that a stranger's file may fill: every model, and the checked dataclasses."""
    for name in _modules():
        importlib.import_module(name)
    named = [name.rpartition(".") for name in sorted(CHECKED)]
    dataclasses = [getattr(importlib.import_module(module), name) for module, _, name in named]
    models = [each for base in (ConfigModel, TableLine) for each in _subclasses(base) if "tests" not in each.__module__]
    return [*models, *dataclasses]


def _texts(form: Any, inner: list[type]) -> Iterator[Any]:
    """Yield, for each bare text that a type may hold, a value of its shape with a hostile text; add inner records.

    Raises:
        AssertionError: the type may hold something that this test does not know.
    """
    origin, arguments = get_origin(form), get_args(form)
    if origin is Annotated:
        yield from _texts(arguments[0], inner)
    elif form in (str, Any):
        yield HOSTILE
    elif origin in (types.UnionType, typing.Union):
        yield from (text for each in arguments for text in _texts(each, inner))
    elif origin is tuple:
        yield from ((text,) for each in arguments if each is not Ellipsis for text in _texts(each, inner))
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield from ({text: 0} for text in _texts(arguments[0], inner))
        yield from ({"name": text} for text in _texts(arguments[1], inner))
    elif is_dataclass(origin):  # a generic one: who uses it names the type of its free texts
        assert set(arguments) <= set(PLAIN), form
        inner.append(origin)
    elif isinstance(form, typing.TypeVar):
        pass
    elif is_dataclass(form) or (isinstance(form, type) and issubclass(form, BaseModel)):
        assert "__slots__" not in vars(form), f"`check_names` cannot look into {form}"
        inner.append(form)  # type: ignore[arg-type] # a class, not an instance
    elif form not in PLAIN and origin is not Literal:
        assert issubclass(form, Enum), f"{form} may hold any text: name a type"


def test_every_text_of_a_strangers_record_is_checked_or_marked_as_foreign() -> None:
    waiting, seen = _records(), set[type]()
    loose = set()
    while waiting:
        kind = waiting.pop()
        if kind in seen or kind in PLAIN:
            continue
        seen.add(kind)
        for name, hint in typing.get_type_hints(kind, include_extras=True).items():
            if name.startswith(("model_", "__")):  # pydantic's own
                continue
            for value in _texts(hint, waiting):
                try:
                    check_names(SimpleNamespace(**{name: value}))
                except ValueError as error:
                    assert "printable" in str(error)
                else:
                    loose.add(name)
    assert len(seen) > 50
    assert loose == FREE_FIELDS


@pytest.mark.slow
def test_every_adapter_is_of_a_known_record() -> None:
    adapted = {
        ast.unparse(node.args[0])
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "TypeAdapter"
    }
    assert adapted == {*UNCHECKED, "EffectiveEnvelope", "Result", "IndexFacts", "Measured", "kind"}


def test_no_model_leaves_the_check_out() -> None:
    _records()
    assert [each.__name__ for each in _subclasses(ConfigModel) if "_names" in vars(each)] == []


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Yield the place of each text in JSON, and whether it is a key."""
    if isinstance(value, str):
        yield path, False
    elif isinstance(value, dict):
        for key, each in value.items():
            yield (*path, key), True
            yield from _places(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _places(each, (*path, number))


def _spoilt(text: str, path: tuple[Any, ...], *, key: bool) -> bytes:
    raw = json.loads(text)
    holder = raw
    for part in path[:-1]:
        holder = holder[part]
    if key:
        holder[HOSTILE] = holder.pop(path[-1])
    else:
        holder[path[-1]] = HOSTILE
    return json.dumps(raw).encode()


@pytest.mark.slow
def test_a_result_with_a_control_character_is_refused_or_marked_as_foreign() -> None:
    result = sample_records.result(
        detail="text",
        stand_in="text",
        device="text",
        libraries={"torch": "2"},
        instance=RentedMachine("i-1", "m7i.large", "us-east-1a", "ami-1", "spot", "group", "h-1", "Intel"),
        sweep=SweepPoint("bm25", {"k1": "a"}),
        files={"log.txt.gz": "0" * 64},
        effective=sample_records.as_record(
            EffectiveEnvelope,
            **{"cpus": [0], "cgroup_version": 1, "memory_bytes": 1, "swap_bytes": 0, "cpu_quota": None, "pids": 1},
            **{"gpus": 0, "network_interfaces": ["lo"], "root_read_only": True, "effective_capabilities": 0},
            **{"no_new_privileges": True, "uid": 1, "threads": {"torch": 1}},
        ),
    )
    text = to_json(result)
    parse_result(text.encode())
    hints = [each for kind in (Result, JobProvenance, Measurement) for each in typing.get_type_hints(kind).items()]
    free = {name for name, kind in hints if re.search("ForeignText|~Text", str(kind))} - {"measured"}
    free |= {"environment", "params"}
    taken = set()
    for path, key in _places(json.loads(text)):
        try:
            spoilt = parse_result(_spoilt(text, path, key=key))
        except (ValueError, FileError):
            continue
        if not (key and HOSTILE not in to_json(spoilt)):  # an unknown key is dropped
            taken.add(next((part for part in reversed(path) if part in free), path))
            assert not key or path[-1] in free, path
    assert taken <= free, taken


def test_each_reader_refuses_a_control_character(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"x.csv:2: key '' is '\\\\x1b\[2J'; write at most"):
        list(csv_rows(tmp_path / "x.csv", "a,b", f"a,b\n1,{HOSTILE}\n".encode()))
    assert list(csv_rows(tmp_path / "x.csv", "a,b", b"a,b\r\n1,2\r\n")) == [
        (f"{tmp_path}/x.csv:2", {"a": "1", "b": "2"})
    ]
    beat = records.dump(records.Heartbeat(HOSTILE))
    with pytest.raises(RemoteError, match="no record of this harness"):
        records.read(records.Heartbeat, "x", beat)
    (tmp_path / suite_record.FILE).write_text(json.dumps({"measures": ["RR@10"], "exact": {"a": HOSTILE}}))
    assert suite_record.read_pairs(tmp_path, "exact") == {}
    assert "printable" in str(suite_record.unreadable(tmp_path)[0])
    facts = sample_records.as_record(IndexFacts, 1.0, 1, HOSTILE, {"name": "x", "cpus": 1, "memory_bytes": 1})
    (tmp_path / indexes._FACTS_FILE).write_text(to_json(facts))
    assert indexes.read(tmp_path) is None
