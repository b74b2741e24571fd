"""What a calibration found, as a table for the terminal or for Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.experiments.calibration.truths import Verdict

_HEAD = ("case", "figure", "planted", "reported", "error", "allowed", "verdict")


@dataclass(frozen=True)
class Line:
    """One figure of one case over all repeats.

    ``verdicts`` holds the last try's of each repeat, ``tries`` how many each repeat took, ``disturbances`` what the
    report then said against the machine.
    """

    case: str
    verdicts: tuple[Verdict, ...]
    tries: tuple[int, ...]
    disturbances: tuple[str | None, ...]

    @property
    def ok(self) -> bool:
        """Right in every repeat."""
        return all(verdict.ok for verdict in self.verdicts)

    @property
    def disturbance(self) -> str | None:
        """What disturbed the machine in all repeats that are off; None where one of them has no such excuse."""
        off = [why for verdict, why in zip(self.verdicts, self.disturbances, strict=True) if not verdict.ok]
        return off[0] if off and all(off) else None

    @property
    def worst(self) -> Verdict:
        """The repeat that is shown: one that is off, else the one with the largest error."""
        return max(self.verdicts, key=lambda verdict: (not verdict.ok, verdict.severity))

    @property
    def verdict(self) -> str:
        """``ok`` or ``OFF``, and what a reader must know besides."""
        count, right = len(self.verdicts), sum(verdict.ok for verdict in self.verdicts)
        text = "ok" if self.ok else "OFF"
        if count > 1:
            text += f", {right} of {count}"
        again = sum(tries > 1 for tries in self.tries)
        if count == 1:
            return f"{text}, {_ordinal(self.tries[0])} try" if again else text
        return f"{text}, {again} at a later try" if again else text


def render(lines: Iterable[Line], remark: str, form: str) -> str:
    """The table as ``terminal`` or ``md``."""
    return markdown(lines, remark) if form == "md" else terminal(lines, remark)


def markdown(lines: Iterable[Line], remark: str) -> str:
    """A Markdown table, and a line on how it came about."""
    rows = [_HEAD, *map(_cells, lines)]
    body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows]
    return "".join([body[0], "|" + "---|" * len(_HEAD) + "\n", *body[1:], f"\n{remark}\n"])


def terminal(lines: Iterable[Line], remark: str) -> str:
    """Aligned columns."""
    rows = [_HEAD, *map(_cells, lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    body = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows
    ]
    return "".join([*body, f"\n{remark}\n"])


def summary(lines: Sequence[Line], wall_s: float) -> str:
    """The last sentences: how many are right, how long that took, and what to do about the others."""
    off = [line for line in lines if not line.ok]
    text = f"{len(lines) - len(off)} of {len(lines)} figures as planted, in {wall_s:.0f} s"
    if not off:
        return text
    text += f"; off: {', '.join(dict.fromkeys(line.case for line in off))}"
    disturbed = [line for line in off if line.disturbance]
    if disturbed:
        names, fact = ", ".join(dict.fromkeys(line.case for line in disturbed)), _fact(disturbed[0].disturbance)
        remedy = "quieten it (harness doctor shows its load) and calibrate again"
        text += f"\nthe machine was disturbed during {names}: {fact}; {remedy}"
    return text


def _cells(line: Line) -> tuple[str, ...]:
    shown = line.worst
    return (line.case, shown.what, shown.planted, shown.measured, shown.error, shown.allowed, line.verdict)


def _ordinal(number: int) -> str:
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")


def _fact(reason: str | None) -> str:
    """A reason without its remedy, which is for a suite."""
    return (reason or "").partition("; ")[0]
