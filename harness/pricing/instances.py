"""Instance types: facts about a provider's machines, read from ``instance_profiles/instances/``.  No money."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import Field, field_validator

from harness import config
from harness.config import NAME_PATTERN, ConfigModel, data_root, read_toml, validate
from harness.errors import FileError, UnknownName
from harness.records import Envelope

# MERGED harness.pricing.instances: Hardware profiles: named envelopes, read from
# ``instance_profiles/hardware.toml``.


_UNITS = {"MiB": 2**20, "GiB": 2**30}


class HardwareProfile(ConfigModel):
    """One table of ``hardware.toml``."""

    cpus: int = Field(ge=1, description="whole CPUs, pinned as a cpuset")
    memory: str = Field(description='memory limit, e.g. "256MiB" or "4GiB"; swap is off')
    gpus: int = Field(default=0, ge=0, description="whole NVIDIA GPUs")
    pids: int = Field(default=512, ge=1, description="most processes and threads")

    @field_validator("memory")
    @classmethod
    def _readable(cls, value: str) -> str:
        parse_memory(value)
        return value


def parse_memory(text: str) -> int:
    """Read a memory size: ``"256MiB"`` -> 268435456.

    Raises:
        ValueError: it is no whole, positive number of MiB or GiB.
    """
    match = re.fullmatch(r"([1-9][0-9]*) ?(MiB|GiB)", text, flags=re.ASCII)
    if match is None:
        raise ValueError(f'{text!r} is no memory size; write a whole number of MiB or GiB, e.g. "256MiB" or "4GiB"')
    return int(match[1]) * _UNITS[match[2]]


def hardware_path() -> Path:
    """The shipped ``hardware.toml``."""
    return data_root() / "instance_profiles" / "hardware.toml"


def hardware_profiles(path: Path | None = None) -> dict[str, Envelope]:
    """All hardware profiles by name, in the file's order.

    Raises:
        FileError: the file is missing or wrong; names file, key and fix.
    """
    path = path or hardware_path()
    found: dict[str, Envelope] = {}
    for name, raw in read_toml(path).items():
        if not isinstance(raw, dict):
            raise FileError(
                f"{path}: key '{name}' stands outside a profile; put it under a heading such as [cpu1-mem4]"
            )
        if not re.fullmatch(NAME_PATTERN, name):
            raise FileError(f"{path}: profile name {name!r} must be lower-case letters, digits, '.', '_' or '-'")
        declared = validate(HardwareProfile, raw, path, prefix=name)
        found[name] = Envelope(
            name=name,
            cpus=declared.cpus,
            memory_bytes=parse_memory(declared.memory),
            gpus=declared.gpus,
            pids=declared.pids,
        )
    return found


def hardware_profile(name: str, path: Path | None = None) -> Envelope:
    """One hardware profile by name.

    Raises:
        UnknownName: there is none of that name.
        FileError: the file is missing or wrong.
    """
    known = hardware_profiles(path)
    if name not in known:
        raise UnknownName("hardware profile", name, known)
    return known[name]


ARCHITECTURES = ("x86_64", "arm64")
INSTANCE_HEADER = (
    "provider,instance_type,vcpus,physical_cores,memory_gib,architecture,gpu_count,gpu_name,gpu_manufacturer,"
    "gpu_memory_mib_each,accelerator_count,accelerator_name,local_nvme_gb,burstable,bare_metal,current_generation,source"
)


@dataclass(frozen=True)
class Instance:
    """Facts about one instance type; ``None``: not known.

    ``gpus`` counts whole NVIDIA GPUs, ``gpu_memory_bytes`` is that of each; ``accelerators`` counts all else that is
    paid for beside the CPUs: other makers' cards, shares of a GPU, Inferentia, TPUs ...  A ``burstable`` type sells a
    share of its CPUs' time; no measured latency belongs to it.
    """

    provider: str
    instance_type: str
    vcpus: int
    physical_cores: int | None
    memory_bytes: int
    architecture: str
    gpus: int
    gpu_name: str | None
    gpu_memory_bytes: int | None
    accelerators: int
    local_nvme_bytes: int | None
    burstable: bool
    bare_metal: bool
    current_generation: bool | None


def data_folder() -> Path:
    """The shipped ``instance_profiles/``."""
    return data_root() / "instance_profiles"


def facts_path(provider: str, root: Path | None = None) -> Path:
    """Where a provider's facts stand."""
    return (root or data_folder()) / "instances" / f"{provider}.csv"


def read_instances(provider: str, root: Path | None = None) -> dict[str, Instance]:
    """All known instance types of a provider, by name.

    Raises:
        FileError: the file is missing or wrong; names file, line and fix.
    """
    path = facts_path(provider, root)
    return dict(parse_instances(provider, path, config.read_shipped(path)))


@lru_cache(maxsize=16)
def parse_instances(provider: str, path: Path, content: bytes) -> Mapping[str, Instance]:
    """Parse the content of a file of facts; equal content is parsed once.

    Raises:
        FileError: it is wrong; names file, line and fix.
    """
    found: dict[str, Instance] = {}
    for place, row in config.csv_rows(path, INSTANCE_HEADER, content):
        name = row["instance_type"]
        if row["provider"] != provider:
            raise FileError(f"{place}: provider is {row['provider']!r}, this file is for {provider!r}; move the row")
        if name in found:
            raise FileError(f"{place}: {name!r} stands here twice; remove one of the two rows")
        found[name] = _instance(place, row)
    return found


def _instance(place: str, row: config.CsvRow) -> Instance:
    if row["architecture"] not in ARCHITECTURES:
        known = " or ".join(ARCHITECTURES)
        raise FileError(f"{place}: architecture {row['architecture']!r} is unknown; write {known}")
    count, truth = config.csv_count, config.csv_bool
    # The measured systems speak CUDA: other makers' cards are no GPUs to us, and a share of one is none either.
    cards = count(place, row, "gpu_count")
    whole = cards if row["gpu_manufacturer"] == "nvidia" else 0
    others = count(place, row, "accelerator_count") + (cards - whole or bool(row["gpu_name"] and not whole))
    memory_mib = config.csv_number(place, row, "gpu_memory_mib_each") if whole and row["gpu_memory_mib_each"] else None
    nvme_gb = config.csv_number(place, row, "local_nvme_gb", zero=True) if row["local_nvme_gb"] else None
    current = row["current_generation"]
    return Instance(
        provider=row["provider"],
        instance_type=row["instance_type"],
        vcpus=count(place, row, "vcpus"),
        physical_cores=count(place, row, "physical_cores") if row["physical_cores"] else None,
        memory_bytes=round(config.csv_number(place, row, "memory_gib") * 2**30),
        architecture=row["architecture"],
        gpus=whole,
        gpu_name=row["gpu_name"] if whole else None,
        gpu_memory_bytes=None if memory_mib is None else round(memory_mib * 2**20),
        accelerators=int(others),
        local_nvme_bytes=None if nvme_gb is None else round(nvme_gb * 1e9),
        burstable=truth(place, row, "burstable"),
        bare_metal=truth(place, row, "bare_metal"),
        current_generation=truth(place, row, "current_generation") if current else None,
    )
