"""Tests of platform names and their aliases."""

from __future__ import annotations

import pytest

from harness.errors import UnknownName
from harness.launch.images import platforms
from harness.pricing.instances import ARCHITECTURES


@pytest.mark.parametrize("name", ["linux/arm64", "arm64", "aarch64", "AARCH64"])
def test_all_names_of_a_platform_are_parsed(name: str) -> None:
    platform = platforms.parse(name)
    assert platform == "linux/arm64" == platforms.of_machine("aarch64")
    assert (platforms.debian(platform), platforms.kernel(platform)) == ("arm64", "aarch64")


def test_unknown_platform_is_a_usage_error() -> None:
    with pytest.raises(UnknownName, match=r"unknown platform 'linux/arm46'. Did you mean 'linux/arm64'"):
        platforms.parse("linux/arm46")
    assert platforms.of_machine("riscv64") == "linux/riscv64"


def test_instance_facts_have_the_same_platforms() -> None:
    assert {platforms.architecture(platform) for platform in platforms.PLATFORMS} == set(ARCHITECTURES)
