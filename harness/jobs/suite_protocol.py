"""The protocol of a suite: queries, warm-up, trials and time limits."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from harness.config import ConfigModel
from harness.results.schema import PAPERS


class SuiteProtocol(ConfigModel):
    """Protocol of a suite; the named protocol gives the defaults of all other keys."""

    name: Literal["interleaved", "santhanam2023"] = Field(
        default="interleaved",
        description="`interleaved`: each trial is a fresh process, and trials of all cells are mixed in random order;"
        " `santhanam2023`: warm-up and all trials of a cell in one container, as in the paper",
    )
    warmup_queries: int = Field(
        default=20,
        ge=1,
        le=10_000,
        description="queries to warm up with, none of them timed (`santhanam2023`: 10); a dataset without unjudged"
        " queries lends at most a fifth of its sample, which is then judged and not timed",
    )
    warmup_cap: int | None = Field(
        default=50_000,
        ge=1,
        le=1_000_000,
        description="warm-up passes over its queries again until 1.5 s of work are level and no compiler is at work,"
        " and asks at most this many; it ends after 60 s of work in any case (`santhanam2023`: one pass)",
    )
    trials: int = Field(default=5, ge=1, le=1000, description="timed passes over the query sample")
    repeats: int = Field(
        default=20, ge=0, le=1000, description="queries asked twice in a row after the trials, to find result caches"
    )
    sample_size: int = Field(default=1000, ge=1, le=100_000, description="queries in the sample, at most those judged")
    unjudged: bool = Field(
        default=False,
        description="fill the sample up to `sample_size` with queries that have no judgements: latency is over all,"
        " quality over the judged ones; at most a fifth of all queries then warms up",
    )
    k: int = Field(default=10, ge=1, le=10_000, description="documents to retrieve for each query")
    max_qps: float | None = Field(
        default=None,
        ge=0.05,
        le=1e6,
        description="with `url`: the most queries a second; `server` tries no higher rate, and in the other scenarios"
        " queries start at least this far apart",
    )
    seed: int = Field(default=2023, ge=0, description="chooses sample, warm-up queries and their order")
    load_timeout_s: float = Field(default=600.0, gt=0, description="longest load")
    query_timeout_s: float = Field(default=60.0, gt=0, description="longest query (`offline`: times the batch size)")
    build_timeout_s: float = Field(default=7200.0, gt=0, description="longest index build")
    job_timeout_s: float = Field(default=7200.0, gt=0, description="longest job in all")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        """Fill in the defaults of the named protocol."""
        return {**PAPERS.get(str(value.get("name")), {}), **value} if isinstance(value, dict) else value

    @property
    def jobs(self) -> int:
        """Return the number of jobs (fresh processes) of a cell."""
        return self.trials if self.name == "interleaved" else 1

    @property
    def trials_a_job(self) -> int:
        """Return the number of timed passes in each job."""
        return self.trials // self.jobs

    def repeats_in(self, scenario: str) -> int:
        """Return the number of queries that a job asks twice in a row: only one query at a time shows a cache."""
        return self.repeats if scenario == "single_stream" else 0
