"""The scenarios of a suite, and the tables of their parameters."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.config import ConfigModel

Scenario = Literal["single_stream", "offline", "server", "mixed"]


class Offline(ConfigModel):
    """Parameters of the ``offline`` scenario: batches of queries."""

    batch_size: int = Field(default=32, ge=1, le=100_000, description="queries handed to the system at once")


class Server(ConfigModel):
    """Parameters of the ``server`` scenario: Poisson arrivals and a latency target."""

    latency_target_s: float = Field(default=0.05, gt=0, description="latency, from the scheduled arrival, to keep")
    latency_percentile: Literal[50, 90, 95, 99] = Field(
        default=95, description="share of the queries, in per cent, that must keep it"
    )


class Mixed(ConfigModel):
    """Parameters of the ``mixed`` scenario: Poisson arrivals of queries, and of inserts and deletes during them."""

    query_qps: float = Field(
        default=20.0, gt=0, le=100_000, description="queries a second; each of the sample arrives once during updates"
    )
    update_qps: float = Field(
        default=5.0, gt=0, le=100_000, description="inserts and deletes a second, together, one document each"
    )
    deleted_share: float = Field(
        default=0.05,
        gt=0,
        le=0.5,
        description="share of the corpus's documents, at most, that are deleted and inserted again, half of it at once",
    )
