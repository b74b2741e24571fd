"""The heads of whole documents restated from their formulas: float64, one document at a time, loops for sums.

Imported inside an engine's image, beside the package ``heads``.
"""

from __future__ import annotations

import json
import math
import sys
from types import SimpleNamespace
from typing import Any

import heads
import torch
from encoder.errors import BadCheckpoint
from heads.windows_batch import Windows

HIDDEN, LAYERS, QUERY, LONGEST = 32, 3, 8, 231
# A sixth of the published geometry, with the same numbers of windows: 19 (sliding) and 3 (disjoint).
GEOMETRY = {"sliding": (24, 12), "disjoint": (77, 77)}
LENGTHS = (0, 0, 1, 2, 3, 11, 12, 13, 23, 24, 25, 36, 37, 48, 49, 76, 77, 78, 153, 154, 155, 230, 231)
# Padded to the longest, each of these has all windows.
PADDED = (0, 1, 12, 25, 37, 78, 154, 231)
QUERIES = (0, 1, 7, 8)
TRANSFORMER = {
    "model_type": "bert",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
SIZES = {
    "parade-transformer-rand": {"aggregator": {**TRANSFORMER, "hidden_size": HIDDEN}},
    "parade-transformer-rand separators": {"aggregator": {**TRANSFORMER, "hidden_size": HIDDEN}},
    "parade-transformer-pretr": {"aggregator": {**TRANSFORMER, "hidden_size": 16}},
    "parade-transformer-pretr separators": {"aggregator": {**TRANSFORMER, "hidden_size": 16}},
    "lateir": {
        "interaction": {**TRANSFORMER, "hidden_size": 24, "num_attention_heads": 3},
        "aggregator": {**TRANSFORMER, "hidden_size": 16},
    },
}


def config(name: str) -> Any:
    """A checkpoint's configuration."""
    return SimpleNamespace(hidden_size=HIDDEN, num_hidden_layers=LAYERS - 1, **SIZES.get(name, {}))


def cut(length: int, split: str, pad: str) -> list[tuple[int, int, int]]:
    """Windows of a document: first token, real tokens, tokens with padding."""
    window, stride = GEOMETRY[split]
    whole = LONGEST if pad == "s3" else length
    if split == "disjoint":
        chunks = max(1, math.ceil(whole / window))
        window = stride = math.ceil(whole / chunks)
    else:
        chunks = math.ceil(max(0, whole - window) / stride) + 1
    starts = [number * stride for number in range(chunks)]
    real = [max(0, min(length - start, window)) for start in starts]
    return [(start, count, window if pad == "s3" else count) for start, count in zip(starts, real, strict=True)]


class Pairs:
    """Documents of all lengths with one query: random states of every window, made document by document."""

    def __init__(self, lengths: tuple[int, ...], query: int, split: str, pad: str, *, apart: bool, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.query, self.pad, self.apart = query, pad, apart
        self.rows = QUERY if pad == "s3" else query
        self.asked = torch.randn(self.rows + 3, HIDDEN, generator=draw)
        self.lengths = lengths
        before = 2 if apart else self.rows + 2
        self.documents = [
            [
                (real, torch.randn(LAYERS, before + wide + 1, HIDDEN, generator=draw))
                for _, real, wide in cut(each, split, pad)
            ]
            for each in lengths
        ]
        self.before = before

    def present(self, real: int, length: int) -> list[bool]:
        """The attention mask of one window."""
        query = [] if self.apart else [number < self.query for number in range(self.rows)]
        document = [number < real for number in range(length - self.before - 1)]
        return [True, *([True] if self.apart else query), *([] if self.apart else [True]), *document, True]

    def query_present(self) -> list[bool]:
        """The attention mask of the query alone."""
        return [True, True, *(number < self.query for number in range(self.rows)), True]

    def batch(self, chosen: list[int]) -> Windows:
        """These documents as one micro-batch, filled up with noise."""
        flat = [(pair, *window) for pair, number in enumerate(chosen) for window in self.documents[number]]
        longest = max(states.shape[1] for _, _, states in flat)
        states = 50 * torch.randn(LAYERS, len(flat), longest, HIDDEN)
        mask = torch.zeros(len(flat), longest, dtype=torch.int64)
        document_mask = torch.zeros_like(mask)
        for row, (_, real, own) in enumerate(flat):
            states[:, row, : own.shape[1]] = own
            mask[row, : own.shape[1]] = torch.tensor(self.present(real, own.shape[1]), dtype=torch.int64)
            document_mask[row, self.before : self.before + real] = 1
        return Windows(
            states,
            mask,
            torch.tensor([pair for pair, _, _ in flat]),
            len(chosen),
            slice(1, 1) if self.apart else slice(1, 1 + self.rows),
            slice(self.before, longest - 1),
            document_mask,
            self.asked[None, None] if self.apart else None,
            torch.tensor([self.query_present()], dtype=torch.int64) if self.apart else None,
        )


class Encoded(Pairs):
    """One document and its query, encoded by transformers window by window, cut and padded as the papers' code does."""

    def __init__(
        self, model: Any, query: list[int], document: list[int], split: str, pad: str, *, apart: bool, filler: int
    ) -> None:
        cls, sep = (1, 2) if model.config.model_type == "deberta-v2" else (2, 3)
        longest = LONGEST if pad == "s3" else len(document)
        self.query, self.pad, self.apart, self.lengths = len(query), pad, apart, (len(document),)
        self.rows = QUERY if pad == "s3" else len(query)
        self.before = 2 if apart else self.rows + 2
        asked = query + [filler] * (self.rows - len(query))
        whole = document + [filler] * (longest - len(document))

        def states(ids: list[int], present: list[bool], second: int) -> Any:
            types = [0] * (len(ids) - second) + [1] * second
            batch = [torch.tensor([each]) for each in (ids, [int(each) for each in present], types)]
            with torch.inference_mode():
                found = model(batch[0], attention_mask=batch[1], token_type_ids=batch[2], output_hidden_states=True)
            return torch.stack(found.hidden_states)[:, 0]

        windows = []
        for start, real, wide in cut(len(document), split, pad):
            part = whole[start : start + wide]
            part += [filler] * (wide - len(part))
            before = [cls, sep] if apart else [cls, *asked, sep]
            ids = [*before, *part, sep]
            windows.append((real, states(ids, self.present(real, len(ids)), len(part) + 1)))
        self.documents = [windows]
        if apart:
            self.asked = states([cls, sep, *asked, sep], self.query_present(), 0)[-1]


def linear(state: dict[str, Any], name: str, vector: torch.Tensor) -> torch.Tensor:
    return vector @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def norm(state: dict[str, Any], name: str, vector: torch.Tensor) -> torch.Tensor:
    centred = vector - vector.mean(-1, keepdim=True)
    return (
        centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-12).sqrt() * state[f"{name}.weight"]
        + state[f"{name}.bias"]
    )


def bert(state: dict[str, Any], name: str, fields: dict[str, Any], sequence: list[Any], segments: list[int]) -> Any:
    """The first vector of BERT's last layer; ``None`` in the sequence is masked padding, which keeps its position."""
    positions = state[f"{name}.embeddings.position_embeddings.weight"]
    types = state[f"{name}.embeddings.token_type_embeddings.weight"]
    present = [place for place, vector in enumerate(sequence) if vector is not None]
    given = torch.stack([sequence[place] + positions[place] + types[segments[place]] for place in present])
    now = norm(state, f"{name}.embeddings.LayerNorm", given)
    size = fields["hidden_size"] // fields["num_attention_heads"]
    for number in range(fields["num_hidden_layers"]):
        layer = f"{name}.encoder.layer.{number}"
        query, key, value = (linear(state, f"{layer}.attention.self.{part}", now) for part in ("query", "key", "value"))
        contexts = []
        for start in range(0, fields["hidden_size"], size):
            part = slice(start, start + size)
            weights = (query[:, part] @ key[:, part].T / math.sqrt(size)).softmax(1)
            contexts.append(weights @ value[:, part])
        attended = linear(state, f"{layer}.attention.output.dense", torch.cat(contexts, 1))
        middle = norm(state, f"{layer}.attention.output.LayerNorm", attended + now)
        wide = linear(state, f"{layer}.intermediate.dense", middle)
        wide = wide * 0.5 * (1 + torch.erf(wide / math.sqrt(2)))
        outer = linear(state, f"{layer}.output.dense", wide)
        now = norm(state, f"{layer}.output.LayerNorm", outer + middle)
    return now[0]


def aggregated(state: dict[str, Any], fields: dict[str, Any], vectors: list[Any]) -> Any:
    if "proj_out.weight" in state:
        vectors = [linear(state, "proj_out", each) for each in vectors]
    cls, sep = state["bert_aggreg_cls_embed"], state.get("bert_aggreg_sep_embed")
    if sep is None:  # the papers' input: [CLS], then a vector for each window
        sequence = [cls, *vectors]
        return linear(state, "cls", bert(state, "bert_aggreg", fields["aggregator"], sequence, [0] * len(sequence)))
    segments = [0, 0, *(1 for _ in vectors), 0]
    return linear(state, "cls", bert(state, "bert_aggreg", fields["aggregator"], [cls, sep, *vectors, sep], segments))


def interacted(state: dict[str, Any], fields: dict[str, Any], pairs: Pairs, real: int, window: Any) -> Any:
    def projected(vector: Any) -> Any:
        return linear(state, "proj_agg", vector) if "proj_agg.weight" in state else vector

    cls, sep = state["bert_interact_cls_embed"], state["bert_interact_sep_embed"]
    asked = [
        projected(each) if here else None
        for each, here in zip(pairs.asked.double(), pairs.query_present(), strict=True)
    ]
    part = [
        projected(each) if here else None
        for each, here in zip(window[-1].double(), pairs.present(real, window.shape[1]), strict=True)
    ]
    sequence = [cls, sep, *asked, sep, *part, sep]
    return bert(state, "bert_interact", fields["interaction"], sequence, [0] * len(sequence))


def matrix(pairs: Pairs, windows: list[Any], padding: str) -> tuple[list[Any], list[bool], bool]:
    """Cosines (query rows, columns) of each layer; which rows are counted; whether one lies at a bin's border."""
    everything = padding == "s3"
    used = QUERY if everything else pairs.query
    layers, border = [], False
    for layer in range(LAYERS):
        columns = []
        for real, states in windows:
            wide = states.shape[1] - pairs.before - 1
            columns += [states[layer, pairs.before + place] for place in range(wide if everything else real)]
        rows = torch.zeros(QUERY, len(columns), dtype=torch.float64)
        for row in range(used if columns else 0):
            asked, others = windows[0][1][layer, 1 + row].double(), torch.stack(columns).double()
            rows[row] = others @ asked / (others.norm(dim=1) * asked.norm())
        place = (rows[:used] + 1.000001) * 5
        border |= bool(((place - place.round()).abs() < 1e-5).any())
        layers.append(rows)
    return layers, [row < used and len(columns) > 0 for row in range(QUERY)], border


def cedr(kind: str, state: dict[str, Any], pairs: Pairs, number: int, padding: str) -> tuple[Any, bool]:
    windows = pairs.documents[number]
    layers, counted, border = matrix(pairs, windows, padding)
    total = sum(states[-1, 0].double() for _, states in windows)
    chunks = max(1, math.ceil(pairs.lengths[number] / GEOMETRY["disjoint"][0]))
    cls = total / chunks
    if kind == "cedr-knrm":
        features = []
        for kernel in range(11):
            mu, sigma = state[f"kernels.kernels.{kernel}.mu"], state[f"kernels.kernels.{kernel}.sigma"]
            for rows in layers:
                terms = [rows[row] for row in range(QUERY) if counted[row]]
                features.append(
                    sum(
                        (torch.log(torch.exp(-((row - mu) ** 2) / (2 * sigma**2)).sum() + 1e-6) for row in terms),
                        torch.tensor(0.0),
                    )
                )
        return linear(state, "combine", torch.cat([torch.stack(features), cls])), False
    if kind == "cedr-drmm":
        score = torch.zeros(1, dtype=torch.float64)
        for row in range(QUERY):
            features = []
            for which in range(11):
                for rows in layers:
                    count = (
                        sum(int((value + 1.000001) / 2 * 10) == which for value in rows[row].tolist())
                        if counted[row]
                        else 0
                    )
                    features.append(math.log(count + 1e-5))
            inner = linear(state, "hidden_1", torch.cat([torch.tensor(features, dtype=torch.float64), cls]))
            score = score + linear(state, "hidden_2", inner.clamp(min=0))
        return score, border
    best = []
    for row in range(QUERY):
        for gram in (1, 2, 3):
            weight, bias = state[f"ngrams.{gram - 1}.conv.weight"], state[f"ngrams.{gram - 1}.conv.bias"]
            around = torch.zeros(LAYERS, QUERY + gram, layers[0].shape[1] + gram, dtype=torch.float64)
            around[:, :QUERY, : layers[0].shape[1]] = torch.stack(layers)
            # Each column's square of gram rows and gram columns, flat.
            patches = around[:, row : row + gram].unfold(2, gram, 1).permute(2, 0, 1, 3).flatten(1)[:-1]
            values = [0.0, 0.0, *(patches @ weight.flatten(1).T + bias).amax(1).clamp(min=0).tolist()]
            best += sorted(values, reverse=True)[:2]
    inner = linear(state, "linear1", torch.cat([torch.tensor(best, dtype=torch.float64), cls])).clamp(min=0)
    return linear(state, "linear3", linear(state, "linear2", inner).clamp(min=0)), False


def parade(kind: str, state: dict[str, Any], vectors: list[Any]) -> Any:
    if kind == "parade-avg":
        return linear(state, "cls", sum(vectors) / len(vectors))
    if kind == "parade-max":
        largest = torch.tensor(
            [max(float(each[place]) for each in vectors) for place in range(HIDDEN)], dtype=torch.float64
        )
        return linear(state, "cls", largest)
    if "att.weight" in state:
        logits = [linear(state, "att", each) for each in vectors]
        total = sum(torch.exp(each) for each in logits)
        return linear(
            state, "cls", sum(torch.exp(logit) / total * each for logit, each in zip(logits, vectors, strict=True))
        )
    scalars = [math.exp(float(state["cls_weight"] @ each)) for each in vectors]
    return linear(
        state, "cls", sum(weight / sum(scalars) * each for weight, each in zip(scalars, vectors, strict=True))
    )


def expected(name: str, head: Any, pairs: Pairs, number: int, padding: str) -> tuple[float, bool]:
    """The score of one document, and whether rounding may move it (a cosine at a histogram's border)."""
    state = {key: value.double() for key, value in head.state_dict().items()}
    windows = pairs.documents[number]
    firsts = [states[-1, 0].double() for _, states in windows]
    if name.startswith("cedr"):
        score, border = cedr(name, state, pairs, number, padding)
        return float(score), border
    if name == "lateir":
        firsts = [interacted(state, SIZES[name], pairs, real, states) for real, states in windows]
    if name == "lateir" or name.startswith("parade-transformer"):
        return float(aggregated(state, SIZES[name], firsts)), False
    return float(parade(name.partition(" ")[0], state, firsts)), False


NAMES = (
    "parade-avg",
    "parade-max",
    "parade-attn scalar",
    "parade-attn per_dimension",
    "parade-transformer-rand",
    "parade-transformer-rand separators",
    "parade-transformer-pretr",
    "parade-transformer-pretr separators",
    "lateir",
    "cedr-knrm",
    "cedr-drmm",
    "cedr-pacrr",
)


class Tensors(dict[str, torch.Tensor]):
    """A checkpoint's tensors; ``lacks`` is raised for one that is missing, as the reader of checkpoints does."""

    @property
    def names(self) -> list[str]:
        return sorted(self)

    def __call__(self, name: str) -> torch.Tensor:
        if name not in self:
            raise BadCheckpoint(f"lacks {name}")
        return self[name]


class Shapes(Tensors):
    """Makes a random tensor of the shape that the head needs, whatever it asks for."""

    def __init__(self, shapes: dict[str, Any]) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(5)
        for name, own in shapes.items():
            noise = torch.randn(own.shape, generator=draw)
            if name.startswith("kernels."):
                self[name] = own.clone() * (1 + 0.02 * noise)
            else:
                scale = {"combine": 0.02, "hidden_1": 0.1}.get(name.partition(".")[0], 0.3)
                self[name] = (1.0 if name.endswith("LayerNorm.weight") else 0.0) + scale * noise


def parameters(name: str, pad: str, padding: str) -> dict[str, Any]:
    """The system's parameters that heads read."""
    which = name.partition(" ")[2]
    return {
        "attention": "per_dimension" if which == "per_dimension" else "scalar",
        "separators": which == "separators",
        "pad_windows": pad,
        "interaction_padding": padding,
        "query_tokens": QUERY,
        "window": GEOMETRY["disjoint"][0],
    }


def shapes(name: str) -> dict[str, Any]:
    """The tensors of a head, by the names of its published checkpoints."""
    head_class = heads.find(aggregation(name))
    module = sys.modules[head_class.__module__]
    reading = vars(module)["read_strictly"]
    vars(module)["read_strictly"] = lambda *_: None
    try:
        return head_class(config(name), Tensors(), parameters(name, "real", "masked")).state_dict()
    finally:
        vars(module)["read_strictly"] = reading


def aggregation(name: str) -> str:
    kind = name.partition(" ")[0]
    return "parade-transformer" if kind.startswith("parade-transformer") else kind


def make(name: str, pad: str, tensors: Tensors, padding: str = "masked") -> Any:
    """A head over tensors, as the engine makes it."""
    return heads.find(aggregation(name))(config(name), tensors, parameters(name, pad, padding)).eval()


def compare(name: str, pad: str, padding: str) -> dict[str, Any]:
    """Score documents of all lengths with queries of all lengths; hold them to the formulas, alone and in batches."""
    head = make(name, pad, Shapes(shapes(name)), padding)
    lengths = LENGTHS if pad == "real" else PADDED
    differences, apart, left_out, scores = [0.0], [0.0], 0, []
    for query in QUERIES:
        pairs = Pairs(lengths, query, head.split, pad, apart=head.apart, seed=query)
        order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(query)).tolist()
        with torch.inference_mode():
            found = head(pairs.batch(list(range(len(lengths)))))
            for size in (1, 2, 16) if query in (1, 8) else ():
                for start in range(0, len(order), size):
                    chosen = order[start : start + size]
                    apart.append(float((head(pairs.batch(chosen)) - found[chosen]).abs().max()))
        for number in range(len(lengths)):
            score, border = expected(name, head, pairs, number, padding)
            left_out += border
            differences += [] if border else [abs(score - float(found[number]))]
            scores.append(score)
    return {
        "pairs": len(scores),
        "left_out": left_out,
        "difference": max(differences),
        "batches": max(apart),
        "spread": float(torch.tensor(scores).std()),
    }


def engine_differs(kind: str, pad: str, assets: Any, corpus: Any, index: Any) -> tuple[float, float, int]:
    """Score a corpus by the engine and by the formulas over windows encoded one by one.

    Returns:
        The largest difference, the scores' standard deviation, the number of pairs.
    """
    import adapter
    from transformers import AutoModel

    from checkpoints import rerank_heads
    from harness.driver.records import Envelope

    aggregation = kind
    for suffix in ("-per-dimension", "-deberta", "-electra", "-separators", "-rand-l2", "-pretr-l6"):
        aggregation = aggregation.removesuffix(suffix)
    name, cedr_s3 = f"{kind}-{pad}", pad == "s3" and kind.startswith("cedr")
    texts = [document.text for document in corpus]
    rerank_heads.make(assets / name, kind, texts=texts, query_tokens=QUERY)
    declared = json.loads((assets / name / "config.json").read_text())
    split = "disjoint" if kind.startswith("cedr") else "sliding"
    window, stride = GEOMETRY[split]
    params = {"model": name, "document_tokens": LONGEST, "query_tokens": QUERY, "aggregation": aggregation}
    params |= {"window": window, "stride": stride, "pad_windows": pad, "batch_tokens": 700}
    params |= {"attention": "per_dimension" if kind.endswith("per-dimension") else "scalar"}
    params |= {"separators": kind.endswith("separators")}
    params |= {"interaction_padding": "s3" if cedr_s3 else "masked"}
    engine = adapter.ENGINE(params, Envelope("test", 1, 1 << 30), assets)
    (index / name).mkdir()
    engine.build(corpus, index / name, lambda _: None)
    engine.load(index / name)
    model = AutoModel.from_pretrained(assets / name).eval()
    head = engine._scorer._head
    tokens = engine._tokens
    SIZES[aggregation] = declared
    differences, scores = [0.0], []
    for query in ("", "ice", "river " * QUERY):
        found = engine.score(query, engine.doc_ids())
        asked = tokens.many_ids([query], QUERY)[0]
        for text, score in zip(texts, found, strict=True):
            document = tokens.many_ids([text], LONGEST)[0]
            one = Encoded(model, asked, document, split, pad, apart=head.apart, filler=1 if cedr_s3 else 0)
            wanted, border = expected(aggregation, head, one, 0, params["interaction_padding"])
            differences += [] if border else [abs(wanted - score)]
            scores.append(wanted)
    return max(differences), float(torch.tensor(scores).std()), len(scores)
