"""Figures on a machine that nobody measured yet, from those of some machines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from benchmarks import coverage
from harness.analysis import other_machines
from harness.analysis.axes import comparison_group
from harness.analysis.other_machines import CellOfMachines, MachineRow
from harness.analysis.table import Row
from harness.driver.records import Outcome
from tests.support import sample_records


def read(row: Row) -> float | None:
    return row.resources.peak_anon_bytes


def cell(system: str, figures: Mapping[str, Sequence[float]], work_s: Mapping[str, float] = {}) -> CellOfMachines:
    """Return a cell with the figures of each machine's processes."""
    rows = {
        origin: MachineRow(
            sample_records.row(peak_anon_bytes=float(np.mean(values))),
            [sample_records.row(peak_anon_bytes=value) for value in values],
            work_s.get(origin),
        )
        for origin, values in figures.items()
    }
    return CellOfMachines(system, "cpu1-mem1", comparison_group(sample_records.row()), rows, {})


def test_the_interval_is_a_prediction_of_one_more_machine() -> None:
    found = other_machines.predicted(np.log([1.0, 2.0, 4.0, 8.0]))
    # By hand: the logarithms have mean 1.5 ln 2 and standard deviation 1.29099 ln 2; t of 3 is 3.18245, root of 1.25.
    reach = 3.18245 * 1.29099 * math.log(2) * math.sqrt(1.25)
    assert found.value == pytest.approx(2**1.5)
    assert found.low == pytest.approx(2**1.5 / math.exp(reach), rel=1e-4)
    assert found.high == pytest.approx(2**1.5 * math.exp(reach), rel=1e-4)


@pytest.mark.parametrize(("machines", "said"), [(0, "and there are 0"), (1, "and there is 1"), (3, "and there are 3")])
def test_three_machines_are_refused(machines: int, said: str) -> None:
    found = other_machines.predicted([0.0] * machines)
    assert (
        found.value is found.low is None and found.reason == f"an interval for another machine needs 4 machines, {said}"
    )


def test_the_share_of_machines_is_the_intraclass_correlation() -> None:
    # Shrout and Fleiss (1979), Table 2: four judges of six targets; their ICC(1,1) is .17, with (-.13, .72).
    ratings = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    found = other_machines.machine_share(ratings)
    assert found.value == pytest.approx(0.1657, abs=1e-4)
    assert (found.low, found.high) == (0.0, pytest.approx(0.7226, abs=1e-4))


def test_a_share_needs_more_than_one_process_and_a_difference() -> None:
    assert other_machines.machine_share([[1.0]] * 5).value is None
    assert other_machines.machine_share([[1.0, 1.0]] * 5).reason == "all processes of a machine have the same value"
    assert other_machines.machine_share([[float(number)] * 2 for number in range(5)]).value == 1.0
    assert "needs 4 machines, and there are 3" in str(other_machines.machine_share([[1.0, 2.0]] * 3).reason)
    rounded = other_machines.machine_share([[math.log(0.1)] * 5] * 4)
    assert rounded.value is None, "a sum of equal numbers may be a last digit away from their product"


def test_covariates_take_the_speed_of_machines_off() -> None:
    speeds = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 5.0}
    fast = cell("fast", {origin: [speed] for origin, speed in speeds.items()})
    slow = cell(
        "slow", {origin: [10 * speed] for origin, speed in speeds.items()}, {o: s / 100 for o, s in speeds.items()}
    )
    found = other_machines.across(slow, read, reference=fast, by_work=True)
    assert found.machines == 4
    assert found.elsewhere.high is not None and found.elsewhere.high > 100
    for exact, value in ((found.times_reference, 10.0), (found.at_work, 20.0)):
        assert (exact.low, exact.value, exact.high) == (pytest.approx(value),) * 3
    assert found.work_s == pytest.approx(0.02)
    assert found.explained_by_work == found.explained_by_reference == pytest.approx(1.0)
    alone = other_machines.across(slow, read, reference=slow)
    assert alone.times_reference.value is alone.at_work.value is None


def test_a_covariate_counts_where_four_machines_have_both() -> None:
    some = cell("some", {"a": [1.0], "b": [2.0], "c": [3.0]})
    every = cell("every", {"a": [1.0], "b": [2.0], "c": [3.0], "d": [4.0]}, {"a": 0.1, "b": 0.1, "c": 0.1})
    found = other_machines.across(every, read, reference=some, by_work=True)
    assert found.elsewhere.value is not None and found.times_reference.value is found.work_s is None


def test_the_quickest_of_the_systems_that_most_machines_measured_is_the_reference() -> None:
    rare = cell("rare", {"a": [0.1]})
    slow, quick = (cell(name, {"a": [value], "b": [value]}) for name, value in (("slow", 9.0), ("quick", 3.0)))
    assert other_machines.quickest([rare, slow, quick], read) is quick
    assert other_machines.quickest([], read) is None


def test_cells_have_the_rows_of_each_origin() -> None:
    rows = [
        sample_records.row(origin="a"),
        sample_records.row(origin="b", outcome=Outcome.OOM),
        sample_records.row(origin=None),
        sample_records.row(origin="a", system="other"),
    ]
    first, second = other_machines.cells(rows, {}, {rows[0].per_query_key: 0.02})
    assert (first.system, [*first.rows], first.failed) == (rows[0].system, ["a"], {"b": "oom"})
    assert first.rows["a"].work_s == 0.02 and second.system == "other"


@pytest.mark.slow
@pytest.mark.parametrize("kind", coverage.MACHINES[:4], ids=lambda kind: kind.name)
def test_intervals_hold_what_the_next_machine_measures(kind: coverage.Machines) -> None:
    held = coverage.covered_elsewhere(600, kind, 4)
    print(kind.name, held)
    # Three standard errors of a share of 600 besides the 93 to 97 % that are promised.
    assert all(0.95 - 0.027 <= share <= 0.95 + 0.027 for share in held)
