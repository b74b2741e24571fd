"""The C++ extensions of the ColBERT engine, compiled once.

The engine compiles each at its first use, which takes a compiler and minutes.  An image has them in ``extensions/``
beside this package; if they are missing (``process`` launcher), they are compiled into it.
``python3 -m engine.cpp_extensions`` compiles all that a search without a GPU uses, and with a CUDA compiler among the
packages also those of a search on a GPU, into ``extensions-cuda/``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

_HERE = Path(__file__).resolve().parents[1]
_ON_CPU = _HERE / "extensions"
_ON_GPU = _HERE / "extensions-cuda"

# What to compile for: CUDA 13's oldest GPU; newer ones translate its PTX when the extension is loaded.
_ARCHITECTURES = "7.5+PTX"

# Nearly all of the time goes into PyTorch's headers: the engine's four sources for CPUs are compiled as one.
_TOGETHER = "search"
_INCLUDED = '#undef TORCH_EXTENSION_NAME\n#define TORCH_EXTENSION_NAME {}\n#include "{}"\n'

# In place of torch/extension.h, which the engine's sources include: what they use of it, compiled in half the time.
_HEADER = """#pragma once
#include <queue>
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>
"""


class CannotCompile(RuntimeError):
    """Extensions are not there and cannot be compiled; the message says what to install."""


def serve() -> None:
    """Answer the engine's calls of ``torch.utils.cpp_extension.load``; call this before the engine is imported."""
    from torch.utils import cpp_extension

    if not hasattr(cpp_extension, "load_as_shipped"):
        cpp_extension.load_as_shipped, cpp_extension.load = cpp_extension.load, load


def load(name: str, sources: list[str], **options: Any) -> ModuleType:
    """Return the extension ``name``, after compiling it if missing.

    Raises:
        CannotCompile: it is not there, and cannot be compiled here.
    """
    if any(source.endswith(".cu") for source in sources):
        ready = _ON_GPU / f"{name}.so"
        if not ready.is_file():
            _compile(name, sources, ready, options)
    else:
        ready = _ensure_on_cpu()
    return _import(name, ready)


def _import(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _ensure_on_cpu() -> Path:
    """Compile the library that holds all of the engine's modules for CPUs, unless it is there; return it."""
    import colbert

    ready = _ON_CPU / f"{_TOGETHER}.so"
    if not ready.is_file():
        with tempfile.TemporaryDirectory() as folder:
            headers = Path(folder)
            (headers / "torch").mkdir()
            (headers / "torch" / "extension.h").write_text(_HEADER)
            joined = headers / f"{_TOGETHER}.cpp"
            sources = sorted(Path(colbert.__file__).parent.glob("*/*.cpp"))
            joined.write_text("".join(_INCLUDED.format(_module(source), source) for source in sources))
            options = {"extra_cflags": ["-O3"], "extra_include_paths": [folder], "is_python_module": False}
            _compile(_TOGETHER, [str(joined)], ready, options)
    return ready


def _module(source: Path) -> str:
    """Return the name that the engine gives the extension of a source."""
    return f"{source.stem}_cpp"


def _compile(name: str, sources: list[str], ready: Path, options: dict[str, Any]) -> None:
    from torch.utils import cpp_extension

    # Two jobs of the process launcher may meet here: each works in a folder of its own.
    work = ready.parent / f"{name}.{os.getpid()}"
    try:
        work.mkdir(parents=True, exist_ok=True)
        _find_ninja()
        cpp_extension.load_as_shipped(name, sources, build_directory=str(work), **options)
        (work / f"{name}.so").replace(ready)
    except (OSError, RuntimeError, ImportError) as error:
        last = " ".join(str(error).split())[-200:]
        cuda = "CUDA's compiler (nvcc on the PATH), " if any(source.endswith(".cu") for source in sources) else ""
        raise CannotCompile(
            f"the engine's C++ extensions are not there and cannot be compiled ({last}); install {cuda}g++ and Python's"
            " headers (python3-dev), or run this system in its image"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _find_ninja() -> None:
    """Put the packaged ``ninja`` on the PATH: PyTorch compiles with it."""
    import ninja

    packages = Path(ninja.__file__).resolve().parent.parent
    os.environ["PATH"] = os.pathsep.join([str(packages / "bin"), os.environ.get("PATH", os.defpath)])


def ensure() -> None:
    """Compile whatever the engine uses and is not there.

    Raises:
        CannotCompile: it is not there, and cannot be compiled here.
    """
    _ensure_on_cpu()
    if _find_cuda():
        # In a process of its own: one for GPUs has the name of one for CPUs, and PyTorch renames the second of a name.
        alone = [sys.executable, "-m", "engine.cpp_extensions", "cuda"]
        done = subprocess.run(alone, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise CannotCompile((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])


def _ensure_cuda() -> None:
    """Compile what the engine uses on a GPU, with the CUDA compiler that ``_find_cuda`` found."""
    import colbert

    sources = sorted((Path(colbert.__file__).parent / "indexing" / "codecs").glob("*.cu"))
    _find_cuda()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        each = [[str(source.with_suffix(".cpp")), str(source)] for source in sources]
        list(pool.map(load, map(_module, sources), each))


def _find_cuda() -> bool:
    """Say whether a CUDA compiler is among the packages; it is then laid out and named as PyTorch looks for one."""
    import torch
    from torch.utils import cpp_extension

    home = Path(torch.__file__).resolve().parent.parent / "nvidia" / "cu13"
    if not (home / "bin" / "nvcc").is_file():
        return False
    for link, target in ((home / "lib64", "lib"), (home / "lib" / "libcudart.so", "libcudart.so.13")):
        if not link.exists():
            link.symlink_to(target)
    cpp_extension.CUDA_HOME = str(home)
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", _ARCHITECTURES)
    return True


if __name__ == "__main__":
    os.environ["GIT_PYTHON_REFRESH"] = "quiet"
    serve()
    if sys.argv[1:] == ["cuda"]:
        _ensure_cuda()
    else:
        ensure()
