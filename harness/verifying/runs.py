"""The run of a job against its spec, and the judgements that belong to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness import answer_depths, evaluate, stored_jobs, trec_files
from harness.answer_depths import MOST_TOKENS
from harness.records import Outcome
from harness.result import ANSWER_DEPTHS, JUDGED_HITS
from harness.stored_jobs import StoredJob
from harness.trec_files import Qrels, Run, StoredQrels

# A cell's jobs lie beside each other, and mostly rank alike.
_MOST = 16


@dataclass
class Runs:
    """Checks one run after another; runs of the same bytes, and judgements, are read once."""

    _runs: dict[str, Run] = field(default_factory=dict)
    _qrels: StoredQrels = field(default_factory=StoredQrels)

    def check(self, job: StoredJob) -> Iterator[tuple[str, str, str]]:
        """A run ranks queries of the sample alone, with no more hits than were asked for; and it can be judged.

        Its checksum has been verified: that names its content here.

        Raises:
            FileError: the run, its judgements or the query sample cannot be read.
        """
        if job.run_path is None:
            if job.result.outcome is Outcome.OK:
                yield stored_jobs.RUN, "no run", "that of its first trial: the job ended ok"
            return
        if not job.run_path.lstat().st_size:
            yield stored_jobs.RUN, "an empty file", "a run, compressed: even one without hits has a head"
            return
        run, k = self._run(job.run_path, job), job.result.spec.k
        strangers = sorted(run.rankings.keys() - set(job.sample_ids()))
        if strangers:
            yield stored_jobs.RUN, f"{len(strangers)} queries such as {strangers[0]!r}", "queries of its sample alone"
        long = [query for query, ranking in run.rankings.items() if len(ranking) > k]
        if long:
            count = len(run.rankings[long[0]])
            yield (
                stored_jobs.RUN,
                f"{count} hits for query {long[0]!r}, too many for {len(long)} queries",
                f"at most {k}",
            )
        yield from self._judged(job, run)

    def _judged(self, job: StoredJob, run: Run) -> Iterator[tuple[str, str, str]]:
        path = job.qrels_path()
        if not evaluate.of_hits_alone(path):
            self._qrels(path)
            return
        qrels = trec_files.read_stored_qrels(path)
        hits = {(query, document) for query, ranking in run.rankings.items() for document in ranking}
        judged = {(query, document) for query, documents in qrels.items() for document in documents}
        if hits != judged:
            yield JUDGED_HITS, f"judgements of {len(judged)} hits", f"those of the {len(hits)} hits of its run"
        yield from _depths(job.folder / ANSWER_DEPTHS, run, qrels)

    def _run(self, path: Path, job: StoredJob) -> Run:
        sha256, most = job.result.files.get(stored_jobs.RUN), evaluate.most_hits(job.result.spec)
        if sha256 is None:
            return trec_files.read_run(path, most)
        if sha256 not in self._runs:
            if len(self._runs) == _MOST:
                self._runs.pop(next(iter(self._runs)))
            self._runs[sha256] = trec_files.read_run(path, most)
        return self._runs[sha256]


def _depths(path: Path, run: Run, qrels: Qrels) -> Iterator[tuple[str, str, str]]:
    """Older jobs do not have them."""
    if not os.path.lexists(path):
        return
    depths = answer_depths.read(path)
    hits = {query for query, depth in depths.items() if depth.tokens or not depth.language}
    if not hits <= run.rankings.keys() <= depths.keys():
        yield path.name, f"depths of {len(depths)} queries", f"those of the {len(run.rankings)} queries of its run"
    # An answer that stands behind the last token that is looked at is not found.
    lost = [
        query
        for query, depth in depths.items()
        if depth.found is None and depth.tokens < MOST_TOKENS and any(qrels.get(query, {}).values())
    ]
    if lost:
        yield path.name, f"no answer for query {lost[0]!r}", f"the depth of the one that {JUDGED_HITS} has"
