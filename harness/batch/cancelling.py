"""Ends a suite's jobs, and waits until they have ended."""

from __future__ import annotations

from collections.abc import Callable

from harness.batch import inventory, jobs
from harness.batch.kinds import Place
from harness.errors import AwsError

REASON = "cancelled by harness batch cancel"
# An array's children end with it; those that have not after so long are ended one by one.
_GRACE_S = 30.0


def cancel(place: Place, suite: str, say: Callable[[str], None]) -> tuple[int, int]:
    """End all jobs that wait or run.

    Returns:
        How many were told to end, and how many had not after a while.

    Raises:
        AwsError: AWS refuses.
    """
    found = inventory.jobs(place, suite)
    for job in found:
        jobs.end(place, job.job_id, REASON)
        say(f"ending  {job.name}")
    try:
        arrays = {job.job_id: job.parts for job in found if job.parts > 1}
        if arrays:
            place.sleep(_GRACE_S)
        for job in inventory.jobs(place, suite) if arrays else ():
            jobs.end_children(place, job.job_id, arrays.get(job.job_id, 1), REASON)
        place.wait("ending jobs", lambda: not inventory.jobs(place, suite))
    except AwsError as error:
        if error.code != "Slow":
            raise
    return len(found), len(inventory.jobs(place, suite))
