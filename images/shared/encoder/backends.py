"""Inference backends: each runs one graph on batches of token ids, with a fixed number of threads.

A backend imports its own library alone: what a system does not use shall not count into its memory.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy

from encoder.tokens import Batch

# name -> file of the prepared folder that it reads; the torch backends read the checkpoint itself.
FILES = {
    "torch": "",
    "torch-bf16": "",
    "onnxruntime": "model.onnx",
    "onnxruntime-int8": "model.int8.onnx",
    "openvino": "model.xml",
    "openvino-bf16": "model.xml",
}
# All activations of a batch share one scale there, so a text's result depends on its neighbours.
MIXING = ("onnxruntime-int8",)
# They compile the graph for a shape when they first meet it.
COMPILING = ("openvino", "openvino-bf16")


class Backend(ABC):
    """A graph, loaded.

    Args:
        folder: the prepared checkpoint.
        head: name of the head.
        name: of the backend.
        threads: how many the library may use.
        device: ``cpu`` or ``cuda``.
        params: what the system says of the head.
    """

    def __init__(
        self, folder: Path, head: str, *, name: str, threads: int, device: str, params: dict[str, Any]
    ) -> None:
        self.folder, self.head, self.name = folder, head, name
        self.thread_limit, self.device, self.params = threads, device, params

    @abstractmethod
    def run(self, batch: Batch) -> Any:
        """Return the head's results for a batch, a float32 numpy array on the host."""

    @property
    def parameters(self) -> int:
        """The number of parameters of transformer and head, as the checkpoint had them when it was prepared."""
        return int(json.loads((self.folder / "encoder.json").read_text(encoding="utf-8"))["parameters"])

    @abstractmethod
    def threads(self) -> dict[str, int]:
        """Return the library's thread counts."""

    @abstractmethod
    def libraries(self) -> dict[str, str]:
        """Version of the library."""


class Torch(Backend):
    """PyTorch, float32 or with all weights in bfloat16.

    Raises:
        RuntimeError: a GPU is asked for, and PyTorch finds none.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        import torch

        from encoder.graph import Graph

        if self.device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(f"the envelope has a GPU, but torch {torch.__version__} finds no CUDA device")
        torch.set_num_threads(self.thread_limit)
        if torch.get_num_interop_threads() != 1:
            torch.set_num_interop_threads(1)
        self._torch = torch
        graph = Graph(self.folder, self.head, self.params)
        self._graph = graph.to(torch.bfloat16 if self.name == "torch-bf16" else torch.float32).to(self.device)
        self._token_types = graph.declared.kind.token_types

    @property
    def parameters(self) -> int:
        """The number of parameters of transformer and head."""
        return sum(each.numel() for each in self._graph.parameters())

    def run(self, batch: Batch) -> Any:
        """See :class:`Backend`."""
        torch = self._torch
        arrays = (batch.ids, batch.mask, batch.types) if self._token_types else (batch.ids, batch.mask)
        with torch.inference_mode():
            result = self._graph(*(torch.from_numpy(array).to(self.device) for array in arrays))
            # Coming back to the host waits for an accelerator.
            return result.float().cpu().numpy()

    def threads(self) -> dict[str, int]:
        """PyTorch's two pools."""
        return {
            "torch_intraop": self._torch.get_num_threads(),
            "torch_interop": self._torch.get_num_interop_threads(),
        }

    def libraries(self) -> dict[str, str]:
        """PyTorch, its build named, and transformers."""
        return {"torch": str(self._torch.__version__), "transformers": version("transformers")}


class OnnxRuntime(Backend):
    """ONNX Runtime on its CPU provider, float32 or dynamic int8."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = self.thread_limit
        settings.inter_op_num_threads = 1
        settings.log_severity_level = 3
        # Without VNNI, int8 sums would saturate; with it, this changes nothing.
        settings.add_session_config_entry("session.x64quantprecision", "1")
        self._session = onnxruntime.InferenceSession(
            str(self.folder / FILES[self.name]), settings, providers=["CPUExecutionProvider"]
        )
        self._inputs = [each.name for each in self._session.get_inputs()]

    def run(self, batch: Batch) -> Any:
        """See :class:`Backend`."""
        given = {"input_ids": batch.ids, "attention_mask": batch.mask, "token_type_ids": batch.types}
        return self._session.run(None, {name: given[name] for name in self._inputs})[0]

    def threads(self) -> dict[str, int]:
        """Return the library's thread counts."""
        settings = self._session.get_session_options()
        return {
            "onnxruntime_intraop": settings.intra_op_num_threads,
            "onnxruntime_interop": settings.inter_op_num_threads,
        }

    def libraries(self) -> dict[str, str]:
        """ONNX Runtime."""
        return {"onnxruntime": version("onnxruntime")}


class OpenVino(Backend):
    """OpenVINO on its CPU plugin, in float32, or in bfloat16 where the CPU has instructions for it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        import openvino

        core = openvino.Core()
        # Without the instructions OpenVINO would emulate bfloat16, many times slower than float32.
        able = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        self._compiled = core.compile_model(
            core.read_model(str(self.folder / FILES[self.name])),
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": "bf16" if able and self.name == "openvino-bf16" else "f32",
                "INFERENCE_NUM_THREADS": self.thread_limit,
                "NUM_STREAMS": 1,
                "PERFORMANCE_HINT": "LATENCY",
            },
        )
        self._inputs = [next(iter(each.names)) for each in self._compiled.inputs]
        self._request = self._compiled.create_infer_request()

    def run(self, batch: Batch) -> Any:
        """See :class:`Backend`."""
        given = {"input_ids": batch.ids, "attention_mask": batch.mask, "token_type_ids": batch.types}
        results = self._request.infer(
            {name: given[name] for name in self._inputs}, share_inputs=True, share_outputs=True
        )
        # The result lies in the request's own memory, which the next one overwrites.
        return numpy.array(results[0], dtype=numpy.float32)

    def threads(self) -> dict[str, int]:
        """Return the library's thread counts."""
        return {
            "openvino_threads": int(self._compiled.get_property("INFERENCE_NUM_THREADS")),
            "openvino_streams": int(self._compiled.get_property("NUM_STREAMS")),
        }

    def libraries(self) -> dict[str, str]:
        """OpenVINO, and the precision that it took: a CPU without bfloat16 computes in float32."""
        took = self._compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        return {"openvino": version("openvino"), "openvino_precision": str(took)}


BACKENDS: dict[str, type[Backend]] = {
    "torch": Torch,
    "torch-bf16": Torch,
    "onnxruntime": OnnxRuntime,
    "onnxruntime-int8": OnnxRuntime,
    "openvino": OpenVino,
    "openvino-bf16": OpenVino,
}
