"""Queries that a document may answer, written by a T5 when the index is made (docT5query).

Nogueira and Lin, *From doc2query to docTTTTTquery*, 2019; the defaults are theirs: 40 queries of at most 64 tokens,
sampled from the 10 likeliest tokens at each step, from at most 512 tokens of the document.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from encoder.errors import BadCheckpoint, one_line, reading
from encoder.weights import Weights

from harness.driver.records import Scalar

NOTE = "expander.json"


class Expander:
    """A T5 and its tokeniser.

    Args:
        folder: the checkpoint, in the hub's format.
        params: ``expansions`` (queries a document), ``top_k``, ``query_length`` and ``document_length`` (tokens),
            ``seed``, ``expansion_batch`` (documents at once).
        threads: of PyTorch and the tokeniser.
        device: ``cpu`` or ``cuda``.

    Raises:
        BadCheckpoint: the files are no T5, or not whole.
        RuntimeError: a GPU is asked for, and PyTorch finds none.
    """

    def __init__(self, folder: Path, params: dict[str, Scalar], threads: int = 1, device: str = "cpu") -> None:
        import os

        os.environ["RAYON_NUM_THREADS"] = str(threads)
        import torch

        if device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(f"the envelope has a GPU, but torch {torch.__version__} finds no CUDA device")
        torch.set_num_threads(threads)
        self._torch, self._device = torch, device
        self._model, self._tokenizer = _load(folder)
        self._model = self._model.to(device)
        self.batch = int(params["expansion_batch"])
        self._seed = int(params["seed"])
        self._document_length = int(params["document_length"])
        self._count = int(params["expansions"])
        from transformers import GenerationConfig

        # Said in full: what a checkpoint brings along of this is for other tasks.
        self._how = GenerationConfig(
            do_sample=True,
            top_k=int(params["top_k"]),
            num_return_sequences=self._count,
            max_new_tokens=int(params["query_length"]),
            pad_token_id=self._model.config.pad_token_id,
            eos_token_id=self._model.config.eos_token_id,
            decoder_start_token_id=self._model.config.decoder_start_token_id,
        )

    def __call__(self, texts: Sequence[str], name: str) -> list[list[str]]:
        """Generate the queries of each text.

        Args:
            texts: documents that go through the model together.
            name: decides the draw, with the seed: the same texts under the same name get the same queries.
        """
        torch = self._torch
        seed = hashlib.sha256(f"{self._seed}\0{name}".encode("utf-8", "surrogatepass")).digest()[:7]
        torch.manual_seed(int.from_bytes(seed, "big"))
        given = self._tokenizer(
            list(texts), padding=True, truncation=True, max_length=self._document_length, return_tensors="pt"
        ).to(self._device)
        with torch.inference_mode():
            written = self._model.generate(
                input_ids=given.input_ids, attention_mask=given.attention_mask, generation_config=self._how
            )
        queries = self._tokenizer.batch_decode(written, skip_special_tokens=True)
        return [queries[start : start + self._count] for start in range(0, len(queries), self._count)]


def prepare(folder: Path) -> None:
    """Check a checkpoint and note the hash of its files.

    Raises:
        BadCheckpoint: it cannot be used.
    """
    from encoder.prepare import files_sha256

    _, tokenizer = _load(folder)
    sha256 = files_sha256(folder, tokenizer.backend_tokenizer)
    (folder / NOTE).write_text(json.dumps({"checkpoint_sha256": sha256}) + "\n", encoding="utf-8")


def _load(folder: Path) -> tuple[Any, Any]:
    try:
        model_type = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise BadCheckpoint(f"{folder.name}: config.json cannot be read: {one_line(error)}") from error
    if model_type != "t5":
        raise BadCheckpoint(f"{folder.name}: config.json says model_type {model_type!r}; queries are written by a t5")
    Weights(folder)  # says in one line what is wrong with the file
    from transformers import AutoTokenizer, T5ForConditionalGeneration
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # what it would warn of is an error below
    with reading(f"{folder.name}: it cannot be loaded"):
        model, loading = T5ForConditionalGeneration.from_pretrained(
            str(folder), local_files_only=True, output_loading_info=True, dtype="float32"
        )
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    missing = sorted(loading["missing_keys"]) + sorted(str(each[0]) for each in loading["mismatched_keys"])
    if missing:
        raise BadCheckpoint(f"{folder.name}: the weights lack {missing[0]} of a t5, or have it in another shape")
    end, highest = tokenizer("").input_ids, max(tokenizer.get_vocab().values())
    if end != [model.config.eos_token_id] or tokenizer.pad_token_id != model.config.pad_token_id:
        raise BadCheckpoint(f"{folder.name}: the tokeniser lacks </s> or <pad>, or has them elsewhere than the model")
    if highest >= model.config.vocab_size:
        raise BadCheckpoint(
            f"{folder.name}: the tokeniser has token id {highest}, the model's vocabulary ends at"
            f" {model.config.vocab_size - 1}; they do not belong together"
        )
    return model.eval(), tokenizer
