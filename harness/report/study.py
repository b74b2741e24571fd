"""Load the studies that ship with harness: a paper's own layouts, and the contradictions in its tables.

A study is code, so it is chosen from a fixed list and loaded from harness' own files: a folder of results that holds
a ``study/`` of its own is read as data and never executed.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Protocol, cast

from harness import config
from harness.analysis.published import Erratum, Published
from harness.analysis.table import Table
from harness.errors import UnknownName
from harness.pricing.prices import Snapshot

NAMES = ("santhanam2023",)


class Study(Protocol):
    """Study of one paper, in ``results/published/<name>/study``."""

    def find_errata(self, published: Published, snapshot: Snapshot, /) -> tuple[Erratum, ...]:
        """Find the contradictions in the tables, with the facts of the machines in ``snapshot``."""

    def render_paper(self, published: Published, follows: Snapshot, now: Snapshot, format: str, /) -> str:
        """Write the published tables in the paper's shape, at its own prices and at others."""

    def render_rows(self, table: Table, format: str, /) -> str:
        """Write measured rows in the paper's shape."""


def load(name: str) -> Study:
    """Load a study of ``NAMES`` from harness' own files.

    Raises:
        UnknownName: there is no such study.
    """
    if name not in NAMES:
        raise UnknownName("study", name, NAMES)
    # By path, under its own name: a wheel has no package `results`, and the working directory may hold another one.
    module = f"_harness_study_{name}"
    if module not in sys.modules:
        path = config.data_root() / "results" / "published" / name / "study" / "__init__.py"
        spec = importlib.util.spec_from_file_location(module, path)
        assert spec is not None and spec.loader is not None
        sys.modules[module] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[module])
        except BaseException:
            del sys.modules[module]
            raise
    return cast(Study, sys.modules[module])


def of(published: Published) -> Study | None:
    """Return the study of these tables, by the paper's name; ``None``: there is none."""
    return load(published.about.name) if published.about.name in NAMES else None
