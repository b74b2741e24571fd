"""How a submission stands: what Batch shows of it, and for how long it has shown it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from harness.batch.grouping import Submission
from harness.batch.jobs import FORGOTTEN, UNSEEN, Child
from harness.batch.spending import Limits

# What was submitted is listed within so many seconds; what is not described for as long as FORGOTTEN_S is gone.
SHOWN_S = 60.0
FORGOTTEN_S = 600.0
# After so long without a host it is said why.
PATIENCE_S = 180.0


@dataclass
class Standing:
    """A submission, and its job once it is known; ``over`` once nothing more comes of it.

    Times are in seconds, by any clock that never goes back.
    """

    submission: Submission
    job_id: str | None = None
    limits: Limits | None = None
    children: list[Child] = field(default_factory=list)
    finished: set[int] = field(default_factory=set)
    over: bool = False
    # Since when it may have been submitted although it is not found; since when nothing of it is described, or placed.
    doubtful_since: float | None = None
    unseen_since: float | None = None
    waits_since: float | None = None

    def see(self, children: Sequence[Child], now: float) -> None:
        """Take in what Batch shows of its children."""
        unseen = all(child.status == UNSEEN for child in children)
        self.unseen_since = (now if self.unseen_since is None else self.unseen_since) if unseen else None
        if self.unseen_since is not None:
            gone = now - self.unseen_since >= FORGOTTEN_S
            status, reason = (FORGOTTEN, "AWS Batch does not know it any more") if gone else ("SUBMITTED", "")
            children = [replace(child, status=status, reason=reason) for child in children]
        self.children = list(children)
        open_ = [child for child in children if not child.ended]
        waits = bool(open_) and all(child.status == "RUNNABLE" for child in open_)
        self.waits_since = (now if self.waits_since is None else self.waits_since) if waits else None

    def doubtful(self, now: float) -> bool:
        """Whether it may have been submitted by somebody who died, and is not shown yet."""
        if self.doubtful_since is None:
            self.doubtful_since = now
        return now - self.doubtful_since < SHOWN_S

    def stuck(self, now: float) -> bool:
        """Whether it has waited for a host for long."""
        return self.waits_since is not None and now - self.waits_since >= PATIENCE_S

    @property
    def seconds(self) -> list[float | None]:
        """How long each child ran; ``None``: nobody knows."""
        return [None if child.status == FORGOTTEN else child.seconds for child in self.children]

    @property
    def words(self) -> str:
        """How it stands, in a few words."""
        if self.job_id is None:
            if self.over:
                return "left"
            return "waits for an index" if self.doubtful_since is None else "may be submitted already; looking for it"
        if not self.children:
            return "submitted"
        counted = [child.status.lower() for child in self.children]
        return ", ".join(f"{counted.count(status)} {status}" for status in dict.fromkeys(counted))
