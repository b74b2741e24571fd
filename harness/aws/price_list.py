"""The quote of suites from the price list alone: without AWS, an engine's answer, or the suites' data.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.aws import machines
from harness.aws.machines import MachineOptions
from harness.aws.rental import RentalOptions
from harness.errors import UsageError
from harness.jobs.cell_plans import SuitePlan, suite_notes
from harness.jobs.suite import Suite
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
        cells += priced(plan.cells, plan.inputs.suite, snapshot, choice)
        notes += builders(plan.inputs.suite, snapshot, choice)
    return cells, [*dict.fromkeys((*notes, *suite_notes(plans, {})))]


def priced(plans: Sequence[CellPlan], suite: Suite, snapshot: Snapshot, choice: MachineOptions) -> list[CellPlan]:
    """Return a suite's cells with their machines and costs, or the reason why none takes a cell.

    Builds are priced on the machine of the build profile, if the suite has one.
    """
    found = machines.survey(suite.envelopes(), snapshot, choice, suite.ec2.instances)

    def usd(seconds: float | None, profile: str) -> float | None:
        machine = found[profile]
        if seconds is None or isinstance(machine, UsageError):
            return None if seconds != 0 else 0.0
        return seconds * machine.usd_per_hour / 3600

    def of_cell(plan: CellPlan) -> CellPlan:
        profile = plan.cell.profile
        build_usd = usd(plan.build_s, suite.build_profile or profile)
        known = replace(plan, timing_usd=usd(plan.timing_s, profile), build_usd=build_usd)
        if isinstance(machine := found[profile], UsageError):
            return replace(known, refused=str(machine))
        return replace(known, machine=machine)

    return [of_cell(plan) for plan in plans]


def builders(suite: Suite, snapshot: Snapshot, choice: MachineOptions) -> Iterator[str]:
    """Yield on which machine a suite's indexes are built, or why none can build them."""
    found = machines.survey(suite.envelopes(), snapshot, choice, suite.ec2.instances)
    profile = suite.build_profile
    if profile is None:
        chosen = {name: machine for name, machine in found.items() if not isinstance(machine, UsageError)}
        try:
            machines.platforms_of(suite, chosen)
        except UsageError as error:
            yield f"indexes: refused: {error}"
    elif isinstance(machine := found[profile], UsageError):
        yield f"indexes ({profile}): refused: {machine}"
    else:
        yield f"indexes ({profile}) are built on {machine.name}, US$ {machine.usd_per_hour:g} an hour"
