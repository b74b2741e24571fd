"""A stored job as ir_metadata: what a run's file should say of the experiment that it is from.

Breuer, Keller and Schaer 2022 define the schema (https://www.ir-metadata.org), with the keys of ``resources`` that
TIREx tracker (https://github.com/tira-io/tirex-tracker) writes.  The schema is open: what harness knows beyond it
stands under ``harness``.  What is not known is left out, and nothing is made up.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shutil import copyfileobj
from types import MappingProxyType
from typing import Any

import yaml

from harness.commands import command
from harness.driver.records import Outcome
from harness.errors import FileError, HarnessError, StoreError
from harness.evaluation import evaluate, measure_names, trec
from harness.evaluation.trec import Qrels
from harness.progress import Progress, silent
from harness.report.export import new_path
from harness.results import reader
from harness.results.reader import StoredJob, judges_hits_alone, read_job_run
from harness.results.schema import Result, glob_of
from harness.untrusted import MAX_FILE_BYTES, Text, one_line, open_regular, reading, to_json

# TIRA's names of a run and of its metadata.
FILE = "ir-metadata.yml"
RUN = "run.txt.gz"
VERSION = "0.2"
_GB = 10**9
_MB = 10**6


def export_ir_metadata(
    root: Path,
    jobs: Sequence[StoredJob],
    measures: Sequence[str],
    out: Path,
    *,
    actor: Mapping[str, str | None] = MappingProxyType({}),
    progress: Progress = silent,
) -> None:
    """Write a folder for each job: ``ir-metadata.yml``, and its run as ``run.txt.gz``.

    Args:
        root: the results folder.
        jobs: the jobs in it.
        measures: what runs are judged by.
        out: the folder to make.
        actor: the experimenter's ``name`` and ``team``; left out if unknown.
        progress: counts the written jobs.

    Raises:
        UsageError: a measure is unknown.
        FileError: ``out`` is there and not empty.
        StoreError: it cannot be written, or what was written does not read back as what was meant.
    """
    parsed, qrels_cache = measure_names.parse(measures), functools.cache(trec.read_stored_qrels)
    with new_path(out, folder=True) as folder:
        for number, job in enumerate(jobs, start=1):
            target = folder / job.folder.relative_to(root)
            target.mkdir(parents=True)
            meant = metadata(job, _evaluation(job, parsed, qrels_cache), actor)
            text = yaml.safe_dump(meant, sort_keys=False, allow_unicode=True, width=100)
            (target / FILE).write_text(text, encoding="utf-8")
            if yaml.safe_load((target / FILE).read_text(encoding="utf-8")) != meant:
                raise StoreError(f"{job.folder}: its metadata do not read back as they were meant; report this")
            if job.run_path is not None:
                try:
                    _copy(job.run_path, target / RUN)
                except FileError as error:
                    reader.announce([reader.left_out(error)])
            progress(number, len(jobs))


def _copy(run: Path, target: Path) -> None:
    with reading(run, "restore it or measure the job again"):
        source = open_regular(run, MAX_FILE_BYTES)
    with source, target.open("wb") as sink:
        copyfileobj(source, sink)


def _evaluation(job: StoredJob, measures: tuple[Any, ...], qrels_cache: Callable[[Path], Qrels]) -> dict[str, Any]:
    """Return the measures of a job, or the reason why they are missing."""
    if job.result.outcome is not Outcome.OK or job.run_path is None:
        return {}
    names = [str(measure) for measure in measures]
    try:
        path = job.qrels_path()
        alone = judges_hits_alone(path)
        qrels = trec.read_stored_qrels(path) if alone else qrels_cache(path)
        evaluation = evaluate.evaluate(read_job_run(job), qrels, job.sample_ids(), measures, hits_alone=alone)
    except HarnessError as error:
        return {"reported measures": names, "not computed": str(error)}
    return {"reported measures": names, "values": dict(evaluation.values), "judged queries": evaluation.queries}


def metadata(job: StoredJob, evaluation: dict[str, Any], actor: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the metadata of a job as plain values for YAML."""
    result = job.result
    spec, cell, stand_in = result.spec, result.spec.cell, result.provenance.stand_in
    whole = {
        "schema version": VERSION,
        "tag": cell.system,
        "actor": dict(actor),
        "platform": _platform(result),
        "implementation": {
            # A result knows its suite's name, not the path of its file.
            "executable": {"cmd": command("run", "SUITE", only=glob_of(cell)), "image": result.provenance.image_digest},
            "source": {"commit": result.environment.harness_commit},
        },
        "resources": _resources(result),
        "method": {
            "automatic": True,
            "name": cell.system,
            "description": stand_in and f"not the published checkpoint but a stand-in: {stand_in}",
            "score ties": "as the system returned them",
            "retrieval": [{"name": cell.system, "params": dict(spec.params)}],
        },
        "research goal": {"evaluation": evaluation},
        "data": {
            "test collection": {
                "name": cell.dataset,
                "source": f"sha256:{spec.corpus_sha256}",
                "qrels": f"sha256:{spec.qrels_sha256}",
                "topics": f"sha256:{spec.sample_sha256}",
            }
        },
        "harness": _own(job),
    }
    present: dict[str, Any] = _without_missing(whole)
    return present


def _platform(result: Result) -> dict[str, Any]:
    machine, libraries = result.environment, result.measured.libraries if result.measured else {}
    return {
        "hardware": {
            "cpu": {
                "model": machine.cpu_model,
                "architecture": machine.architecture,
                "number of cores": machine.host_cpus,
            },
            "gpu": {"model": ", ".join(map(str, machine.gpu_models)), "driver": machine.gpu_driver}
            if machine.gpu_models
            else {},
            "ram": f"{machine.host_memory_bytes / _GB:.1f} GB",
            "instance type": machine.instance_type,
        },
        "operating system": {"kernel": machine.kernel},
        "software": {
            "libraries": [f"{name}=={version}" for name, version in sorted(libraries.items())],
            "harness": machine.harness_version,
            "docker": machine.docker_version,
        },
    }


def _resources(result: Result) -> dict[str, Any]:
    seen = result.observed
    return {
        "runtime": {
            "start time": result.started_at,
            "wallclock": _amount(result.wall_s, 1e3, "ms"),
            # While the trials ran, user and system time together.
            "cpu of trials": _amount(seen.counters.cpu_s, 1e3, "ms"),
        },
        "ram": {"used process": {"max": _amount(seen.memory.peak_anon_bytes, 1 / 1024, "KB")}},
        "gpu": {
            "vram used process": {"max": _amount(seen.memory.peak_gpu_bytes, 1 / _MB, "MB")},
            "energy used system": _amount(seen.gpu.energy_j if seen.gpu else None, 1, "J"),
        },
    }


def _own(job: StoredJob) -> dict[str, Any]:
    """Return the facts that the schema has no key for, the bulky parts of the record left out."""
    result, record = job.result, json.loads(to_json(job.result))
    return {
        "origin": job.origin,
        **{name: record[name] for name in ("key", "outcome", "detail", "spec", "answers")},
        "load_s": result.measured.load_s if result.measured else None,
        "index_bytes": result.index.index_bytes if result.index else None,
        "index_build_s": result.index.build_s if result.index else None,
        "peak_cgroup_bytes": result.observed.memory.peak_cgroup_bytes,
    }


def _amount(value: float | None, scale: float, unit: str) -> str | None:
    return None if value is None else f"{value * scale:.0f} {unit}"


def _without_missing(value: Any) -> Any:
    """Drop missing values and empty sections; make texts readable for every YAML reader."""
    if isinstance(value, dict):
        inside = {name: _without_missing(item) for name, item in value.items()}
        return {name: item for name, item in inside.items() if item is not None and item not in ({}, [])}
    if isinstance(value, list):
        return [_without_missing(item) for item in value]
    # YAML would write characters that reorder others, and halves of characters, which no file can hold.
    return one_line(value).encode("utf-8", "replace").decode("utf-8") if isinstance(value, Text) else value
