"""The quote of suites from the price list alone: without AWS, an engine's answer, or the suites' data.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from harness.aws import machines
from harness.aws.machines import RentalOptions
from harness.errors import UsageError
from harness.jobs.cell_plans import SuitePlan, suite_notes
from harness.jobs.suite import Suite
from harness.pricing.offers import ChosenMachine
from harness.pricing.prices import Snapshot
from harness.report.plan import CellPlan


def quote(
    plans: Sequence[SuitePlan],
    snapshot: Snapshot,
    choice: RentalOptions = RentalOptions(),
) -> tuple[list[CellPlan], list[str]]:
    """Return the priced cells of suites, and notes on prices, index builds and missing data."""
    notes = [f"prices: {snapshot}, without disk, address and the machines' setup"]
    if choice.spot:
        notes.append("spot capacity costs at most that")
    cells: list[CellPlan] = []
    for plan in plans:
        suite = plan.inputs.suite
        found = machines.survey(suite.envelopes(), snapshot, choice, suite.ec2.instances)
        cells += [_priced(cell, suite, found) for cell in plan.cells]
        notes += _builders(suite, found)
    return cells, [*dict.fromkeys((*notes, *suite_notes(plans, {})))]


def _priced(plan: CellPlan, suite: Suite, found: Mapping[str, ChosenMachine | UsageError]) -> CellPlan:
    """Return a cell with its machine and costs, or the reason why no machine takes it.

    Builds are priced on the machine of the build profile, if the suite has one.
    """

    def usd(seconds: float | None, profile: str) -> float | None:
        machine = found[profile]
        if seconds is None or isinstance(machine, UsageError):
            return None if seconds != 0 else 0.0
        return seconds * machine.usd_per_hour / 3600

    profile = plan.cell.profile
    build_usd = usd(plan.build_s, suite.build_profile or profile)
    known = replace(plan, timing_usd=usd(plan.timing_s, profile), build_usd=build_usd)
    if isinstance(machine := found[profile], UsageError):
        return replace(known, refused=str(machine))
    return replace(known, machine=machine)


def _builders(suite: Suite, found: Mapping[str, ChosenMachine | UsageError]) -> Iterator[str]:
    """Yield on which machine a suite's indexes are built, or why none can build them."""
    profile = suite.build_profile
    if profile is None:
        try:
            machines.platforms_of(suite, machines.accepted(found))
        except UsageError as error:
            yield f"indexes: refused: {error}"
    elif isinstance(machine := found[profile], UsageError):
        yield f"indexes ({profile}): refused: {machine}"
    else:
        yield f"indexes ({profile}) are built on {machine.name}, US$ {machine.usd_per_hour:g} an hour"
