"""Find the cells whose place on the Pareto front is undecided, and the suite that declares them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.analysis import pareto_front
from harness.analysis.table import Table
from harness.errors import UsageError
from harness.evaluation.per_query import PerQuery
from harness.jobs.suite import load
from harness.results.schema import Cell


def contested_cells(
    results: Path, table: Table, per_query: Mapping[str, PerQuery], suites: tuple[Path, ...]
) -> tuple[tuple[Path, ...], frozenset[Cell]]:
    """Return the suite that declares the contested cells of stored results, and these cells.

    Args:
        results: the folder, for messages.
        table: its rows; the first measure counts.
        per_query: the rows' values by query.
        suites: the suite that a user names; empty: the results' own in ``suites/``.

    Raises:
        UsageError: several suites are named, or none is and the results do not lead to one.
    """
    if len(suites) > 1:
        raise UsageError(f"--contested measures one suite again, and {len(suites)} are named; name one")
    cells = pareto_front.contested_cells(table, per_query, table.measures[0])
    if suites:
        name = load(suites[0]).name
        return suites, frozenset(cell for cell in cells if cell.suite == name)
    names = sorted({cell.suite for cell in cells})
    if len(names) > 1:
        raise UsageError(
            f"{results}: contested cells of {len(names)} suites ({', '.join(names)}); name the SUITE to run"
        )
    paths = [path for name in names if (path := Path("suites", f"{name}.toml")).is_file()]
    if names and not paths:
        raise UsageError(
            f"{results}: was measured with suite {names[0]}, but suites/{names[0]}.toml does not exist; name its SUITE"
        )
    return tuple(paths[:1]), cells
