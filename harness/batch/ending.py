"""After a run's last job: Batch ends its instances by itself, some minutes later; whatever does not end is said."""

from __future__ import annotations

from collections.abc import Callable

from harness.batch import inventory, names
from harness.batch.kinds import Place
from harness.ec2 import fleet
from harness.ec2.fleet import Seen

_POLL_S = 10.0


def alive(place: Place, suite: str, say: Callable[[str], None], most_s: float) -> tuple[Seen, ...]:
    """Wait until the suite's instances are gone; return those that are not.

    Where jobs of the suite wait or run that are another run's, its instances are that one's too.

    Raises:
        AwsError: AWS refuses, or is not reached.
    """
    if inventory.jobs(place, suite):
        say("other jobs of this suite are not finished; their instances go on")
        return ()
    left, until = _living(place, suite), place.clock() + most_s
    if left:
        say(f"waiting until AWS Batch has ended {len(left)} instances; Ctrl-C leaves that to it")
    try:
        while left and place.clock() < until:
            place.sleep(_POLL_S)
            left = _living(place, suite)
    except KeyboardInterrupt:
        pass  # what is alive is said
    return left


def _living(place: Place, suite: str) -> tuple[Seen, ...]:
    wanted = {names.SUITE_TAG: suite, names.LAUNCHER_TAG: names.LAUNCHER}
    found = fleet.instances(place.connections)
    return tuple(each for each in found if each.alive and wanted.items() <= each.tags.items())
