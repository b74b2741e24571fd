"""Platforms of images, by the names that Docker, kernels, Debian and EC2 give them."""

from __future__ import annotations

import platform as python_platform

from harness.errors import UnknownName

AMD64 = "linux/amd64"
ARM64 = "linux/arm64"
PLATFORMS = (AMD64, ARM64)

# Names of kernels (x86_64, aarch64), Debian and Docker (amd64, arm64) and EC2 (x86_64, arm64).
_BY_NAME = {"x86_64": AMD64, "amd64": AMD64, "aarch64": ARM64, "arm64": ARM64}
_KERNELS = {AMD64: "x86_64", ARM64: "aarch64"}
_EC2 = {AMD64: "x86_64", ARM64: "arm64"}


def parse(name: str) -> str:
    """Return a platform by any of its names: ``linux/arm64``, ``arm64`` or ``aarch64``.

    Raises:
        UnknownName: images are not made for it.
    """
    platform = name if name in PLATFORMS else _BY_NAME.get(name.lower())
    if platform is None:
        raise UnknownName("platform", name, (*PLATFORMS, *_BY_NAME))
    return platform


def of_machine(machine: str) -> str:
    """Return the platform of a machine by its kernel's or Docker engine's name; keep an unknown name."""
    return _BY_NAME.get(machine.lower(), f"linux/{machine.lower()}")


def host() -> str:
    """Return this host's platform."""
    return of_machine(python_platform.machine())


def debian(platform: str) -> str:
    """Return Debian's name, the end of Docker's: ``arm64``."""
    return platform.partition("/")[2]


def with_platform(text: str, platform: str) -> str:
    """Add a platform to a name; x86-64, the first one, adds nothing."""
    return text if platform == AMD64 else f"{text}-{debian(platform)}"


def kernel(platform: str) -> str:
    """Return the name in kernels and Python wheels: ``aarch64``."""
    return _KERNELS[platform]


def architecture(platform: str) -> str:
    """Return the name in the facts on instance types: ``x86_64``, ``arm64``."""
    return _EC2[platform]
