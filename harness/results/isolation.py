"""Isolation of jobs: the limits that a launcher enforces, and the mark of the rows that it measured.

A result stores its isolation's name, and the whole record where harness does not ship it, so that no reader needs the
launcher.  Only an isolation that harness ships may have no mark, or declare its figures.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from harness.driver.envelope import LIMITS
from harness.errors import nearest_or_known
from harness.untrusted import one_line

NAME = r"[a-z][a-z0-9-]{0,31}"
_MOST_SENTENCE = 200
# The mark of a row that a passport gives.
PASSPORT = "passport"


class Figures(str, Enum):
    """Origin of the figures of rows."""

    MEASURED = "measured"
    SCRIPTED = "scripted"
    PUBLISHED = "published"


class CounterScope(str, Enum):
    """Scope of the kernel's counters of a job: its own cgroup, its tree of processes, or none."""

    CGROUP = "cgroup"
    PROCESS = "process"
    NONE = "none"


@dataclass(frozen=True)
class Isolation:
    """Enforcement of a job's envelope.  Rows of different isolation are never compared.

    Args:
        name: at most 32 lower-case letters, digits and hyphens.
        sentence: what was enforced, in a few words for notes; without a full stop.
        enforced: the limits that hold (:data:`harness.driver.envelope.LIMITS`); the driver verifies each from inside.
        counters: where the counters of a job are read.
        engine: the name of the container engine whose version results store; empty: none.
        figures: where the figures come from.
        mark: the word behind the hardware of each row; empty: none.
    """

    name: str
    sentence: str = "harness does not know what this launcher enforces"
    enforced: tuple[str, ...] = ()
    counters: CounterScope = CounterScope.NONE
    engine: str = ""
    figures: Figures = Figures.MEASURED
    mark: str = ""

    @property
    def published(self) -> bool:
        """True for figures from the literature, of which harness measured nothing."""
        return self.figures is Figures.PUBLISHED

    @property
    def scripted(self) -> bool:
        """True for invented figures."""
        return self.figures is Figures.SCRIPTED

    @property
    def holds_envelope(self) -> bool:
        """True where harness vouches for every limit."""
        return not self.mark and set(self.enforced) == set(LIMITS)

    @property
    def attached(self) -> bool:
        """True for a service that ran already, on a machine that harness does not know."""
        return self.name == "attached"

    @property
    def of_passport(self) -> bool:
        """True for a row that a passport gives, without its samples."""
        return self.mark.endswith(PASSPORT)

    def in_passport(self) -> Isolation:
        """Return it for a row that a passport gives."""
        mark = ", ".join(filter(None, (self.mark, PASSPORT)))
        return replace(self, mark=mark, sentence=f"{self.sentence}, as its passport says")

    @property
    def note(self) -> str:
        """The sentence for small print; empty where the whole envelope held."""
        if self.mark:
            return f"Isolation {self.name}: {self.sentence}."
        return "" if self.holds_envelope else f"{self.sentence[0].upper()}{self.sentence[1:]}."

    @property
    def to_store(self) -> Isolation | None:
        """The record to store with the name; None for an isolation that harness ships."""
        return None if self.name in SHIPPED else self

    def marked(self, place: str) -> str:
        """Return the name of a row's hardware with the mark: ``cpu1-mem1 (process)``."""
        return f"{place} ({self.mark})" if self.mark else place

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        name = core_schema.no_info_after_validator_function(named, core_schema.str_schema(pattern=f"^{NAME}$"))
        record = core_schema.no_info_after_validator_function(declared, handler(source))
        shipped = core_schema.plain_serializer_function_ser_schema(_stored)
        return core_schema.union_schema([name, record], serialization=shipped)


CONTAINER = Isolation("container", "a container enforced the limits", LIMITS, CounterScope.CGROUP, "Docker")
APPTAINER = Isolation(
    "apptainer",
    "Apptainer held the job without root: a step of Slurm or a scope of systemd enforced CPUs and memory, namespaces no"
    " network and a read-only root; only the number of processes may be free",
    tuple(limit for limit in LIMITS if limit not in ("pids", "numa_nodes")),
    CounterScope.CGROUP,
    "Apptainer",
    mark="apptainer",
)
PROCESS = Isolation(
    "process",
    "CPUs were pinned; nothing enforced the memory limit or the network ban",
    ("cpus",),
    CounterScope.PROCESS,
    mark="process",
)
FAKE = Isolation(
    "fake",
    "scripted times, nothing was measured",
    ("cpus", "memory_bytes", "root_read_only"),
    figures=Figures.SCRIPTED,
    mark="fake",
)
PUBLISHED = Isolation(
    "published", "published figures, not measured here: no intervals are known", figures=Figures.PUBLISHED
)
ATTACHED = Isolation(
    "attached",
    "the service ran already: harness started, limited and verified nothing of it, and does not know its machine",
    mark="envelope not verified",
)
SHIPPED = {each.name: each for each in (CONTAINER, APPTAINER, PROCESS, FAKE, PUBLISHED, ATTACHED)}


def named(name: str) -> Isolation:
    """Return the isolation of a name; one that harness does not ship enforces nothing that is known."""
    return SHIPPED.get(name) or Isolation(name, mark=name)


def declared(record: Isolation) -> Isolation:
    """Return a stranger's isolation, or a shipped one unchanged: always marked by its name, its texts bounded.

    Raises:
        ValueError: it takes a name that harness ships, or another field is wrong.
    """
    if record in SHIPPED.values():
        return record
    if record.name in SHIPPED:
        raise ValueError(f"isolation {record.name!r} is harness's own; choose another name")
    if not re.fullmatch(NAME, record.name):
        raise ValueError(
            f"isolation {one_line(record.name, 80)!r} is not a valid name; write lower-case letters, digits and hyphens"
        )
    if unknown := [one_line(str(limit), 80) for limit in record.enforced if limit not in LIMITS]:
        hint = nearest_or_known(unknown[0], LIMITS)
        raise ValueError(f"isolation {record.name!r}: {unknown[0]!r} is not a limit{hint}")
    return Isolation(
        record.name,
        one_line(record.sentence, _MOST_SENTENCE) or Isolation.sentence,
        tuple(record.enforced),
        CounterScope(record.counters),
        one_line(record.engine, 40) or "engine",
        mark=record.name,
    )


def _stored(record: Isolation) -> str | dict[str, Any]:
    return record.name if record.name in SHIPPED else {each.name: getattr(record, each.name) for each in fields(record)}
