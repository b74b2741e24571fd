"""The tensors of a checkpoint, read strictly: none is missing or left over, and no code of a pickle is run."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from encoder.errors import BadCheckpoint, reading

_FILE = "model.safetensors"

# Tensors beside the transformer that training leaves in a checkpoint and encoding does not read.
_LEFT_OVER = (
    "pooler.",
    "cls.",
    "lm_head.",
    "vocab_transform.",
    "vocab_layer_norm.",
    "vocab_projector.",
    "generator_predictions.",
    "discriminator_predictions.",
    "lm_predictions.",
    "mask_predictions.",
)


class Weights:
    """The tensors of ``model.safetensors`` or ``pytorch_model.bin``, by name.

    Args:
        folder: of the checkpoint.
        parts: folders in it whose ``model.safetensors`` is read as well; their tensors are ``<part>.<name>``.

    Raises:
        BadCheckpoint: there is no such file, or it is damaged or holds something else than tensors.
    """

    def __init__(self, folder: Path, parts: Sequence[str] = ()) -> None:
        self._folder = folder
        self._parts: dict[str, Any] = {}
        self._read(folder)
        for part in parts:
            from safetensors.torch import load_file

            with reading(f"{folder.name}: {part}/model.safetensors is missing or damaged"):
                self._parts |= {f"{part}.{name}": each for name, each in load_file(folder / part / _FILE).items()}

    @property
    def part_names(self) -> list[str]:
        """The names of the tensors of all parts."""
        return sorted(self._parts)

    def _read(self, folder: Path) -> None:
        self._tensors: Any = None
        path = folder / _FILE
        if path.is_file():
            from safetensors import safe_open

            with reading(f"{folder.name}: {path.name} is damaged or cut short"):
                self._tensors = safe_open(str(path), framework="pt")
            self.names: Sequence[str] = sorted(self._tensors.keys())
            return
        path = folder / "pytorch_model.bin"
        if not path.is_file():
            raise BadCheckpoint(f"{folder.name}: no weights (model.safetensors or pytorch_model.bin)")
        import torch

        with reading(f"{folder.name}: {path.name} is damaged or cut short"):
            try:
                # weights_only: a pickle may hold code, and none of it is run.
                self._tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
            except pickle.UnpicklingError as error:
                raise BadCheckpoint(
                    f"{folder.name}: {path.name} holds more than tensors, or is damaged: none of its code is run, so "
                    "it cannot be used"
                ) from error
        if not isinstance(self._tensors, dict) or not all(
            isinstance(each, torch.Tensor) for each in self._tensors.values()
        ):
            raise BadCheckpoint(f"{folder.name}: {path.name} holds something else than tensors by name")
        self.names = sorted(self._tensors)

    def __call__(self, name: str) -> Any:
        """Return one tensor.

        Raises:
            BadCheckpoint: the file has none of that name.
        """
        if name in self._parts:
            return self._parts[name]
        if name not in self.names:
            raise BadCheckpoint(f"{self._folder.name}: the weights lack {name}; this is no checkpoint of that head")
        return self._tensors[name] if isinstance(self._tensors, dict) else self._tensors.get_tensor(name)


def side(names: Sequence[str]) -> str | None:
    """Return the side of DPR's weights, ``question`` or ``context``; ``None`` for other models."""
    if any(name.startswith("question_encoder.") for name in names):
        return "question"
    return "context" if any(name.startswith("ctx_encoder.") for name in names) else None


def check_strangers(folder: Path, unread: Iterable[str], reads: Sequence[str]) -> None:
    """Refuse tensors that neither the transformer nor the head reads, nor training leaves behind.

    Raises:
        BadCheckpoint: there is one; the message names it.
    """
    strangers = sorted(
        name
        for name in unread
        if not name.startswith(tuple(reads))
        and not name.endswith("position_ids")
        and not any(part in f".{name}" for part in (f".{left}" for left in _LEFT_OVER))
    )
    if strangers:
        raise BadCheckpoint(
            f"{folder.name}: the weights hold {strangers[0]}, which this head does not read; choose the checkpoint's "
            "own head (pooling), or another checkpoint"
        )


def _is_zip(path: Path) -> bool:
    """Files of before PyTorch 1.6 are bare pickles, which cannot be mapped."""
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"
