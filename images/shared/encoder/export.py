"""A graph written for other runtimes: ONNX, from it OpenVINO's own format and dynamic int8.

Float32 throughout; the precision of OpenVINO is chosen when the graph is loaded.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder.backends import FILES
from encoder.bert import Bert
from encoder.errors import BadCheckpoint

if TYPE_CHECKING:
    from encoder.graph import Graph

# What ONNX calls opset: the newest that PyTorch's tracing exporter writes in full.
_OPSET = 17

# A file of Google's protocol buffers, which ONNX is, ends here.
_LARGEST_BYTES = 2**31 - 1


def export(graph: Graph | Bert, folder: Path, backends: set[str]) -> None:
    """Write what the backends read into ``folder``.

    Raises:
        BadCheckpoint: the graph is larger than an ONNX file can be.
    """
    wanted = {FILES[backend] for backend in backends if FILES[backend]}
    if not wanted:
        return
    if not graph.declared.kind.exported:
        raise BadCheckpoint(
            f"{folder.name}: {graph.declared.model_type} runs under torch and torch-bf16 alone; take one of them"
        )
    size = sum(each.nbytes for each in graph.parameters())
    if size > _LARGEST_BYTES:
        raise BadCheckpoint(
            f"{folder.name}: {size / 1e9:.1f} GB of weights are more than one ONNX file holds; take torch"
        )
    plain = folder / FILES["onnxruntime"]
    if isinstance(graph, Bert):
        graph.write(plain)
    else:
        _trace(graph, plain)
    if FILES["openvino"] in wanted:
        import openvino

        openvino.save_model(
            openvino.Core().read_model(str(plain)), str(folder / FILES["openvino"]), compress_to_fp16=False
        )
    if FILES["onnxruntime-int8"] in wanted:
        _int8(plain, folder / FILES["onnxruntime-int8"])
    if plain.name not in wanted:
        plain.unlink()


def _trace(graph: Graph, path: Path) -> None:
    """Trace the graph, with the numbers of texts and of tokens left open."""
    import torch

    # Fused attention picks its way by the example's shape; the plain one is the same for all.
    graph.transformer.set_attn_implementation("eager")
    graph.plain_mask = False
    names = ["input_ids", "attention_mask"] + ["token_type_ids"] * graph.declared.kind.token_types
    # Two texts of five tokens, one padded: any shape but 1, which the tracer would take for a constant.
    ids = torch.full((2, 5), 3, dtype=torch.int64)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    inputs = (ids, mask, torch.zeros_like(ids))[: len(names)]
    with warnings.catch_warnings(), torch.no_grad():
        # The tracing exporter is deprecated; the new one needs two packages more and is not exact about open shapes.
        warnings.simplefilter("ignore")
        result = graph(*inputs)
        axes: dict[str, Any] = {name: {0: "texts", 1: "tokens"} for name in names}
        axes["result"] = {0: "texts"} if result.shape[1] != inputs[0].shape[1] else {0: "texts", 1: "tokens"}
        torch.onnx.export(
            graph,
            inputs,
            str(path),
            input_names=names,
            output_names=["result"],
            dynamic_axes=axes,
            opset_version=_OPSET,
            dynamo=False,
        )
    graph.plain_mask = True


def _int8(plain: Path, path: Path) -> None:
    """Weights of all matrix products as int8, one scale a column; activations are quantised as they come."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)  # it advises a step for graphs that have images
    before = tempfile.tempdir
    tempfile.tempdir = str(path.parent)  # it writes the whole graph to a scratch file, and /tmp may be small
    try:
        quantize_dynamic(plain, path, weight_type=QuantType.QInt8, per_channel=True, op_types_to_quantize=["MatMul"])
    finally:
        tempfile.tempdir = before
