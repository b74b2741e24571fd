"""The code of an image has no import circle, imports inside functions included."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from harness.launch.images import catalog

IMAGES = catalog.images_dir()
FOLDERS = [path for path in sorted(IMAGES.iterdir()) if any(path.glob("*.py"))]


def modules(folder: Path) -> dict[str, Path]:
    """Map the modules of a folder on the path of Python to their files."""
    found = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Return all imports of a file; each image has the files of the folder shared."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(module: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield the known modules that a module imports anywhere; its own package does not count."""
    for node in statements(path):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif node.module:
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in below]
        yield from (name for name in names if name in known and not module.startswith(f"{name}."))


def circle(known: dict[str, Path]) -> list[str]:
    """Return the modules of an import circle, the first one also at the end; empty: there is none."""
    graph = {module: set(imports(module, path, known)) - {module} for module, path in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_code_of_an_image_has_no_import_circle(folder: Path) -> None:
    assert circle(modules(IMAGES / "shared") | modules(folder)) == []


def test_a_circle_through_an_import_inside_a_function_is_found(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "__init__.py").touch()
    (tmp_path / "part" / "one.py").write_text("from part import two\n", encoding="utf-8")
    (tmp_path / "part" / "two.py").write_text("def load():\n    from part.one import x\n", encoding="utf-8")
    assert sorted(set(circle(modules(tmp_path)))) == ["part.one", "part.two"]
