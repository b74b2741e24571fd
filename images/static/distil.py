"""Distil an encoder into static token embeddings: ``python3 distil.py CHECKPOINT FOLDER``, when the image is built.

Each token of the vocabulary goes through the encoder alone; its vector is reduced to 256 dimensions (PCA) and weighted
by its assumed frequency (Zipf, SIF).  The arithmetic is model2vec's own, with its defaults.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType

# model2vec imports it for an option that is not used here.
_clusters = ModuleType("sklearn.cluster")
_clusters.KMeans = None  # type: ignore[attr-defined]
sys.modules["sklearn.cluster"] = _clusters

import numpy  # noqa: E402
from encoder.checkpoint import transformer  # noqa: E402
from encoder.config import read_config  # noqa: E402
from encoder.weights import Weights  # noqa: E402
from model2vec.distill import distill_from_model  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

DIMS = 256


def distil(checkpoint: Path, folder: Path) -> None:
    """Write embeddings, tokeniser and a hash of both into a folder.

    Raises:
        BadCheckpoint: the checkpoint is damaged, or its weights are not its configuration's.
        ValueError: an embedding is no number.
    """
    declared = read_config(checkpoint)
    model = transformer(checkpoint, declared, Weights(checkpoint), masked_lm=False, pooler=False, reads=())
    tokeniser = AutoTokenizer.from_pretrained(str(checkpoint), local_files_only=True)
    made = distill_from_model(model, tokeniser, device="cpu", pca_dims=DIMS)
    if not numpy.isfinite(made.embedding).all():
        raise ValueError(f"{checkpoint.name}: an embedding is NaN or infinite")
    folder.mkdir(parents=True)
    numpy.save(folder / "embeddings.npy", made.embedding)
    made.tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    whole = hashlib.sha256()
    for name in ("embeddings.npy", "tokenizer.json"):
        whole.update(hashlib.sha256((folder / name).read_bytes()).digest())
    (folder / "sha256").write_text(whole.hexdigest())


if __name__ == "__main__":
    distil(Path(sys.argv[1]), Path(sys.argv[2]))
