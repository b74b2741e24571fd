"""Distributions of other people that add launchers."""

from __future__ import annotations

from pathlib import Path

from harness.launch import launchers


def install(site: Path, module: str, code: str, points: dict[str, str], name: str = "nice-launcher") -> None:
    """Write a distribution as an installer leaves it: a module, and the metadata that names its launchers."""
    (site / f"{module}.py").write_text(code, encoding="utf-8")
    about = site / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"[{launchers.GROUP}]", *(f"{launcher} = {path}" for launcher, path in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
