"""Draw the packages from the import contract, and list the dependencies with their purpose."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- packages: written by `make docs` -->", "<!-- end of packages -->"


def layers() -> list[list[str]]:
    """Return the layers of the import contract, top first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (
        contract for contract in project["tool"]["importlinter"]["contracts"] if contract["type"] == "layers"
    )
    return [re.split(r"\s*[|:]\s*", layer) for layer in contract["layers"]]


def imports() -> set[tuple[str, str]]:
    """Return the arrows between units (packages and flat modules), without those that a longer way implies."""
    graph = grimp.build_graph("harness", cache_dir=None)
    units = [unit for layer in layers() for unit in layer]
    flat = set(layers()[-1])
    arrows = {
        (one, other)
        for one in units
        for other in units
        if one != other and other not in flat and one not in flat
        if graph.direct_import_exists(
            importer=f"harness.{one}", imported=f"harness.{other}", as_packages=_packages(one, other)
        )
    }
    return {(one, other) for one, other in arrows if not _implied(one, other, arrows)}


def _packages(*units: str) -> bool:
    return all((ROOT / "harness" / unit).is_dir() for unit in units) or any(
        (ROOT / "harness" / unit).is_dir() for unit in units
    )


def _implied(one: str, other: str, arrows: set[tuple[str, str]]) -> bool:
    reached, left = set(), {middle for start, middle in arrows if start == one and middle != other}
    while left:
        unit = left.pop()
        reached.add(unit)
        left |= {end for start, end in arrows if start == unit} - reached
    return other in reached


def purpose(unit: str) -> str:
    """Return the first line of a unit's docstring."""
    folder = ROOT / "harness" / unit
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.splitlines()[0]


def picture() -> str:
    """Return the diagram and the list of packages, as CONTRIBUTING.md shows them."""
    levels = layers()
    lines = ["```mermaid", "flowchart TD"]
    for layer in levels[:-1]:
        lines += [f"    {unit}" for unit in layer]
    lines += [f'    flat["{", ".join(levels[-1])}"]']
    lines += [f"    {one} --> {other}" for one, other in sorted(imports())]
    ends = {unit for layer in levels[:-1] for unit in layer} - {one for one, _ in imports()}
    lines += [f"    {unit} --> flat" for unit in sorted(ends)]
    lines += ["```", "", "| | |", "|---|---|"]
    for layer in levels:
        lines += [f"| `{unit}` | {purpose(unit)} |" for unit in layer]
    return "\n".join(lines)


def contributing() -> str:
    """Return CONTRIBUTING.md with the present picture in its place."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{picture()}\n\n{END}{after}"


def dependencies() -> str:
    """Return the page that names each dependency with its purpose, from the comments in pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    blocks = re.findall(r"^([a-z]+) = \[\n(.*?)^\]", text.partition("[dependency-groups]")[0], re.MULTILINE | re.DOTALL)
    rows = [
        (name, "" if kind == "dependencies" else f"`ir-harness[{kind}]`", use)
        for kind, block in blocks
        for name, use in re.findall(r'^  "([A-Za-z0-9-]+)[^"]*",(?:\s*# (.*))?$', block, re.MULTILINE)
    ]
    return (
        "# Dependencies\n\nGenerated from `pyproject.toml` by `make docs`.\n\n"
        "What runs inside images is Python's standard library and the engine's own packages. On the host,"
        " `pip install ir-harness` installs the packages without an [extra](../guides/install.md#extras):\n\n"
        "| package | extra | for |\n|---|---|---|\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)
    )
