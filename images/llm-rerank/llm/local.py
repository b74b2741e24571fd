"""A causal language model of this process (PyTorch, transformers): answers, likelihoods of queries, judgements."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from llm.prompts import Message
from llm.tokens import ChatTokens, ScoredPrompt
from llm.transport import Completion

# What can be wrong with a tensor, and where transformers lists it.
_TENSORS = (("lacks", "missing_keys"), ("has an unknown", "unexpected_keys"), ("misshapes", "mismatched_keys"))


@dataclass(frozen=True)
class ModelShape:
    """The numbers of a decoder that its work depends on."""

    layers: int
    hidden: int
    positions: int

    def flop(self, tokens: int) -> int:
        """Return the analytic FLOP of one sequence: ``layers n (24 H^2 + 4 n H)``.

        The formula is that of an encoder with a feed-forward layer of 4 H, so that all rerankers compare by one
        rule.  Gated layers, shared keys, the causal mask and the output layer are left out.
        """
        return self.layers * tokens * (24 * self.hidden**2 + 4 * tokens * self.hidden)

    def generation_flop(self, prompt: int, written: int) -> int:
        """Return the FLOP of a prompt and of tokens that are written one by one after it."""
        # The last token is written and never read.
        lengths = range(prompt + 1, prompt + written)
        each = sum(self.layers * (24 * self.hidden**2 + 4 * length * self.hidden) for length in lengths)
        return self.flop(prompt) + each


@dataclass(frozen=True)
class PromptWork:
    """The work of scoring prompts: tokens fed, tokens computed with padding, forward passes, FLOP."""

    tokens: int = 0
    padded_tokens: int = 0
    calls: int = 0
    flop: int = 0


class LocalModel:
    """A checkpoint in a prepared folder; it is the local transport.

    Args:
        folder: the checkpoint.
        dtype: ``float32`` or ``bfloat16``, of weights and arithmetic.
        threads: of PyTorch.
        device: ``cpu`` or ``cuda``.
        max_new_tokens: of an answer.

    Raises:
        ValueError: there is no checkpoint, or it is not read tensor by tensor.
    """

    def __init__(self, folder: Path, *, dtype: str, threads: int, device: str, max_new_tokens: int) -> None:
        import torch

        torch.set_num_threads(threads)
        if torch.get_num_interop_threads() != 1:  # it may be set once in a process
            torch.set_num_interop_threads(1)
        self._model = load(folder, dtype).to(device)
        self.tokens = ChatTokens(folder)
        self._device = device
        self._name = folder.name
        self._max_new_tokens = max_new_tokens
        config = self._model.config
        self.parameters = sum(each.numel() for each in self._model.parameters())
        self.shape = ModelShape(config.num_hidden_layers, config.hidden_size, config.max_position_embeddings)

    def __call__(self, messages: Sequence[Message]) -> Completion:
        """Write the answer greedily: at each place the likeliest token.

        Raises:
            ValueError: the conversation and its answer do not fit the model.
        """
        import torch

        start = time.perf_counter()
        ids = self.tokens.chat(messages)
        self._check(len(ids) + self._max_new_tokens, "a window", "a smaller passage_words or window")
        tokenised = time.perf_counter()
        given = torch.tensor([ids], device=self._device)
        with torch.inference_mode():
            written = self._model.generate(
                given,
                attention_mask=torch.ones_like(given),
                do_sample=False,
                temperature=None,
                top_p=None,
                top_k=None,
                repetition_penalty=1.0,
                max_new_tokens=self._max_new_tokens,
                pad_token_id=0,  # of a batch of one, never written
            )[0, len(ids) :].tolist()
        generated = time.perf_counter()
        text = self.tokens.text(written)
        spent = tokenised - start + time.perf_counter() - generated
        flop = self.shape.generation_flop(len(ids), len(written))
        return Completion(text, len(ids), len(written), tokenise_s=spent, flop=flop)

    def likelihoods(self, prompts: Sequence[ScoredPrompt], batch_tokens: int) -> tuple[list[float], PromptWork]:
        """Return the mean log-likelihood of each prompt's scored tokens, given all tokens before them.

        A prompt without scored tokens gets 0, and no work.

        Raises:
            ValueError: a prompt does not fit the model.
        """
        asked = [number for number, each in enumerate(prompts) if each.query_start < len(each.ids)]

        def found(ids: Any, batch: Sequence[int]) -> list[float]:
            return self._mean_likelihoods(ids, [prompts[number] for number in batch])

        return self._in_batches([each.ids for each in prompts], asked, batch_tokens, found)

    def judgements(
        self, prompts: Sequence[list[int]], answers: tuple[int, int], batch_tokens: int
    ) -> tuple[list[float], PromptWork]:
        """Return by how much the first of two tokens is a likelier answer to each prompt than the second (logits).

        Raises:
            ValueError: a prompt does not fit the model.
        """
        import torch

        def found(ids: Any, batch: Sequence[int]) -> list[float]:
            lasts = torch.tensor([len(prompts[number]) - 1 for number in batch], device=self._device)
            logits = self._logits(ids, torch.arange(len(batch), device=self._device), lasts)[:, list(answers)]
            return [float(each) for each in logits[:, 0] - logits[:, 1]]

        return self._in_batches(prompts, range(len(prompts)), batch_tokens, found)

    def _in_batches(
        self,
        prompts: Sequence[list[int]],
        asked: Sequence[int],
        batch_tokens: int,
        forward: Callable[[Any, Sequence[int]], list[float]],
    ) -> tuple[list[float], PromptWork]:
        """Score the prompts of these numbers, the others 0.

        Prompts of like length share a forward pass of at most ``batch_tokens`` tokens, padding included, or of one
        prompt.  Padding lies behind the text, where causal attention does not see it.
        """
        import torch

        scores = [0.0] * len(prompts)
        tokens = padded = calls = flop = 0
        for batch in _batches(prompts, asked, batch_tokens):
            width = len(prompts[batch[-1]])
            self._check(width, "a document", "a smaller passage_words")
            rows = [prompts[number] + [0] * (width - len(prompts[number])) for number in batch]
            with torch.inference_mode():
                found = forward(torch.tensor(rows, device=self._device), batch)
            for number, score in zip(batch, found, strict=True):
                scores[number] = score
            tokens += sum(len(prompts[number]) for number in batch)
            padded += width * len(batch)
            calls += 1
            flop += self.shape.flop(width) * len(batch)
        return scores, PromptWork(tokens, padded, calls, flop)

    def _mean_likelihoods(self, ids: Any, batch: Sequence[ScoredPrompt]) -> list[float]:
        import torch

        scored = [(row, place) for row, each in enumerate(batch) for place in range(each.query_start, len(each.ids))]
        rows, places = torch.tensor(scored, device=self._device).T
        found = self._logits(ids, rows, places - 1).log_softmax(-1).gather(1, ids[rows, places].unsqueeze(1)).squeeze(1)
        sums = torch.zeros(len(batch), device=self._device).index_add_(0, rows, found)
        lengths = [len(each.ids) - each.query_start for each in batch]
        return [total / length for total, length in zip(sums.tolist(), lengths, strict=True)]

    def _logits(self, ids: Any, rows: Any, places: Any) -> Any:
        """Return the logits of the tokens after these places, float32 (places, vocabulary)."""
        # The output layer is wide: it runs at the places alone.
        hidden = self._model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[rows, places]
        return self._model.get_output_embeddings()(hidden).float()

    def _check(self, tokens: int, of: str, remedy: str) -> None:
        if tokens > self.shape.positions:
            raise ValueError(
                f"{self._name}: the prompt of {of} needs {tokens} tokens, the model has {self.shape.positions}; "
                f"set {remedy}"
            )

    def threads(self) -> dict[str, int]:
        """Return PyTorch's thread counts."""
        import torch

        return {"torch_intraop": torch.get_num_threads(), "torch_interop": torch.get_num_interop_threads()}

    def libraries(self) -> dict[str, str]:
        """Return the versions of the libraries that do the work."""
        return {name: version(name) for name in ("torch", "transformers", "tokenizers")}


def load(folder: Path, dtype: str) -> Any:
    """Read a checkpoint of transformers tensor by tensor.

    Raises:
        ValueError: there is none, or a tensor is missing, superfluous or of another shape; the first is named.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder.name}: no config.json; the parameter model names the folder of a checkpoint")
    try:
        model, read = AutoModelForCausalLM.from_pretrained(
            str(folder),
            dtype=getattr(torch, dtype),
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # so that they are listed
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ValueError(f"{folder.name}: no causal language model of transformers: {error}") from error
    for what, name in _TENSORS:
        if read.get(name):
            first = sorted(map(str, read[name]))[0]
            raise ValueError(f"{folder.name}: the checkpoint {what} tensor {first} ({len(read[name])} such)")
    return model.eval()


def _batches(prompts: Sequence[list[int]], asked: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Group the numbers of the prompts that are asked by length, ascending."""
    found: list[list[int]] = []
    for number in sorted(asked, key=lambda number: len(prompts[number])):
        # The newest is the longest: it sets the width of all.
        if found and (len(found[-1]) + 1) * len(prompts[number]) <= batch_tokens:
            found[-1].append(number)
        else:
            found.append([number])
    return found
