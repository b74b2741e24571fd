"""The limits that a suite's hardware profiles get on the machines that run them.

A profile asks for nominal memory; where that is the whole machine, the job's limit is what its host leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from harness.driver.records import Envelope
from harness.launch import host
from harness.pricing import instances, offers


def enforced(profiles: Mapping[str, Envelope], instance_types: Mapping[str, str | None]) -> dict[str, Envelope]:
    """Return the limits of each profile on its machine; a profile that is too large for it stays as it is.

    Args:
        profiles: as asked for, by name.
        instance_types: by profile, the EC2 type that its jobs are planned for; ``None``: any machine with the profile's
            memory; empty: this host runs them all.
    """
    reserve = offers.host_reserve()
    if not instance_types:
        shown = host.memory_bytes()
        return {
            name: _limited(each, reserve.limit_on_host(each.memory_bytes, shown)) for name, each in profiles.items()
        }
    known, limits = instances.read_instances("aws"), {}
    for name, asked in profiles.items():
        machine = known.get(instance_types.get(name) or "")
        fits = machine is not None and asked.memory_bytes <= machine.memory_bytes
        limit = reserve.limit(asked.memory_bytes, machine.memory_bytes) if machine and fits else None
        limits[name] = _limited(asked, limit)
    return limits


def _limited(asked: Envelope, limit_bytes: int | None) -> Envelope:
    return replace(asked, memory_bytes=limit_bytes) if limit_bytes else asked
