"""The code of the driver as images hold it, and which versions of it measure alike."""

from __future__ import annotations

import ast
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from harness import driver
from harness.driver.records import PROTOCOL_VERSION

# Hashes of the driver's code that speak a protocol and time alike: results of one stay done with another, and an image
# that holds one is not built again.  A change of the driver that may change a timing, or a file that crosses between
# host and container, raises PROTOCOL_VERSION and begins a new entry; any other change appends its hash here.
ALIKE: dict[int, tuple[str, ...]] = {
    2: (
        "e08101a04d58ce62215645722bbde55174ec1353a885e4fcf59b4f26b585d1a8",
        "59163b1c521dd3b0bb4d41877f28b2abc10905e7918717fe11a1d815a11f8c3a",
        "a7f626930623448cee6ff1bc7bac325a2524599bf623e2204c49aa6940dd16e3",
        "7909fc5eac49b910661b4ce4f6d80e806f2b282e1b24bb4218407e9e921000eb",
        "a4a3c448ebb411c1c0345f1884c8c2a0abd1293fdc219806b664744e6e72f35a",
        "92ce74bfbd8a4c360da9bf6aacbecf6942259863eec3ce2bb5c64389335588ad",
    ),
}


def files() -> dict[str, Path | bytes]:
    """Return the driver's files by their path on the import path, and an empty package for ``harness`` itself.

    So an image does not depend on harness's version.
    """
    folder = Path(driver.__file__).resolve().parent
    modules = {f"harness/driver/{path.relative_to(folder).as_posix()}": path for path in sorted(folder.rglob("*.py"))}
    return {"harness/__init__.py": b"", **modules}


@cache
def code_hash() -> str:
    """Hash the syntax trees of the driver's files; comments, docstrings and the Python version do not count."""
    trees = {name: tree_of(path.read_text("utf-8")) for name, path in files().items() if isinstance(path, Path)}
    return hashlib.sha256(json.dumps(trees, sort_keys=True).encode()).hexdigest()


def tree_of(source: str) -> Any:
    """Return a module's syntax tree without docstrings, as plain values."""
    return _plain(ast.parse(source))


def measures_alike(built_with: str | None) -> bool:
    """Return whether an image with this driver measures as this harness's driver does."""
    known = ALIKE.get(PROTOCOL_VERSION, ())
    return built_with == code_hash() or (built_with in known and code_hash() in known)


def is_current(built_with: str | None) -> bool:
    """Return whether an image has this very driver."""
    return built_with == code_hash()


def _plain(value: Any) -> Any:
    """Return a node as its name and its fields; empty fields are left out, because Python versions add such."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, ast.AST):
        return repr(value)
    fields = {name: field for name, field in ast.iter_fields(value) if field not in (None, [])}
    if isinstance(value, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        fields["body"] = value.body[ast.get_docstring(value, clean=False) is not None :]
    return [type(value).__name__, {name: _plain(field) for name, field in fields.items()}]
