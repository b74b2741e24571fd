"""Score the first stage of a two-stage system: its ceiling, and the gain and the harm of the second stage.

The first stage is scored with the judgements and the queries of the whole system.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from harness import stats
from harness.analysis import significance
from harness.analysis.table import FirstStage
from harness.compression import unpacked
from harness.errors import HarnessError
from harness.estimate import Estimate
from harness.evaluation import evaluate, measure_names, trec
from harness.evaluation.evaluate import Evaluation
from harness.evaluation.trec import Qrels, Run
from harness.results.reader import FIRST_STAGE, StoredJob, judges_hits_alone, most_first_stage_hits
from harness.results.schema import STORED_RUN
from harness.stats import Floats
from harness.untrusted import MAX_FILE_BYTES, fields_of, open_regular, reading

_HITS_ALONE = "only the hits of the whole system were judged, by the answers in their texts"
_LONGEST_LINE_BYTES = 4096


def score(
    job: StoredJob, judged: Evaluation, qrels: Qrels, sample: Sequence[str], measures: Sequence[Any]
) -> FirstStage | None:
    """Score a job's first stage against its whole run; ``None``: the system has one stage.

    Args:
        job: with or without a run of its first stage.
        judged: the job's own run, evaluated.
        qrels: the judgements of ``judged``.
        sample: the queries of ``judged``.
        measures: the measures of ``judged``.
    """
    path = job.file(FIRST_STAGE)
    if path is None:
        return None
    asked = job.result.spec.params.get("depth")
    try:
        system, measured = _made_by(path, job.result.spec.cell.system)
        run = trec.read_run(path, most_first_stage_hits(job.result.spec))
    except HarnessError as error:
        missing = Estimate(None, reason=f"the first stage's run cannot be judged: {error}")
        return FirstStage("first stage", True, asked if type(asked) is int else 0, missing)
    depth = asked if type(asked) is int else max(map(len, run.rankings.values()), default=0)
    if judges_hits_alone(job.qrels_path()):  # other documents are unknown
        return FirstStage(system, measured, depth, Estimate(None, reason=_HITS_ALONE))
    found = FirstStage(system, measured, depth, _ceiling(run, qrels, sample, depth))
    alone = evaluate.evaluate(_cut(run, sample, job.result.spec.k), qrels, sample, measures)
    return _compared(found, judged, alone)


def _made_by(path: Path, whole: str) -> tuple[str, bool]:
    """Return the system of the first stage, which the run's tag names, and whether it was measured."""
    with (
        reading(path, "measure the job again", damage=(OSError, EOFError, zlib.error)),
        open_regular(path, MAX_FILE_BYTES) as packed,
        unpacked(packed) as lines,
    ):
        fields = fields_of(lines.readline(_LONGEST_LINE_BYTES).decode("utf-8", "replace"))
    tag = fields[-1] if fields else ""
    name = tag.removeprefix(f"{STORED_RUN}/")
    return ("first stage" if name in ("", whole) else name), tag.partition("/")[0] != STORED_RUN


def _cut(run: Run, sample: Sequence[str], depth: int) -> Run:
    known = {query: run.rankings[query][:depth] for query in sample if query in run.rankings}
    return replace(run, rankings=known)


def _ceiling(run: Run, qrels: Qrels, sample: Sequence[str], depth: int) -> Estimate:
    """Return R@depth: the share of a query's relevant documents that the second stage can order."""
    if not depth:
        return Estimate(None, reason="depth is 0: the second stage orders nothing")
    (recall,) = measure_names.parse([f"R@{depth}"])
    return evaluate.estimate(evaluate.evaluate(_cut(run, sample, depth), qrels, sample, [recall]), str(recall))


def _compared(found: FirstStage, judged: Evaluation, alone: Evaluation) -> FirstStage:
    """Add the measures of the first stage alone, and by measure the gain and the harm of the second stage."""
    values = {name: evaluate.estimate(alone, name) for name in alone.values}
    names = [name for name in alone.per_query if name in judged.per_query and name in judged.means]
    columns = [_differences(judged.per_query[name], alone.per_query[name]) for name in names]
    tested = significance.paired(columns) if columns and len(columns[0]) else ()
    return replace(
        found,
        measures=values,
        gain={name: each.interval for name, each in zip(names, tested, strict=False)},
        harm={
            name: stats.proportion(each.lower, len(column))
            for name, each, column in zip(names, tested, columns, strict=False)
        },
    )


def _differences(whole: dict[str, float], alone: dict[str, float]) -> Floats:
    return np.asarray([whole[query] - alone[query] for query in sorted(whole)], dtype=np.float64)
