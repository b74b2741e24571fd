"""The ColBERT engine (colbert-ai) as a library, held to the envelope's CPUs."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine import cpp_extensions


def start(cpus: int, gpus: int) -> None:
    """Import the engine and hold PyTorch, faiss and the tokeniser to ``cpus`` threads.

    Raises:
        RuntimeError: ``gpus`` is not zero, and PyTorch cannot use a GPU.
    """
    # Before the tokeniser's first use: it reads this once.
    os.environ["RAYON_NUM_THREADS"] = str(cpus)
    # The engine looks for the git revision that it runs from; there is none.
    os.environ["GIT_PYTHON_REFRESH"] = "quiet"
    # It asks the hub whether a local folder is a repository.
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch

    check_gpus(torch, gpus)
    torch.set_num_threads(cpus)
    if torch.get_num_interop_threads() != 1:
        torch.set_num_interop_threads(1)
    cpp_extensions.serve()
    with quiet():
        import colbert  # noqa: F401
    import faiss

    faiss.omp_set_num_threads(cpus)


def check_gpus(torch: Any, gpus: int) -> None:
    """Refuse GPUs that are not there, or older than what this PyTorch was compiled for.

    Raises:
        RuntimeError: see above; the driver would say of the latter that it has no kernel image, and at the first use.
    """
    if gpus and not torch.cuda.is_available():
        raise RuntimeError(f"the envelope has {gpus} GPUs, but torch {torch.__version__} finds no CUDA device")
    for number in range(gpus):
        major, minor = torch.cuda.get_device_capability(number)
        oldest = min(int(re.sub(r"\D", "", name)) for name in torch.cuda.get_arch_list())  # "sm_75", "compute_120"
        if 10 * major + minor < oldest:
            raise RuntimeError(
                f"{torch.cuda.get_device_name(number)} has compute capability {major}.{minor}, but torch"
                f" {torch.__version__} is made for {oldest // 10}.{oldest % 10} and newer; see docs/guides/gpu.md"
            )


def config(checkpoint: Path, **settings: Any) -> Any:
    """Build a ``ColBERTConfig`` for a local checkpoint.

    Nothing in it depends on the time or the working folder, so that indexes made twice are the same bytes.

    Args:
        checkpoint: its folder.
        settings: further keys of the engine's configuration; they win over the checkpoint's own.
    """
    from colbert.infra import ColBERTConfig

    # "model_name", where a checkpoint gives it, would make the engine look for the model that training started from.
    fixed = {"model_name": None, "root": "/tmp", "experiment": "harness", "name": "harness"}  # noqa: S108
    return ColBERTConfig(checkpoint=str(checkpoint), avoid_fork_if_possible=True, **fixed, **settings)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the engine's chatter (configurations, progress bars) out of the job's log; errors come as exceptions."""
    with Path(os.devnull).open("w") as sink, contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        yield


def threads() -> dict[str, int]:
    """Return the thread counts of PyTorch, faiss and every BLAS and OpenMP library in this process."""
    import faiss
    import torch
    from threadpoolctl import threadpool_info

    # Several copies of one library may be loaded, each with a pool of its own: the largest counts.
    pools: dict[str, int] = {}
    for pool in threadpool_info():
        pools[pool["prefix"]] = max(int(pool["num_threads"]), pools.get(pool["prefix"], 0))
    return {
        "torch_intraop": torch.get_num_threads(),
        "torch_interop": torch.get_num_interop_threads(),
        "faiss_omp": faiss.omp_get_max_threads(),
        **pools,
    }
