"""Hardware profiles: named envelopes, read from ``instance_profiles/hardware.toml``."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, field_validator

from harness.config import NAME_PATTERN, ConfigModel, data_root, read_toml, validate
from harness.errors import FileError, UnknownName
from harness.records import Envelope

_UNITS = {"MiB": 2**20, "GiB": 2**30}


class Profile(ConfigModel):
    """One table of ``hardware.toml``."""

    cpus: int = Field(ge=1, description="whole CPUs, pinned as a cpuset")
    memory: str = Field(description='memory limit, e.g. "256MiB" or "4GiB"; swap is off')
    gpus: int = Field(default=0, ge=0, description="whole NVIDIA GPUs")
    pids: int = Field(default=512, ge=1, description="most processes and threads")

    @field_validator("memory")
    @classmethod
    def _readable(cls, value: str) -> str:
        memory_bytes(value)
        return value


def memory_bytes(text: str) -> int:
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


def profiles(path: Path | None = None) -> dict[str, Envelope]:
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
        declared = validate(Profile, raw, path, prefix=name)
        found[name] = Envelope(
            name=name,
            cpus=declared.cpus,
            memory_bytes=memory_bytes(declared.memory),
            gpus=declared.gpus,
            pids=declared.pids,
        )
    return found


def profile(name: str, path: Path | None = None) -> Envelope:
    """One hardware profile by name.

    Raises:
        UnknownName: there is none of that name.
        FileError: the file is missing or wrong.
    """
    known = profiles(path)
    if name not in known:
        raise UnknownName("hardware profile", name, known)
    return known[name]
