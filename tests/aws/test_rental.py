"""What rented machines cost."""

from __future__ import annotations

import pytest

from harness.aws import rental
from harness.pricing import instances
from harness.pricing.offers import ChosenMachine


def test_disk_and_address_are_billed_too() -> None:
    machine = ChosenMachine(instances.read_instances("aws")["m6i.large"], 1.0)
    assert rental.usd_per_hour(machine, 73, 0.1) == pytest.approx(1.0 + 0.01 + rental.ADDRESS_USD_PER_HOUR)
