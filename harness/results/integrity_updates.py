"""Check the updates of a job of scenario ``mixed`` by its spec."""

from __future__ import annotations

from collections.abc import Iterator

from harness.driver.records import Outcome, Updates
from harness.driver.update_plan import CHECK, TRIALS, moved_documents, planned_updates
from harness.results import reader, updates
from harness.results.integrity_samples import Mismatch, is_mixed
from harness.results.reader import StoredJob


def check(job: StoredJob) -> Iterator[Mismatch]:
    """Check that the updates are the planned ones, in turn, and that each document is checked once at most.

    Raises:
        FileError: the file cannot be read.
    """
    path, spec = job.file(reader.UPDATES), job.result.spec
    ok = job.result.outcome is Outcome.OK
    if path is None or not is_mixed(job):
        if path is None and is_mixed(job) and ok:
            yield Mismatch(reader.UPDATES, "no updates", "updates during the queries: the job ended ok")
        elif path is not None:
            yield Mismatch(reader.UPDATES, "updates", f"none in scenario {spec.cell.scenario}")
        return
    stored = updates.read(path)
    params, corpus_size = spec.scenario_params, job.result.provenance.corpus_documents
    if not ok or corpus_size is None or params.query_qps is None or params.update_qps is None:
        return
    moved = moved_documents(params, spec.timed_queries, corpus_size)
    rates = Updates(params.query_qps, params.update_qps, ({},) * moved)
    plan = planned_updates(spec.seed, TRIALS * spec.job, rates, spec.timed_queries)
    sent, checks = stored[: len(plan)], stored[len(plan) :]
    planned = [(each.kind, each.scheduled_ns) for each in plan]
    if [(each.kind, each.scheduled_ns) for each in sent] != planned:
        yield Mismatch(reader.UPDATES, f"{len(sent)} updates", f"the {len(plan)} updates that its spec plans, in turn")
    names = {place: update.doc_id for update, place in zip(sent, (each.place for each in plan), strict=False)}
    if any(names[each.place] != update.doc_id for update, each in zip(sent, plan, strict=False)):
        yield Mismatch(reader.UPDATES, "documents in another order", "each document in turn")
    checked = [update.doc_id for update in checks]
    if any(update.kind != CHECK for update in checks) or len(set(checked)) < len(checked) or len(checks) > moved:
        yield Mismatch(reader.UPDATES, f"{len(checks)} checks", f"one check at most for each of {moved} documents")
