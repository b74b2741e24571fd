"""The contract of a backend: it starts a worker for each part of a run, shows its state, and ends it.

EC2 and AWS Batch (:mod:`harness.aws`), workers of a shared folder (:mod:`harness.remote.folder_backend`) and Slurm
(:mod:`harness.remote.slurm`) are backends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from harness.errors import HarnessError
from harness.jobs.plan import Planned
from harness.launch.checks import Check
from harness.remote import partition
from harness.remote.partition import Grouping, Market
from harness.remote.records import Launch, PlannedPart, RemoteRun, ShippedInput
from harness.results.schema import RentedMachine

UNKNOWN, WAITING, RUNNING, ENDED = "unknown", "waiting", "running", "ended"


class LaunchRefused(HarnessError):
    """The service does not take a launch now; the part is given up, and the same command plans it again."""


@dataclass(frozen=True)
class PartState:
    """A launched part as the service shows it.

    ``phase``: ``unknown`` (it may not have been launched), ``waiting``, ``running``, or ``ended`` (nothing more comes
    of it).  ``workers`` are the ids of all machines that it has had, the oldest first.  ``seconds`` are billed, where
    that is known.  ``launched`` is a time by the storage's clock; where there is one, heartbeats are expected.
    ``place`` is the machine's name, where people know it.
    """

    phase: str
    words: str
    workers: tuple[str, ...] = ()
    attempts: int = 0
    reason: str = ""
    seconds: float | None = None
    launched: float | None = None
    machine: RentedMachine | None = None
    place: str = ""


class Backend(ABC):
    """One backend, for one command."""

    name: str
    # A hash or a name that tells the users of one work place apart.
    owner: str
    # The command that ends what goes on, for people.
    ending: str
    # Whether the service itself starts a part after the parts that build its indexes.
    keeps_order = False
    # Machines that the service gives a part without a cap, one after the other; with a cap one.
    attempts: int

    @classmethod
    def examine(cls) -> Iterator[Check]:
        """Check what this backend needs of this machine, for `harness doctor`; ask no service."""
        yield from ()

    @property
    def market(self) -> Market:
        """The machines of the suite's profiles, and their prices."""
        return Market()

    @property
    def terms(self) -> dict[str, str]:
        """The facts that a run keeps for the commands that resume it."""
        return {}

    def expect(self, run: RemoteRun) -> None:
        """Refuse to resume a run on other terms; raise a UsageError."""

    @staticmethod
    def parts(todo: list[Planned], how: Grouping) -> tuple[PlannedPart, ...]:
        """Group jobs by system, profile and dataset, without a request to the backend."""
        return partition.parts(todo, how, attrgetter("cell.system", "cell.profile", "cell.dataset"), attrgetter("key"))

    @abstractmethod
    def check(self, parts: Sequence[PlannedPart]) -> list[str]:
        """Ask whether parts can be launched; return lines for the quote.

        Raises:
            UsageError: they cannot.
        """

    @abstractmethod
    def begin(self, run: RemoteRun, bundle: ShippedInput) -> None:
        """Remember the run to launch parts for, and the harness that workers run."""

    @abstractmethod
    def launch(self, launch: Launch, part: PlannedPart, note: Callable[[Launch], None]) -> None:
        """Launch a part; called again while it is unknown whether the last call did.

        ``note`` writes the changed launch to the journal.

        Raises:
            LaunchRefused: the service does not take it.
            RemoteError: the backend is not reached or refuses for a reason that the user can mend.
        """

    @abstractmethod
    def look(self, launches: Sequence[Launch]) -> dict[str, PartState]:
        """Return the state of each launched part, by name."""

    def last_words(self, state: PartState) -> str:  # noqa: ARG002 # for backends that know
        """Return a machine's last output that never reached the storage; empty: unknown."""
        return ""

    def end(self, part: str, state: PartState, why: str) -> None:
        """End a part's machine; called only for a state with a time of launch."""

    @abstractmethod
    def going_on(self, launches: Sequence[Launch]) -> str:
        """Return a line for a user who stops watching: what goes on without the command, and what ends it."""

    def tidy(self) -> None:  # most storages delete old objects by a rule
        """Delete what a finished run left in the storage, once every job is stored."""

    def alive(self) -> list[str]:
        """Wait until all machines of the run are gone; return a line for each that is not."""
        return []
