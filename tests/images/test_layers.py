"""Engines over PyTorch keep one layer of it on a machine, without what no build and no search reads."""

from __future__ import annotations

from pathlib import Path

import docker
import pytest

from harness.launch.images import base_image, builder, catalog
from tests.images.conftest import CACHE
from tests.support.container_output import output_of

pytestmark = pytest.mark.docker

# Headers are read by compilers alone, a library's tests by its authors.
LISTED = """
from importlib.util import find_spec
print(*(find_spec(name).origin for name in ("torch", "numpy", "transformers")))
"""
UNREAD = "find /opt -type d ( -name tests -o -path */torch/include ) -o -name pip"


@pytest.fixture
def images(engine: docker.DockerClient, colbert_image: builder.Image) -> dict[str, str]:
    """The digests of the images of engines, by the engine's name."""
    ensure = builder.ImageBuilder(engine, CACHE).ensure_engine
    return {"colbert": colbert_image.digest} | {
        system.engine: ensure(system).digest for system in map(catalog.system, ("minilm-torch", "ms-marco-minilm-l6"))
    }


def test_engines_share_one_layer_with_pytorch(engine: docker.DockerClient, images: dict[str, str]) -> None:
    base = len(engine.images.get(base_image.ensure(engine, CACHE)).attrs["RootFS"]["Layers"])
    layers = {name: engine.images.get(digest).attrs["RootFS"]["Layers"] for name, digest in images.items()}
    assert len({each[base] for each in layers.values()}) == 1, "PyTorch is the first layer over the base"
    assert layers["dense"][base + 1] == layers["rerank"][base + 1], "the encoder's packages are the second"
    for digest in images.values():
        found = output_of(engine, digest, ["-c", LISTED], entrypoint=["python3"])
        assert Path(found.decode().split()[0]).parts[:3] == ("/", "opt", "pytorch")


def test_no_layer_has_tests_headers_or_pip(engine: docker.DockerClient, images: dict[str, str]) -> None:
    for name, digest in images.items():
        found = output_of(engine, digest, UNREAD.split(), entrypoint="")
        assert found.decode().split() == [], name


def test_images_are_small(engine: docker.DockerClient, colbert_image: builder.Image) -> None:
    images = builder.ImageBuilder(engine, CACHE)
    systems = {"minilm-torch": 1.3e9, "minilm": 0.7e9, "bm25": 600e6, "pyserini": 1.6e9}
    for name, most in systems.items():
        assert images.ensure(catalog.system(name)).size_bytes <= most, name
    assert images.ensure_engine(catalog.system("bt-splade-l")).size_bytes <= 1.6e9
    assert colbert_image.size_bytes <= 2e9
