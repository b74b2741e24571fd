"""``python3 -m checkpoints.training KIND START CORPUS OUT STEPS``: train one kind, and write its folders below OUT.

START is the folder of a pretrained BERT, CORPUS a ``corpus.jsonl.gz``.  Progress comes as JSON, one object a line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from checkpoints.training import biased, colbert, cross_encoder, dpr, formats, splade, start, windows

_SEED = 2023


def make_dpr(origin: Path, corpus: Path, out: Path, steps: int) -> None:
    """``query`` and ``document``."""
    question, context = dpr.train(origin, corpus, steps=steps, seed=_SEED)
    formats.write_dpr(out / "query", "question", question, origin)
    formats.write_dpr(out / "document", "context", context, origin)


def make_splade(origin: Path, corpus: Path, out: Path, steps: int) -> None:
    """``query`` and ``document``."""
    tokenizer, pieces, query, document = splade.train(origin, corpus, steps=steps, seed=_SEED)
    formats.write_splade(out / "query", query, pieces, tokenizer, distilled=False)
    formats.write_splade(out / "document", document, pieces, tokenizer, distilled=True)


def make_colbert(origin: Path, corpus: Path, out: Path, steps: int) -> None:
    """``model``."""
    formats.write_colbert(out / "model", colbert.train(origin, corpus, steps=steps, seed=_SEED), origin)


def make_cross_encoder(origin: Path, corpus: Path, out: Path, steps: int) -> None:
    """``model``."""
    formats.write_cross_encoder(out / "model", cross_encoder.train(origin, corpus, steps=steps, seed=_SEED), origin)


def make_windows(origin: Path, corpus: Path, out: Path, steps: int) -> None:
    """``window``, ``parade-attn`` and ``parade-max``."""
    for name, made in windows.train(origin, corpus, steps=steps, seed=_SEED).items():
        formats.write_linear(out / name, made.model, made.head, origin)


def make_biased(origin: Path, corpus: Path, out: Path, steps: int, *, shuffled: bool) -> None:
    """``model``."""
    model = biased.train(origin, corpus, shuffled=shuffled, steps=steps, seed=_SEED)
    formats.write_linear(out / "model", model, windows.named(model.linear), origin)


KINDS: dict[str, Callable[[Path, Path, Path, int], None]] = {
    "dpr": make_dpr,
    "splade": make_splade,
    "colbert": make_colbert,
    "cross-encoder": make_cross_encoder,
    "windows": make_windows,
    "longp-original": partial(make_biased, shuffled=False),
    "longp-shuffled": partial(make_biased, shuffled=True),
}


def main(kind: str, origin: str, corpus: str, out: str, steps: str) -> None:
    """See the module."""
    import torch

    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(start.cpus())
    KINDS[kind](Path(origin), Path(corpus), Path(out), int(steps))


if __name__ == "__main__":
    main(*sys.argv[1:])
