"""Workers of a shared folder as a backend: people start them, and they take parts from the folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from harness.commands import command
from harness.remote import claims, records
from harness.remote.backend import Backend, PartState
from harness.remote.records import Launch, PlannedPart, RemoteRun, ShippedInput, dump
from harness.remote.shared_folder import SharedFolder

# Below a run's folder: the harness that its workers run.
BUNDLE = "bundle.json"


class FolderBackend(Backend):
    """Workers of one shared folder, for one command; ``name`` is the launcher with which they measure."""

    attempts = claims.ATTEMPTS

    def __init__(self, work: SharedFolder, launcher: str) -> None:
        self.name, self._work = launcher, work
        self.owner = f"user {os.getuid()}"
        self.ending = "Ctrl-C here, then end the workers"

    def check(self, parts: Sequence[PlannedPart]) -> list[str]:
        """Return the command that starts a worker."""
        del parts
        return [f"start workers: {command('worker', self._work.where())}"]

    def begin(self, run: RemoteRun, bundle: ShippedInput) -> None:
        """Write which harness the workers run."""
        self._run = run
        self._work.below(records.run(run.run_id)).put(BUNDLE, dump(bundle))

    def launch(self, launch: Launch, part: PlannedPart, note: Callable[[Launch], None]) -> None:
        """Do nothing: a part with a launch in the journal is free for a worker."""

    def look(self, launches: Sequence[Launch]) -> dict[str, PartState]:
        """Return the state of each part by its claims."""
        return {launch.name: claims.look(self._work, self._run.run_id, launch.name) for launch in launches}

    def tidy(self) -> None:
        """Delete the records of the run and of its workers; shipped inputs stay for later runs."""
        run = self._run.run_id
        workers = [worker for part in self._run.parts for worker in claims.look(self._work, run, part.name).workers]
        for folder in (*map(records.worker, workers), records.run(run)):
            self._work.remove(folder)

    def going_on(self, launches: Sequence[Launch]) -> str:
        """Return a line for a user who stops watching."""
        return (
            f"workers go on with {len(launches)} parts; the same command goes on from here, and"
            f" `rm {self._work.where(records.is_open(self._run.run_id))}` has them stop"
        )
