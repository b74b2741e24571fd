"""``python3 -m checkpoints.training KIND START CORPUS OUT``: train one kind, and write its folders below OUT.

START is the folder of a pretrained BERT, CORPUS a ``corpus.jsonl.gz``.  Progress comes as JSON, one object a line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from checkpoints.training import colbert, dpr, formats, splade, start

_SEED = 2023
# Enough for a minute on two CPUs.
_STEPS = {"dpr": 40, "splade": 40, "colbert": 40}


def make_dpr(origin: Path, corpus: Path, out: Path) -> None:
    """``query`` and ``document``."""
    question, context = dpr.train(origin, corpus, steps=_STEPS["dpr"], seed=_SEED)
    formats.write_dpr(out / "query", "question", question, origin)
    formats.write_dpr(out / "document", "context", context, origin)


def make_splade(origin: Path, corpus: Path, out: Path) -> None:
    """``query`` and ``document``."""
    tokenizer, pieces, query, document = splade.train(origin, corpus, steps=_STEPS["splade"], seed=_SEED)
    formats.write_splade(out / "query", query, pieces, tokenizer, distilled=False)
    formats.write_splade(out / "document", document, pieces, tokenizer, distilled=True)


def make_colbert(origin: Path, corpus: Path, out: Path) -> None:
    """``model``."""
    formats.write_colbert(out / "model", colbert.train(origin, corpus, steps=_STEPS["colbert"], seed=_SEED), origin)


KINDS: dict[str, Callable[[Path, Path, Path], None]] = {
    "dpr": make_dpr,
    "splade": make_splade,
    "colbert": make_colbert,
}


def main(kind: str, *places: str) -> None:
    """See the module."""
    import torch

    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(start.cpus())
    origin, corpus, out = map(Path, places)
    KINDS[kind](origin, corpus, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
