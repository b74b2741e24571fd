"""Keeps what was found beside the jobs that it was found from, so that it can be read without the engine."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path

from harness import seals
from harness.errors import StoreError
from harness.records import digest, to_json
from harness.stored_jobs import VERDICTS
from harness.viable.asked import Criteria
from harness.viable.probing import identity
from harness.viable.reference import Reference
from harness.viable.verdict import Verdict


def put(folder: Path, found: Verdict, criteria: Criteria, base: Reference) -> Path:
    """Write a verdict; one on the same question gives way, its jobs stay.

    Args:
        folder: of the subject's jobs.
        found: what the search says.
        criteria: what was asked.
        base: the unconstrained system; another image, sample, corpus, protocol or machine is another question.

    Raises:
        StoreError: it cannot be written.
    """
    spec = identity(base.jobs[0].result.spec)
    asked = digest([spec, asdict(found.machine), found.step_bytes, asdict(criteria)])
    path = folder / VERDICTS / f"cpu{found.cpus}-{asked[:12]}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        partial.write_text(to_json(replace(found, seal=seals.over(found)), indent=2) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}; the jobs themselves are kept") from error
    return path
