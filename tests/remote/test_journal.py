"""The journal of a run, and what it remembers of its workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import RemoteError
from harness.remote import records
from harness.remote.journal import Journal
from harness.remote.records import Heartbeat, RemoteRun, WorkerEnd, dump
from harness.remote.shared_folder import SharedFolder


def test_end_of_a_worker_is_known_although_the_first_look_broke_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = SharedFolder(tmp_path)
    journal = Journal(work, RemoteRun("r-1", "docker", "r", "x", "y", ()))
    folder = work.below(records.worker("w"))
    folder.put(records.END, dump(WorkerEnd(True)))
    folder.put(records.HEARTBEAT, dump(Heartbeat("finishing")))
    get = SharedFolder.get

    def breaks_off(place: SharedFolder, name: str, most_bytes: int) -> bytes | None:
        if name == records.HEARTBEAT:
            raise RemoteError("the storage is busy", "Busy")
        return get(place, name, most_bytes)

    with monkeypatch.context() as patch:
        patch.setattr(SharedFolder, "get", breaks_off)
        with pytest.raises(RemoteError, match="busy"):
            journal.look(["w"])
    journal.look(["w"])
    assert journal.workers["w"].end == WorkerEnd(True)
    assert journal.workers["w"].heartbeat == Heartbeat("finishing")
