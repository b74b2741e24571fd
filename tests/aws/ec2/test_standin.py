"""The stand-in instances themselves: what tests of workers rely on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import docker
import pytest

from tests.aws import server
from tests.aws.ec2 import fleet, imds, standin

pytestmark = pytest.mark.docker

# Sleeps in a session of its own outlive the script that began them.
LINGERING = """#!/bin/bash
echo "$HARNESS_WORKER_ROOT" >"$HARNESS_WORKER_ROOT/log.txt"
setsid sleep 1000 &
{}
sleep 1000
"""


@pytest.fixture(scope="module")
def ground(engine: docker.DockerClient) -> standin.Ground:
    return standin.ground(engine)


@pytest.fixture
def ec2(aws: str) -> Iterator[Any]:
    yield boto3.client("ec2", server.REGION)


def test_two_stand_ins_share_and_leave_nothing(ground: standin.Ground, tmp_path: Path, aws: str) -> None:
    with (
        standin.booted(ground, tmp_path / "one", LINGERING.format(""), imds.of("i-1")) as one,
        standin.booted(ground, tmp_path / "two", LINGERING.format("shutdown -P now"), imds.of("i-2")) as two,
    ):
        assert two.wait(60)
        assert not two.processes and two.power_log.endswith("shutdown -P now\n")
        assert one.processes and not one.ended.is_set()
        assert one.metadata.endpoint != two.metadata.endpoint
        assert (one.log, two.log) == (f"{one.root}\n", f"{two.root}\n")
    assert not one.processes and not (tmp_path / "one" / "root").exists() and not (tmp_path / "two" / "own").exists()


def test_process_with_a_reused_id_is_not_killed(ground: standin.Ground, tmp_path: Path, aws: str) -> None:
    # The kernel gives the number of a namespace that is gone to the next one: it may be a container's.
    with (
        standin.booted(ground, tmp_path / "one", LINGERING.format(""), imds.of()) as instance,
        contextlib.ExitStack() as more,
    ):
        while living := instance.processes:
            for pid in living:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for _ in range(10):
            stranger = subprocess.Popen(["unshare", "--mount", "sleep", "1000"])
            more.callback(stranger.wait)
            more.callback(stranger.kill)
            while stranger.poll() is None and Path(f"/proc/{stranger.pid}/comm").read_text() != "sleep\n":
                time.sleep(0.01)
            assert not instance.processes
        instance.kill()
        assert stranger.poll() is None


def test_time_limit_alone_does_not_power_off(ground: standin.Ground, tmp_path: Path, aws: str) -> None:
    script = LINGERING.format("shutdown -P +30; touch $HARNESS_WORKER_ROOT/there")
    with standin.booted(ground, tmp_path / "one", script, imds.of()) as instance:
        while not (instance.root / "there").exists():
            assert instance.processes
        assert not instance.wait(0.5) and instance.power_log.endswith("shutdown -P +30\n")


def test_stand_in_gets_no_credentials_of_the_test(ground: standin.Ground, tmp_path: Path, aws: str) -> None:
    script = "#!/bin/bash\nenv >$HARNESS_WORKER_ROOT/log.txt\nshutdown -P now\n"
    with standin.booted(ground, tmp_path / "one", script, imds.of()) as instance:
        assert instance.wait(60) and f"AWS_ENDPOINT_URL={aws}" in instance.log
        assert not [secret for secret in server.SECRETS if secret in instance.log]


def test_fleet_follows_the_state_in_aws(ground: standin.Ground, tmp_path: Path, ec2: Any) -> None:
    image = ec2.describe_images()["Images"][0]["ImageId"]

    def launch(script: str) -> str:
        launched = ec2.run_instances(ImageId=image, InstanceType="c5.large", MinCount=1, MaxCount=1, UserData=script)
        return str(launched["Instances"][0]["InstanceId"])

    def state(name: str) -> str:
        found = ec2.describe_instances(InstanceIds=[name])["Reservations"][0]["Instances"][0]
        return str(found["State"]["Name"])

    with fleet.watching(ground, tmp_path) as machines:
        ends, stays = launch(LINGERING.format("poweroff")), launch(LINGERING.format(""))
        fleet.wait_for(machines, 2)
        assert machines.instances[ends].wait(60) and state(ends) == "terminated"
        assert state(stays) == "running" and machines.instances[stays].processes
        assert machines.instances[stays].metadata.paths["instance-type"] == "c5.large"
        ec2.terminate_instances(InstanceIds=[stays])
        assert machines.instances[stays].wait(60) and not machines.instances[stays].processes
