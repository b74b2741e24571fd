"""The ColBERT engine reports unusable GPUs; PyTorch is a stand-in."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.launch.images import catalog


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Import a module of the engine."""
    monkeypatch.syspath_prepend(str(catalog.images_dir() / "colbert"))
    return lambda name: importlib.import_module(f"engine.{name}")


@pytest.fixture
def runtime(engine: Callable[[str], ModuleType]) -> ModuleType:
    return engine("runtime")


def torch(*capabilities: tuple[int, int]) -> Any:
    cuda = SimpleNamespace(
        is_available=lambda: bool(capabilities),
        get_device_capability=lambda number: capabilities[number],
        get_device_name=lambda number: f"card {number}",
        get_arch_list=lambda: ["sm_75", "sm_80", "sm_90", "sm_120", "compute_120"],
    )
    return SimpleNamespace(cuda=cuda, __version__="2.13.0+cu130")


def test_gpus_from_the_oldest_compiled_architecture_are_accepted(runtime: ModuleType) -> None:
    runtime.check_gpus(torch(), 0)
    runtime.check_gpus(torch((7, 5), (12, 0)), 2)
    runtime.check_gpus(torch((7, 5), (7, 0)), 1)  # the second is not the job's


def test_missing_or_too_old_gpu_is_reported_in_one_line(runtime: ModuleType) -> None:
    with pytest.raises(RuntimeError, match=r"the envelope has 1 GPUs, but torch 2\.13\.0\+cu130 finds no CUDA device"):
        runtime.check_gpus(torch(), 1)
    with pytest.raises(
        RuntimeError, match=r"card 1 has compute capability 7\.0, .* made for 7\.5 and newer; see docs/guides/gpu"
    ):
        runtime.check_gpus(torch((9, 0), (7, 0)), 2)


def test_encoding_of_queries_ends_with_their_vectors_on_the_host(engine: Callable[[str], ModuleType]) -> None:
    """The engine leaves the vectors of few texts on the GPU, whose work would count into the search."""
    encoder = object.__new__(engine("encoding").Encoder)
    on_gpu = SimpleNamespace(cpu=lambda: "on the host")
    encoder.checkpoint = SimpleNamespace(queryFromText=lambda texts, bsize, to_cpu: on_gpu)
    assert encoder.query(["a query"]) == "on the host"
