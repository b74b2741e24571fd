"""Small causal language models with random weights, in the file formats of the hub's Llama and Qwen2 checkpoints.

Runs inside an image that has PyTorch; transformers' own models are not needed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Of decoders with a tied output layer and shared keys, as SmolLM2 and mxbai-rerank-base-v2 are; Qwen2 adds biases.
KINDS = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
_START, _END, _UNKNOWN = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
_CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# How much more the text before counts than the last token, in a model that matches words.
_TEXT_OVER_TOKEN = 8.0


def make(
    folder: Path,
    kind: str = "llama",
    *,
    texts: Sequence[str] = (),
    words: int = 2000,
    hidden: int = 32,
    layers: int = 2,
    heads: int = 4,
    positions: int = 2048,
    seed: int = 7,
    match: bool = False,
) -> None:
    """Write a checkpoint into ``folder``.

    Args:
        folder: made if it is missing.
        kind: of ``KINDS``.
        texts: what the vocabulary is to spell in whole words.
        words: size of the vocabulary, at most.
        hidden: size of a vector, a multiple of ``heads``.
        match: make the words of the text before likelier than others, with any weights.

    Raises:
        ValueError: the kind is unknown.
    """
    import torch
    from safetensors.torch import save_file

    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, must be one of {', '.join(KINDS)}")
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = _write_tokeniser(folder, texts, words)
    shared = heads if match else heads // 2
    config: dict[str, Any] = {
        "architectures": [KINDS[kind]],
        "model_type": kind,
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "max_position_embeddings": positions,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    draw = torch.Generator().manual_seed(seed)
    shapes = _shapes(config)
    state = {name: 0.3 * torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    state |= {name: 1.0 + tensor for name, tensor in state.items() if "norm" in name}
    if match:
        state |= {name: _matching(name, tensor) for name, tensor in state.items() if "embed" not in name}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of the checkpoint, by its name."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    layer = {
        "self_attn.q_proj.weight": (hidden, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, hidden),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    if config["model_type"] == "qwen2":
        layer |= {f"self_attn.{name}_proj.bias": (hidden if name == "q" else keys,) for name in "qkv"}
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for number in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{number}.{name}": shape for name, shape in layer.items()}
    return {**shapes, "model.norm.weight": (hidden,)}


def _matching(name: str, tensor: Any) -> Any:
    """Return the tensor of a model whose first layer adds the mean of the text's vectors, and the others nothing."""
    import torch

    if "norm" in name:
        return torch.ones_like(tensor)
    if name.endswith(("layers.0.self_attn.v_proj.weight", "layers.0.self_attn.o_proj.weight")):
        return torch.eye(len(tensor)) * (_TEXT_OVER_TOKEN if "v_proj" in name else 1.0)
    return torch.zeros_like(tensor)


def _write_tokeniser(folder: Path, texts: Sequence[str], words: int) -> int:
    """Write a byte-level tokeniser with a chat template; return the size of its vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=words,
        special_tokens=[_UNKNOWN, _START, _END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": _START,
        "eos_token": _END,
        "unk_token": _UNKNOWN,
        "chat_template": _CHAT,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return int(tokenizer.get_vocab_size())
