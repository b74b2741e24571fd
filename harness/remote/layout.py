"""Names of the objects that the orchestrator and its boxes exchange.

::

    inputs/{bundles,images,datasets,indexes}/...   what boxes need; the orchestrator alone writes
    open/<run>                                     empty, until every job is home and every machine gone
    runs/<run>/run.json                            the run, written once; the orchestrator alone writes below runs/
    runs/<run>/parts/<part>.json                   what one box is to do
    runs/<run>/launches/<name>.json                that machines were asked for, and what they cost once they are gone
    boxes/<box id>/beat.json                       a box's last sign of life; that box alone writes below its folder
    boxes/<box id>/end.json                        how it ended, written once
    boxes/<box id>/log.txt                         the end of its log
    boxes/<box id>/jobs/<key>.tar                  a finished job, written once
    boxes/<box id>/indexes/<key>.tar.gz.json       an index that it built: the record of <key>.<hash>.tar.gz

A box id is the box's ``aws:userid`` in IAM: the role's id and the id of the instance or ECS task, joined by a colon.
An input is named by its content.  Its record ``<name>.tar.gz.json`` says where its bytes lie
(``<name>.<hash>.tar.gz``); the record is written last, so an input without one is not whole.
"""

from __future__ import annotations

INPUTS = "inputs"
BUNDLES, IMAGES, DATASETS = f"{INPUTS}/bundles", f"{INPUTS}/images", f"{INPUTS}/datasets"
RUNS, OPEN, BOXES = "runs", "open", "boxes"
# Below a run's folder.
RUN, PARTS, LAUNCHES = "run.json", "parts", "launches"
# Below a box's folder.
BEAT, END, LOG, JOBS = "beat.json", "end.json", "log.txt", "jobs"
# Below the folder of inputs, and below a box's.
INDEXES = "indexes"
ARCHIVE = ".tar.gz"


def run(run_id: str) -> str:
    """Return a run's folder."""
    return f"{RUNS}/{run_id}"


def is_open(run_id: str) -> str:
    """Name the object that is there while a run is open."""
    return f"{OPEN}/{run_id}"


def part(name: str) -> str:
    """Name a part, below its run."""
    return f"{PARTS}/{name}.json"


def launch(name: str) -> str:
    """Name a launch, below its run."""
    return f"{LAUNCHES}/{name}.json"


def box(box_id: str) -> str:
    """Return a box's folder."""
    return f"{BOXES}/{box_id}"


def job(key: str) -> str:
    """Name a finished job, below its box."""
    return f"{JOBS}/{key}.tar"


def index(key: str) -> str:
    """Name an index, below the inputs or its box."""
    return f"{INDEXES}/{key}{ARCHIVE}"
