"""The loop that all kinds share: in-batch negatives, AdamW, a rate that rises and falls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch

Batch = tuple[list[list[int]], list[list[int]]]
Given = TypeVar("Given")


def train(
    parameters: Iterable[torch.nn.Parameter],
    batches: Iterator[Given],
    loss_of: Callable[[Given, float], torch.Tensor],
    *,
    steps: int,
    rate: float,
    what: str,
) -> None:
    """Take ``steps`` steps.

    Args:
        loss_of: loss of a batch, and how far training has come (0 to 1).
        rate: the highest learning rate; it is reached after a tenth of the steps.
        what: named in the lines of progress.

    Raises:
        ArithmeticError: the loss is no number any more.
    """
    kept = list(parameters)
    optimiser = torch.optim.AdamW(kept, lr=rate, weight_decay=0.01)
    rise = max(1, steps // 10)
    for step in range(steps):
        share = (step + 1) / rise if step < rise else (steps - step) / (steps - rise)
        for group in optimiser.param_groups:
            group["lr"] = rate * share
        loss = loss_of(next(batches), step / steps)
        if not torch.isfinite(loss):
            raise ArithmeticError(f"{what}: the loss is {float(loss)} at step {step}")
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(kept, 1.0)
        optimiser.step()
        if step % 5 == 0 or step == steps - 1:
            say(what, step + 1, steps, float(loss.detach()))


def contrast(scores: torch.Tensor) -> torch.Tensor:
    """Contrast each query's document with the batch's others, and each document's query likewise."""
    own = torch.arange(len(scores))
    entropy = torch.nn.functional.cross_entropy
    return (entropy(scores, own) + entropy(scores.T, own)) / 2


def say(what: str, done: int, of: int, loss: float) -> None:
    """Print a line of progress for the host."""
    print(json.dumps({"what": what, "done": done, "of": of, "loss": round(loss, 4)}), flush=True)
