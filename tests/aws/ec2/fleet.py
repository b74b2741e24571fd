"""Boots a stand-in for each instance that is launched in the tests' AWS, and lets AWS' word be done: who is terminated
there dies here, and who powers off here is terminated there.
"""

from __future__ import annotations

import base64
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3

from tests.aws import server
from tests.aws.ec2 import imds, standin

_LIVES = ("pending", "running")


class Fleet:
    """The instances of one test, by their ids."""

    def __init__(self, ground: standin.Ground, folder: Path, regions: tuple[str, ...]) -> None:
        self.instances: dict[str, standin.StandIn] = {}
        self.failures: list[BaseException] = []
        self._endpoint = os.environ["AWS_ENDPOINT_URL"]
        self._ground = ground
        self._folder = folder
        self._clients = {region: boto3.client("ec2", region) for region in regions}
        self._stack = contextlib.ExitStack()
        self._stop = threading.Event()
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def watch(self) -> None:
        """Do what AWS says until it is stopped; it is looked at whenever an instance comes or goes."""
        count = -1
        with ThreadPoolExecutor(8) as pool:
            while not self._stop.is_set():
                try:
                    count = server.comings(self._endpoint, count)
                    for region, client in self._clients.items():
                        self._look(pool, region, client)
                except Exception as error:  # noqa: BLE001 # raised at the end
                    self.failures.append(error)
                    self._stop.wait(1)

    def close(self) -> None:
        """Nothing of any of them is left."""
        self._stop.set()
        server.wake(self._endpoint)

    def _look(self, pool: ThreadPoolExecutor, region: str, client: Any) -> None:
        for page in client.get_paginator("describe_instances").paginate():
            for each in (each for reservation in page["Reservations"] for each in reservation["Instances"]):
                name, lives = each["InstanceId"], each["State"]["Name"] in _LIVES
                if lives and name not in self._known:
                    self._known.add(name)
                    pool.submit(self._boot, region, client, each)
                elif not lives and name in self.instances and not self.instances[name].ended.is_set():
                    pool.submit(self.instances[name].kill)

    def _boot(self, region: str, client: Any, instance: dict[str, Any]) -> None:
        name = instance["InstanceId"]
        try:
            found = client.describe_instance_attribute(InstanceId=name, Attribute="userData")
            user_data = base64.b64decode(found["UserData"]["Value"]).decode()
            paths = imds.of(name, instance["InstanceType"], instance.get("InstanceLifecycle", "on-demand"))
            paths |= {
                "ami-id": instance["ImageId"],
                "placement/availability-zone": instance["Placement"]["AvailabilityZone"],
            }
            booting = standin.booted(
                self._ground,
                self._folder / name,
                user_data,
                paths,
                on_end=standin.terminating(name, region),
                role_id=_role_id(instance),
            )
            with self._lock:
                self.instances[name] = self._stack.enter_context(booting)
        except Exception as error:  # noqa: BLE001 # raised at the end
            self.failures.append(error)


def _role_id(instance: dict[str, Any]) -> str:
    """Return the id of an instance's role, which begins its ``aws:userid``."""
    if "IamInstanceProfile" not in instance:
        return imds.ROLE_ID
    name = instance["IamInstanceProfile"]["Arn"].rpartition("/")[2]
    (role,) = boto3.client("iam", server.REGION).get_instance_profile(InstanceProfileName=name)["InstanceProfile"][
        "Roles"
    ]
    return str(role["RoleId"])


@contextlib.contextmanager
def watching(ground: standin.Ground, folder: Path, *regions: str) -> Iterator[Fleet]:
    """A fleet that does what the tests' AWS says; at the end nothing of it is left.

    What a test launched before this must be over, or is booted, too.
    """
    fleet = Fleet(ground, folder, regions or (server.REGION,))
    with fleet._stack:
        thread = threading.Thread(target=fleet.watch, daemon=True)
        thread.start()
        try:
            yield fleet
        finally:
            fleet.close()
            thread.join()
    assert not fleet.failures, fleet.failures


def wait_for(fleet: Fleet, count: int, timeout_s: float = 60) -> list[standin.StandIn]:
    """Wait until so many have booted."""
    deadline = time.monotonic() + timeout_s
    while len(fleet.instances) < count:
        assert time.monotonic() < deadline and not fleet.failures, (fleet.instances, fleet.failures)
        time.sleep(0.1)
    return list(fleet.instances.values())
