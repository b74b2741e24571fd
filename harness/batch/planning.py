"""A suite -> what it needs of Batch.  Reads the suite, the catalogue and the prices; no dataset, no AWS."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness import catalog, hardware, instances, offers
from harness.aws.uri import S3Uri
from harness.base_image import BaseFile
from harness.batch.wanted import AGENT_REGISTRY, Stack, Wanted
from harness.catalog import System, images_dir
from harness.declared import read_toml, validate
from harness.ec2 import machines
from harness.ec2.machines import Machine
from harness.plan import cells
from harness.prices import Snapshot
from harness.records import Envelope
from harness.result import Cell
from harness.suite import Suite

# Batch's own least.
_LEAST_TIMEOUT_S = 60


@dataclass(frozen=True)
class Asked:
    """The machines that the command line asks for."""

    region: str
    work: S3Uri
    instance: str | None = None
    burstable: bool = False
    most_instances: int = 4
    disk_gib: int = 100
    spot: bool = False
    shared: bool = False
    agent_image: str | None = None
    architecture: str | None = "x86_64"


def stack(suite: Suite, asked: Asked, snapshot: Snapshot) -> Stack:
    """All that the suite is to have in Batch.

    Raises:
        UsageError: a name is unknown, or no instance type provides a profile.
    """
    wanted = cells(suite)
    profiles = {name: hardware.profile(name) for name in {cell.profile for cell in wanted}}
    if suite.build_profile is not None:
        profiles[suite.build_profile] = hardware.profile(suite.build_profile)
    chosen = choose(suite, profiles, asked, snapshot)
    systems = catalog.named({cell.system for cell in wanted})
    pairs = dict.fromkeys(_pairs(suite, wanted, systems, profiles))
    return Stack(
        suite=suite.name,
        region=asked.region,
        work=asked.work,
        wanted=tuple(
            Wanted(image, profiles[profile], chosen[profile].instance, timeout_s(suite, len(wanted)))
            for image, profile in sorted(pairs)
        ),
        agent_image=asked.agent_image or agent_image(),
        most_instances=asked.most_instances,
        disk_gib=asked.disk_gib,
        spot=asked.spot,
        shared=asked.shared,
    )


def choose(suite: Suite, profiles: dict[str, Envelope], asked: Asked, snapshot: Snapshot) -> dict[str, Machine]:
    """The instance type of each profile: the one that it is priced on, unless the suite or ``--instance`` says."""
    said = machines.Wanted(suite.ec2.instances, asked.instance, asked.burstable, asked.architecture)
    return machines.choose(profiles, snapshot, instances.read("aws"), offers.reserve(), said)


def _pairs(
    suite: Suite, wanted: Iterable[Cell], systems: dict[str, System], profiles: dict[str, Envelope]
) -> Iterable[tuple[str, str]]:
    """Image and profile of all that is measured, and of index builds where these have a profile of their own."""
    for cell in wanted:
        yield systems[cell.system].on(profiles[cell.profile].gpus).image, cell.profile
        if suite.build_profile is not None:
            yield systems[cell.system].on(profiles[suite.build_profile].gpus).image, suite.build_profile


def timeout_s(suite: Suite, cells: int) -> int:
    """The longest that any submission may take, whatever it holds; each says how long it may take itself."""
    protocol = suite.protocol
    whole = protocol.build_timeout_s + cells * protocol.jobs * (protocol.job_timeout_s + protocol.load_timeout_s)
    return max(_LEAST_TIMEOUT_S, round(whole))


def agent_image() -> str:
    """The official Python image that the engines' base is made of, by digest; it is there for all architectures.

    Raises:
        FileError: ``images/base/base.toml`` is missing or wrong.
    """
    path = images_dir() / "base" / "base.toml"
    base = validate(BaseFile, read_toml(path), path)
    return f"{AGENT_REGISTRY}/{base.image}@{base.digest}"
