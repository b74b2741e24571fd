"""The reverse question: does a system do its work in what an instance type has?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.errors import UsageError, did_you_mean
from harness.experiments.viability.judge import Judgement
from harness.experiments.viability.probe import MIB, envelope
from harness.experiments.viability.search import CONFIRMATIONS, TRIES, Finding, Purpose
from harness.experiments.viability.session import Session, Viability
from harness.experiments.viability.verdict import Evidence, Unconstrained, architecture, evidence, unconstrained
from harness.launch import host
from harness.pricing import instances, offers, prices
from harness.pricing.instances import Instance


@dataclass(frozen=True)
class Claim:
    """Whether an instance type is enough, as far as this host can tell.

    ``limit_bytes`` is what the type leaves beside its host's own need.  ``not_shown`` lists what this host could not
    emulate.  ``holds``: all of so many fresh containers passed.
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


def find(instance_type: str, provider: str | None = None) -> Instance:
    """The facts of a type.

    Args:
        instance_type: as the provider names it.
        provider: by default that of ``defaults.toml``.

    Raises:
        UsageError: there is none of that name.
        FileError: the facts are missing or wrong.
    """
    known = instances.read_instances(provider or prices.default_market().provider)
    if instance_type not in known:
        # Not all of the names: there are a thousand.
        raise UsageError(
            f"unknown instance type {instance_type!r}{did_you_mean(instance_type, known)}; see `harness instances`"
        )
    return known[instance_type]


def room(instance: Instance) -> int:
    """Bytes that a type has for a job beside its host's own need.

    Raises:
        UsageError: it has none.
    """
    left = offers.host_reserve().left(instance.memory_bytes) // MIB * MIB
    if left <= 0:
        raise UsageError(
            f"{instance.instance_type} has {instance.memory_bytes // MIB:,} MiB, and its host needs all of that for"
            " itself (instance_profiles/defaults.toml); name a larger type"
        )
    return left


def validate(asked: Viability, instance: Instance) -> Claim:
    """Emulate a type's CPUs and memory here, and ask the system to do its work in them.

    Raises:
        UsageError: this host is too small for the type, or even the unconstrained system misses what is asked.
        JobError, EngineError, StoreError: as from a search.
    """
    cpus, limit = instance.vcpus, room(instance)
    check_host(instance, asked.question.gpus)
    asked.check(envelope(cpus, limit, asked.question.gpus))
    session = Session(asked, cpus)
    base, judged = session.base, list[Judgement]()
    while (holds := _holds(judged)) is None:
        label = f"{instance.instance_type}, job {len(judged) + 1}"
        judged.append(session.try_once(limit, Purpose.CONFIRMATION, label))
    failed = [each for each in judged if each.finding is not Finding.PASS]
    measured_on = architecture(base)
    spec = base.jobs[0].result.spec
    return Claim(
        instance=instance,
        system=spec.cell.system,
        dataset=spec.cell.dataset,
        architecture=measured_on,
        limit_bytes=limit,
        holds=holds,
        causes=() if holds else failed[-1].causes,
        why="" if holds else failed[-1].why,
        targets={target.figure: target.at_most_s for target in base.targets(session.criteria)},
        least={each.measure: each.at_least for each in session.criteria.least},
        not_shown=tuple(_not_shown(instance, measured_on)),
        unconstrained=unconstrained(base),
        evidence=tuple(evidence(each) for each in session.tried),
    )


def _holds(judged: Sequence[Judgement]) -> bool | None:
    """As the smallest limit is confirmed; ``None``: not known yet."""
    findings = [each.finding for each in judged]
    if Finding.FAIL in findings or findings.count(Finding.DOUBT) >= TRIES:
        return False
    return True if findings.count(Finding.PASS) >= CONFIRMATIONS else None


def check_host(instance: Instance, gpus: int) -> None:
    """Refuse a type that is larger than this host, or has not the GPUs that are asked for.

    Raises:
        UsageError: it is, or has not.
    """
    name, limit = instance.instance_type, room(instance)
    if instance.gpus < gpus:
        raise UsageError(f"{name} has {instance.gpus} NVIDIA GPUs, --gpus asks for {gpus}; name another type")
    too_small = "this host is too small to emulate it; run this on a larger machine, or name a smaller type"
    if instance.vcpus > host.cpus():
        raise UsageError(f"{name} has {instance.vcpus} vCPUs, this host gives {host.cpus()}: {too_small}")
    here = offers.host_reserve().left(host.memory_bytes())
    if limit > here:
        raise UsageError(f"{name} leaves {limit // MIB:,} MiB to a job, this host {here // MIB:,}: {too_small}")


def _not_shown(instance: Instance, measured_on: str) -> Iterator[str]:
    """What an emulation here says nothing of."""
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
