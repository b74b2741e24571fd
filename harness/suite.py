"""``suites/*.toml`` -> a validated :class:`Suite`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from harness.catalog import NAME
from harness.declared import Declared, read_toml, validate
from harness.errors import FileError
from harness.records import Outcome


class Protocol(Declared):
    """How a job measures.  A named protocol gives the defaults; each key can be set in the suite."""

    name: Literal["santhanam2023"] = Field(
        default="santhanam2023", description="Santhanam et al. 2023: warm-up and all trials in one container"
    )
    warmup_queries: int = Field(default=10, ge=1, le=10_000, description="queries before the first timed one")
    warmup_cap: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="where set, warm-up passes over its queries again until two passes agree within 10 %, and asks at"
        " most this many; the paper's protocol has one pass",
    )
    trials: int = Field(default=5, ge=1, le=1000, description="timed passes over the query sample")
    sample_size: int = Field(default=1000, ge=1, description="queries in the sample, at most those judged")
    k: int = Field(default=10, ge=1, le=10_000, description="documents to retrieve for each query")
    seed: int = Field(default=2023, ge=0, description="chooses sample, warm-up queries and their order")
    load_timeout_s: float = Field(default=600.0, gt=0, description="longest load")
    query_timeout_s: float = Field(default=60.0, gt=0, description="longest single query")
    build_timeout_s: float = Field(default=7200.0, gt=0, description="longest index build")
    job_timeout_s: float = Field(default=7200.0, gt=0, description="longest job in all")


class Expectation(Declared):
    """Cells whose outcome is foreseen to be another than ``ok``; such an outcome is done, and no failure."""

    system: str = Field(description="system name")
    profile: str = Field(description="hardware profile name")
    outcome: Outcome = Field(description="the outcome foreseen")


class Suite(Declared):
    """A declared set: systems x datasets x scenarios x hardware profiles, and a protocol."""

    name: str = Field(
        pattern=NAME,
        description="names the folder of the results: lowercase letters, digits, '.', '_', '-'",
        json_schema_extra={"default": "the file's name"},
    )
    systems: tuple[str, ...] = Field(min_length=1, description="system names (`harness systems`)")
    datasets: tuple[str, ...] = Field(
        min_length=1, description="names of shipped datasets, or folders relative to the suite file (./my-data)"
    )
    profiles: tuple[str, ...] = Field(min_length=1, description="hardware profiles (instance_profiles/hardware.toml)")
    scenarios: tuple[Literal["single_stream"], ...] = Field(
        default=("single_stream",), min_length=1, description="how queries arrive"
    )
    build_profile: str | None = Field(
        default=None, description="hardware profile of index builds; by default all CPUs and half of the host's memory"
    )
    measures: tuple[str, ...] = Field(
        default=("RR@10", "Success@10", "nDCG@10"), min_length=1, description="as ir_measures writes them"
    )
    protocol: Protocol = Field(default=Protocol(), description="how jobs measure")
    expect: tuple[Expectation, ...] = Field(default=(), description="outcomes foreseen that are not ok")

    @field_validator("systems", "datasets", "profiles", "scenarios")
    @classmethod
    def _once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        twice = {name for name in value if value.count(name) > 1}
        if twice:
            raise ValueError(f"{', '.join(sorted(twice))} comes twice; name each once")
        return value

    @field_validator("datasets")
    @classmethod
    def _apart(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = [dataset_name(declared) for declared in value]
        for declared, name in zip(value, names, strict=True):
            if name in ("", ".", ".."):
                raise ValueError(f"{declared!r} gives no name; write the folder's own, e.g. '../my-data'")
            if names.count(name) > 1:
                raise ValueError(f"two datasets are called {name!r}; rename a folder")
        return value

    def expected(self, system: str, profile: str) -> Outcome:
        """The outcome foreseen for a cell."""
        for entry in self.expect:
            if (entry.system, entry.profile) == (system, profile):
                return entry.outcome
        return Outcome.OK


def dataset_name(declared: str) -> str:
    """The last part of a path, or the name itself: what results call the dataset."""
    return declared.rstrip("/").rpartition("/")[2]


def load(path: Path) -> Suite:
    """Read a suite file.

    Raises:
        FileError: missing, no TOML, an unknown or wrong key: one line that names file, key and fix.
    """
    raw = read_toml(path)
    if "name" not in raw and not re.fullmatch(NAME, path.stem):
        raise FileError(
            f"{path}: {path.stem!r} is no good as the suite's name; set `name` in the file "
            "(lowercase letters, digits, '.', '_', '-'; at most 63)"
        )
    suite = validate(Suite, {"name": path.stem, **raw}, path)
    for index, entry in enumerate(suite.expect):
        for key, name, known in (("system", entry.system, suite.systems), ("profile", entry.profile, suite.profiles)):
            if name not in known:
                raise FileError(f"{path}: key 'expect.{index}.{key}': {name!r} is not in this suite")
        if any((entry.system, entry.profile) == (other.system, other.profile) for other in suite.expect[:index]):
            raise FileError(f"{path}: key 'expect.{index}': {entry.system} on {entry.profile} comes twice; keep one")
    return suite
