"""A kill at a memory limit is found in the kernel's log by the container's id."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import docker
import pytest

from harness.launch.images import base_image
from harness.launch.images.emulation import native
from harness.launch.monitor import kernel_log

ID = "3584cb5c" * 8
KILL = (
    "6,220302,72364323952,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={id},mems_allowed=0,"
    "oom_memcg={limited},task_memcg=/system.slice/docker-{id}.scope,task=python3,pid=18005,uid=65532\n"
)


@pytest.mark.parametrize(
    ("record", "killed"),
    [
        (KILL.format(id=ID, limited=f"/docker/{ID}"), True),
        (KILL.format(id=ID, limited=f"/system.slice/docker-{ID}.scope"), True),
        (KILL.format(id=ID, limited="/user.slice"), False),  # somebody else's limit
        (f"6,1,2,-;oom-kill:constraint=CONSTRAINT_NONE,task_memcg=/docker/{ID},task=python3\n", False),  # of the host
        (f"6,1,2,-;docker0: port of {ID} entered forwarding state\n", False),
        ("", False),
    ],
)
def test_only_a_kill_at_the_own_limit_counts(
    record: str, killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_log, "_LOG", tmp_path / "kmsg")
    assert not kernel_log.has_kill(ID), "it cannot be read here"
    (tmp_path / "kmsg").write_text(record)
    assert kernel_log.has_kill(ID) is killed


@pytest.mark.docker
def test_the_kernel_names_the_container_that_it_killed(engine: docker.DockerClient, tmp_path: Path) -> None:
    if not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("this user may not read the kernel's log")
    image = base_image.ensure(engine, tmp_path, "base", native(engine))
    ran = {}
    for name, size in (("large", "200 << 20"), ("small", "1")):
        ran[name] = engine.containers.create(
            image, ["python3", "-c", f"b'x' * ({size})"], mem_limit="64m", memswap_limit="64m"
        )
    try:
        for container in ran.values():
            container.start()
            container.wait()
        assert {name: kernel_log.has_kill(str(one.id)) for name, one in ran.items()} == {"large": True, "small": False}
    finally:
        for container in ran.values():
            with contextlib.suppress(docker.errors.APIError):
                container.remove(force=True)
