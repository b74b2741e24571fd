"""The C++ extensions of the ColBERT engine, compiled once.

The engine compiles four when it first uses them, which takes a compiler and some minutes.  An image has them ready in
``extensions/`` beside this file; where they are missing (the ``process`` launcher) they are compiled into it.
``python3 -m late_extensions`` compiles all that a search without a GPU uses, and where a CUDA compiler is among the
packages what one on a GPU uses, into ``extensions-cuda/``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

_HERE = Path(__file__).resolve().parent
_ON_CPU = _HERE / "extensions"
_ON_GPU = _HERE / "extensions-cuda"

# What to compile for: CUDA 13's oldest GPU; newer ones translate its PTX when the extension is loaded.
_ARCHITECTURES = "7.5+PTX"

# In place of torch/extension.h, which the engine's sources include: what they use of it, compiled in half the time.
_HEADER = """#pragma once
#include <queue>
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>
"""


class CannotCompile(RuntimeError):
    """An extension is not there and cannot be compiled; the message says what to install."""


def serve() -> None:
    """Answer the engine's calls of ``torch.utils.cpp_extension.load``; call this before the engine is imported."""
    from torch.utils import cpp_extension

    if not hasattr(cpp_extension, "load_as_shipped"):
        cpp_extension.load_as_shipped, cpp_extension.load = cpp_extension.load, load


def load(name: str, sources: list[str], **options: Any) -> ModuleType:
    """The extension ``name``: the one that is there, else compiled as the engine asks for it.

    Raises:
        CannotCompile: it is not there, and cannot be compiled here.
    """
    folder = _ON_GPU if any(source.endswith(".cu") for source in sources) else _ON_CPU
    ready = folder / f"{name}.so"
    return _import(name, ready) if ready.is_file() else _compile(name, sources, folder, options)


def _import(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(name: str, sources: list[str], folder: Path, options: dict[str, Any]) -> ModuleType:
    from torch.utils import cpp_extension

    # Two jobs of the process launcher may meet here: each works in a folder of its own.
    work = folder / f"{name}.{os.getpid()}"
    try:
        (work / "torch").mkdir(parents=True, exist_ok=True)
        _find_ninja()
        if folder == _ON_CPU:
            (work / "torch" / "extension.h").write_text(_HEADER)
            options = {**options, "extra_include_paths": [str(work)]}
        compiled: ModuleType = cpp_extension.load_as_shipped(name, sources, build_directory=str(work), **options)
        (work / f"{name}.so").replace(folder / f"{name}.so")
    except (OSError, RuntimeError, ImportError) as error:
        last = " ".join(str(error).split())[-200:]
        raise CannotCompile(
            f"the engine's extension {name} is not there and cannot be compiled ({last}); install g++ and Python's"
            " headers (python3-dev), or run this system in its image"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return compiled


def _find_ninja() -> None:
    """Put the packaged ``ninja`` on the PATH: PyTorch compiles with it."""
    import ninja

    packages = Path(ninja.__file__).resolve().parent.parent
    os.environ["PATH"] = os.pathsep.join([str(packages / "bin"), os.environ.get("PATH", os.defpath)])


def ensure() -> None:
    """Have all that the engine uses; what is missing is compiled, several at a time.

    Raises:
        CannotCompile: it is not there, and cannot be compiled here.
    """
    import colbert

    package = Path(colbert.__file__).parent
    _ensure(_ON_CPU, [[source] for source in sorted(package.glob("*/*.cpp"))], extra_cflags=["-O3"])
    if _find_cuda():
        # In a process of its own: one for GPUs has the name of one for CPUs, and PyTorch renames the second of a name.
        alone = [sys.executable, "-m", "late_extensions", "cuda"]
        done = subprocess.run(alone, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise CannotCompile((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])


def _ensure_cuda() -> None:
    """The same of what the engine uses on a GPU, with the CUDA compiler that ``_find_cuda`` found."""
    import colbert

    sources = sorted((Path(colbert.__file__).parent / "indexing" / "codecs").glob("*.cu"))
    _find_cuda()
    _ensure(_ON_GPU, [[source.with_suffix(".cpp"), source] for source in sources])


def _ensure(folder: Path, extensions: list[list[Path]], **options: Any) -> None:
    """Compile the extensions that are missing, each of some sources; names and options are as in the engine's calls."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        started = [
            pool.submit(load, f"{sources[0].stem}_cpp", [str(each) for each in sources], **options)
            for sources in extensions
            if not (folder / f"{sources[0].stem}_cpp.so").is_file()
        ]
        for each in started:
            each.result()


def _find_cuda() -> bool:
    """Whether a CUDA compiler is among the packages; it is then laid out and named as PyTorch looks for one."""
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
