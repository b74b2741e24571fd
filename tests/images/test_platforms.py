"""An image of the other platform is built and checked under emulation."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.errors import ImageError
from harness.launch import container
from harness.launch.base import Prepared
from harness.launch.images import builder, catalog, emulation, platforms
from tests.images.conftest import CACHE
from tests.support.container_output import output_of

# Another platform is bootstrapped and run under emulation: minutes.
pytestmark = [pytest.mark.docker, pytest.mark.soak]
BINFMT = Path("/proc/sys/fs/binfmt_misc")


@pytest.fixture
def foreign(engine: docker.DockerClient) -> Iterator[str]:
    """Return the other platform; remove an emulator that this fixture installed."""
    (other,) = {*platforms.PLATFORMS} - {emulation.native(engine)}
    entry, mounted = BINFMT / f"qemu-{platforms.kernel(other)}", os.path.ismount(BINFMT)
    listed = entry.exists()
    yield other
    if entry.exists() and not listed:
        entry.write_text("-1")
    if os.path.ismount(BINFMT) and not mounted:
        subprocess.run(["umount", str(BINFMT)], check=True)


def test_image_of_the_other_platform_meets_the_contract_and_is_not_measured(
    engine: docker.DockerClient, foreign: str
) -> None:
    done = CliRunner().invoke(
        main, ["conformance", "null", "--platform", foreign, "--cache", str(CACHE), "--format", "json"]
    )
    assert done.exit_code == 0, done.output
    assert [check["level"] for check in json.loads(done.stdout)["checks"]] == ["ok"] * 7

    null = catalog.system("null")
    image = builder.ImageBuilder(engine, CACHE, platform=foreign).find(null)
    assert (
        image is not None
        and image.platform == foreign
        and image.reference != builder.ImageTarget.of_system(null).reference
    )
    assert engine.images.get(image.digest).attrs["Architecture"] == platforms.debian(foreign)
    machine = output_of(engine, image.digest, ["-c", "import os; print(os.uname().machine)"], entrypoint="python3")
    assert machine.decode().strip() == platforms.kernel(foreign)
    with pytest.raises(ImageError, match=f"its image is for {foreign}, which this engine .* could only emulate"):
        container.refuse_emulation(engine, Prepared(null, image.recipe, image.digest, image.digest))
