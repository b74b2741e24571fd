"""What a planted truth is made of: a system, what must be reported of it, and how it is measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.experiments.calibration.truths import MIB, Truth
from harness.records import Envelope, Scalar

# One CPU each: a profile with all CPUs of its host shares them with the harness, and is noisy by rule.
_SMALL = Envelope("cpu1-mem256m", 1, 256 * MIB)


@dataclass(frozen=True)
class Case:
    """One system with something planted, and what the report must say of it.

    ``quota`` is a CPU quota (microseconds of each period, period) that is set from outside once the first trial runs.
    ``rival`` is the trial whose job has a busy process beside it on each CPU.
    """

    name: str
    truth: Truth
    params: dict[str, Scalar] = field(default_factory=dict)
    build_params: dict[str, Scalar] = field(default_factory=dict)
    quota: tuple[int, int] | None = None
    rival: int | None = None


@dataclass(frozen=True)
class Group:
    """Cases under one protocol, envelope and scenario: one suite.

    ``suite`` holds further keys of the suite file: a scenario's own.
    """

    name: str
    cases: tuple[Case, ...]
    queries: int
    protocol: dict[str, Any] = field(default_factory=dict)
    envelope: Envelope = _SMALL
    scenario: str = "single_stream"
    suite: dict[str, Any] = field(default_factory=dict)

    def limited(self, names: set[str]) -> Group:
        """The same with these cases alone."""
        return Group(**{**self.__dict__, "cases": tuple(case for case in self.cases if case.name in names)})
