"""The stand-in instances themselves: what tests of workers rely on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import docker
import pytest

from tests.aws import server
from tests.aws.ec2 import imds, standin

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


def test_stand_in_gets_no_credentials_of_the_test(ground: standin.Ground, tmp_path: Path, aws: str) -> None:
    script = "#!/bin/bash\nenv >$HARNESS_WORKER_ROOT/log.txt\nshutdown -P now\n"
    with standin.booted(ground, tmp_path / "one", script, imds.of()) as instance:
        assert instance.wait(60) and f"AWS_ENDPOINT_URL={aws}" in instance.log
        assert not [secret for secret in server.SECRETS if secret in instance.log]
