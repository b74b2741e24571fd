"""Records of the updates of scenario ``mixed``, between :mod:`harness.analysis.update_figures` and the writers."""

from __future__ import annotations

from dataclasses import dataclass

from harness.estimate import Estimate


@dataclass(frozen=True, kw_only=True)
class UpdateTimes:
    """One time of ``count`` inserts or deletes; ``missing`` of them took longer than anybody waited."""

    mean_s: Estimate = Estimate(None)
    p50_s: Estimate = Estimate(None)
    p95_s: Estimate = Estimate(None)
    count: int = 0
    missing: int = 0


@dataclass(frozen=True, kw_only=True)
class UpdateFigures:
    """The updates during the queries of scenario ``mixed``.

    ``insert`` and ``delete`` are latencies from the schedule, ``found`` and ``gone`` the times until a search saw the
    change.  ``lost`` of ``checked`` documents could not be found in the end.  ``unsent``: too late to be sent.
    ``recall`` compares the hits after all updates with those before.  ``idle_mean_s`` and ``idle_p50_s`` are latencies
    before the updates; ``query_qps`` and ``update_qps`` are what was answered.
    """

    insert: UpdateTimes
    delete: UpdateTimes
    found: UpdateTimes
    gone: UpdateTimes
    lost: int
    checked: int
    failed: int
    unsent: int
    recall: Estimate
    idle_mean_s: Estimate
    idle_p50_s: Estimate
    query_qps: float | None = None
    update_qps: float | None = None
