"""Make a system's checkpoint ready when its image is built: ``python3 -m llm_prepare ASSETS SYSTEM_JSON``.

A GGUF file is read once, its quantised weights written as bfloat16 in the files that transformers reads.  Then the
checkpoint is read tensor by tensor.  An error is one line, with exit code 1.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from llm.local import load
from llm.tokens import ChatTokens
from llm.transport import RECORDING, read_recording


def main(arguments: list[str]) -> int:
    """See the module."""
    try:
        place, described = arguments
    except ValueError:
        print("usage: python3 -m llm_prepare ASSETS SYSTEM_JSON", file=sys.stderr)
        return 1
    try:
        stated = json.loads(Path(described).read_text(encoding="utf-8"))
        prepare(Path(place), {**stated["build_params"], **stated["search_params"]})
    except (ValueError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    return 0


def prepare(assets: Path, params: dict[str, Any]) -> None:
    """Convert and check the checkpoint, or check the recording, that the parameters name.

    Raises:
        ValueError: it is missing, or not what it should be.
    """
    if params.get("transport") == "replay":
        read_recording(assets / str(params.get("recording", "")) / RECORDING)
        return
    name = str(params.get("model", ""))
    folder = assets / name
    if not name or not folder.is_dir():
        raise ValueError(f"{name or 'model'}: no such folder among the assets; the parameter model names one of them")
    files = sorted(folder.glob("*.gguf"))
    if len(files) > 1:
        raise ValueError(f"{name}: {len(files)} GGUF files; name one")
    if files:
        convert(files[0])
    model = load(folder, "bfloat16")
    ids = ChatTokens(folder).prompts(["a"], " b")[0].ids
    rows = int(model.get_input_embeddings().weight.shape[0])
    if not ids or max(ids) >= rows:
        raise ValueError(f"{name}: the tokeniser gives id {max(ids, default=-1)}, the model has {rows}: not its own")


def convert(file: Path) -> None:
    """Replace a GGUF file by ``model.safetensors`` (bfloat16), ``config.json`` and the tokeniser's files, beside it.

    Raises:
        ValueError: transformers cannot read it.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = file.parent
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), gguf_file=file.name, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            str(folder), gguf_file=file.name, local_files_only=True, dtype=torch.float32
        )
    except (OSError, ValueError, KeyError, ImportError, NotImplementedError) as error:
        raise ValueError(f"{folder.name}: transformers cannot read {file.name}: {error}") from error
    config = model.config.to_dict()
    # The weights are no longer quantised, and the file's own name for itself is no folder.
    config = {name: value for name, value in config.items() if name not in ("quantization_config", "_name_or_path")}
    config.update(dtype="bfloat16", architectures=[type(model).__name__])
    tied = set(getattr(model, "all_tied_weights_keys", ())) if model.config.tie_word_embeddings else set()
    state = {name: value.to(torch.bfloat16) for name, value in model.state_dict().items() if name not in tied}
    save_file(
        {name: value.contiguous() for name, value in state.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tokenizer.save_pretrained(str(folder))
    file.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
