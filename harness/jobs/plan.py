"""Suite + catalog + what is stored -> what is done and what is to do.  Pure: nothing is read, built or run."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from harness.jobs.suite import Suite, dataset_name
from harness.launch.images.catalog import System
from harness.records import Envelope, Isolation, Outcome, digest
from harness.results.schema import NULL_SYSTEM, Cell, Result, ResultSpec, matches

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
    warmup_queries: int
    held_out: int


@dataclass(frozen=True)
class Planned:
    """One job of a cell: done, or to do, and why.  ``spec.repetition`` is the attempt's, the next free one if to do."""

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
    """The product that the suite declares, less what it restricts; or those of it that ``only`` matches.

    Args:
        only: a glob over ``system/dataset/scenario/profile``; without a slash, over any one of them.
    """
    product = itertools.product(suite.systems, suite.datasets, suite.scenarios, suite.profiles)
    named = [
        Cell(suite.name, system, dataset_name(dataset), scenario, profile)
        for system, dataset, scenario, profile in product
        if suite.allows(system, profile)
    ]
    wanted = [cell for cell in named if only is None or matches(cell, only)]
    profiles = {cell.profile for cell in wanted}
    return [
        *wanted,
        *(each for each in _overhead(suite) if each.profile in profiles or (only is not None and matches(each, only))),
    ]


def _overhead(suite: Suite) -> list[Cell]:
    """The null system on each profile, once."""
    if not suite.overhead or NULL_SYSTEM in suite.systems:
        return []
    dataset = dataset_name(suite.datasets[0])
    return [Cell(suite.name, NULL_SYSTEM, dataset, "single_stream", profile) for profile in suite.profiles]


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
    build_gpus: int = 0,
    instance_types: Mapping[str, str] | None = None,
) -> list[Planned]:
    """Say of each job of each cell whether it is done.

    Done means: stored under exactly this spec with the outcome that the suite foresees (``ok``, unless declared).
    A cell that this host cannot run at all is done once that is stored.

    Args:
        digests: image name -> image digest, for those that are ready.
        cannot: profile name -> why this host cannot provide it.
        fresh: measure again whatever is stored.
        build_gpus: GPUs that index builds get.
        instance_types: profile name -> the machine that is asked for, where one is.
    """
    by_spec: dict[str, list[Result]] = {}
    for result in stored:
        by_spec.setdefault(_identity(result.spec), []).append(result)
    planned = []
    for cell in wanted:
        reason = cannot.get(cell.profile)
        # No image takes part in finding out that the hardware is not there.
        envelope, dataset = profiles[cell.profile], datasets[cell.dataset]
        system, builder = systems[cell.system].on(envelope.gpus), systems[cell.system].on(build_gpus)
        image_digest, builder_digest = (
            NO_IMAGE if reason else digests.get(each.image, NO_IMAGE) for each in (system, builder)
        )
        key = index_key(builder, builder_digest, dataset.corpus_sha256)
        whole = _spec(suite, cell, system, envelope, dataset, image_digest, key, isolation)
        whole = replace(whole, instance_type=(instance_types or {}).get(cell.profile))
        expected = suite.expected(cell.system, cell.profile)
        # A suite may name GPUs that this host has not; a profile that is too large is its author's to mend.
        if reason and envelope.gpus:
            expected = Outcome.NOT_APPLICABLE
        for job in range(whole.jobs):
            attempts = by_spec.get(_identity(replace(whole, job=job)), []) if by_spec else []
            planned.append(_planned(replace(whole, job=job), attempts, expected, reason, fresh))
    return planned


def _planned(spec: ResultSpec, stored: list[Result], expected: Outcome, cannot: str | None, fresh: bool) -> Planned:
    attempts = sorted(stored, key=lambda result: result.spec.repetition)
    reached = [result for result in attempts if result.outcome is expected]
    done = bool(reached) and (not fresh or cannot is not None)
    latest = reached[-1] if done else attempts[-1] if attempts else None
    # One past the last, not their number: an attempt may have been moved away.
    free = attempts[-1].spec.repetition + 1 if attempts else 0
    repetition = latest.spec.repetition if done and latest else free
    return Planned(spec.cell, replace(spec, repetition=repetition), expected, cannot, latest, done)


def states(planned: Iterable[Planned]) -> list[tuple[Cell, str]]:
    """What to say of each cell: what its jobs have in common, else how many of them are where."""
    by_cell: dict[Cell, list[str]] = defaultdict(list)
    for job in planned:
        by_cell[job.cell].append(job.why)
    return [
        (cell, next(iter(whys)))
        if len(set(whys)) == 1
        else (cell, "; ".join(f"{whys.count(why)} of {len(whys)} {why}" for why in dict.fromkeys(whys)))
        for cell, whys in by_cell.items()
    ]


def order(planned: Iterable[Planned], seed: int) -> list[Planned]:
    """Jobs to do: round by round, each with one job of every cell, in seeded random order (measuring rule 9).

    A machine that drifts then favours no system, and a stop half-way leaves no cell far behind.
    """
    chance = random.Random(f"order:{seed}")
    rounds: dict[int, list[Planned]] = defaultdict(list)
    for job in planned:
        if not job.done:
            rounds[job.spec.job].append(job)
    return [job for number in sorted(rounds) for job in chance.sample(rounds[number], len(rounds[number]))]


def index_key(system: System, image_digest: str, corpus_sha256: str) -> str:
    """Names an index by all that decides its content: the image is the one that builds it."""
    return digest([image_digest, corpus_sha256, system.build_params])[:24]


def _spec(
    suite: Suite,
    cell: Cell,
    system: System,
    envelope: Envelope,
    dataset: DatasetFacts,
    image_digest: str,
    key: str,
    isolation: Isolation,
) -> ResultSpec:
    return ResultSpec(
        cell=cell,
        protocol=suite.protocol.name,
        envelope=envelope,
        isolation=isolation,
        params=system.params,
        image_digest=image_digest,
        index_key=key,
        corpus_sha256=dataset.corpus_sha256,
        qrels_sha256=dataset.qrels_sha256,
        sample_sha256=dataset.sample_sha256,
        warmup_sha256=dataset.warmup_sha256,
        sample_size=dataset.sample_size,
        held_out=dataset.held_out,
        warmup_queries=dataset.warmup_queries,
        warmup_cap=suite.protocol.warmup_cap,
        trials=suite.protocol.trials_a_job,
        jobs=1 if cell.system == NULL_SYSTEM and NULL_SYSTEM not in suite.systems else suite.protocol.jobs,
        repeats=suite.protocol.repeats if cell.scenario == "single_stream" else 0,
        scenario_params=suite.scenario_params(cell.scenario),
        result_cache=system.result_cache,
        k=suite.protocol.k,
        seed=suite.protocol.seed,
    )


def _identity(spec: ResultSpec) -> str:
    return digest(replace(spec, repetition=0))
