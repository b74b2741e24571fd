"""Checks as a report: failures and warnings first with their remedies, then how many are ok."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.launch.checks import Check, Level
from harness.report.document import Escape, ReportDocument, Section, lines_of

_COLUMNS: tuple[tuple[str, Callable[[Check], str]], ...] = (
    ("level", lambda check: check.level.value),
    ("check", lambda check: check.what),
    ("finding", lambda check: check.fact),
    ("remedy", lambda check: check.remedy),
)


def checks_document(checks: Sequence[Check], *, then: str = "") -> ReportDocument:
    """Return a report on checks in their order; the answer names only those that are not ok.

    ``then``: a last line for people, on the next step.
    """
    last = (then,) if then else ()

    def lines(shown: Sequence[Check], escape: Escape) -> tuple[str, ...]:
        return tuple(f"{check.level.value:<4}  {escape(check.text)}" for check in shown)

    def answer(escape: Escape) -> tuple[Section]:
        bad = [check for level in (Level.FAIL, Level.WARN) for check in checks if check.level is level]
        count = f"{len(checks) - len(bad)} of {len(checks)} ok   all: --wide"
        return (Section(notes=(*lines(bad, escape), count, *map(escape, last))),)

    return ReportDocument(
        sections=lambda escape: (Section(notes=(*lines(checks, escape), *map(escape, last))),),
        lines=lambda: lines_of(checks, _COLUMNS),
        content=lambda: {"checks": [{name: get(check) for name, get in _COLUMNS} for check in checks]},
        answer=answer,
        plain=True,
    )
