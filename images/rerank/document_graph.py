"""Transformer and a head over whole documents, and their run on micro-batches under any backend."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import heads
import torch
from encoder.backends import BACKENDS, FILES
from encoder.checkpoint import transformer
from encoder.config import read_config
from encoder.errors import BadCheckpoint
from encoder.graph import additive
from encoder.tokens import Batch
from encoder.weights import Weights
from heads.windows_batch import DocumentHead, Windows
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
        self.declared = read_config(folder)
        kind = heads.find(aggregation)
        weights = Weights(folder)
        self.transformer: Any = transformer(
            folder, self.declared, weights, masked_lm=False, pooler=False, reads=kind.reads
        )
        self.head = _head(folder, aggregation, self.transformer.config, params)
        self.plain_mask = True
        self.eval()

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the states that the head reads: of first tokens (windows, hidden), else (windows, length, states).

        States of several layers stand side by side.
        """
        plain = self.plain_mask or self.declared.kind.plain_mask
        mask = attention_mask if plain else additive(attention_mask)
        inputs = {"input_ids": input_ids, "attention_mask": mask}
        if self.declared.kind.token_types:
            inputs["token_type_ids"] = token_type_ids
        outputs = self.transformer(**inputs, output_hidden_states=self.head.all_layers)
        if self.head.all_layers:
            return torch.cat(outputs.hidden_states, dim=-1)
        states: torch.Tensor = outputs.last_hidden_state
        return states[:, 0] if self.head.first_only else states


def read_head(folder: Path, params: dict[str, Any]) -> DocumentHead:
    """Read the head alone, as a prepared folder of an exported transformer has it.

    Raises:
        BadCheckpoint: its tensors are not what the parameters say.
    """
    sizes = SimpleNamespace(**read_config(folder).raw)
    return _head(folder, params["aggregation"], sizes, params).eval()


def _head(folder: Path, aggregation: str, sizes: Any, params: dict[str, Any]) -> DocumentHead:
    try:
        return heads.find(aggregation)(sizes, Weights(folder), params)
    except BadCheckpoint as error:
        known = str(error).startswith(folder.name)
        raise BadCheckpoint(str(error) if known else f"{folder.name}: {error}") from error
    except (KeyError, RuntimeError, AttributeError) as error:
        raise BadCheckpoint(f"{folder.name}: the head {aggregation!r} does not fit the weights: {error}") from error


class TorchStates:
    """The transformer under PyTorch.

    Raises:
        BadCheckpoint: the checkpoint is not what the parameters say.
        RuntimeError: a GPU is asked for, and PyTorch finds none.
    """

    def __init__(self, folder: Path, params: dict[str, Any], device: str) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(f"the envelope has a GPU, but torch {torch.__version__} finds no CUDA device")
        graph = DocumentGraph(folder, params["aggregation"], params)
        if params["backend"] == "torch-bf16":
            graph.transformer.to(torch.bfloat16)  # heads compute in float32
        self._graph, self._device = graph.to(device), device
        self.parameters = sum(each.numel() for each in graph.parameters())
        self.head: DocumentHead = graph.head

    def run(self, batch: Batch) -> torch.Tensor:
        """Return the graph's states, on its device."""
        arrays = (batch.ids, batch.mask, batch.types)
        found: torch.Tensor = self._graph(*(torch.from_numpy(array).to(self._device) for array in arrays))
        return found

    def threads(self) -> dict[str, int]:
        """Return no further thread counts."""
        return {}

    def libraries(self) -> dict[str, str]:
        """Return the version of transformers."""
        return {"transformers": version("transformers")}


class ExportedStates:
    """The transformer as a graph of another runtime; the head runs under PyTorch.

    Raises:
        BadCheckpoint: the folder was not prepared for the backend.
        RuntimeError: a GPU is asked for.
    """

    def __init__(self, folder: Path, params: dict[str, Any], threads: int, device: str) -> None:
        name = params["backend"]
        if device != "cpu":
            raise RuntimeError(f"the backend {name} runs on CPUs alone; with a GPU take torch or torch-bf16")
        if not (folder / FILES[name]).is_file():
            raise BadCheckpoint(f"{folder.name}: not prepared for {name} ({FILES[name]} is missing)")
        self.head = read_head(folder, params)
        self._backend = BACKENDS[name](folder, "", name=name, threads=threads, device=device, params={})
        self.parameters = self._backend.parameters

    def run(self, batch: Batch) -> torch.Tensor:
        """Return the graph's states."""
        return torch.from_numpy(self._backend.run(batch))

    def threads(self) -> dict[str, int]:
        """Return the backend's thread counts."""
        return self._backend.threads()

    def libraries(self) -> dict[str, str]:
        """Return the version of the backend."""
        return self._backend.libraries()


class DocumentScorer:
    """A head over whole documents, loaded with its transformer.

    Raises:
        BadCheckpoint: the checkpoint is not what the parameters say.
        RuntimeError: a GPU is asked for that the backend cannot use.
    """

    def __init__(self, folder: Path, params: dict[str, Any], threads: int, device: str) -> None:
        torch.set_num_threads(threads)
        if torch.get_num_interop_threads() != 1:
            torch.set_num_interop_threads(1)
        self._device, self._name = device, folder.name
        exported = bool(FILES[params["backend"]])
        self._states: TorchStates | ExportedStates = (
            ExportedStates(folder, params, threads, device) if exported else TorchStates(folder, params, device)
        )
        self._head, self.parameters = self._states.head, self._states.parameters
        self._layers = 1 + int(read_config(folder).raw["num_hidden_layers"]) if self._head.all_layers else 1
        self.apart = bool(self._head.apart)

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
            asked = None if query is None else self._layered(query.batch)
            for part in parts:
                windows = self._windows(part)
                if query is not None:
                    mask = torch.from_numpy(query.batch.mask).to(self._device)
                    windows = windows._replace(query_states=asked, query_mask=mask)
                if self._device == "cuda":
                    torch.cuda.synchronize()  # else the head would wait for the transformer inside its own time
                start = time.perf_counter()
                # Coming back to the host waits for an accelerator.
                scores = self._head(windows).float().cpu().numpy()
                head_s += time.perf_counter() - start
                found.append(scores)
        return found, head_s

    def _layered(self, batch: Batch) -> torch.Tensor:
        """Return hidden states (layers, windows, length, hidden); of length 1 where the head reads first tokens."""
        states = self._states.run(batch)
        if states.dim() == 2:
            states = states[:, None]
        return states.unflatten(-1, (self._layers, -1)).permute(2, 0, 1, 3)

    def _windows(self, part: MicroBatch) -> Windows:
        width = part.batch.ids.shape[1]
        places = torch.arange(width)[None, :]
        first, lengths = part.document.start, torch.from_numpy(part.lengths)[:, None]
        inside = ((places >= first) & (places < first + lengths)).to(torch.int64)
        return Windows(
            self._layered(part.batch),
            torch.from_numpy(part.batch.mask).to(self._device),
            torch.from_numpy(part.pair).to(self._device),
            len(part.documents),
            part.query,
            part.document,
            inside.to(self._device),
        )

    def threads(self) -> dict[str, int]:
        """Return the thread counts of PyTorch and the backend."""
        pools = {"torch_intraop": torch.get_num_threads(), "torch_interop": torch.get_num_interop_threads()}
        return {**pools, **self._states.threads()}

    def libraries(self) -> dict[str, str]:
        """Return the versions of PyTorch and of what runs the transformer."""
        return {"torch": str(torch.__version__), **self._states.libraries()}
