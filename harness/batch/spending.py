"""What a run on Batch may cost: told before anything is submitted, and held to a cap by the jobs' time-outs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.batch.definition import ATTEMPTS
from harness.batch.grouping import Submission
from harness.ec2 import money, quote
from harness.ec2.records import Group

# Batch's own least.
LEAST_TIMEOUT_S = 60


@dataclass(frozen=True)
class Limits:
    """How long the children of a submission may take, and how often a lost host's job is begun."""

    timeout_s: int
    attempts: int


@dataclass
class Money:
    """A cap, and what is promised and spent of it, by submission (US$)."""

    cap_usd: float | None = None
    promised: dict[str, float] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)

    def limits(self, submission: Submission, others: Iterable[Submission]) -> Limits | str:
        """What its children may take; or why the money does not reach for it.

        Args:
            submission: what is to be submitted.
            others: what still waits behind it, and is to have what it needs at least.
        """
        usual = max(money.usual_limit_s(quote.estimate(group)) for group in submission.groups)
        if self.cap_usd is None:
            return Limits(max(LEAST_TIMEOUT_S, round(usual)), ATTEMPTS)
        # A lost host is paid for, too: with a cap there is one attempt, and what was lost is for the next run.
        need = max(money.need_s(quote.estimate(group)) for group in submission.groups)
        kept = sum(_worst(each, _need(each)) for each in others)
        left = self.cap_usd - self.committed_usd
        rate = sum(group.usd_per_hour for group in submission.groups)
        most = 3600 * max(left - kept, min(left, _worst(submission, need))) / rate - money.BEYOND_LIMIT_S
        if most < need:
            return f"what is left of --max-usd, US$ {max(left, 0):.2f}, does not reach for it"
        return Limits(max(LEAST_TIMEOUT_S, int(min(usual, most))), 1)

    @property
    def committed_usd(self) -> float:
        """What was spent, and the most that the rest can cost."""
        return sum(self.spent.get(name, usd) for name, usd in self.promised.items())

    def promise(self, submission: Submission, limits: Limits) -> None:
        """Note what a submission can cost."""
        self.promised[submission.name] = limits.attempts * _worst(submission, limits.timeout_s)

    def settle(self, submission: Submission, seconds: Sequence[float | None], limits: Limits) -> None:
        """Note what it has cost: the time that its jobs ran, and that of an instance before and after.

        ``None``: it is not known how long a job ran; then it is taken to have cost all that it could.
        """
        pairs = zip(submission.groups, seconds, strict=True)
        self.spent[submission.name] = sum(
            limits.attempts * money.committed_usd(group.usd_per_hour, limits.timeout_s)
            if each is None
            else money.committed_usd(group.usd_per_hour, each)
            for group, each in pairs
        )


def _need(submission: Submission) -> float:
    return max(money.need_s(quote.estimate(group)) for group in submission.groups)


def _worst(submission: Submission, seconds: float) -> float:
    return sum(money.committed_usd(group.usd_per_hour, seconds) for group in submission.groups)


def expected_usd(groups: Iterable[Group]) -> float:
    """At the estimates."""
    return sum(map(quote.usd, groups))


def show(found: Sequence[Submission], said: Iterable[str], console: Console) -> None:
    """Print what would be submitted, and what is to be said of it."""
    table = Table(box=None, pad_edge=False)
    left = ("job definition", "queue", "")
    for head in ("job definition", "queue", "parts", "builds", "jobs", "hours", "", "US$/h", "US$"):
        table.add_column(head, justify="left" if head in left else "right", no_wrap=True)
    for each in found:
        groups = each.groups
        table.add_row(
            each.definition,
            each.queue,
            str(len(groups)),
            str(sum(len(group.builds) for group in groups)),
            str(sum(len(group.jobs) for group in groups)),
            f"{sum(group.expected_s for group in groups) / 3600:.2f}",
            "measured" if all(group.measured for group in groups) else "assumed",
            f"{max(group.usd_per_hour for group in groups):.4f}",
            f"{expected_usd(groups):.2f}",
        )
    console.print(table)
    for line in said:
        console.print(escape(line), highlight=False, soft_wrap=True)
