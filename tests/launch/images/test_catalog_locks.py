"""Shipped engines pin their packages in locks, never in Dockerfiles."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from harness.launch.images import catalog
from harness.launch.images.platforms import ARM64
from harness.launch.images.systems import System

ENGINES = sorted(path.parent for path in catalog.images_dir().glob("*/engine.toml"))
LOCKS = sorted(catalog.images_dir().rglob("requirements*.lock"))


def locked(path: Path) -> dict[str, str]:
    """Version by package, of a lock in which each is pinned with hashes."""
    requirements = path.read_text().replace("\\\n", " ").splitlines()
    assert all(re.fullmatch(r"[a-z0-9.-]+==\S+( +--hash=sha256:[0-9a-f]{64})+", line) for line in requirements)
    return dict(line.split()[0].split("==") for line in requirements)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_locks_are_complete_pinned_and_name_no_index(path: Path) -> None:
    declared = path.with_suffix(".in")
    lines = declared.read_text().splitlines() if declared.exists() else []
    wanted = {re.split(r"[=<>]", line)[0] for line in lines if not line.startswith("#")}
    assert wanted <= locked(path).keys()
    assert bool(wanted) is bool(locked(path)), "an engine without packages has an empty lock"
    assert "pip" in locked(path) or not locked(path)  # the builder runs it from its wheel
    assert "://" not in path.read_text()


@pytest.mark.parametrize(
    "path", [path for path in LOCKS if re.search(r"-cuda\d+$", path.stem)], ids=lambda path: path.stem
)
def test_gpu_packages_differ_from_cpu_packages_in_pytorch_only(path: Path) -> None:
    here, there = locked(path), locked(path.with_name("requirements.lock"))
    assert {name for name in there if here.get(name) != there[name]} == {"torch"}
    assert "+cpu" in there["torch"] and "+" not in here["torch"]
    added = here.keys() - there.keys() - {"cuda-toolkit"}
    assert added and all(name.startswith("nvidia-") for name in added)
    cuda = {here[name].rpartition(".")[0] for name in here if re.match(r"nvidia-(cuda-(runtime|nvcc|crt)|nvvm)", name)}
    assert len(cuda) == 1, "CUDA's runtime and compiler are of one release"
    assert cuda.pop().partition(".")[0] == path.stem.rpartition("cuda")[2]


@pytest.mark.parametrize("path", [path for path in LOCKS if path.stem.endswith("-arm64")], ids=lambda path: path.stem)
def test_arm64_packages_differ_from_x86_64_packages_in_pytorch_only(path: Path) -> None:
    here, there = locked(path), locked(path.with_name("requirements.lock"))
    assert here.keys() == there.keys()
    assert {name for name in here if here[name] != there[name]} == {"torch"}
    assert "+cpu" in there["torch"] and "+" not in here["torch"], "what PyPI has of it for CPUs alone"


@pytest.mark.parametrize(
    "folder", [each for each in ENGINES if any(each.glob("systems/*.toml"))], ids=lambda path: path.name
)
def test_every_engine_has_an_arm64_image_or_a_reason(folder: Path) -> None:
    """A lock that names a build for x86-64 alone has a sibling, or the engine states its reason."""
    (system, *_) = [known for known in catalog.systems().values() if known.engine_dir == folder]
    arm = system.for_platform(ARM64)
    if arm.lacking:
        named = [name for name, version in locked(system.lock).items() if f" {name} {version} " in arm.lacking]
        assert named and "no wheel" in arm.lacking
        return
    assert not any(
        "+" in version for lock in (arm.lock, *arm.shared_locks.values()) for version in locked(lock).values()
    )
    here, there = system.for_job("build", gpus=1), arm.for_job("build", gpus=1)
    if here.accelerator:
        assert here.lacking is None and "compute capability" in (there.lacking or "")


@pytest.mark.parametrize("system", catalog.systems().values(), ids=lambda system: system.name)
def test_a_package_has_one_version_in_an_image(system: System) -> None:
    """A package in two folders of the import path would hide one version."""
    pins = [pin for lock in (system.lock, *system.shared_locks.values()) for pin in locked(lock).items()]
    twice = {name for name, count in Counter(name for name, _ in pins).items() if count > 1}
    assert twice <= {"pip", "typing-extensions"}, "which the lean image needs without PyTorch"
    assert len(set(pins)) == len(dict(pins))


@pytest.mark.parametrize("system", catalog.systems().values(), ids=lambda system: system.name)
def test_encoders_run_under_pytorch_with_gpus(system: System) -> None:
    """The other backends run on CPUs alone, and refuse a GPU."""
    there = system.for_job("build", gpus=1).params
    named = {key: value for key, value in there.items() if key.rpartition(".")[2] in ("document_backend", "backend")}
    assert set(named.values()) <= {"torch", "torch-bf16"}


@pytest.mark.parametrize("folder", ENGINES, ids=lambda path: path.name)
def test_lean_images_are_those_of_the_backends_that_read_exported_graphs(folder: Path) -> None:
    dockerfile = (folder / "Dockerfile").read_text()
    engine = tomllib.loads((folder / "engine.toml").read_text())
    last = re.findall(r"^FROM (.+)$", dockerfile, re.M)[-1]
    chosen = last in ("${STAGE}", "encoder-engine") and "\nARG STAGE=full\n" in dockerfile
    assert chosen == ("lean_if" in engine)
    backends = (catalog.images_dir() / "shared/encoder/backends.py").read_text()
    exported = re.findall(r'^    "([a-z0-9-]+)": "model', backends, re.M)
    for name in {"document_backend", "backend"} & engine.get("lean_if", {}).keys():
        assert engine["lean_if"][name] == exported and len(exported) == 4
    if folder.name == "rerank":
        rules = re.findall(r'^    "([a-z]+)": Rule', (folder / "parameters.py").read_text(), re.M)
        assert engine["lean_if"]["aggregation"] == ["", *rules]
    if "term_weights" in engine.get("shared", ()):
        assert engine["lean_if"]["expansion_model"] == [""]


def test_image_keeps_the_transformers_models_of_the_encoder() -> None:
    text = (catalog.images_dir() / "shared/encoder/stages.Dockerfile").read_text()
    (kept,) = re.findall(r"transformers/models/\\\((.+)\\\)/", text)
    read = re.findall(r'^    "([a-z-]+)": Kind', (catalog.images_dir() / "shared/encoder/config.py").read_text(), re.M)
    assert len(read) >= 8 and {kind.replace("-", "_") for kind in read} < set(kept.split(r"\|"))


@pytest.mark.parametrize("folder", ENGINES, ids=lambda path: path.name)
def test_dockerfiles_use_no_network_and_end_unprivileged(folder: Path) -> None:
    text = (folder / "Dockerfile").read_text()
    assert not re.search(r"\b(apt-get|curl|wget|ADD|--mount)\b", text)
    assert text.split("USER ")[1].startswith("65532:65532")
    assert text.rstrip().endswith('ENTRYPOINT ["python3", "-m", "harness.driver"]')
