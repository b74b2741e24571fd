"""Files of judgements and packages of assessors as reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.errors import counted
from harness.evaluation import packages, qrels_merge
from harness.evaluation.packages import PackageCheck, mean_accuracy
from harness.evaluation.qrels_merge import BaseQrels, MergeRecord
from harness.report.document import Escape, GridColumn, ReportDocument, Section, grid_of


def checks_document(checks: Sequence[PackageCheck], accuracy: float) -> ReportDocument:
    """Return packages next to their reviewers' sheets; ``accuracy`` is the least mean that passes."""
    least = packages.exact(accuracy)
    records = [
        {
            "package": check.package.name,
            "round": check.round,
            "accuracy": float(check.accuracy),
            "passed": check.accuracy >= least,
            "reviews": [asdict(review) for review in check.reviews],
        }
        for check in checks
    ]
    return ReportDocument(
        sections=lambda escape: (_check_section(checks, accuracy, escape),),
        lines=tuple,
        content=lambda: {"check_version": 1, "accuracy": accuracy, "packages": records},
    )


def _check_section(checks: Sequence[PackageCheck], accuracy: float, escape: Escape) -> Section:
    least, limit = packages.exact(accuracy), packages.limit(accuracy)
    columns: list[GridColumn[PackageCheck]] = [
        ("package", False, lambda check: escape(check.package.name)),
        ("round", True, lambda check: str(check.round)),
        ("checked", True, lambda check: f"{sum(review.pairs for review in check.reviews):,}"),
        ("reviewers agree", True, lambda check: ", ".join(packages.percent(each.accuracy) for each in check.reviews)),
        ("mean", True, lambda check: packages.percent(check.accuracy)),
        ("result", False, lambda check: "passed" if check.accuracy >= least else "revise"),
    ]
    passed = sum(check.accuracy >= least for check in checks)
    lead = f"**{passed:,} of {counted(len(checks), 'package')} passed**: reviewers agree with {limit} or more"
    return Section(lead=(lead,), grids=(grid_of(checks, columns),))


def qrels_document(file: Path, base: BaseQrels) -> ReportDocument:
    """Return the grades of a file of judgements, its judgements by query, and its merges."""
    facts = qrels_merge.describe_qrels(base.lines) | {
        "sha256": base.sha256,
        "merges": [asdict(merge) for merge in base.merges],
        "changed_after": base.changed_after,
    }
    return ReportDocument(
        sections=lambda escape: (_section(file, facts, base, escape),),
        lines=tuple,
        content=lambda: {"qrels_version": 1, **facts},
    )


def _section(file: Path, facts: Mapping[str, Any], base: BaseQrels, escape: Escape) -> Section:
    size = f"{facts['judgements']:,} judgements of {facts['queries']:,} queries"
    grades: list[GridColumn[tuple[str, int]]] = [
        ("grade", True, lambda item: item[0]),
        ("judgements", True, lambda item: f"{item[1]:,}"),
    ]
    merges: list[GridColumn[MergeRecord]] = [
        ("iteration", True, lambda merge: str(merge.iteration)),
        ("added", True, lambda merge: f"{merge.added:,}"),
        ("replaced", True, lambda merge: f"{len(merge.conflicts) if merge.resolved == 'override' else 0:,}"),
        ("reviewers agree", True, lambda merge: f"{float(mean_accuracy(merge.reviews)):.1%}" if merge.reviews else ""),
        ("source", False, lambda merge: escape(merge.source)),
        ("date", False, lambda merge: escape(merge.date)),
        ("file", False, lambda merge: escape(merge.file)),
    ]

    def of_queries(part: str) -> GridColumn[str]:
        return part, True, lambda kind: f"{facts[f'{kind}_per_query'][part]:g}"

    per_query = [of_queries(part) for part in ("least", "median", "mean", "most")]
    grids = (
        grid_of(list(facts["grades"].items()), grades),
        grid_of(("judged", "relevant"), [("a query", False, str), *per_query]),
        grid_of(base.merges, merges),
    )
    changed = ", ".join(map(str, base.changed_after))
    return Section(
        lead=(f"{escape(str(file))}: {size}, SHA-256 {base.sha256[:16]}",),
        grids=tuple(grid for grid in grids if grid.cells),
        notes=(f"Something else changed the file after iteration {changed}.",) if changed else (),
    )
