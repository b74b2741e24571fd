"""Instance types: facts about a provider's machines, read from ``instance_profiles/instances/``.  No money."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harness import config
from harness.config import data_root
from harness.errors import FileError

ARCHITECTURES = ("x86_64", "arm64")
HEADER = (
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


def folder() -> Path:
    """The shipped ``instance_profiles/``."""
    return data_root() / "instance_profiles"


def facts_path(provider: str, root: Path | None = None) -> Path:
    """Where a provider's facts stand."""
    return (root or folder()) / "instances" / f"{provider}.csv"


def read(provider: str, root: Path | None = None) -> dict[str, Instance]:
    """All known instance types of a provider, by name.

    Raises:
        FileError: the file is missing or wrong; names file, line and fix.
    """
    path = facts_path(provider, root)
    return dict(parsed(provider, path, config.read_shipped(path)))


@lru_cache(maxsize=16)
def parsed(provider: str, path: Path, content: bytes) -> Mapping[str, Instance]:
    """Parse the content of a file of facts; equal content is parsed once.

    Raises:
        FileError: it is wrong; names file, line and fix.
    """
    found: dict[str, Instance] = {}
    for place, row in config.csv_rows(path, HEADER, content):
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
