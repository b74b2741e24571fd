"""Score stored jobs: effectiveness measures, Frechet distances, and the share of unjudged hits."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.analysis import first_stage, rejudge
from harness.analysis.rejudge import JudgementBasis, QrelsOverride
from harness.analysis.table import FirstStage
from harness.commands import quoted
from harness.errors import HarnessError, UsageError
from harness.estimate import Estimate
from harness.evaluation import embeddings, evaluate, judged_runs, measure_names, trec
from harness.evaluation.embeddings import Embeddings
from harness.evaluation.evaluate import Evaluation
from harness.evaluation.frechet import RESAMPLES, Distance, Distances, Settings, distances
from harness.evaluation.judged_runs import JudgedRuns, UnjudgedHits
from harness.evaluation.measure_names import DistanceName
from harness.evaluation.trec import Run
from harness.results import reader
from harness.results.reader import StoredJob, judges_hits_alone, read_job_run

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RowDistance:
    """A Frechet distance, or the reason why it is missing; and a note on its vectors."""

    estimate: Estimate
    note: str | None = None


@dataclass(frozen=True)
class JobEvaluation:
    """The scores of a job's run by the judgements of ``basis``.

    ``unjudged`` counts unjudged hits, down to the first measure's cutoff; ``None`` where only the run's own hits are
    judged.  ``distances`` are by name; ``notes`` are about the judgements.  Only two-stage systems have a
    ``first_stage``.
    """

    basis: JudgementBasis
    judged: Evaluation
    unjudged: UnjudgedHits | None
    distances: dict[str, RowDistance]
    notes: tuple[str, ...] = ()
    first_stage: FirstStage | None = None


class JobEvaluator:
    """Scores jobs by some measures, and reads each file of judgements once.

    Args:
        names: measures as ir_measures writes them.
        override: other qrels, or queries to leave out.
        vectors: document vectors, which Frechet distances among the measures need.

    Raises:
        UsageError: a measure is unknown.
    """

    def __init__(
        self,
        names: Sequence[str] = measure_names.DEFAULT,
        override: QrelsOverride | None = None,
        vectors: Vectors | None = None,
    ) -> None:
        self.measures: tuple[Any, ...] = measure_names.parse(names, distances=vectors is not None)
        self.override = override
        self._vectors = vectors
        self._bases: dict[Path, JudgementBasis] = {}

    def evaluate(self, job: StoredJob) -> JobEvaluation:
        """Score a job's run.

        Raises:
            HarnessError: a file of the job is missing or damaged.
        """
        basis, hits_alone = self._basis(job), judges_hits_alone(job.qrels_path())
        run = read_job_run(job)
        sample = job.sample_ids()
        if self.override is not None and self.override.without:
            sample = tuple(query for query in sample if query not in self.override.without)
            kept = {query: hits for query, hits in run.rankings.items() if query not in self.override.without}
            run = replace(run, rankings=kept)
        ranked = [measure for measure in self.measures if not isinstance(measure, DistanceName)]
        judged = evaluate.evaluate(run, basis.qrels, sample, ranked, hits_alone=hits_alone)
        return JobEvaluation(
            basis,
            judged,
            None if hits_alone else self._unjudged(job, run, basis, sample),
            self._distances(job, run, basis, sample, hits_alone=hits_alone),
            # Other judgements' own notes say it.
            () if basis.sha256 else tuple(trec.negative_grade_notes(basis.qrels, sample)),
            first_stage.score(job, judged, basis.qrels, sample, ranked),
        )

    def _basis(self, job: StoredJob) -> JudgementBasis:
        """Return a job's judgements; raise HarnessError if they cannot be read."""
        path = job.qrels_path()
        if judges_hits_alone(path):
            basis = JudgementBasis(trec.read_stored_qrels(path))
        elif path in self._bases:
            basis = self._bases[path]
        else:
            stored = trec.read_stored_qrels(path)
            basis = JudgementBasis(stored) if self.override is None else rejudge.judgement_basis(stored, self.override)
            self._bases[path] = basis
        if self.override is None or not self.override.without:
            return basis
        return rejudge.leave_out(basis, job.sample_ids(), self.override)

    def _unjudged(self, job: StoredJob, run: Run, basis: JudgementBasis, sample: tuple[str, ...]) -> UnjudgedHits:
        depth = measure_names.unjudged_depth(self.measures, job.result.spec.k)
        judged = (query for query in sample if basis.qrels.get(query))
        return judged_runs.count_unjudged(run, basis.qrels, judged, depth)

    def _distances(
        self, job: StoredJob, run: Run, basis: JudgementBasis, sample: tuple[str, ...], *, hits_alone: bool
    ) -> dict[str, RowDistance]:
        if self._vectors is None:
            return {}
        spec = job.result.spec
        queries = dict.fromkeys(sample, "")
        one = JudgedRuns(spec.cell.dataset, queries, basis.qrels, {"": run}, hits_alone, spec.corpus_sha256)
        # Most profiles of one system share a run.
        content = f"{job.result.files.get(reader.RUN, job.result.key)} {spec.qrels_sha256} {spec.sample_sha256}"
        names = [measure for measure in self.measures if isinstance(measure, DistanceName)]
        return {str(name): self._vectors.distance(name, one, content) for name in names}


@dataclass
class Vectors:
    """The document vectors of a results folder; reads each file and computes each distance once."""

    folder: Path
    _read: dict[Path, Embeddings] = field(default_factory=dict)
    _computed: dict[tuple[str, ...], RowDistance] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Hash of the files' names and times."""
        stats = {path: path.lstat() for path in embeddings.embedding_files(self.folder)}
        facts = [(str(path), about.st_ino, about.st_size, about.st_mtime_ns) for path, about in stats.items()]
        return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()

    def distance(self, name: DistanceName, runs: JudgedRuns, content: str) -> RowDistance:
        """Return the distance of the only run in ``runs``; ``content`` identifies the run and its judgements."""
        key = (str(name), content, runs.corpus_sha256 or "")
        if key not in self._computed:
            self._computed[key] = self._compute(name, runs)
        return self._computed[key]

    def _compute(self, name: DistanceName, runs: JudgedRuns) -> RowDistance:
        try:
            vectors = self._fitting(name, runs)
            if not self._computed:
                log.info(
                    "%s: Frechet distances, %s bootstraps each, take seconds a system", self.folder, f"{RESAMPLES:,}"
                )
            measured = distances(runs, vectors, (name.k,), Settings(name.judged, name.unlabelled))
        except HarnessError as error:
            return RowDistance(Estimate(None, reason=f"{name}: {error}"))
        (of_system,) = measured.systems.values()
        distance = of_system[-1]  # vectors without a label come last
        return RowDistance(distance.figure, _distance_note(name, measured, distance))

    def _fitting(self, name: DistanceName, runs: JudgedRuns) -> Embeddings:
        """Return the vectors of the run's documents by the encoder that ``name`` asks for."""
        paths = embeddings.find_embeddings(self.folder, "document", runs.corpus_sha256 or "")
        self._read |= {path: embeddings.read(path) for path in paths if path not in self._read}
        fitting = [vectors for path in paths if name.encoder in (None, (vectors := self._read[path]).encoder)]
        if not fitting:
            encoder = name.encoder or "minilm"
            raise UsageError(
                f"the results folder has no vectors of the documents{f' by {name.encoder}' if name.encoder else ''};"
                f" make them with {quoted('embed', encoder, runs.dataset, results=self.folder)}"
            )
        if len(fitting) > 1:
            raise UsageError(
                f"vectors by {', '.join(vectors.encoder for vectors in fitting)} are kept; ask for one encoder, e.g."
                f" FD(encoder='{fitting[0].encoder}')@{name.k}"
            )
        return fitting[0]


def _distance_note(name: DistanceName, measured: Distances, distance: Distance) -> str:
    hits = "first hits" if name.k == 1 else f"first {name.k} hits"
    skipped = ", judged ones skipped," if name.unlabelled else ""
    note = (
        f"{name}: Frechet distance between the {hits}{skipped} of {measured.queries:,} queries and {measured.judged:,}"
        f" judged documents, by {measured.encoder} (checkpoint {measured.checkpoint_sha256[:12]}); smaller is better,"
        " and only distances over the same queries may be compared"
    )
    short = (
        f"; {distance.short:,} queries have fewer than {name.k} documents there, and fewer documents are farther by"
        " themselves: harness frechet compares systems on common queries"
    )
    return note + (short if distance.short else "")
