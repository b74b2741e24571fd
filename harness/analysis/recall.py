"""Compare approximate systems with the exact search of the same vectors: the share of its top k that they find.

The overlap separates the loss of the search from the quality of the model.  It comes from stored runs, needs no
judgements, and is the same on every machine.  If two systems of one model differ in parameters of the scores (an
encoder's backend, tokens read, BM25's k1), these are named, because they move documents too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.analysis import comparison
from harness.analysis.table import Row, Table, ended
from harness.driver.records import Outcome, Scalar
from harness.errors import HarnessError, UnknownName, UsageError
from harness.estimate import Estimate
from harness.evaluation import evaluate
from harness.evaluation.per_query import PerQuery
from harness.results import attempts
from harness.results.reader import StoredJob, read_job_run
from harness.results.schema import NULL_SYSTEMS

# Depths of the overlap; a shorter run has its own depth.
CUTOFFS = (10, 100)
# Parameters that name a model.
_MODEL = ("model", "document_model", "query_model", "checkpoint", "expansion_model", "head", "document_head")
# Other parameters that exact scores depend on.
_SCORES = (
    *("backend", "document_backend", "pooling", "normalise", "similarity", "document_tokens", "query_tokens"),
    *("document_prefix", "query_prefix", "document_segment", "query_segment", "title", "title_separator", "segments"),
    *("original_positions", "quantisation", "query_quantisation", "expansion_tokens", "scale", "k1", "b", "language"),
)
_UNSET = "not set"


@dataclass(frozen=True)
class TopOverlap:
    """The share of the exact top ``k`` in a system's top ``k``: mean over queries, and by query.

    ``whole``: the share of queries whose exact top ``k`` is complete.
    """

    k: int
    mean: Estimate
    whole: float
    by_query: Mapping[str, float] = field(repr=False)


@dataclass(frozen=True)
class ExactPair:
    """A system and the exact search of its vectors; ``reason``: why they are not compared.

    ``differs``: parameters of the scores in which the two differ.  ``unranked``: queries without a hit in the exact
    search.  ``change``: the measure less the exact search's, with its paired interval.
    """

    dataset: str
    system: str
    exact: str
    reason: str | None = None
    k: int | None = None
    overlaps: tuple[TopOverlap, ...] = ()
    differs: tuple[str, ...] = ()
    unranked: int = 0
    row: Row | None = None
    exact_row: Row | None = None
    change: Estimate = Estimate(None)

    def overlap(self, k: int) -> TopOverlap | None:
        """Return the overlap of the top ``k``, if there is one."""
        return next((each for each in self.overlaps if each.k == k), None)


@dataclass(frozen=True)
class RecallTable:
    """All pairs, and the measure of their change."""

    measure: str
    pairs: tuple[ExactPair, ...]

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """All depths of overlaps, ascending."""
        return tuple(sorted({overlap.k for pair in self.pairs for overlap in pair.overlaps}))


def compare_with_exact(
    jobs: Iterable[StoredJob],
    exact: Mapping[str, str],
    named: str | None,
    table: Table,
    per_query: Mapping[str, PerQuery],
) -> RecallTable:
    """Compare each system with its exact search.

    Args:
        jobs: stored jobs.
        exact: each system's exact search, as suites declare it.
        named: the exact search for all other systems, in place of the suites'.
        table: rows of the same jobs; the change is in the first measure.
        per_query: their values by query.

    Raises:
        UnknownName: the named system has no job.
        UsageError: no exact search is declared or named.
    """
    found = _by_system(jobs)
    systems = dict.fromkeys(system for _, system in found)
    if named is not None:
        if named not in systems:
            raise UnknownName("system", named, systems)
        exact = {system: named for system in systems if system != named}
    elif not exact:
        raise UsageError("no suite of these results names an exact search ([exact] in its file); name one with --of")
    wanted = [ExactPair(dataset, system, exact[system]) for dataset, system in found if system in exact]
    rows = {(row.origin, key): row for row in table.rows for key in (row.key, *row.keys)}
    measure = (*table.measures, "")[0]
    return RecallTable(measure, _with_changes([_pair(found, pair, rows) for pair in wanted], per_query, measure))


def _by_system(jobs: Iterable[StoredJob]) -> dict[tuple[str, str], list[StoredJob]]:
    """Return one job per cell, by dataset and system; jobs that ended well and have a run come first."""
    held: dict[tuple[str, str], list[StoredJob]] = defaultdict(list)
    for place, tries in attempts.jobs_by_cell(jobs).items():
        if place.cell.system not in NULL_SYSTEMS:
            shown, _ = attempts.choose(tries)
            held[place.cell.dataset, place.cell.system].append(min(shown, key=_rank))
    return {name: sorted(held[name], key=_rank) for name in sorted(held)}


def _rank(job: StoredJob) -> tuple[bool, bool]:
    return job.result.outcome is not Outcome.OK, job.run_path is None


def _pair(
    found: Mapping[tuple[str, str], Sequence[StoredJob]],
    pair: ExactPair,
    rows: Mapping[tuple[str | None, str], Row],
) -> ExactPair:
    """Compare a pair, if two of its jobs can be compared; ``rows``: by the origin and the key of a job."""
    mine, theirs = found[pair.dataset, pair.system], found.get((pair.dataset, pair.exact), ())
    if not theirs:
        elsewhere = sorted(other for other, name in found if name == pair.exact)
        where = f"on {', '.join(elsewhere)} alone" if elsewhere else "nowhere"
        return replace(pair, reason=f"dataset: {pair.exact} was measured {where}")
    # The first two jobs that fit, over hardware profiles, scenarios and suites.
    reasons = [(_reason(job, other), job, other) for job in mine for other in theirs]
    fitting = next(((job, other) for reason, job, other in reasons if reason is None), None)
    if fitting is None:
        return replace(pair, reason=reasons[0][0])
    row, exact_row = (rows.get((job.origin, job.result.key)) for job in fitting)
    try:
        return replace(_compared(pair, *fitting), row=row, exact_row=exact_row)
    except HarnessError as error:  # a damaged file affects one row only
        return replace(pair, reason=f"stored run cannot be read: {error}")


def _reason(job: StoredJob, exact: StoredJob) -> str | None:
    """Return why two jobs cannot be compared, or None."""
    for each, name in ((job, None), (exact, exact.result.spec.cell.system)):
        prefix = f"{name}: " if name else ""
        if each.result.outcome is not Outcome.OK:
            return f"{prefix}{ended(each.result.outcome, each.result.detail)}"
        if each.run_path is None:
            return f"{prefix}no stored run; measure it again"
    ours, theirs = job.result.spec, exact.result.spec
    if ours.corpus_sha256 != theirs.corpus_sha256:
        return f"dataset: another version of its documents than {theirs.cell.system}'s"
    if ours.sample_sha256 != theirs.sample_sha256:
        return f"queries: another sample than {theirs.cell.system}'s"
    if ours.k != theirs.k:
        return f"k: top {ours.k}, {theirs.cell.system} top {theirs.k}"
    differing = _differences(ours.params, theirs.params, _MODEL)
    if differing:
        return f"model: {'; '.join(differing)}"
    return None


def _differences(ours: Mapping[str, Scalar], theirs: Mapping[str, Scalar], names: Sequence[str]) -> tuple[str, ...]:
    """Describe the parameters in which two systems differ; a missing one may have its default."""
    return tuple(
        f"{name} {ours.get(name, _UNSET)}, exact {theirs.get(name, _UNSET)}"
        for name in names
        if ours.get(name, _UNSET) != theirs.get(name, _UNSET)
    )


def _compared(pair: ExactPair, job: StoredJob, other: StoredJob) -> ExactPair:
    spec = job.result.spec
    run, exact_run = read_job_run(job).rankings, read_job_run(other).rankings
    sample = other.sample_ids()
    cutoffs = tuple(k for k in CUTOFFS if k <= spec.k) or (spec.k,)
    ranked = [query for query in sample if exact_run.get(query)]
    if not ranked:
        return replace(pair, reason=f"{pair.exact} ranks nothing for any query")
    return replace(
        pair,
        k=spec.k,
        overlaps=tuple(
            _overlap({query: (run.get(query, ()), exact_run[query]) for query in ranked}, k) for k in cutoffs
        ),
        differs=_differences(spec.params, other.result.spec.params, _SCORES),
        unranked=len(sample) - len(ranked),
    )


def _overlap(rankings: Mapping[str, tuple[Sequence[str], Sequence[str]]], k: int) -> TopOverlap:
    """Return the overlap of the top ``k``; a shorter exact list counts in full."""
    by_query = {}
    for query, (mine, exact) in rankings.items():
        best = set(exact[:k])
        by_query[query] = len(best.intersection(mine[:k])) / len(best)
    whole = sum(share == 1 for share in by_query.values()) / len(by_query)
    return TopOverlap(k, evaluate.mean_estimate(by_query), whole, by_query)


def _with_changes(pairs: Sequence[ExactPair], per_query: Mapping[str, PerQuery], measure: str) -> tuple[ExactPair, ...]:
    """Add to each compared pair the paired difference of its rows in the measure."""
    both = [(pair.exact_row, pair.row) for pair in pairs if pair.row is not None and pair.exact_row is not None]
    differences = iter(comparison.paired(both, per_query, measure))
    return tuple(
        replace(pair, change=next(differences).interval) if pair.row and pair.exact_row else pair for pair in pairs
    )
