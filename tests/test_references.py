"""Docstrings and pages name what exists."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_ROLE = re.compile(r":(?:func|class|mod|meth|data|attr|exc|const):`~?([\w.]+)(?:\(\))?`")
_PATH = re.compile(
    r"(?<![\w/.<-])(?:harness|docs|scripts|tests|images|suites|instance_profiles|checkpoints|benchmarks)/[\w./-]*\.\w+"
)
_MODULES = sorted((ROOT / "harness").rglob("*.py"))


def _docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each docstring of a file with the name of its class, if it is in one."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

    def walk(node: ast.AST, owner: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, kinds) and (text := ast.get_docstring(node, clean=False)):
            yield (node.name if isinstance(node, ast.ClassDef) else owner), text
        for child in ast.iter_child_nodes(node):
            yield from walk(child, node.name if isinstance(node, ast.ClassDef) else owner)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), "")


def _exists(name: str, module: str, owner: str) -> bool:
    """Return whether a dotted name is found in a module, in one of its classes, or on the import path."""
    for place in (f"{module}.{owner}" if owner else module, module, ""):
        parts = [*filter(None, place.split(".")), *name.split(".")]
        for length in range(len(parts), 0, -1):
            try:
                found = importlib.import_module(".".join(parts[:length]))
            except ImportError:
                continue
            if _has(found, parts[length:]):
                return True
            break
    return False


def _has(found: object, names: list[str]) -> bool:
    for name in names:
        if name in getattr(found, "__annotations__", {}) and not hasattr(found, name):
            return name == names[-1]  # a field without a default
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_references_in_docstrings_exist(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    wrong = [
        name for owner, text in _docstrings(path) for name in _ROLE.findall(text) if not _exists(name, module, owner)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "page",
    ["README.md", "CONTRIBUTING.md", *sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md"))],
)
def test_paths_on_pages_exist(page: str) -> None:
    text, folder = (ROOT / page).read_text(encoding="utf-8"), (ROOT / page).parent
    missing = {name for name in _PATH.findall(text) if not (ROOT / name).exists() and not (folder / name).exists()}
    assert missing - {"suites/mine.toml"} == set(), "a reader's own suite"
