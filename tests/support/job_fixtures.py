"""Sample records for tests before the store: a system, a spec, an envelope, a planned job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.driver.cgroup import UNLIMITED
from harness.driver.records import (
    Cpuset,
    EffectiveEnvelope,
    Envelope,
    Isolation,
    JobSpec,
    Outcome,
    Query,
    ScenarioParams,
)
from harness.jobs.plan import Planned
from harness.launch.base import Prepared
from harness.launch.images.systems import System
from harness.results.schema import Cell
from tests.support import sample_records

ASKED = Envelope("cpu2-mem1", cpus=2, memory_bytes=1 << 30)
# An envelope that a job finds when ASKED is enforced.
SEEN = EffectiveEnvelope(
    cpus=(2, 3),
    cgroup_version=2,
    memory_bytes=1 << 30,
    swap_bytes=0,
    cpu_quota=UNLIMITED,
    pids=512,
    gpus=0,
    network_interfaces=("lo", "sit0", "tunl0"),
    root_read_only=True,
    effective_capabilities=0,
    no_new_privileges=True,
    uid=65532,
    numa_nodes=(1,),
)
# Every field differs from its default.
FULL_SPEC = JobSpec(
    "search",
    "bm25",
    {"k1": 0.9, "stem": True, "model": "x", "depth": 3},
    Envelope("cpu1-mem1", 1, 1 << 30),
    Isolation.CONTAINER,
    trials=5,
    first_trial=3,
    repeats=2,
    pause=True,
    scenario_params=ScenarioParams(batch_size=8),
    warmup=(Query("w", "wärm"),),
    sample=(Query("q", "森林"),),
    cpuset=Cpuset((2, 3), (1,)),
)


def spec(**changes: Any) -> JobSpec:
    """Return a search of one query in two trials, after one warm-up query."""
    least: dict[str, Any] = {
        "kind": "search",
        "system": "fake",
        "params": {},
        "envelope": ASKED,
        "isolation": Isolation.PROCESS,
        "k": 1,
        "trials": 2,
        "corpus_size": 1,
        "warmup": (Query("w", "warm"),),
        "sample": (Query("q", "timed"),),
    }
    return JobSpec(**{**least, **changes})


def system(name: str = "bm25", **changes: Any) -> System:
    """Return a system that is in no catalogue."""
    plain = System(
        name=name,
        file=Path(),
        engine="lucene",
        engine_dir=Path(),
        description="",
        fewer_hits_ok=False,
        build_params={},
        search_params={},
        engine_assets=(),
        assets=(),
    )
    return plain.model_copy(update=changes)


PREPARED = Prepared(system(), "r", "sha256:0", "sha256:0")


def planned(system: str, profile: str = "small", dataset: str = "d", job: int = 0) -> Planned:
    """Return one of three jobs of a cell, still to be run."""
    cell = Cell("s", system, dataset, "single_stream", profile)
    spec = replace(sample_records.SPEC, cell=cell, job=job, jobs=3, index_key=f"{system}-{dataset}")
    return Planned(cell, spec, Outcome.OK, None, None, False)
