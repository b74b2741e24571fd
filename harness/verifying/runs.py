"""The run of a job against its spec, and the judgements that belong to it."""

from __future__ import annotations

from collections.abc import Iterator

from harness import evaluate, store
from harness.records import Outcome
from harness.result import JUDGED_HITS
from harness.store import StoredJob


def check(job: StoredJob) -> Iterator[tuple[str, str, str]]:
    """A run ranks queries of the sample alone, with no more hits than were asked for; and it can be judged.

    Raises:
        FileError: the run, its judgements or the query sample cannot be read.
    """
    if job.run_path is None:
        if job.result.outcome is Outcome.OK:
            yield store.RUN, "no run", "that of its first trial: the job ended ok"
        return
    if not job.run_path.stat().st_size:
        yield store.RUN, "an empty file", "a run, compressed: even one without hits has a head"
        return
    run, k = evaluate.read_run(job.run_path), job.result.spec.k
    strangers = sorted(run.rankings.keys() - set(job.sample_ids()))
    if strangers:
        yield store.RUN, f"{len(strangers)} queries such as {strangers[0]!r}", "queries of its sample alone"
    long = [query for query, ranking in run.rankings.items() if len(ranking) > k]
    if long:
        count = len(run.rankings[long[0]])
        yield store.RUN, f"{count} hits for query {long[0]!r}, too many for {len(long)} queries", f"at most {k}"
    path = job.qrels_path()
    qrels = evaluate.read_qrels(path)
    if evaluate.of_hits_alone(path):
        hits = {(query, document) for query, ranking in run.rankings.items() for document in ranking}
        judged = {(query, document) for query, documents in qrels.items() for document in documents}
        if hits != judged:
            yield JUDGED_HITS, f"judgements of {len(judged)} hits", f"those of the {len(hits)} hits of its run"
