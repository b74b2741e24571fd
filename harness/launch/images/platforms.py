"""The platforms that images are made for: Docker's names for them, and what others call the same."""

from __future__ import annotations

import platform

from harness.errors import UnknownName

AMD64 = "linux/amd64"
ARM64 = "linux/arm64"
PLATFORMS = (AMD64, ARM64)

# How kernels (x86_64, aarch64), Debian and Docker (amd64, arm64) and EC2 (x86_64, arm64) say it.
_OF = {"x86_64": AMD64, "amd64": AMD64, "aarch64": ARM64, "arm64": ARM64}
_KERNELS = {AMD64: "x86_64", ARM64: "aarch64"}
_EC2S = {AMD64: "x86_64", ARM64: "arm64"}


def parse(name: str) -> str:
    """A platform by any of its names: ``linux/arm64``, ``arm64`` or ``aarch64``.

    Raises:
        UnknownName: images are not made for it.
    """
    found = name if name in PLATFORMS else _OF.get(name.lower())
    if found is None:
        raise UnknownName("platform", name, (*PLATFORMS, *_OF))
    return found


def of_machine(machine: str) -> str:
    """The platform of a machine, by its kernel's or its engine's word for it; an unknown one keeps that as its name."""
    return _OF.get(machine.lower(), f"linux/{machine.lower()}")


def here() -> str:
    """This host's."""
    return of_machine(platform.machine())


def debian(name: str) -> str:
    """What Debian calls it, which is the end of Docker's name: ``arm64``."""
    return name.partition("/")[2]


def apart(text: str, name: str) -> str:
    """A name of something that each platform has its own of.  x86-64 was the only one at first, and adds nothing."""
    return text if name == AMD64 else f"{text}-{debian(name)}"


def kernel(name: str) -> str:
    """What the kernel and Python's wheels call it: ``aarch64``."""
    return _KERNELS[name]


def architecture(name: str) -> str:
    """What the facts on instance types call it: ``x86_64``, ``arm64``."""
    return _EC2S[name]
