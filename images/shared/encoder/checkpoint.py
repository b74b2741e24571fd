"""Checkpoints in the hub's own format, read strictly: what does not fit is an error, never a random weight."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from encoder.config import ALIBI, SPARSE, Config
from encoder.errors import BadCheckpoint, reading
from encoder.weights import Weights, check_strangers, side


def transformer(
    folder: Path, declared: Config, weights: Weights, *, masked_lm: bool, pooler: bool, reads: Sequence[str]
) -> Any:
    """Load the transformer under a head, on the CPU, in float32, for inference.

    Args:
        masked_lm: with the head that predicts tokens.
        pooler: with its own pooler.
        reads: prefixes of tensors that the head reads itself.

    Raises:
        BadCheckpoint: weights are missing, of another shape, or of something else than was declared.
    """
    if masked_lm and declared.model_type in (ALIBI, *SPARSE):
        what = f"{declared.model_type} is read without its head over the vocabulary"
        raise BadCheckpoint(f"{folder.name}: {what}; take another head")
    if declared.model_type == ALIBI:
        from encoder import alibi

        if pooler:
            raise BadCheckpoint(f"{folder.name}: {ALIBI} is read without its pooler; take another head")
        return alibi.read(folder, declared, weights, reads).eval()
    import transformers
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # what it would warn of is an error below
    options: dict[str, Any] = {"local_files_only": True, "output_loading_info": True, "dtype": "float32"}
    options["ignore_mismatched_sizes"] = True  # they are named below
    options["key_mapping"] = {"^coil_encoder\\.": ""}  # uniCOIL's name for the whole
    which = side(weights.names)
    if declared.model_type == "dpr":
        if which is None:
            raise BadCheckpoint(f"{folder.name}: config.json says dpr, the weights are of neither of its encoders")
        loader = transformers.DPRQuestionEncoder if which == "question" else transformers.DPRContextEncoder
    else:
        loader = transformers.AutoModelForMaskedLM if masked_lm else transformers.AutoModel
        if declared.kind.pooler and not masked_lm:
            options["add_pooling_layer"] = pooler
        elif pooler:
            raise BadCheckpoint(f"{folder.name}: {declared.model_type} has no pooler")
    with reading(f"{folder.name}: the weights cannot be loaded"):
        model, loading = loader.from_pretrained(str(folder), **options)
    _check_loading(folder, declared, loading, reads)
    if declared.model_type == "dpr":
        model = (model.question_encoder if which == "question" else model.ctx_encoder).bert_model
    if declared.model_type in SPARSE:
        from encoder.sparse_attention import Wrapped

        model = Wrapped(model, declared)
    return model.eval()


def _check_loading(folder: Path, declared: Config, loading: dict[str, Any], reads: Sequence[str]) -> None:
    missing = sorted(loading["missing_keys"])
    if missing:
        raise BadCheckpoint(
            f"{folder.name}: the weights lack {len(missing)} tensors of a {declared.model_type} ({missing[0]}, ...); "
            "they are of another architecture, or not whole"
        )
    mismatched = sorted(str(each[0]) for each in loading["mismatched_keys"])
    if mismatched:
        raise BadCheckpoint(f"{folder.name}: {mismatched[0]} has another shape than config.json says")
    check_strangers(folder, loading["unexpected_keys"], reads)
