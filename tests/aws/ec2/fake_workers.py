"""Workers without machines: threads that watch moto for launched instances and do in S3 what a worker would."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import boto3
import numpy as np

from harness.aws.clients import Connections, S3Uri
from harness.aws.ec2 import instances
from harness.aws.ec2.instances import OwnedInstance
from harness.aws.objects import Objects
from harness.driver.records import Outcome
from harness.remote import records
from harness.remote.local_results import pack
from harness.remote.records import (
    MOST_BYTES,
    Heartbeat,
    PartJob,
    ShippedInput,
    WorkerEnd,
    WorkerPart,
    dump,
    read,
)
from harness.results.schema import RentedMachine, ResultSpec, job_key
from harness.results.store import Store
from tests.support import sample_records

# Where there is such a place: what is packed there lives for a moment, and the store waits for disks.
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
Specs = Callable[[PartJob], ResultSpec]


# Such a worker dies before it has written anything.
MUTE = -1


@dataclass
class FakeWorkers:
    """All of a test's workers.

    ``dies``: by part, after how many jobs its first worker dies; ``pause_s`` is what a job takes; ``worked`` the parts
    that workers began.
    """

    work: S3Uri
    role_id: str
    specs: Specs
    region: str = "us-east-1"
    dies: dict[str, int] = field(default_factory=dict)
    pause_s: float = 0.0
    # Jobs do not end before this is set.
    held: threading.Event | None = None
    # Of the sample: where there are some, jobs have samples and a run, and a table can be made of them.
    queries: tuple[str, ...] = ()
    worked: list[str] = field(default_factory=list)
    measured: list[str] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Clients of their own: what tests inject into the orchestrator's must not reach workers.
        self.connections = Connections(self.region)
        self.objects = Objects(self.connections, self.work)
        self.ec2 = boto3.client("ec2", region_name=self.region)
        self.alive: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._guarded, args=(self._watch,), daemon=True)

    def __enter__(self) -> FakeWorkers:
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._watcher.join(30)
        for thread in self._threads:
            thread.join(30)
        assert not self.errors, self.errors

    def _guarded(self, what: Callable[..., None], *arguments: object) -> None:
        try:
            what(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised by __exit__
            self.errors.append(error)

    def _watch(self) -> None:
        begun = set[str]()
        while not self._stop.is_set():
            shown = instances.find(self.connections, self.region)
            self.alive = {instance.instance_id for instance in shown if instance.alive}
            for instance in shown:
                if instance.alive and instance.instance_id not in begun:
                    begun.add(instance.instance_id)
                    self._threads.append(
                        threading.Thread(target=self._guarded, args=(self._work_part, instance), daemon=True)
                    )
                    self._threads[-1].start()
            self._stop.wait(0.05)

    def _lives(self, instance: OwnedInstance) -> bool:
        return instance.instance_id in self.alive and not self._stop.is_set()

    def _work_part(self, instance: OwnedInstance) -> None:
        run, part_name = self._read_user_data(instance)
        assert (run, part_name) == (instance.tags["harness:run"], instance.tags["harness:part"])
        self.worked.append(part_name)
        content = self.objects.below(records.run(run)).get(records.part(part_name), MOST_BYTES)
        place = self.objects.below(records.worker(f"{self.role_id}:{instance.instance_id}"))
        assert content is not None, f"launched before its part {part_name} was written"
        part = read(WorkerPart, part_name, content)
        dies_after = self.dies.pop(part_name, None)
        if dies_after == MUTE:
            self._off(instance)
            return
        heartbeat = Heartbeat("fetching")
        place.put(records.HEARTBEAT, dump(heartbeat))
        for build_ in part.builds:
            self._hand_over_index(place, build_.key)
        for number, job in enumerate(part.jobs):
            heartbeat = replace(heartbeat, phase="measuring", current=job.key)
            if not self._lives(instance):
                return
            place.put(records.HEARTBEAT, dump(heartbeat))
            if number == dies_after:
                self._off(instance)
                return
            if self.held is not None:
                self.held.wait(60)
            if self.pause_s:
                time.sleep(self.pause_s)
            if not self._lives(instance):
                return
            packed = packed_job(self.specs(job), instance, self.queries)
            assert place.put_new(records.job(job.key), packed), f"{job.key} was measured twice"
            self.measured.append(job.key)
        place.put_new(records.END, dump(WorkerEnd(True)))
        self._off(instance)

    def _off(self, instance: OwnedInstance) -> None:
        """Power off: shutdown behaviour terminate."""
        self.ec2.terminate_instances(InstanceIds=[instance.instance_id])

    def _read_user_data(self, instance: OwnedInstance) -> tuple[str, str]:
        """Return the run and the part in its user data."""
        import base64

        answer = self.ec2.describe_instance_attribute(InstanceId=instance.instance_id, Attribute="userData")
        text = base64.b64decode(answer["UserData"]["Value"]).decode()
        found = re.search(r"\brun=(\S+) part=(\S+) ", text)
        assert found, text[:500]
        return found[1], found[2]

    def _hand_over_index(self, place: Objects, key: str) -> None:
        sha256 = hashlib.sha256(b"index").hexdigest()
        name = f"{records.INDEXES}/{key}.{sha256}.tar.gz"
        place.put(name, b"index")
        folder = place.place.key().removeprefix(f"{self.work.prefix}/")
        place.put_new(f"{records.index(key)}.json", dump(ShippedInput(f"{folder}/{name}", sha256, 5)))


def packed_job(spec: ResultSpec, instance: OwnedInstance, queries: tuple[str, ...] = ()) -> bytes:
    """A finished job as a worker hands it over."""
    made = sample_records.result(Outcome.OK, minute=1)
    assert spec.instance_type == instance.instance_type, "planned for another type"
    result = replace(
        made,
        key=job_key(spec),
        spec=spec,
        environment=replace(made.environment, instance_type=instance.instance_type),
        instance=RentedMachine(instance.instance_id, instance.instance_type, instance.zone),
    )
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        store = Store(Path(folder), spec.cell.suite)
        with store.held():
            samples = sample_records.samples(np.full((1, len(queries)), 0.002), first_trial=spec.job, names=queries)
            run = "".join(f"{query} Q0 d{number} 1 1.0 x\n" for number, query in enumerate(queries)).encode()
            table = (samples, run) if queries else (None, None)
            return pack(store.put(result, *table, b"log").folder)
