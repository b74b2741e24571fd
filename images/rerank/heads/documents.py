"""Common steps of the heads of whole documents: grouping windows by document, and reading tensors strictly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from encoder.errors import BadCheckpoint
from encoder.heads import Tensors

from heads.windows_batch import DocumentHead, Windows


def first_windows(windows: Windows) -> torch.Tensor:
    """Return the index of each document's first window, int64 (pairs,)."""
    counts = torch.bincount(windows.pair, minlength=windows.pairs)
    return counts.cumsum(0) - counts


def by_document(values: torch.Tensor, windows: Windows) -> tuple[torch.Tensor, torch.Tensor]:
    """Gather the vectors of each document's windows.

    Args:
        values: (windows, size).

    Returns:
        Vectors (pairs, most windows of a document, size), 0 where a document has fewer windows, and a mask of the
        places that hold a window, bool (pairs, most).
    """
    number = torch.arange(len(windows.pair), device=values.device) - first_windows(windows)[windows.pair]
    most = int(number.max()) + 1
    rows = values.new_zeros((windows.pairs, most, values.shape[-1]))
    rows[windows.pair, number] = values
    present = torch.zeros((windows.pairs, most), dtype=torch.bool, device=values.device)
    present[windows.pair, number] = True
    return rows, present


def read_strictly(head: DocumentHead, tensors: Tensors, unread: Sequence[str] = ()) -> None:
    """Fill a head from the checkpoint's tensors, which have the names of the head's own.

    Args:
        unread: prefixes under ``head.reads`` of tensors that training leaves in the file.

    Raises:
        BadCheckpoint: a tensor is missing, has another shape, or is none of this head's; the message names it.
    """
    state = {}
    for name, own in head.state_dict().items():
        tensor = tensors(name)
        if tensor.shape != own.shape:
            raise BadCheckpoint(
                f"{name} has the shape {tuple(tensor.shape)}, this head needs {tuple(own.shape)}; check config.json "
                "and the parameters"
            )
        state[name] = tensor.to(torch.float32)
    for name in getattr(tensors, "names", ()):
        if name.startswith(head.reads) and name not in state and not name.startswith(tuple(unread)):
            raise BadCheckpoint(f"{name} is no tensor of this head; choose the aggregation that it belongs to")
    head.load_state_dict(state)
