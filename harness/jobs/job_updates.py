"""The updates of a job (``out/updates.jsonl``): read, and checked against the plan that the host made itself."""

from __future__ import annotations

import json

from harness.driver.output import UPDATES
from harness.driver.update_plan import CHECK, planned_updates
from harness.jobs.job_samples import keep_lines
from harness.launch.base import LaunchRequest
from harness.results.updates import Update, check
from harness.untrusted import MAX_UPDATE_BYTES, max_updates

_KEYS = frozenset({"kind", "doc_id", "scheduled_ns", "latency_ns", "service_ns", "watched", "seen_ns", "failed"})


def read_updates(job: LaunchRequest) -> tuple[list[Update], str | None]:
    """Read the updates up to the first wrong one; return them and that error."""
    updates: list[Update] = []
    most = max_updates(job.spec)
    if not most:
        return [], None
    path = job.out / UPDATES
    return updates, keep_lines(path, MAX_UPDATE_BYTES, most, lambda line: updates.append(_update(line)))


def _update(line: bytes) -> Update:
    raw = json.loads(line)
    if unknown := sorted(raw.keys() - _KEYS):
        raise ValueError(f"unknown key {unknown[0][:40]!r}")
    watched = raw.get("watched", 0) == 1 or raw["kind"] == CHECK
    return check(Update(**{**raw, "watched": watched}))


def unplanned(job: LaunchRequest, updates: list[Update], wall_s: float) -> str | None:
    """Return how the updates of an ended job differ from the plan: each once, in turn, then the checks."""
    spec = job.spec
    if spec.updates is None:
        return None
    ids = [str(raw["_id"]) for raw in spec.updates.documents]
    planned = planned_updates(spec.seed, spec.first_trial, spec.updates, len(spec.sample))
    plan = [(each.kind, ids[each.place], each.scheduled_ns) for each in planned]
    sent, checks = updates[: len(plan)], updates[len(plan) :]
    if len(sent) < len(plan):
        return f"{len(plan) - len(sent)} of {len(plan)} updates are missing"
    for number, (update, due) in enumerate(zip(sent, plan, strict=True), start=1):
        if (update.kind, update.doc_id, update.scheduled_ns) != due:
            return f"update {number} is not the {due[0]} of document {due[1]!r} that was due"
    places = {doc_id: place for place, doc_id in enumerate(ids)}
    order = [places.get(update.doc_id, -1) if update.kind == CHECK else -1 for update in checks]
    if order != sorted(set(order)) or -1 in order:
        return "the checks after the updates are not one for each document, in turn"
    longest = max((update.latency_ns or 0) + (update.scheduled_ns or 0) for update in sent) if sent else 0
    if longest > wall_s * 1e9:
        return f"an update ended {longest / 1e9:.3f} s after the trial began, in a job of {wall_s:.3f} s"
    if any((update.seen_ns or 0) > wall_s * 1e9 for update in updates):
        return f"a change was seen later than the {wall_s:.3f} s that the job lasted"
    return None
