"""Where things lie below the work place: the only thing that the orchestrator and its boxes have in common.

::

    inputs/bundles/<sha256>.tar.gz      harness itself, with its lock
    inputs/images/<digest>.tar.gz       images, as the engine saves them
    inputs/datasets/<sha256>.tar.gz     datasets in harness' own format
    inputs/indexes/<key>.tar.gz         finished indexes
    runs/<run>/run.json                 what is run: written once
    runs/<run>/parts/<part>.json        what one box is to do: written once
    runs/<run>/launches/<part>.json     that an instance was asked for: the most that it can cost
    runs/<run>/settled/<part>.json      that it is gone, and what it cost
    runs/<run>/beats/<part>.json        its last sign of life: overwritten by that box alone
    runs/<run>/jobs/<key>.tar           a finished job, whole in one object: never overwritten
    runs/<run>/ends/<part>.json         how the box ended: written once; a later attempt of AWS Batch: <part>.<n>.json
    runs/<run>/logs/<part>.txt          what it said
    runs/<run>/logs/<part>.console.txt  what EC2 had of its console, where it could not say its end
    runs/<run>/batch/<submission>.json  the parts of a job that AWS Batch was given, by their numbers: written once
    runs/<run>/claims/<part>            which job of AWS Batch does a part: written once
    runs/<run>/closed.json              everything is home

Inputs are named by what they hold, and each has its record (where its bytes lie, as ``<name>.<hash>.tar.gz``, and
their sha256) in ``<name>.tar.gz.json``, written after it: an input without that is not whole.
"""

from __future__ import annotations

BUNDLES = "inputs/bundles"
IMAGES = "inputs/images"
DATASETS = "inputs/datasets"
INDEXES = "inputs/indexes"
RUNS = "runs"
RUN = "run.json"
PARTS = "parts"
LAUNCHES = "launches"
SETTLED = "settled"
BEATS = "beats"
JOBS = "jobs"
ENDS = "ends"
LOGS = "logs"
BATCH = "batch"
CLAIMS = "claims"
CLOSED = "closed.json"


def run(run_id: str) -> str:
    """The folder of a run."""
    return f"{RUNS}/{run_id}"


def part(name: str) -> str:
    """A part, below its run."""
    return f"{PARTS}/{name}.json"


def launch(name: str) -> str:
    """That a part's instance was asked for, below its run."""
    return f"{LAUNCHES}/{name}.json"


def settled(name: str) -> str:
    """What a part's instance cost, below its run."""
    return f"{SETTLED}/{name}.json"


def beat(name: str) -> str:
    """A part's last sign of life, below its run."""
    return f"{BEATS}/{name}.json"


def job(key: str) -> str:
    """A finished job, below its run."""
    return f"{JOBS}/{key}.tar"


def end(name: str, attempt: int = 1) -> str:
    """How a part's box ended, below its run; AWS Batch begins a part again whose host was lost."""
    return f"{ENDS}/{name}.json" if attempt == 1 else f"{ENDS}/{name}.{attempt}.json"


def log(name: str) -> str:
    """What a part's box said, below its run."""
    return f"{LOGS}/{name}.txt"


def console(name: str) -> str:
    """What the console of a part's box showed, below its run."""
    return f"{LOGS}/{name}.console.txt"


def submission(name: str) -> str:
    """The parts of a job of AWS Batch, below its run."""
    return f"{BATCH}/{name}.json"
