"""Read instance types of providers and hardware profiles from ``instance_profiles/``.  No prices.

The folder ships with harness.  Users may have a second one, which `harness prices fetch` fills.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import Field, field_validator

from harness import config
from harness.config import NAME_PATTERN, ConfigModel, Model, absolute_folder, data_root, read_toml, validate
from harness.driver.records import Envelope
from harness.errors import FileError, UnknownName, UsageError

PRICES_VARIABLE = "HARNESS_PRICES"
ARCHITECTURES = ("x86_64", "arm64")
INSTANCE_HEADER = (
    "provider,instance_type,vcpus,physical_cores,memory_gib,architecture,gpu_count,gpu_name,gpu_manufacturer,"
    "gpu_memory_mib_each,accelerator_count,accelerator_name,local_nvme_gb,burstable,bare_metal,current_generation,"
    "facts_of,gone_by,source"
)

# A file of instance types, and its content.
FactsFile = tuple[Path, bytes]


@dataclass(frozen=True)
class Instance:
    """Instance type of a provider; ``None``: unknown.

    ``gpus`` counts whole NVIDIA GPUs with ``gpu_memory_bytes`` each; ``accelerators`` counts the other paid
    devices: other makers' cards, shares of a GPU, Inferentia, TPUs ...  A ``burstable`` type sells a share of its CPUs'
    time, so its latency depends on CPU credits.  ``gone_by`` is the date of the provider's first list of types without
    this one, ``facts_of`` the date of the older list with its facts; both ``None``: it is still rented.
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
    facts_of: datetime.date | None = None
    gone_by: datetime.date | None = None

    def gone(self, as_of: datetime.date) -> bool:
        """Return whether the provider had stopped renting the type on a date; price lists may still have it."""
        return self.gone_by is not None and self.gone_by <= as_of

    @property
    def previous_generation(self) -> bool:
        """Return whether the type belongs to an earlier generation; an unknown generation counts as current."""
        return self.current_generation is False


# The values of a choice, the default first.
ARCHITECTURE_CHOICES = ("measured", "any", *ARCHITECTURES)
GENERATION_CHOICES = ("current", "any")


@dataclass(frozen=True)
class TypeChoice:
    """Preferred types for pricing: an architecture (``measured``: the measuring machine's) and a generation.

    ``cheapest``: a measured row is priced on the cheapest of these types, not on the type that measured it.

    Raises:
        UnknownName: the architecture or the generation is unknown.
    """

    architecture: str = ARCHITECTURE_CHOICES[0]
    generation: str = GENERATION_CHOICES[0]
    cheapest: bool = False

    def __post_init__(self) -> None:
        for name, known in (("architecture", ARCHITECTURE_CHOICES), ("generation", GENERATION_CHOICES)):
            if (value := getattr(self, name)) not in known:
                raise UnknownName(name, value, known)

    def __str__(self) -> str:
        architecture = {"measured": "the measured architecture", "any": "any architecture"}
        generation = {"current": "the current generation", "any": "any generation"}
        return f"{generation[self.generation]} and {architecture.get(self.architecture, self.architecture)}"


DEFAULT_CHOICE = TypeChoice()


def data_folder() -> Path:
    """Return the shipped ``instance_profiles/``."""
    return data_root() / "instance_profiles"


def fetched_folder() -> Path:
    """Return the folder of fetched prices, by the XDG convention; HARNESS_PRICES may name it.

    Raises:
        UsageError: the user has no home folder.
    """
    usual = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share", "ir-harness", "instance_profiles")
    return absolute_folder(os.environ.get(PRICES_VARIABLE) or usual, f"name a folder with {PRICES_VARIABLE}")


def folders(root: Path | None = None) -> tuple[Path, ...]:
    """Return the folders to read prices and facts from: fetched ones first, if there are any; or ``root`` alone."""
    if root is not None:
        return (root,)
    with suppress(UsageError):  # nothing can have been fetched without a home
        if (fetched := fetched_folder()).is_dir():
            return (fetched, data_folder())
    return (data_folder(),)


def files() -> tuple[Path, ...]:
    """Return the files of prices and facts, in a fixed order."""
    return tuple(path for folder in folders() for path in sorted(folder.rglob("*")) if path.is_file())


def read_defaults(model: type[Model], section: str, root: Path | None = None) -> Model:
    """Read a section of ``defaults.toml``; raise FileError if the file is missing or wrong."""
    path = (root or data_folder()) / "defaults.toml"
    return validate(model, read_toml(path).get(section, {}), path, prefix=section)


def facts_path(provider: str, root: Path | None = None) -> Path:
    """Return the path of a provider's instance types."""
    return (root or data_folder()) / "instances" / f"{provider}.csv"


def facts_files(provider: str, root: Path | None = None) -> tuple[FactsFile, ...]:
    """Read a provider's files of instance types; raise FileError if there is none."""
    paths = [facts_path(provider, folder) for folder in folders(root)]
    existing = [path for path in paths if path.exists()] or paths[-1:]
    return tuple((path, config.read_shipped(path)) for path in existing)


def read_instances(provider: str, root: Path | None = None) -> dict[str, Instance]:
    """Read all instance types of a provider by name; raise FileError if the file is missing or wrong."""
    return joined_instances(provider, facts_files(provider, root))


def joined_instances(provider: str, files: Sequence[FactsFile]) -> dict[str, Instance]:
    """Return the instance types of several files; for a type in two files, the last one counts: it shipped.

    Raises:
        FileError: a row is wrong; names file, line and fix.
    """
    types: dict[str, Instance] = {}
    for path, content in files:
        types |= parse_instances(provider, path, content)
    return types


def providers(root: Path | None = None) -> list[str]:
    """Return the names of all providers whose instance types are known."""
    return sorted({path.stem for folder in folders(root) for path in (folder / "instances").glob("*.csv")})


@lru_cache(maxsize=16)
def parse_instances(provider: str, path: Path, content: bytes) -> Mapping[str, Instance]:
    """Parse the content of a file of instance types; equal content is parsed once.

    Raises:
        FileError: a row is wrong; names file, line and fix.
    """
    types: dict[str, Instance] = {}
    for place, row in config.csv_rows(path, INSTANCE_HEADER, content):
        name = row["instance_type"]
        if row["provider"] != provider:
            raise FileError(f"{place}: provider is {row['provider']!r}, this file is for {provider!r}; move the row")
        if name in types:
            raise FileError(f"{place}: {name!r} appears twice; remove one of the two rows")
        types[name] = _instance(place, row)
    return types


def _instance(place: str, row: config.CsvRow) -> Instance:
    if row["architecture"] not in ARCHITECTURES:
        raise FileError(f"{place}: architecture {row['architecture']!r} is unknown; write {' or '.join(ARCHITECTURES)}")
    count, truth = config.csv_count, config.csv_bool
    # The measured systems need CUDA: other makers' cards and shares of a GPU count as accelerators.
    cards = count(place, row, "gpu_count")
    whole = cards if row["gpu_manufacturer"] == "nvidia" else 0
    others = count(place, row, "accelerator_count") + (cards - whole or bool(row["gpu_name"] and not whole))
    memory_mib = config.csv_number(place, row, "gpu_memory_mib_each") if whole and row["gpu_memory_mib_each"] else None
    nvme_gb = config.csv_number(place, row, "local_nvme_gb", zero=True) if row["local_nvme_gb"] else None
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
        current_generation=truth(place, row, "current_generation") if row["current_generation"] else None,
        facts_of=config.csv_date(place, row, "facts_of"),
        gone_by=config.csv_date(place, row, "gone_by"),
    )


_UNITS = {"MiB": 2**20, "GiB": 2**30}
_MOST_MEMORY_BYTES = 1 << 60


class HardwareProfile(ConfigModel):
    """Table of ``hardware.toml``, or of a suite's own profile."""

    cpus: int = Field(ge=1, description="whole CPUs, pinned as a cpuset")
    memory: str = Field(
        description='nominal memory, e.g. "256MiB" or "4GiB": the limit of a job, or what the host leaves of it where'
        " it is the whole machine; swap is off"
    )
    gpus: int = Field(default=0, ge=0, description="whole NVIDIA GPUs")
    pids: int = Field(default=512, ge=1, description="most processes and threads")

    @field_validator("memory")
    @classmethod
    def _readable(cls, value: str) -> str:
        parse_memory(value)
        return value

    def envelope(self, name: str) -> Envelope:
        """Return the limits under the profile's name."""
        return Envelope(name, self.cpus, parse_memory(self.memory), gpus=self.gpus, pids=self.pids)


def parse_memory(text: str) -> int:
    """Return the bytes of a memory size such as ``"256MiB"``; raise ValueError for another form."""
    match = re.fullmatch(r"([1-9][0-9]*) ?(MiB|GiB)", text, flags=re.ASCII)
    if match is None:
        raise ValueError(f'{text!r} is not a memory size; write a whole number of MiB or GiB, e.g. "256MiB" or "4GiB"')
    size = int(match[1]) * _UNITS[match[2]]
    if size > _MOST_MEMORY_BYTES:
        raise ValueError(f"{text!r} is beyond {_MOST_MEMORY_BYTES >> 30:,} GiB; write a smaller size")
    return size


def hardware_profiles(path: Path | None = None) -> dict[str, Envelope]:
    """Read all hardware profiles by name, in the file's order; raise FileError if the file is missing or wrong."""
    path = path or data_folder() / "hardware.toml"
    profiles: dict[str, Envelope] = {}
    for name, raw in read_toml(path).items():
        if not isinstance(raw, dict):
            raise FileError(
                f"{path}: key '{name}' does not belong to a profile; put it under a heading such as [cpu1-mem4]"
            )
        if not re.fullmatch(NAME_PATTERN, name):
            raise FileError(f"{path}: profile name {name!r} must be lower-case letters, digits, '.', '_' or '-'")
        profiles[name] = validate(HardwareProfile, raw, path, prefix=name).envelope(name)
    return profiles


def hardware_profile(name: str) -> Envelope:
    """Read a hardware profile; raise UnknownName if no profile has this name."""
    profiles = hardware_profiles()
    if name not in profiles:
        raise UnknownName("hardware profile", name, profiles)
    return profiles[name]
