"""The limits that profiles get on the machines that run them."""

from __future__ import annotations

import pytest

from harness.driver.records import Envelope
from harness.jobs.inputs import enforced_limits as enforced
from harness.pricing import offers

GIB = 1 << 30
PROFILES = {"small": Envelope("small", 1, 4 * GIB), "large": Envelope("large", 16, 32 * GIB, gpus=1, pids=99)}


def test_profile_of_a_whole_machine_gets_what_its_host_leaves() -> None:
    types = {"small": "m6gd.medium", "large": "c7g.4xlarge"}
    found = enforced(PROFILES, types)
    reserve = offers.host_reserve()
    assert found["small"].memory_bytes == reserve.left(4 * GIB)
    assert found["large"] == Envelope("large", 16, reserve.left(32 * GIB), gpus=1, pids=99)
    part = enforced(PROFILES, {"small": "c7g.4xlarge", "large": "m6gd.medium"})
    assert part == PROFILES, "a part of a machine is given whole; what does not fit stays as it is"
    assert enforced(PROFILES, {"small": "m6gd.medium"})["large"] == PROFILES["large"]


@pytest.mark.parametrize(
    ("shown", "limit"), [(33.0, 32.0), (32.0, 32.0), (31.5, 29.9), (30.41, 29.9), (30.3, 32.0), (16.0, 32.0)]
)
def test_local_host_is_a_whole_machine_though_its_kernel_shows_less(
    monkeypatch: pytest.MonkeyPatch, shown: float, limit: float
) -> None:
    monkeypatch.setattr("harness.launch.host.memory_bytes", lambda: int(shown * GIB))
    found = enforced(PROFILES, {})["large"].memory_bytes / GIB
    assert found == pytest.approx(limit, abs=0.01), "too small a host: the launcher says that it cannot"
