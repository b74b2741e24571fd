"""Heads that make one score of a text, or of a query and a text that it reads as a pair."""

from __future__ import annotations

from typing import Any

import torch
from transformers.activations import get_activation

from encoder.errors import BadCheckpoint
from encoder.heads import Given, Head, Tensors


def linear(tensors: Tensors, name: str, inputs: int, outputs: int | None = None, *, bias: bool = True) -> Any:
    """Return a linear layer of the checkpoint; ``outputs`` is the weight's own number of rows if not given.

    Raises:
        BadCheckpoint: a tensor is missing or has another shape.
    """
    weight = tensors(f"{name}.weight")
    layer = torch.nn.Linear(inputs, weight.shape[0] if outputs is None else outputs, bias=bias)
    return filled(layer, tensors, name)


def filled(layer: Any, tensors: Tensors, name: str) -> Any:
    """Fill a layer with the checkpoint's tensors ``<name>.weight`` and ``<name>.bias``, as far as it has them.

    Raises:
        BadCheckpoint: a tensor is missing or has another shape.
    """
    state = {}
    for part, own in layer.state_dict().items():
        state[part] = tensors(f"{name}.{part}")
        if state[part].shape != own.shape:
            shapes = f"{tuple(state[part].shape)}, the head needs {tuple(own.shape)}"
            raise BadCheckpoint(f"{name}.{part} has the shape {shapes}; it is no checkpoint of that head")
    layer.load_state_dict(state)
    return layer


def single(logits: torch.Tensor) -> torch.Tensor:
    """Make one score of a text's logits: the only one, or how far label 1 is above label 0 (the log-odds)."""
    scores = logits.to(torch.float32)
    return scores if scores.shape[1] == 1 else scores[:, 1:] - scores[:, :1]


def _check_labels(layer: torch.nn.Linear) -> None:
    if layer.out_features not in (1, 2):
        raise BadCheckpoint(f"the classifier has {layer.out_features} labels; a reranker has 1, or 2 (no and yes)")


class Linear(Head):
    """``Linear([CLS])`` over the last layer: ``cls.weight`` of shape (1, hidden) and ``cls.bias``."""

    reads = ("cls.weight", "cls.bias")

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:
        super().__init__(config, tensors, params)
        self.linear = linear(tensors, "cls", config.hidden_size, 1)

    def forward(self, given: Given) -> torch.Tensor:
        """Shape (texts, 1)."""
        return single(self.linear(given.states[:, 0]))


class LinearMean(Linear):
    """``Linear`` over the mean of the last layer's tokens, special ones included; tensors as :class:`Linear`."""

    def forward(self, given: Given) -> torch.Tensor:
        """Shape (texts, 1)."""
        weights = given.mask.unsqueeze(-1).to(given.states.dtype)
        return single(self.linear((given.states * weights).sum(1) / weights.sum(1)))


class Classifier(Head):
    """The classifier of the hub's ``...ForSequenceClassification`` classes, which differs by type of transformer."""

    reads = ("classifier.weight", "classifier.bias")
    pooler = True

    @classmethod
    def of(cls, model_type: str) -> type[Head]:
        """Return the classifier of a type of transformer.

        Raises:
            BadCheckpoint: there is none for it.
        """
        if model_type not in _CLASSIFIERS:
            raise BadCheckpoint(f"no classifier over a {model_type}; there are {', '.join(sorted(_CLASSIFIERS))}")
        return _CLASSIFIERS[model_type]

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:
        super().__init__(config, tensors, params)
        self.classifier = linear(tensors, "classifier", config.hidden_size)
        _check_labels(self.classifier)

    def forward(self, given: Given) -> torch.Tensor:
        """Shape (texts, 1): linear over the pooler's output (BERT, ERNIE)."""
        assert given.pooled is not None
        return single(self.classifier(given.pooled))


class TwoLayers(Head):
    """``out_proj(tanh(dense([CLS])))`` (RoBERTa, XLM-RoBERTa), with GELU in ELECTRA."""

    reads = ("classifier.dense.", "classifier.out_proj.")
    activation = "tanh"

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:
        super().__init__(config, tensors, params)
        self.dense = linear(tensors, "classifier.dense", config.hidden_size, config.hidden_size)
        self.act = get_activation(self.activation)
        self.out = linear(tensors, "classifier.out_proj", config.hidden_size)
        _check_labels(self.out)

    def forward(self, given: Given) -> torch.Tensor:
        """Shape (texts, 1)."""
        return single(self.out(self.act(self.dense(given.states[:, 0]))))


class ElectraClassifier(TwoLayers):
    """See :class:`TwoLayers`."""

    activation = "gelu"


class DebertaClassifier(Head):
    """``classifier(act(pooler.dense([CLS])))``: its pooler belongs to the classifier, and ``config.json`` names act."""

    reads = ("pooler.dense.", "classifier.weight", "classifier.bias")

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:
        super().__init__(config, tensors, params)
        self.dense = linear(tensors, "pooler.dense", config.hidden_size, config.pooler_hidden_size)
        self.act = get_activation(config.pooler_hidden_act)
        self.out = linear(tensors, "classifier", config.pooler_hidden_size)
        _check_labels(self.out)

    def forward(self, given: Given) -> torch.Tensor:
        """Shape (texts, 1)."""
        return single(self.out(self.act(self.dense(given.states[:, 0]))))


class DistilBertClassifier(Head):
    """``classifier(relu(pre_classifier([CLS])))``."""

    reads = ("pre_classifier.", "classifier.weight", "classifier.bias")

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:
        super().__init__(config, tensors, params)
        self.dense = linear(tensors, "pre_classifier", config.hidden_size, config.hidden_size)
        self.out = linear(tensors, "classifier", config.hidden_size)
        _check_labels(self.out)

    def forward(self, given: Given) -> torch.Tensor:
        """Shape (texts, 1)."""
        return single(self.out(torch.relu(self.dense(given.states[:, 0]))))


class ModernBertClassifier(Head):
    """``classifier(norm(act(dense(pooled))))``, pooled by the first token or the mean, as ``config.json`` says."""

    reads = ("head.dense.", "head.norm.", "classifier.")

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:
        super().__init__(config, tensors, params)
        size = config.hidden_size
        self.mean = config.classifier_pooling == "mean"
        self.dense = linear(tensors, "head.dense", size, size, bias=config.classifier_bias)
        self.act = get_activation(config.classifier_activation)
        norm = torch.nn.LayerNorm(size, eps=config.norm_eps, bias=config.norm_bias)
        self.norm = filled(norm, tensors, "head.norm")
        self.out = linear(tensors, "classifier", size)
        _check_labels(self.out)

    def forward(self, given: Given) -> torch.Tensor:
        """Shape (texts, 1)."""
        pooled = given.states[:, 0]
        if self.mean:
            weights = given.mask.unsqueeze(-1).to(given.states.dtype)
            pooled = (given.states * weights).sum(1) / weights.sum(1)
        return single(self.out(self.norm(self.act(self.dense(pooled)))))


class Modules(Head):
    """The chain of modules of the Ettin rerankers: ``Linear(norm(gelu(dense([CLS]))))``, each in a folder of its own.

    Saved by sentence-transformers as ``2_Dense``, ``3_LayerNorm`` and ``4_Dense`` beside a transformer without a head.
    """

    parts = ("2_Dense", "3_LayerNorm", "4_Dense")
    reads = ("2_Dense.linear.weight", "3_LayerNorm.norm.", "4_Dense.linear.")

    def __init__(self, config: Any, tensors: Tensors, params: dict[str, Any]) -> None:
        super().__init__(config, tensors, params)
        size = config.hidden_size
        self.dense = linear(tensors, "2_Dense.linear", size, size, bias=False)
        self.norm = filled(torch.nn.LayerNorm(size), tensors, "3_LayerNorm.norm")
        self.out = linear(tensors, "4_Dense.linear", size, 1)

    def forward(self, given: Given) -> torch.Tensor:
        """Shape (texts, 1)."""
        hidden = torch.nn.functional.gelu(self.dense(given.states[:, 0]))
        return single(self.out(self.norm(hidden)))


_CLASSIFIERS: dict[str, type[Head]] = {
    "bert": Classifier,
    "deberta-v2": DebertaClassifier,
    "ernie": Classifier,
    "distilbert": DistilBertClassifier,
    "electra": ElectraClassifier,
    "modernbert": ModernBertClassifier,
    "roberta": TwoLayers,
    "xlm-roberta": TwoLayers,
}
HEADS: dict[str, type[Head]] = {
    "linear": Linear,
    "linear_mean": LinearMean,
    "classifier": Classifier,
    "modules": Modules,
}
