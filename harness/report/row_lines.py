"""Lines about one row while its run goes on: its figures so far, and what disturbed it."""

from __future__ import annotations

from collections.abc import Iterator

from harness.analysis import causes
from harness.analysis.table import Row, Validity
from harness.errors import counted
from harness.report.document import digits, number
from harness.report.hardware import hardware, size
from harness.report.row_figures import cost_cell


def row_line(row: Row, done: int, trials: int, *, dataset: bool) -> str:
    """Return a row as one line; it is preliminary until all trials are done.

    Args:
        row: of the trials that are done.
        done: the number of these trials.
        trials: the number that the suite asks for.
        dataset: with the dataset's name.
    """
    figures = [
        *(f"{name} {digits(row.measured(name), '.3f')}" for name in tuple(row.measures)[:1]),
        *([f"{number(row.latency.mean_s.value, 1e3)} ms"] if row.latency.mean_s.value is not None else []),
        *([size(row.resources.peak_anon_bytes)] if row.resources.peak_anon_bytes is not None else []),
        *([f"US$ {cost_cell(row)} per 1M queries"] if row.usd_per_million.value is not None else []),
    ]
    state = counted(trials, "trial") if done >= trials else f"preliminary: {done} of {trials} trials"
    return f"{_place(row, dataset=dataset)}: {', '.join(figures)} ({state})"


def disturbances(row: Row, *, dataset: bool) -> Iterator[tuple[str, str]]:
    """Yield what to do about a cause that disturbed a row and may pass, and a line with its fact."""
    for finding in row.findings:
        if finding.validity is Validity.NOISY and finding.transient:
            fact, advice = finding.text.partition("; ")[0], causes.TEXTS[finding.cause].advice
            yield advice, f"noisy: {_place(row, dataset=dataset)}: {fact}. {advice}"


def _place(row: Row, *, dataset: bool) -> str:
    return ", ".join((row.system, *([row.dataset] if dataset else []), hardware(row)))
