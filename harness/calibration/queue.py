"""What a system with a known service time must show under known arrivals: Lindley's recursion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def latency_s(arrivals_ns: Sequence[int], services_s: Sequence[float]) -> NDArray[np.float64]:
    """Latency of each query from its arrival, where one is served after the other.

    Lindley (1952), "The theory of queues with a single server": a query waits for what its predecessor left.

    Args:
        arrivals_ns: rising times in nanoseconds.
        services_s: how long each query is served, in seconds.

    Returns:
        Shape (queries,), seconds, in the order of arrival.
    """
    free_s, found = 0.0, []
    for arrival_ns, service_s in zip(arrivals_ns, services_s, strict=True):
        arrival_s = arrival_ns / 1e9
        free_s = max(free_s, arrival_s) + service_s
        found.append(free_s - arrival_s)
    return np.array(found)
