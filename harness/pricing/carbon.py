"""Read dated factors of carbon from ``instance_profiles/carbon/``, and estimate the CO2e of queries with them.

Snapshots are append-only, each with its checksum.  An estimate is a range: it has a case for each processor that may
have run the queries, with and without a power of its own for memory, at both ends of the factor by which estimates of
one machine differ.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import Field

from harness.config import ConfigModel
from harness.errors import UnknownName, UsageError
from harness.pricing.dated_files import DatedFile, DatedFiles

FORMULA = (
    "g CO2e of a query = J x PUE / 3,600,000 x g per kWh; J = CPU-seconds x busy watts of a vCPU + idle CPU-seconds x "
    "idle watts + seconds x GiB x watts of a GiB; measured joules of CPU packages replace the first two terms, "
    "measured joules of GPUs are added"
)
RANGE = (
    "The range has each processor that may have run the queries, with and without watts of memory, and on both sides "
    "the factor by which others' estimates of one machine differ. Measured joules are not widened."
)
J_PER_KWH = 3.6e6


class ProcessorWatts(ConfigModel):
    """``[processors."<name>"]``: watts of one vCPU of a processor, idle and fully busy."""

    architecture: str = Field(description="x86_64 or arm64")
    idle_w: float = Field(ge=0, description="watts of an idle vCPU")
    busy_w: float = Field(ge=0, description="watts of a fully busy vCPU")
    models: tuple[str, ...] = Field(default=(), description="globs over the kernel's names of the processor")


class CarbonFactors(DatedFile):
    """``carbon/<date>.toml``: watts, PUE and grids on one date."""

    licence: str = Field(description="SPDX id of the collection's licence")
    spread: float = Field(ge=1, description="factor by which estimates of one machine differ")
    pue: float = Field(ge=1, description="energy of a data centre over the energy of its machines")
    memory_w_per_gib: float = Field(ge=0, description="watts of a GiB of memory")
    grid: dict[str, float] = Field(description="grams of CO2e a kWh by <provider>/<region>")
    processors: dict[str, ProcessorWatts] = Field(description="watts by processor")


FILES = DatedFiles("carbon", CarbonFactors, "there are no carbon factors")


@dataclass(frozen=True)
class Electricity:
    """CO2e of a kWh of electricity, in grams: a region's, or a number that a person gave."""

    name: str
    grams_per_kwh: float


@dataclass(frozen=True)
class CarbonRates:
    """Factors of a date, and the electricity of a grid; ``reason`` says why the grid is not known."""

    factors: CarbonFactors
    grid: Electricity | None
    reason: str = ""
    # Earlier answers: most rows were measured on few machines.
    _processors: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False)

    def processors(self, model: str, architecture: str) -> tuple[str, ...]:
        """Return the processors that a kernel's name may stand for: all of the architecture where none has the name."""
        if (model, architecture) not in self._processors:
            known = {name: each for name, each in self.factors.processors.items() if each.architecture == architecture}
            named = [name for name, each in known.items() if any(fnmatchcase(model, glob) for glob in each.models)]
            self._processors[model, architecture] = tuple(named or known)
        return self._processors[model, architecture]


def rates(
    market: str, grid: str | None = None, as_of: datetime.date | None = None, root: Path | None = None
) -> CarbonRates | None:
    """Return the factors of a date and the grid of a market; ``None``: no factors are stored at all.

    Args:
        market: ``<provider>/<region>`` of the prices.
        grid: another region, or grams of CO2e a kWh.
        as_of: the newest factors up to this date; by default the newest.
        root: another ``instance_profiles/``.

    Raises:
        UsageError: the grid is not known, or all factors are younger.
        FileError: a file is wrong.
    """
    factors = FILES.newest(as_of, root)
    if factors is None:
        return None
    try:
        grams = float(grid or "")
    except ValueError:
        return _of_region(factors, grid or market, given=grid is not None)
    if not 0 < grams < 1e5:
        raise UsageError(f"--grid {grid}: grams of CO2e a kWh are between 0 and 100,000; write such a number")
    return CarbonRates(factors, Electricity("--grid", grams))


def other_rates(
    now: CarbonRates | None, market: str, against: datetime.date | None = None, root: Path | None = None
) -> CarbonRates | None:
    """Return the rates to compare with: of a date, else the newest others; ``None``: there are none.

    Raises:
        FileError: a file is wrong.
    """
    factors = FILES.other(now.factors if now else None, against, root)
    return _of_region(factors, market, given=False) if factors else None


def _of_region(factors: CarbonFactors, name: str, *, given: bool) -> CarbonRates:
    matching = [region for region in factors.grid if name in (region, region.partition("/")[2])]
    if matching:
        return CarbonRates(factors, Electricity(matching[0], factors.grid[matching[0]]))
    if given:
        raise UnknownName("grid", name, factors.grid, "or write grams of CO2e a kWh, such as 400")
    reason = f"the factors of {factors.date} have no grams of CO2e a kWh for {name}; name them, --grid 400, or a region"
    return CarbonRates(factors, None, f"{reason} that has them, --grid eu-west-1")


@dataclass(frozen=True)
class QueryWork:
    """The work of a mean query: CPU-seconds, seconds of the machine, its CPUs and memory, joules of its GPUs.

    ``package_j`` are the joules of its CPU packages; ``None``: not measured.
    """

    cpu_s: float
    machine_s: float
    cpus: int
    memory_gib: float
    gpu_j: float = 0.0
    package_j: float | None = None

    @property
    def idle_cpu_s(self) -> float:
        """Seconds that CPUs of the machine were rented for the query and idle."""
        return max(0.0, self.machine_s * self.cpus - self.cpu_s)


def grams_per_million(
    work: QueryWork, factors: CarbonFactors, grid: Electricity, names: tuple[str, ...]
) -> tuple[float, ...]:
    """Return grams of CO2e of a million queries in each case, in a fixed order.

    The watts of a vCPU include a server's memory, so that watts of memory may count twice: every other case has them.
    Measured joules are the same in all cases.  The joules of CPU packages leave two cases: they have no memory in them.

    Args:
        work: of a mean query.
        factors: watts and PUE.
        grid: the electricity.
        names: processors that may have run the queries; not read where joules of CPU packages were measured.
    """
    grams_per_j = factors.pue / J_PER_KWH * grid.grams_per_kwh * 1e6
    memory_j = work.machine_s * work.memory_gib * factors.memory_w_per_gib
    measured_j, estimates_j = work.gpu_j + (work.package_j or 0.0), [memory_j]
    if work.package_j is None:
        watts = [factors.processors[name] for name in names]
        of_cpus = [work.cpu_s * each.busy_w + work.idle_cpu_s * each.idle_w for each in watts]
        estimates_j = [cpu_j + more_j for cpu_j in of_cpus for more_j in (0.0, memory_j)]
    return tuple(
        (spread_j + measured_j) * grams_per_j
        for estimated_j in estimates_j
        for spread_j in (estimated_j / factors.spread, estimated_j * factors.spread)
    )
