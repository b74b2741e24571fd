"""Small checkpoints of rerankers that read a long document in one window, with random weights.

Runs inside an image that has PyTorch and transformers.  Each is the published transformer's format in small, with the
linear map of FirstP beside it: ``cls.weight`` (1, hidden) and ``cls.bias``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checkpoints import dense, planted

# What the published checkpoints are:
#   longformer  LongformerModel under longformer.; RoBERTa's byte pairs: longformer-base-4096
#   bigbird     BigBirdModel under bert.; SentencePiece: bigbird-roberta-base
#   jina        JinaBertModel without a prefix, three tensors of query, key and value: jina-embeddings-v2-base-en
#   mosaic      MosaicBERT under bert., Wqkv in one: mosaic-bert-base
#   tinyllama   LlamaModel under model.; SentencePiece's byte pairs: TinyLlama-1.1B
KINDS = ("longformer", "bigbird", "jina", "mosaic", "tinyllama")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def make(
    folder: Path,
    kind: str,
    *,
    texts: Sequence[str] = (),
    words: int = 2000,
    hidden: int = 32,
    layers: int = 2,
    heads: int = 2,
    positions: int = 2048,
    seed: int = 7,
    plant: bool = False,
) -> None:
    """Write a checkpoint of ``kind`` (see ``KINDS``) into ``folder``; the arguments mean what they mean in
    ``dense.make``.

    Args:
        plant: make scores count the words that query and text share; ``hidden`` is then 128, and ``heads`` 1.

    Raises:
        ValueError: there is no such kind.
    """
    import torch

    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, must be one of {', '.join(KINDS)}")
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 2 * hidden,
        "initializer_range": 0.2,  # wider than for training: small differences shall show
    }
    config, state = _described(folder, kind, sizes, texts, words, positions)
    state |= {"cls.weight": torch.randn(1, hidden), "cls.bias": torch.randn(1)}
    dense.wide_norms(state, seed)
    if plant:
        _plant(kind, state, layers)
    (folder / "config.json").write_text(config.to_json_string(), encoding="utf-8")
    dense.write_weights(folder, state, safetensors=True)


def _described(
    folder: Path, kind: str, sizes: dict[str, Any], texts: Sequence[str], words: int, positions: int
) -> tuple[Any, dict[str, Any]]:
    """Write the tokeniser; return the configuration, and the transformer's random tensors by their published names."""
    import transformers

    if kind == "longformer":
        sizes |= {
            "vocab_size": dense.byte_pairs(folder, texts, words, positions),
            "attention_window": [16] * sizes["num_hidden_layers"],
        }
        config: Any = transformers.LongformerConfig(
            max_position_embeddings=positions + 2, type_vocab_size=1, pad_token_id=1, **sizes
        )
        prefix, model = "longformer", transformers.LongformerModel(config, add_pooling_layer=False)
    elif kind == "bigbird":
        sizes["vocab_size"] = dense.sentence_pieces(folder, "BigBirdTokenizer", texts, "[MASK]")
        config = transformers.BigBirdConfig(
            max_position_embeddings=positions, block_size=8, num_random_blocks=1, pad_token_id=0, **sizes
        )
        prefix, model = "bert", transformers.BigBirdModel(config, add_pooling_layer=False)
    elif kind == "tinyllama":
        sizes["vocab_size"] = _llama_pieces(folder, texts, words)
        config = transformers.LlamaConfig(max_position_embeddings=positions, num_key_value_heads=1, **sizes)
        prefix, model = "model", transformers.LlamaModel(config)
    else:
        sizes["vocab_size"] = dense.word_pieces(folder, "jina", texts, words, positions)
        own = {"position_embedding_type": "alibi"} if kind == "jina" else {"alibi_starting_size": positions}
        config = transformers.BertConfig(max_position_embeddings=positions, **own, **sizes)
        return config, _alibi_tensors(config, "" if kind == "jina" else "bert.")
    return config, {f"{prefix}.{name}": tensor for name, tensor in model.state_dict().items()}


def _plant(kind: str, state: dict[str, Any], layers: int) -> None:
    """Overwrite the tensors so that a score grows with the words that query and text share."""
    import torch

    good = 1.0
    if kind == "bigbird":
        planted.match_pairs(state, "bert.")
    elif kind in ("jina", "mosaic"):
        planted.match_alibi(state, "bert." if kind == "mosaic" else "", layers)
    elif kind == "longformer":
        planted.match_copies(state, planted.LONGFORMER)
        good = -1.0
    else:
        # The last normalisation divides each token's share by what it has seen itself, which a match lowers.
        planted.match_copies(state, planted.LLAMA)
    for name in [name for name in state if "_global." in name]:
        state[name].data = state[name.replace("_global", "")].clone()
    state["cls.weight"], state["cls.bias"] = planted.read_share(state["cls.weight"], good), torch.zeros(1)


def _alibi_tensors(config: Any, prefix: str) -> dict[str, Any]:
    """Return random tensors of an ALiBi BERT: MosaicBERT's under a prefix, else JINA's."""
    import torch

    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config.vocab_size, hidden),
        "embeddings.token_type_embeddings.weight": (config.type_vocab_size, hidden),
        "embeddings.LayerNorm.weight": (hidden,),
        "embeddings.LayerNorm.bias": (hidden,),
    }
    parts = {"Wqkv": 3 * hidden} if prefix else dict.fromkeys(("query", "key", "value"), hidden)
    for number in range(config.num_hidden_layers):
        layer = f"encoder.layer.{number}"
        for part, size in parts.items():
            shapes |= {
                f"{layer}.attention.self.{part}.weight": (size, hidden),
                f"{layer}.attention.self.{part}.bias": (size,),
            }
        shapes |= {
            f"{layer}.attention.output.dense.weight": (hidden, hidden),
            f"{layer}.attention.output.dense.bias": (hidden,),
            f"{layer}.mlp.gated_layers.weight": (2 * inner, hidden),
            f"{layer}.mlp.wo.weight": (hidden, inner),
            f"{layer}.mlp.wo.bias": (hidden,),
        }
        for norm in ("attention.output.LayerNorm", "mlp.layernorm"):
            shapes |= {f"{layer}.{norm}.weight": (hidden,), f"{layer}.{norm}.bias": (hidden,)}
    return {f"{prefix}{name}": 0.2 * torch.randn(shape) for name, shape in shapes.items()}


def _llama_pieces(folder: Path, texts: Sequence[str], words: int) -> int:
    """Write Llama's tokeniser, which puts ``<s>`` before a text; return the size of its vocabulary."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    special = ["<unk>", "<s>", "</s>"]
    learned = Tokenizer(models.BPE(unk_token=special[0], byte_fallback=True))
    learned.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=words, special_tokens=special, show_progress=False)
    learned.train_from_iterator([*texts, _LETTERS], trainer)
    model = json.loads(learned.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    made = transformers.LlamaTokenizer(vocab=model["vocab"], merges=merges, add_bos_token=True)
    made.save_pretrained(str(folder))
    return len(model["vocab"])
