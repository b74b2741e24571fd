"""ColBERT checkpoints: what one must hold, and what names its content.

``python3 -m engine.checkpoint ASSETS SYSTEM_JSON`` looks at the checkpoint of a system when its image is made, and ends
with one line and exit code 1 where it is not what the engine needs.  The engine itself would take such a folder: it
fills weights that are missing with random numbers, markers that are missing with the unknown token, and ranks.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from engine import cpp_extensions, runtime

_FINGERPRINT = "fingerprint.json"
# The engine reads these and nothing else of a checkpoint; of two forms of the weights, the first that is there.
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
# The last token's pooled state is used by no one: some checkpoints have it, some have not.
_UNUSED = "pooler"
_FROM_PADDING = ("camembert", "mpnet", "roberta", "xlm-roberta", "xmod")


class BadCheckpoint(Exception):
    """The folder is no checkpoint that the engine ranks right with; the message says why and what to do."""


def check(folder: Path) -> None:
    """Read tokeniser and weights as the engine does.

    Raises:
        BadCheckpoint: something is missing, cut off, or of another architecture.
    """
    _refuse_code(folder)
    weights = next((name for name in _WEIGHTS if (folder / name).is_file()), None)
    if weights is None:
        raise BadCheckpoint(f"{folder.name}: neither {' nor '.join(_WEIGHTS)} is there; bring the checkpoint's files")
    config = _merged(folder)
    tokenizer = _tokenizer(folder)
    for role, marker in (("query", config.query_token_id), ("document", config.doc_token_id)):
        if tokenizer.convert_tokens_to_ids(marker) in (None, tokenizer.unk_token_id):
            raise BadCheckpoint(
                f"{folder.name}: its tokenizer has no token {marker!r}, which marks a {role}; bring the files of a"
                " ColBERT checkpoint, or name its own markers in artifact.metadata"
            )
    if tokenizer.mask_token_id is None or tokenizer.pad_token_id is None:
        raise BadCheckpoint(f"{folder.name}: its tokenizer has no mask or padding token, which queries are filled with")
    rows = _read_weights(folder, weights, config)
    if len(tokenizer) > rows:
        raise BadCheckpoint(
            f"{folder.name}: its tokenizer has {len(tokenizer)} tokens, its weights have {rows}: they belong to two"
            " models; bring both of one"
        )


def positions(folder: Path) -> int | None:
    """Return the maximum tokens of a text, special ones included, if the checkpoint's transformer declares it."""
    config = _json(folder / "config.json")
    most = config.get("max_position_embeddings")
    if most is None:
        return None
    # These count from behind the padding token's number.
    first = int(config.get("pad_token_id", 1)) + 1 if config.get("model_type") in _FROM_PADDING else 0
    return int(most) - first


def fingerprint(folder: Path) -> str:
    """Names the content of a checkpoint: a hash over its files, kept beside them once it was made."""
    kept = folder / _FINGERPRINT
    if kept.is_file():
        return str(json.loads(kept.read_text(encoding="utf-8"))["sha256"])
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        with path.open("rb") as file:
            whole.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


def _refuse_code(folder: Path) -> None:
    """Refuse a checkpoint that names Python files, because the engine would run them."""
    for path in sorted(folder.rglob("*.json")):
        if "auto_map" in _json(path):
            raise BadCheckpoint(
                f"{folder.name}/{path.name} names code of its own (auto_map), which is not run here; bring a checkpoint"
                " of an architecture that transformers has"
            )


def _json(path: Path) -> dict[str, Any]:
    """Read a file's JSON object; empty if it has none, which the code that needs it reports."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def _merged(folder: Path) -> Any:
    """Merge the checkpoint's ``artifact.metadata`` over the engine's defaults."""
    from colbert.infra import ColBERTConfig

    try:
        return ColBERTConfig.from_existing(ColBERTConfig.load_from_checkpoint(str(folder)), runtime.config(folder))
    except (ValueError, TypeError, AttributeError) as error:
        raise BadCheckpoint(
            f"{folder.name}/artifact.metadata cannot be read ({_line(error)}); bring it anew"
        ) from error


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadCheckpoint(f"{folder.name}: its tokenizer cannot be read ({_line(error)}); bring its files") from error


def _read_weights(folder: Path, name: str, config: Any) -> int:
    """Load the weights into the engine's model class; the number of tokens that they know."""
    import pickle

    import torch
    from colbert.modeling.hf_colbert import class_factory
    from safetensors import SafetensorError
    from transformers import PreTrainedModel

    try:
        model_class = class_factory(str(folder))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise BadCheckpoint(
            f"{folder.name}/config.json names no model that the engine knows ({_line(error)})"
        ) from error
    try:
        # The engine's own "from_pretrained" drops what was missing.
        load = PreTrainedModel.from_pretrained.__func__
        model, found = load(model_class, str(folder), colbert_config=config, output_loading_info=True)
    except (OSError, EOFError, SafetensorError, pickle.UnpicklingError) as error:
        raise BadCheckpoint(f"{folder.name}/{name} cannot be read ({_line(error)}); bring it anew") from error
    except (RuntimeError, ValueError, KeyError) as error:
        raise BadCheckpoint(
            f"{folder.name}/{name} does not fit the model that config.json describes ({_line(error)}); bring both"
            " of one checkpoint"
        ) from error
    missing = sorted(key for key in found["missing_keys"] if _UNUSED not in key)
    if missing:
        raise BadCheckpoint(
            f"{folder.name}/{name} is no ColBERT checkpoint: it lacks {', '.join(missing[:3])}"
            f"{f' and {len(missing) - 3} more' if len(missing) > 3 else ''}; bring one that was trained as ColBERT"
        )
    broken = [key for key, value in model.state_dict().items() if not torch.isfinite(value).all()]
    if broken:
        raise BadCheckpoint(f"{folder.name}/{name}: {broken[0]} holds values that are no numbers; bring it anew")
    return int(model.get_input_embeddings().weight.shape[0])


def _line(error: Exception) -> str:
    """Write a library's error as part of a line."""
    return " ".join(str(error).split())[:160].rstrip(".,; ") or type(error).__name__


def main(assets: str, system: str) -> int:
    """Check the checkpoint that a system's parameters name, drop what is not read, and keep its fingerprint."""
    params = json.loads(Path(system).read_text(encoding="utf-8"))["build_params"]
    folder = Path(assets) / str(params["checkpoint"])
    if not folder.is_dir():
        print(f"the parameter 'checkpoint' names {folder.name!r}, which is no folder of the assets", file=sys.stderr)
        return 1
    try:
        runtime.start(cpus=1, gpus=0)
        with runtime.quiet():
            check(folder)
        # Not in a job, which would be timed with it.
        cpp_extensions.ensure()
    except (BadCheckpoint, cpp_extensions.CannotCompile) as error:
        print(error, file=sys.stderr)
        return 1
    if all((folder / name).is_file() for name in _WEIGHTS):
        (folder / _WEIGHTS[1]).unlink()
    (folder / _FINGERPRINT).write_text(json.dumps({"sha256": fingerprint(folder)}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
