"""``harness images``: what is made beforehand, and what it says of it."""

from __future__ import annotations

import docker
import pytest
from click.testing import CliRunner, Result

from harness.cli import main
from tests.conftest import Bench


def harness(bench: Bench, *arguments: str) -> Result:
    command = ["images", *arguments, "--cache", str(bench.cache)]
    return CliRunner().invoke(main, command, catch_exceptions=False)


@pytest.mark.docker
def test_it_makes_what_is_asked_for_and_a_failure_stops_no_other(bench: Bench, engine: docker.DockerClient) -> None:
    lacking = bench.folder / "engines" / "planted" / "systems" / "lacking.toml"
    asset = f'[[assets]]\nfolder = "model"\nlicence = "MIT"\nsha256 = {{ "weights" = "{"0" * 64}" }}\n'
    lacking.write_text(f'description = "its weights are nowhere"\n{asset}', encoding="utf-8")
    done = harness(bench, "lacking", "planted", "planted")
    assert done.exit_code == 1
    head, row = done.stdout.splitlines()
    assert head.split() == ["image", "of", "size", "took", "digest", "tag"]
    image = engine.images.get(row.split()[-1])
    assert row.startswith("planted") and image.id.removeprefix("sha256:").startswith(row.split()[-2])
    assert f"{image.attrs['Size'] / 1e6:,.0f} MB" in row
    assert "harness: lacking: cannot find weights of 'model'" in done.stderr and "Traceback" not in done.stderr


def test_an_unknown_system_is_usage(bench: Bench) -> None:
    done = harness(bench, "plantet")
    assert done.exit_code == 2 and "did you mean 'planted'?" in done.stderr
