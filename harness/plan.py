"""Suite + catalog + what is stored -> what is done and what is to do.  Pure: nothing is read, built or run."""

from __future__ import annotations

import fnmatch
import itertools
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from harness.catalog import System
from harness.records import Cell, Envelope, Isolation, Outcome, Result, ResultSpec, digest
from harness.suite import Suite, dataset_name

# The digest of a system whose image could not be, or was not, made.
NO_IMAGE = "none"


@dataclass(frozen=True)
class DatasetFacts:
    """What the plan must know of a dataset and its sample: names of contents, no contents."""

    corpus_sha256: str
    qrels_sha256: str
    sample_sha256: str
    warmup_sha256: str
    sample_size: int


@dataclass(frozen=True)
class Planned:
    """One cell: done, or to do, and why.  ``spec.repetition`` is the attempt's, the next free one if to do."""

    cell: Cell
    spec: ResultSpec
    expected: Outcome
    cannot: str | None
    latest: Result | None
    done: bool

    @property
    def why(self) -> str:
        """A few words for people."""
        if self.done and self.latest is not None:
            return f"done ({self.latest.outcome.value})"
        if self.cannot:
            return f"not applicable: {self.cannot}"
        if self.spec.image_digest == NO_IMAGE:
            return "to do: its image is not built yet"
        return f"to do again: ended {self.latest.outcome.value}" if self.latest else "to do"


def cells(suite: Suite, only: str | None = None) -> list[Cell]:
    """The product that the suite declares, or those of it that ``only`` matches.

    Args:
        only: a glob over ``system/dataset/scenario/profile``; without a slash, over any one of them.
    """
    product = itertools.product(suite.systems, suite.datasets, suite.scenarios, suite.profiles)
    named = [
        Cell(suite.name, system, dataset_name(dataset), scenario, profile)
        for system, dataset, scenario, profile in product
    ]
    return [cell for cell in named if only is None or _matches(cell, only)]


def plan(
    suite: Suite,
    wanted: Iterable[Cell],
    *,
    systems: Mapping[str, System],
    profiles: Mapping[str, Envelope],
    datasets: Mapping[str, DatasetFacts],
    digests: Mapping[str, str],
    cannot: Mapping[str, str],
    isolation: Isolation,
    stored: Iterable[Result],
    fresh: bool = False,
) -> list[Planned]:
    """Say of each cell whether it is done.

    Done means: stored under exactly this spec with the outcome that the suite foresees (``ok``, unless declared).
    A cell that this host cannot run at all is done once that is stored.

    Args:
        digests: system name -> image digest, for those that are ready.
        cannot: profile name -> why this host cannot provide it.
        fresh: measure again whatever is stored.
    """
    by_spec: dict[str, list[Result]] = {}
    for result in stored:
        by_spec.setdefault(_identity(result.spec), []).append(result)
    planned = []
    for cell in wanted:
        reason = cannot.get(cell.profile)
        # No image takes part in finding out that the hardware is not there.
        image_digest = NO_IMAGE if reason else digests.get(cell.system, NO_IMAGE)
        system, envelope, dataset = systems[cell.system], profiles[cell.profile], datasets[cell.dataset]
        spec = _spec(suite, cell, system, envelope, dataset, image_digest, isolation)
        attempts = sorted(by_spec.get(_identity(spec), []), key=lambda result: result.spec.repetition)
        # A suite may name GPUs that this host has not; a profile that is too large is its author's to mend.
        expected = suite.expected(cell.system, cell.profile)
        if reason and envelope.gpus:
            expected = Outcome.NOT_APPLICABLE
        reached = [result for result in attempts if result.outcome is expected]
        done = bool(reached) and (not fresh or reason is not None)
        latest = reached[-1] if done else attempts[-1] if attempts else None
        # One past the last, not their number: an attempt may have been moved away.
        free = attempts[-1].spec.repetition + 1 if attempts else 0
        repetition = latest.spec.repetition if done and latest else free
        planned.append(Planned(cell, replace(spec, repetition=repetition), expected, reason, latest, done))
    return planned


def order(planned: Iterable[Planned], seed: int) -> list[Planned]:
    """Jobs to do, in seeded random order: a machine that drifts then favours no system (measuring rule 9)."""
    jobs = [job for job in planned if not job.done]
    return random.Random(f"order:{seed}").sample(jobs, len(jobs))


def index_key(system: System, image_digest: str, corpus_sha256: str) -> str:
    """Names an index by all that decides its content."""
    return digest([image_digest, corpus_sha256, system.build_params])[:24]


def _spec(
    suite: Suite,
    cell: Cell,
    system: System,
    envelope: Envelope,
    dataset: DatasetFacts,
    image_digest: str,
    isolation: Isolation,
) -> ResultSpec:
    return ResultSpec(
        cell=cell,
        protocol=suite.protocol.name,
        envelope=envelope,
        isolation=isolation,
        params=system.params,
        image_digest=image_digest,
        index_key=index_key(system, image_digest, dataset.corpus_sha256),
        corpus_sha256=dataset.corpus_sha256,
        qrels_sha256=dataset.qrels_sha256,
        sample_sha256=dataset.sample_sha256,
        warmup_sha256=dataset.warmup_sha256,
        sample_size=dataset.sample_size,
        warmup_queries=suite.protocol.warmup_queries,
        warmup_cap=suite.protocol.warmup_cap,
        trials=suite.protocol.trials,
        k=suite.protocol.k,
        seed=suite.protocol.seed,
    )


def _identity(spec: ResultSpec) -> str:
    return digest(replace(spec, repetition=0))


def _matches(cell: Cell, glob: str) -> bool:
    parts = (cell.system, cell.dataset, cell.scenario, cell.profile)
    if "/" in glob:
        return fnmatch.fnmatchcase("/".join(parts), glob)
    return any(fnmatch.fnmatchcase(part, glob) for part in parts)
