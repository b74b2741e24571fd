"""Transformer and a head over whole documents as one torch module, and its run on micro-batches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import heads
import torch
from encoder import checkpoint
from encoder.errors import BadCheckpoint
from encoder.tokens import Batch
from heads.windows_batch import Windows
from pairs import MicroBatch


class DocumentGraph(torch.nn.Module):
    """A checkpoint and its head, read strictly.

    Args:
        folder: a checkpoint in the hub's format.
        aggregation: name of the head.
        params: the system's parameters, complete.

    Raises:
        BadCheckpoint: see :mod:`encoder.checkpoint`.
    """

    # Facts that encoder.prepare asks of a graph: these heads have no encoder of two sides and no further folders.
    side: str | None = None
    parts: tuple[str, ...] = ()

    def __init__(self, folder: Path, aggregation: str, params: dict[str, Any]) -> None:
        super().__init__()
        self.declared = checkpoint.config(folder)
        kind = heads.find(aggregation)
        weights = checkpoint.Weights(folder)
        self.transformer: Any = checkpoint.transformer(
            folder, self.declared, weights, masked_lm=False, pooler=False, reads=kind.reads
        )
        try:
            self.head = kind(self.transformer.config, weights, params)
        except (KeyError, RuntimeError) as error:
            raise BadCheckpoint(f"{folder.name}: the head {aggregation!r} does not fit the weights: {error}") from error
        self.eval()

    def states(self, batch: Batch, device: str) -> torch.Tensor:
        """Return hidden states (layers, windows, length, hidden): all layers, or the last alone."""
        inputs = {"input_ids": torch.from_numpy(batch.ids), "attention_mask": torch.from_numpy(batch.mask)}
        if self.declared.kind.token_types:
            inputs["token_type_ids"] = torch.from_numpy(batch.types)
        outputs = self.transformer(
            **{name: each.to(device) for name, each in inputs.items()}, output_hidden_states=self.head.all_layers
        )
        return torch.stack(outputs.hidden_states) if self.head.all_layers else outputs.last_hidden_state[None]


class DocumentScorer:
    """A head over whole documents, loaded; it runs under PyTorch alone.

    Raises:
        BadCheckpoint: the checkpoint is not what the parameters say.
        RuntimeError: a GPU is asked for, and PyTorch finds none.
    """

    def __init__(self, folder: Path, params: dict[str, Any], threads: int, device: str) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(f"the envelope has a GPU, but torch {torch.__version__} finds no CUDA device")
        torch.set_num_threads(threads)
        if torch.get_num_interop_threads() != 1:
            torch.set_num_interop_threads(1)
        self._device, self._name = device, folder.name
        graph = DocumentGraph(folder, params["aggregation"], params)
        if params["backend"] == "torch-bf16":
            graph.transformer.to(torch.bfloat16)  # heads compute in float32
        self._graph = graph.to(device)
        self.apart = bool(graph.head.apart)

    def run(self, parts: Sequence[MicroBatch], query: MicroBatch | None) -> tuple[list[Any], float]:
        """Score micro-batches.

        Args:
            query: the query on its own, where the head reads it apart.

        Returns:
            Float32 scores of each one's documents, and the seconds that the head took.

        Raises:
            BadCheckpoint: a score is no number.
        """
        found, head_s = [], 0.0
        with torch.inference_mode():
            asked = None if query is None else self._graph.states(query.batch, self._device)
            for part in parts:
                windows = self._windows(part)
                if query is not None:
                    mask = torch.from_numpy(query.batch.mask).to(self._device)
                    windows = windows._replace(query_states=asked, query_mask=mask)
                if self._device == "cuda":
                    torch.cuda.synchronize()  # else the head would wait for the transformer inside its own time
                start = time.perf_counter()
                # Coming back to the host waits for an accelerator.
                scores = self._graph.head(windows).float().cpu().numpy()
                head_s += time.perf_counter() - start
                found.append(scores)
        return found, head_s

    def _windows(self, part: MicroBatch) -> Windows:
        width = part.batch.ids.shape[1]
        places = torch.arange(width)[None, :]
        first, lengths = part.document.start, torch.from_numpy(part.lengths)[:, None]
        inside = ((places >= first) & (places < first + lengths)).to(torch.int64)
        return Windows(
            self._graph.states(part.batch, self._device),
            torch.from_numpy(part.batch.mask).to(self._device),
            torch.from_numpy(part.pair).to(self._device),
            len(part.documents),
            part.query,
            part.document,
            inside.to(self._device),
        )

    def threads(self) -> dict[str, int]:
        """Return PyTorch's thread counts."""
        return {"torch_intraop": torch.get_num_threads(), "torch_interop": torch.get_num_interop_threads()}

    def libraries(self) -> dict[str, str]:
        """Return the versions of PyTorch and transformers."""
        return {"torch": str(torch.__version__), "transformers": version("transformers")}
