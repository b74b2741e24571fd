"""Validate an instance type: emulate its CPUs and memory, and check that a system passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.commands import quoted
from harness.errors import UnknownName, UsageError
from harness.experiments.viability.judge import Judgement, Unconstrained
from harness.experiments.viability.probe import MIB
from harness.experiments.viability.search import CONFIRMATIONS, TRIES, ProbeFinding, Purpose
from harness.experiments.viability.session import Question, Session
from harness.experiments.viability.smallest import Evidence, evidence
from harness.launch import host
from harness.pricing import instances, offers, prices
from harness.pricing.instances import Instance
from harness.results.isolation import CONTAINER


@dataclass(frozen=True)
class InstanceVerdict:
    """The verdict on an instance type, within the limits of this host's emulation.

    ``limit_bytes`` is the type's memory less its host's reserve.  ``not_shown`` lists what this host could not emulate.
    ``holds``: all confirmations passed.
    """

    instance: Instance
    system: str
    dataset: str
    architecture: str
    limit_bytes: int
    holds: bool
    causes: tuple[str, ...]
    why: str
    targets: dict[str, float]
    least: dict[str, float]
    not_shown: tuple[str, ...]
    unconstrained: Unconstrained
    evidence: tuple[Evidence, ...]
    isolation: str = CONTAINER.name


def find_instance(instance_type: str) -> Instance:
    """Return the facts of an instance type of the provider in ``defaults.toml``."""
    types = instances.read_instances(prices.default_market().provider)
    if instance_type not in types:
        raise UnknownName("instance type", instance_type, types, f"{quoted('instances')} lists all")
    return types[instance_type]


def job_memory_bytes(instance: Instance) -> int:
    """Return a type's memory less its host's reserve, in bytes; raise UsageError if nothing remains."""
    left = offers.host_reserve().left(instance.memory_bytes)
    if left <= 0:
        raise UsageError(
            f"{instance.instance_type} has {instance.memory_bytes // MIB:,} MiB, and its host needs all of that for"
            " itself (instance_profiles/defaults.toml); name a larger type"
        )
    return left


def validate(question: Question, instance: Instance) -> InstanceVerdict:
    """Emulate a type's CPUs and memory on this host, and confirm that the system passes.

    Raises:
        UsageError: the type has too few GPUs, this host is too small for it, or even the unconstrained system misses
            the criteria.
        JobError, EngineError, StoreError: as from a search.
    """
    name = instance.instance_type
    if instance.gpus < question.gpus:
        raise UsageError(f"{name} has {instance.gpus} NVIDIA GPUs, --gpus asks for {question.gpus}; name another type")
    limit, here = job_memory_bytes(instance), offers.host_reserve().left_on_host(host.memory_bytes())
    if limit > here:
        raise UsageError(
            f"{name} leaves {limit // MIB:,} MiB to a job, this host {here // MIB:,}: this host is too small to emulate"
            " it; run this on a larger machine, or name a smaller type"
        )
    session = Session(question, instance.vcpus)
    base, criteria, judgements = session.base, question.criteria, list[Judgement]()
    while (holds := _holds(judgements)) is None:
        label = f"{instance.instance_type}, job {len(judgements) + 1}"
        judgements.append(session.try_once(limit, Purpose.CONFIRMATION, label))
    failed = [judgement for judgement in judgements if judgement.finding is not ProbeFinding.PASS]
    return InstanceVerdict(
        instance=instance,
        system=base.spec.cell.system,
        dataset=base.spec.cell.dataset,
        architecture=base.architecture,
        isolation=base.spec.isolation,
        limit_bytes=limit,
        holds=holds,
        causes=() if holds else failed[-1].causes,
        why="" if holds else failed[-1].why,
        targets=base.targets(criteria),
        least=criteria.least,
        not_shown=tuple(_not_shown(instance, base.architecture)),
        unconstrained=base.summary,
        evidence=tuple(map(evidence, session.tried)),
    )


def _holds(judgements: Sequence[Judgement]) -> bool | None:
    """Decide by the rule for confirmed limits; ``None``: more jobs are needed."""
    findings = [judgement.finding for judgement in judgements]
    if ProbeFinding.FAIL in findings or findings.count(ProbeFinding.DOUBT) >= TRIES:
        return False
    return True if findings.count(ProbeFinding.PASS) >= CONFIRMATIONS else None


def _not_shown(instance: Instance, measured_on: str) -> Iterator[str]:
    """Yield what an emulation on this host cannot show."""
    if instance.architecture != measured_on:
        yield (
            f"it is {instance.architecture}, this host {measured_on}: only memory was validated, latencies and rankings"
            " there were not measured"
        )
    else:
        yield "its CPUs may be faster or slower than this host's: latencies there were not measured"
    if instance.burstable:
        yield "it is burstable: this host's CPUs did not run out of credits"
    if instance.gpus or instance.accelerators:
        yield "its GPUs or other accelerators were not emulated"
