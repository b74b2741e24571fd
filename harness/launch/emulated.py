"""What an emulator takes is no measurement of anything: such jobs are refused."""

from __future__ import annotations

import docker

from harness import emulation, platforms
from harness.engine import engine_errors
from harness.errors import ImageError
from harness.launch.base import Prepared


def refuse(client: docker.DockerClient, prepared: Prepared) -> None:
    """What the image itself says it is for decides, whoever made it.

    Raises:
        ImageError: its platform is not the engine's own.
    """
    with engine_errors():
        image = client.images.get(prepared.reference).attrs
    platform, own = platforms.of_machine(image["Architecture"]), emulation.native(client)
    if platform != own:
        raise ImageError(
            f"system {prepared.system.name!r}: its image is for {platform}, which this engine ({own}) could only"
            f" emulate, and such times say nothing; run it on a machine of {platform}"
        )
