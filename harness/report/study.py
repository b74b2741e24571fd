"""Find and load the studies that ship with harness: a paper's own layouts, and the contradictions in its tables.

A study is the package ``study/`` next to the paper's tables; its being there registers it.  A study is code, so only
harness' own files are searched: a folder of results that holds a ``study/`` is read as data and never executed.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from typing import Protocol, cast

from harness import config
from harness.analysis.published import Erratum, Published
from harness.analysis.table import Table
from harness.errors import UnknownName
from harness.pricing.prices import Snapshot

# The file that makes a study, in the folder of its paper's tables.
_CODE = Path("study", "__init__.py")


class Study(Protocol):
    """Study of one paper, in ``results/published/<name>/study``; ``MEASURES`` are the default ones of its layout."""

    MEASURES: tuple[str, ...]

    def find_errata(self, published: Published, snapshot: Snapshot, /) -> tuple[Erratum, ...]:
        """Find the contradictions in the tables, with the facts of the machines in ``snapshot``."""

    def render_paper(self, published: Published, follows: Snapshot, now: Snapshot, format: str, /) -> str:
        """Write the published tables in the paper's shape, at its own prices and at others."""

    def render_rows(self, table: Table, format: str, /) -> str:
        """Write measured rows in the paper's shape."""


@functools.cache
def names() -> tuple[str, ...]:
    """Return the names of the papers that have a study."""
    folder = config.published_folder()
    return tuple(name for name in config.published_names() if (folder / name / _CODE).is_file())


def load(name: str) -> Study:
    """Load a study from harness' own files.

    Raises:
        UnknownName: there is no such study.
    """
    if name not in names():
        raise UnknownName("study", name, names())
    # By path, under its own name: a wheel has no package `results`, and the working directory may hold another one.
    module = f"_harness_study_{name}"
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, config.published_folder() / name / _CODE)
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
    return load(published.about.name) if published.about.name in names() else None
