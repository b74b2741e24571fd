"""A stored job -> what its run is worth: measures, Frechet distances, and what of it nobody judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.analysis import rejudge
from harness.analysis.rejudge import Instead, Stand
from harness.analysis.row_distances import Found, Vectors
from harness.evaluation import evaluate, judged_runs, measure_names, trec
from harness.evaluation.evaluate import Evaluation
from harness.evaluation.judged_runs import JudgedRuns, UnjudgedHits
from harness.evaluation.measure_names import DistanceName
from harness.evaluation.trec import QrelsCache, Run
from harness.results import reader
from harness.results.attempts import Job
from harness.results.reader import judges_hits_alone, read_job_run


@dataclass(frozen=True)
class Worth:
    """What a run is worth by ``stand``.

    ``unjudged`` is what nobody judged of it, down to the first measure's cutoff; ``None`` where its own hits are all
    that is judged.  ``distances`` are by name, ``notes`` say what is to know of the judgements.
    """

    stand: Stand
    judged: Evaluation
    unjudged: UnjudgedHits | None
    distances: dict[str, Found]
    notes: tuple[str, ...] = ()


@dataclass
class Judge:
    """Evaluates jobs; each file of judgements is read once.

    ``instead``: by what else than by what was stored.  ``vectors``: what Frechet distances among the ``measures`` are
    made of; without them there may be none.
    """

    measures: tuple[Any, ...]
    instead: Instead | None = None
    vectors: Vectors | None = None
    stands: dict[Path, Stand] = field(default_factory=dict)
    _qrels: QrelsCache = field(default_factory=QrelsCache)

    def __call__(self, job: Job) -> Worth:
        """What a job's run is worth.

        Raises:
            HarnessError: it cannot be judged.
        """
        now, hits_alone = self._stand(job), judges_hits_alone(job.qrels_path())
        run = read_job_run(job)
        sample = job.sample_ids()
        if self.instead is not None and self.instead.without:
            sample = tuple(query for query in sample if query not in self.instead.without)
            kept = {query: found for query, found in run.rankings.items() if query not in self.instead.without}
            run = replace(run, rankings=kept)
        ranked = [each for each in self.measures if not isinstance(each, DistanceName)]
        return Worth(
            now,
            evaluate.evaluate(run, now.qrels, sample, ranked, hits_alone=hits_alone),
            None if hits_alone else self._unjudged(job, run, now, sample),
            self._distances(job, run, now, sample, hits_alone=hits_alone),
            () if now.sha256 else _below(now, sample),  # else its own remarks say so
        )

    def _stand(self, job: Job) -> Stand:
        """What a job's run is judged by; HarnessError where it cannot be read."""
        path = job.qrels_path()
        of_one_job = judges_hits_alone(path)
        read = trec.read_stored_qrels if of_one_job else self._qrels
        found = self.stands.get(path) or Stand(read(path))
        if not of_one_job:
            if path not in self.stands and self.instead is not None:
                found = rejudge.stand(found.qrels, self.instead)
            self.stands[path] = found
        if self.instead is None or not self.instead.without:
            return found
        return rejudge.leave_out(found, job.sample_ids(), self.instead)

    def _unjudged(self, job: Job, run: Run, now: Stand, sample: tuple[str, ...]) -> UnjudgedHits:
        cutoffs = (measure_names.cutoff(measure) for measure in self.measures)
        depth = min(job.result.spec.k, next((depth for depth in cutoffs if depth), judged_runs.UNJUDGED_DEPTH))
        return judged_runs.count_unjudged(run, now.qrels, (query for query in sample if now.qrels.get(query)), depth)

    def _distances(
        self, job: Job, run: Run, now: Stand, sample: tuple[str, ...], *, hits_alone: bool
    ) -> dict[str, Found]:
        if self.vectors is None:
            return {}
        spec = job.result.spec
        queries = dict.fromkeys(sample, "")
        one = JudgedRuns(spec.cell.dataset, queries, now.qrels, {"": run}, hits_alone, spec.corpus_sha256)
        # Profiles of one system mostly share a run.
        content = f"{job.result.files.get(reader.RUN, job.result.key)} {spec.qrels_sha256} {spec.sample_sha256}"
        return {
            str(each): self.vectors.look(each, one, content) for each in self.measures if isinstance(each, DistanceName)
        }


def _below(now: Stand, sample: Sequence[str]) -> tuple[str, ...]:
    grades = (grade for query in sample for grade in now.qrels.get(query, {}).values())
    return tuple(trec.negative_grade_notes(grades))
