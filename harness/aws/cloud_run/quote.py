"""Show what a run would launch and cost, before anything starts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.aws.cloud_run import costs
from harness.aws.cloud_run.machines import ChosenMachine
from harness.aws.cloud_run.records import PlannedPart

# More rows than these are joined by instance type.
_MOST_ROWS = 24


def show(
    parts: Sequence[PlannedPart],
    notes: Sequence[str],
    machines: Mapping[str, ChosenMachine],
    cap: float | None,
    to: Console,
) -> None:
    """Print a table of parts, notes, and the sum."""
    table = Table(box=None, pad_edge=False)
    for head in ("part", "type", "builds", "jobs", "disk", "hours", "", "US$/h", "US$"):
        table.add_column(head, justify="left" if head in ("part", "type", "") else "right", no_wrap=True)
    together = len(parts) > _MOST_ROWS
    for _, same in itertools.groupby(
        parts, lambda part: (part.instance_type, not part.jobs) if together else part.name
    ):
        table.add_row(*_row(list(same)))
    to.print(table)
    remarks = list(dict.fromkeys(machine.remark for machine in machines.values() if machine.remark))
    more = f" ({len(remarks) - 1} more profiles likewise: --instance names a type)" if len(remarks) > 1 else ""
    for line in (*notes, *(f"{remark}{more}" for remark in remarks[:1]), _sum(parts, cap)):
        to.print(escape(line), highlight=False, soft_wrap=True)


def _row(same: Sequence[PlannedPart]) -> tuple[str, ...]:
    first, last = same[0], same[-1]
    return (
        first.name if first is last else f"{first.name}-{last.name}",
        first.instance_type,
        str(sum(len(part.builds) for part in same)),
        str(sum(len(part.jobs) for part in same)),
        f"{max(part.disk_gib for part in same)} GiB",
        f"{sum(part.expected_s for part in same) / 3600:.2f}",
        "measured" if all(part.measured for part in same) else "assumed",
        f"{max(part.usd_per_hour for part in same):.4f}",
        f"{costs.expected_usd(same):.2f}",
    )


def _sum(parts: Sequence[PlannedPart], cap: float | None) -> str:
    by = "by the time limit of each" + (" and --max-usd" if cap is not None else "")
    return f"about US$ {costs.expected_usd(parts):.2f}; never more than US$ {costs.worst_usd(parts, cap):.2f}, {by}"
